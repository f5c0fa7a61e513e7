//! Facts as bytes: self-delimiting, so that a group holds one after the other.

use peeklock_types::GroupNumber;

use crate::fact::Fact;
use crate::wire::DecodeError;

/// Appends `fact` to `out`, as part of group `group`.
pub fn encode(fact: &Fact, group: GroupNumber, out: &mut Vec<u8>) {
    todo!()
}

/// Takes one fact off the front of `input`, which is part of group `group`.
pub fn decode(input: &mut &[u8], group: GroupNumber) -> Result<Fact, DecodeError> {
    todo!()
}
