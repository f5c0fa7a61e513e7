//! Merges the outcomes of deliveries into runs.
//!
//! A shard answers many sends or settlements at once, and most of them succeed. A run needs one lookup of its link, and
//! one disposition answers it.

use peeklock_amqp::connection::DeliveryId;

use crate::connection::link::LinkNumber;
use crate::connection::request::Mirror;

/// Deliveries of one link with consecutive ids that have the same outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutcomeRun {
    pub(crate) link: LinkNumber,
    pub(crate) first: DeliveryId,
    pub(crate) last: DeliveryId,
    pub(crate) outcome: Mirror,
}

impl OutcomeRun {
    pub(crate) fn count(&self) -> u32 {
        self.last.0.wrapping_sub(self.first.0).wrapping_add(1)
    }
}

/// The run under construction.
#[derive(Debug, Default)]
pub(crate) struct OutcomeRuns {
    run: Option<OutcomeRun>,
}

impl OutcomeRuns {
    /// Adds a delivery. Returns the previous run if the delivery does not continue it.
    pub(crate) fn add(
        &mut self,
        link: LinkNumber,
        delivery: DeliveryId,
        outcome: Mirror,
    ) -> Option<OutcomeRun> {
        if let Some(run) = &mut self.run
            && (run.link, run.outcome) == (link, outcome)
            && run.last.0.wrapping_add(1) == delivery.0
        {
            run.last = delivery;
            return None;
        }
        self.run.replace(OutcomeRun { link, first: delivery, last: delivery, outcome })
    }

    /// Ends the run.
    pub(crate) fn end(&mut self) -> Option<OutcomeRun> {
        self.run.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_consecutive_ids_of_one_link_with_one_outcome() {
        let mut runs = OutcomeRuns::default();
        let mut add = |link, id, outcome| {
            let run = runs.add(LinkNumber(link), DeliveryId(id), outcome);
            run.map(|run| (run.link.0, run.first.0, run.last.0, run.count()))
        };
        assert_eq!(add(1, u32::MAX, Mirror::Accepted), None);
        assert_eq!(add(1, 0, Mirror::Accepted), None);
        assert_eq!(add(1, 2, Mirror::Accepted), Some((1, u32::MAX, 0, 2)), "an id is left out");
        assert_eq!(add(2, 3, Mirror::Accepted), Some((1, 2, 2, 1)), "another link");
        assert_eq!(add(2, 4, Mirror::Released), Some((2, 3, 3, 1)), "another outcome");
        assert_eq!(add(2, 4, Mirror::Released), Some((2, 4, 4, 1)), "a repeated id");
        assert_eq!(runs.end().map(|run| run.count()), Some(1));
        assert_eq!(runs.end(), None);
    }
}
