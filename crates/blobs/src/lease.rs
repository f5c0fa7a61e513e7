//! Leases: the permitted operations on a blob or container while a client holds a lease on it.
//!
//! A lease is stored as it was set. Its state follows from that and the current time, which is an argument.

use std::fmt;
use std::time::Duration;

use peeklock_types::Timestamp;
use uuid::Uuid;
use uuid::fmt::{Hyphenated, Simple};

/// The GUID of a lease. A client that sends it holds the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u128);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lease id is a GUID, such as 1f812371-a41d-49e6-b123-f4b542e851c5")]
pub struct LeaseIdError;

/// A lease on a blob or container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub id: LeaseId,
    pub term: LeaseTerm,
}

/// The duration of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseTerm {
    Infinite,
    /// The lease expires at `until`. A renewal extends it to the time of the renewal plus `span`.
    Fixed {
        span: Duration,
        until: Timestamp,
    },
    /// The lease was broken, and stays valid until this time.
    Breaking {
        until: Timestamp,
    },
}

/// The state of a lease at a given time, in the terms of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// There is no lease.
    Available,
    Leased {
        is_infinite: bool,
    },
    Expired,
    Breaking,
    Broken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    Acquire {
        id: LeaseId,
        span: LeaseSpan,
    },
    Renew {
        id: LeaseId,
    },
    Change {
        id: LeaseId,
        proposed: LeaseId,
    },
    Release {
        id: LeaseId,
    },
    /// Without a period, a fixed lease stays valid until its end, and an infinite lease ends at once.
    Break {
        period: Option<Duration>,
    },
}

/// The requested duration of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseSpan {
    Infinite,
    Fixed(Duration),
}

/// The reason why a lease rejects a request, or is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    #[error("there is already a lease; send its id, or wait until it ends")]
    AlreadyPresent,
    #[error("the lease has another id, or there is no lease")]
    IdMismatchWithLeaseOperation,
    #[error("there is no lease; acquire one first")]
    NotPresentWithLeaseOperation,
    #[error("the lease is being broken and cannot be acquired until it has ended")]
    BreakingAndCannotBeAcquired,
    #[error("the lease is being broken and cannot be changed")]
    BreakingAndCannotBeChanged,
    #[error("the lease was broken and cannot be renewed; acquire a new one")]
    BrokenAndCannotBeRenewed,
    #[error("there is a lease, and the request has no lease id; send it in x-ms-lease-id")]
    IdMissing,
    #[error("the lease has another id than the one in the request")]
    IdMismatch,
    #[error("the request has a lease id, and there is no lease; send it without x-ms-lease-id")]
    NotPresent,
    #[error("the lease in the request has ended; acquire it again")]
    Lost,
}

impl LeaseId {
    /// Parses the forms of .NET's `Guid`: digits alone, with hyphens, and those in braces or parentheses.
    pub fn parse(text: &str) -> Result<Self, LeaseIdError> {
        let enclosed = ["{}", "()"].iter().find_map(|pair| {
            let (open, close) = pair.split_at(1);
            text.strip_prefix(open)?.strip_suffix(close)
        });
        let fits = match enclosed {
            Some(inner) => inner.len() == Hyphenated::LENGTH,
            None => [Hyphenated::LENGTH, Simple::LENGTH].contains(&text.len()),
        };
        let parsed = fits.then(|| Uuid::try_parse(enclosed.unwrap_or(text)).ok()).flatten();
        parsed.map(|id| LeaseId(id.as_u128())).ok_or(LeaseIdError)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Uuid::from_u128(self.0), f)
    }
}

impl LeaseState {
    pub fn of(lease: Option<&Lease>, now: Timestamp) -> Self {
        match lease.map(|lease| lease.term) {
            None => LeaseState::Available,
            Some(LeaseTerm::Infinite) => LeaseState::Leased { is_infinite: true },
            Some(LeaseTerm::Fixed { until, .. }) if now < until => LeaseState::Leased { is_infinite: false },
            Some(LeaseTerm::Fixed { .. }) => LeaseState::Expired,
            Some(LeaseTerm::Breaking { until }) if now < until => LeaseState::Breaking,
            Some(LeaseTerm::Breaking { .. }) => LeaseState::Broken,
        }
    }

    /// Returns whether changes need the lease id.
    pub fn is_locked(self) -> bool {
        matches!(self, LeaseState::Leased { .. } | LeaseState::Breaking)
    }
}

impl Lease {
    /// Returns the lease with a later end, if it ends after `before`.
    pub(crate) fn extended(self, before: Timestamp, by: Duration) -> Option<Lease> {
        let term = match self.term {
            LeaseTerm::Fixed { span, until } if until > before => {
                LeaseTerm::Fixed { span, until: until + by }
            }
            LeaseTerm::Breaking { until } if until > before => LeaseTerm::Breaking { until: until + by },
            LeaseTerm::Infinite | LeaseTerm::Fixed { .. } | LeaseTerm::Breaking { .. } => return None,
        };
        Some(Lease { term, ..self })
    }
}

impl LeaseTerm {
    fn of(span: LeaseSpan, now: Timestamp) -> Self {
        match span {
            LeaseSpan::Infinite => LeaseTerm::Infinite,
            LeaseSpan::Fixed(span) => LeaseTerm::Fixed { span, until: now + span },
        }
    }
}

