use peeklock_types::Timestamp;

use crate::blob::Etag;
use crate::lease::LeaseId;

/// Which states of a thing a request is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    pub if_match: Option<Tag>,
    pub if_none_match: Option<Tag>,
    pub if_modified_since: Option<Timestamp>,
    pub if_unmodified_since: Option<Timestamp>,
    /// The lease that the request is made under.
    pub lease_id: Option<LeaseId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// `*`: every state in which the thing is there.
    Any,
    Is(Etag),
    /// A tag that was never ours: it fits nothing.
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
    /// Must there be none yet.
    pub fn is_new_only(&self) -> bool {
        self.if_none_match == Some(Tag::Any)
    }

    /// Whether the thing may be changed, or is to be read, in the state that it has.
    pub fn is_met(&self, etag: Etag, modified_at: Timestamp) -> bool {
        self.fits_wanted(etag, modified_at) && !self.is_unchanged(etag, modified_at)
    }

    /// What must be so: for reading, a failure is an error.
    pub fn fits_wanted(&self, etag: Etag, modified_at: Timestamp) -> bool {
        // HTTP knows whole seconds only.
        let modified_s = modified_at.as_millis() / 1000;
        self.if_match.is_none_or(|tag| tag.fits(etag))
            && self.if_unmodified_since.is_none_or(|at| modified_s <= at.as_millis() / 1000)
    }

    /// What must not be so: whoever reads has this state already.
    pub fn is_unchanged(&self, etag: Etag, modified_at: Timestamp) -> bool {
        let modified_s = modified_at.as_millis() / 1000;
        // HTTP: a tag counts, and the time only without one.
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
    fn tags_and_times_decide() {
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
