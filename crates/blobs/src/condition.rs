use peeklock_types::{Etag, Timestamp};

use crate::lease::LeaseId;

/// The states for which a request is valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    pub if_match: Option<Tag>,
    pub if_none_match: Option<Tag>,
    pub if_modified_since: Option<Timestamp>,
    pub if_unmodified_since: Option<Timestamp>,
    /// The lease id of the request.
    pub lease_id: Option<LeaseId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// `*`: every state of an existing blob or container.
    Any,
    Is(Etag),
    /// An etag that this broker never issued: it matches nothing.
    Foreign,
}

impl Tag {
    fn fits(self, etag: Etag) -> bool {
        match self {
            Tag::Any => true,
            Tag::Is(given) => given == etag,
            Tag::Foreign => false,
        }
    }
}

impl Condition {
    /// Returns whether the blob or container must be new.
    pub fn is_new_only(&self) -> bool {
        self.if_none_match == Some(Tag::Any)
    }

    /// Returns whether the current state permits the change or the read.
    pub fn is_met(&self, etag: Etag, modified_at: Timestamp) -> bool {
        self.fits_wanted(etag, modified_at) && !self.is_unchanged(etag, modified_at)
    }

    /// Returns whether the required conditions hold. For a read, a failure is an error.
    pub fn fits_wanted(&self, etag: Etag, modified_at: Timestamp) -> bool {
        // Times in HTTP headers have whole seconds only.
        let modified_s = modified_at.as_millis() / 1000;
        self.if_match.is_none_or(|tag| tag.fits(etag))
            && self.if_unmodified_since.is_none_or(|at| modified_s <= at.as_millis() / 1000)
    }

    /// Returns whether the reader already has this state.
    pub fn is_unchanged(&self, etag: Etag, modified_at: Timestamp) -> bool {
        let modified_s = modified_at.as_millis() / 1000;
        // HTTP: an etag takes precedence over the time.
        match self.if_none_match {
            Some(tag) => tag.fits(etag),
            None => self.if_modified_since.is_some_and(|at| modified_s <= at.as_millis() / 1000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_and_times_decide_whether_a_condition_is_met() {
        let (etag, at) = (Etag(7), Timestamp::from_millis(10_500));
        let met = |condition: Condition| condition.is_met(etag, at);
        let second = |s: u64| Some(Timestamp::from_millis(s * 1000));
        assert!(met(Condition::default()));
        for (tag, fits) in
            [(Tag::Any, true), (Tag::Is(Etag(7)), true), (Tag::Is(Etag(8)), false), (Tag::Foreign, false)]
        {
            assert_eq!(met(Condition { if_match: Some(tag), ..Condition::default() }), fits, "{tag:?}");
            assert_eq!(met(Condition { if_none_match: Some(tag), ..Condition::default() }), !fits, "{tag:?}");
        }
        assert!(met(Condition { if_unmodified_since: second(10), ..Condition::default() }));
        assert!(!met(Condition { if_unmodified_since: second(9), ..Condition::default() }));
        assert!(!met(Condition { if_modified_since: second(10), ..Condition::default() }));
        assert!(met(Condition { if_modified_since: second(9), ..Condition::default() }));
    }
}
