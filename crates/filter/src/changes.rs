//! The changes of an action to a subscription's copy of a message.

use bytes::Bytes;

use crate::system::SystemProperty;
use crate::value::{Value, ValueRef};
use crate::wire::{DecodeError, Decoder, put_text};

/// One change. Names of user properties ignore case ([`crate::same_name`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    SetUser {
        name: String,
        value: Value,
    },
    RemoveUser {
        name: String,
    },
    /// Sets a system property. Null clears it.
    SetSystem {
        property: SystemProperty,
        value: Value,
    },
}

/// The size of everything but the name and the value: a tag, a code, and two lengths of up to five bytes.
const CHANGE_OVERHEAD_BYTES: usize = 12;

impl Change {
    /// Returns an upper bound of the encoded size.
    pub(crate) fn size_bytes(&self) -> usize {
        CHANGE_OVERHEAD_BYTES
            + match self {
                Change::SetUser { name, value } => name.len() + value.size_bytes(),
                Change::RemoveUser { name } => name.len(),
                Change::SetSystem { value, .. } => value.size_bytes(),
            }
    }
}

const SET_USER: u8 = 0;
const REMOVE_USER: u8 = 1;
const SET_SYSTEM: u8 = 2;

/// The encoded form of a list of changes, to be applied in order.
#[derive(Clone, Copy, Debug)]
pub struct Changes;

impl Changes {
    pub fn encode(changes: &[Change]) -> Bytes {
        let mut out = Vec::new();
        changes.iter().for_each(|change| put_change(change, &mut out));
        out.into()
    }

    pub fn decode(bytes: &[u8]) -> Result<Vec<Change>, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let mut changes = Vec::new();
        while !decoder.rest.is_empty() {
            changes.push(read_change(&mut decoder)?);
        }
        Ok(changes)
    }
}

fn put_change(change: &Change, out: &mut Vec<u8>) {
    match change {
        Change::SetUser { name, value } => {
            out.push(SET_USER);
            put_text(name, out);
            value.encode(out);
        }
        Change::RemoveUser { name } => {
            out.push(REMOVE_USER);
            put_text(name, out);
        }
        Change::SetSystem { property, value } => {
            out.extend_from_slice(&[SET_SYSTEM, property.code()]);
            value.encode(out);
        }
    }
}

fn read_change(decoder: &mut Decoder<'_>) -> Result<Change, DecodeError> {
    const WHAT: &str = "a change of a property";
    match decoder.byte(WHAT)? {
        SET_USER => Ok(Change::SetUser {
            name: decoder.text(WHAT)?.to_owned(),
            value: ValueRef::decode(decoder)?.to_value(),
        }),
        REMOVE_USER => Ok(Change::RemoveUser { name: decoder.text(WHAT)?.to_owned() }),
        SET_SYSTEM => {
            let property = SystemProperty::of_code(decoder.byte(WHAT)?).ok_or(DecodeError::Value(WHAT))?;
            Ok(Change::SetSystem { property, value: ValueRef::decode(decoder)?.to_value() })
        }
        kind => Err(DecodeError::Unknown { of: "kind of a change", tag: kind.into() }),
    }
}