/// Returns the lease after an action; the tables are those of Lease Blob and Lease Container.
pub(crate) fn next(
    current: Option<&Lease>,
    now: Timestamp,
    action: LeaseAction,
) -> Result<Option<Lease>, LeaseError> {
    match action {
        LeaseAction::Acquire { id, span } => acquire(current, now, id, span).map(Some),
        LeaseAction::Renew { id } => renew(current, now, id).map(Some),
        LeaseAction::Change { id, proposed } => change(current, now, id, proposed).map(Some),
        LeaseAction::Release { id } => {
            let is_its = current.is_some_and(|lease| lease.id == id);
            if is_its { Ok(None) } else { Err(LeaseError::IdMismatchWithLeaseOperation) }
        }
        LeaseAction::Break { period } => break_(current, now, period).map(Some),
    }
}

fn acquire(
    current: Option<&Lease>,
    now: Timestamp,
    id: LeaseId,
    span: LeaseSpan,
) -> Result<Lease, LeaseError> {
    let is_its = current.is_some_and(|lease| lease.id == id);
    match LeaseState::of(current, now) {
        LeaseState::Breaking if is_its => Err(LeaseError::BreakingAndCannotBeAcquired),
        state if state.is_locked() && !is_its => Err(LeaseError::AlreadyPresent),
        _ => Ok(Lease { id, term: LeaseTerm::of(span, now) }),
    }
}

fn renew(current: Option<&Lease>, now: Timestamp, id: LeaseId) -> Result<Lease, LeaseError> {
    let lease = current.filter(|lease| lease.id == id).ok_or(LeaseError::IdMismatchWithLeaseOperation)?;
    let span = match lease.term {
        LeaseTerm::Infinite => LeaseSpan::Infinite,
        LeaseTerm::Fixed { span, .. } => LeaseSpan::Fixed(span),
        LeaseTerm::Breaking { .. } => return Err(LeaseError::BrokenAndCannotBeRenewed),
    };
    Ok(Lease { id, term: LeaseTerm::of(span, now) })
}

fn change(
    current: Option<&Lease>,
    now: Timestamp,
    id: LeaseId,
    proposed: LeaseId,
) -> Result<Lease, LeaseError> {
    let Some(lease) = current.filter(|_| LeaseState::of(current, now).is_locked()) else {
        return Err(LeaseError::NotPresentWithLeaseOperation);
    };
    match lease.term {
        LeaseTerm::Breaking { .. } if lease.id == id => Err(LeaseError::BreakingAndCannotBeChanged),
        // A client may repeat a change whose answer it did not receive: the lease then has the proposed id already.
        LeaseTerm::Infinite | LeaseTerm::Fixed { .. } if lease.id == id || lease.id == proposed => {
            Ok(Lease { id: proposed, term: lease.term })
        }
        _ => Err(LeaseError::IdMismatchWithLeaseOperation),
    }
}

fn break_(current: Option<&Lease>, now: Timestamp, period: Option<Duration>) -> Result<Lease, LeaseError> {
    let lease = current.ok_or(LeaseError::NotPresentWithLeaseOperation)?;
    let asked = period.map(|period| now + period);
    let until = match lease.term {
        LeaseTerm::Infinite => asked.unwrap_or(now),
        // A break never makes a lease longer.
        LeaseTerm::Fixed { until, .. } | LeaseTerm::Breaking { until } => {
            asked.map_or(until, |asked| asked.min(until))
        }
    };
    Ok(Lease { id: lease.id, term: LeaseTerm::Breaking { until } })
}

/// Checks the lease id of a read. A request without a lease id may always read.
pub fn check_read(lease: Option<&Lease>, now: Timestamp, given: Option<LeaseId>) -> Result<(), LeaseError> {
    let Some(given) = given else { return Ok(()) };
    let is_its = lease.is_some_and(|lease| lease.id == given);
    match LeaseState::of(lease, now).is_locked() {
        true if is_its => Ok(()),
        true => Err(LeaseError::IdMismatch),
        false if is_its => Err(LeaseError::Lost),
        false => Err(LeaseError::NotPresent),
    }
}

/// Checks the lease id of a request that changes or deletes.
pub(crate) fn check_write(
    lease: Option<&Lease>,
    now: Timestamp,
    given: Option<LeaseId>,
) -> Result<(), LeaseError> {
    if given.is_none() && LeaseState::of(lease, now).is_locked() {
        return Err(LeaseError::IdMissing);
    }
    check_read(lease, now, given)
}

/// Returns the lease after a change of its blob or container: an expired or broken lease is removed, and cannot be
/// renewed.
pub(crate) fn after_change(lease: Option<Lease>, at: Timestamp) -> Option<Lease> {
    lease.filter(|_| LeaseState::of(lease.as_ref(), at).is_locked())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_guids_in_any_form() {
        let id = LeaseId(0x1f81_2371_a41d_49e6_b123_f4b5_42e8_51c5);
        assert_eq!(id.to_string(), "1f812371-a41d-49e6-b123-f4b542e851c5");
        for text in [
            "1f812371-a41d-49e6-b123-f4b542e851c5",
            "1F812371-A41D-49E6-B123-F4B542E851C5",
            "1f812371a41d49e6b123f4b542e851c5",
            "{1f812371-a41d-49e6-b123-f4b542e851c5}",
            "(1f812371-a41d-49e6-b123-f4b542e851c5)",
        ] {
            assert_eq!(LeaseId::parse(text), Ok(id), "{text}");
        }
        for text in [
            "",
            "x",
            "1f812371-a41d-49e6-b123-f4b542e851c",
            "1f812371a-41d-49e6-b123-f4b542e851c5",
            "{1f812371-a41d-49e6-b123-f4b542e851c5)",
            "{1f812371a41d49e6b123f4b542e851c5}",
            "+f812371a41d49e6b123f4b542e851c5",
            "1f812371-a41d-49e6-b123-f4b542e851cé",
        ] {
            assert_eq!(LeaseId::parse(text), Err(LeaseIdError), "{text}");
        }
    }
}
