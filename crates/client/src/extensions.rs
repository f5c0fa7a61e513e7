//! What a broker does beyond Service Bus. A broker offers it on each receiver link, so the client never depends on a host name.

use peeklock_amqp::{Attach, Symbol};

const DELAYED_ABANDON: Symbol = Symbol::from_static("peeklock:delayed-abandon");
const INTERRUPTED: Symbol = Symbol::from_static("peeklock:interrupted");
const SESSION_TURNS: Symbol = Symbol::from_static("peeklock:session-turns");

/// The capabilities that each receiver link desires.
pub(crate) const DESIRED: [Symbol; 3] = [DELAYED_ABANDON, INTERRUPTED, SESSION_TURNS];

/// What a broker does beyond Service Bus, as offered on one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extensions {
    /// It delays the next delivery of a message that is abandoned with a delay ([`Outcome::AbandonWith`](crate::Outcome::AbandonWith)).
    pub delays_abandoned: bool,
    /// It does not count an abandonment with the property [`INTERRUPTED_PROPERTY`](crate::INTERRUPTED_PROPERTY), up to a number of times.
    pub counts_interruptions: bool,
    /// It serves sessions in turn: a session that was let go is not the next one while others have waited for longer.
    pub serves_sessions_in_turn: bool,
}

impl Extensions {
    pub(crate) fn of(attach: &Attach) -> Self {
        let offers = |capability: &Symbol| attach.offered_capabilities.contains(capability);
        Extensions {
            delays_abandoned: offers(&DELAYED_ABANDON),
            counts_interruptions: offers(&INTERRUPTED),
            serves_sessions_in_turn: offers(&SESSION_TURNS),
        }
    }
}
