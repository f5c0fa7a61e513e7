//! The accounting of credit: free slots, and messages that are on their way, buffered or running.

/// How many messages may be requested. Credit equals free slots, plus the prefetch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slots {
    /// The number of messages that may run at a time.
    pub(crate) target: u32,
    pub(crate) prefetch: u32,
    /// Requested from the broker and not arrived.
    pub(crate) requested: u32,
    /// Arrived and not started.
    pub(crate) buffered: u32,
    pub(crate) running: u32,
    /// Whether new messages are wanted at all.
    pub(crate) is_open: bool,
    /// The number of messages that the layers of the handler are expected to take now, if they limit it.
    pub(crate) gate: Option<u32>,
}

impl Slots {
    fn wanted(&self) -> u32 {
        if !self.is_open {
            return 0;
        }
        let room = self.target.saturating_add(if self.target == 0 { 0 } else { self.prefetch });
        let free = room.saturating_sub(self.running).saturating_sub(self.buffered);
        self.gate.map_or(free, |gate| free.min(gate.saturating_sub(self.buffered)))
    }

    /// Returns the credit to grant now.
    pub(crate) fn due(&self) -> u32 {
        self.wanted().saturating_sub(self.requested)
    }

    /// Returns whether the broker has more credit than it may use.
    pub(crate) fn is_over(&self) -> bool {
        self.requested > self.wanted()
    }

    /// Returns whether a buffered message may start.
    pub(crate) fn can_start(&self) -> bool {
        self.is_open && self.running < self.target
    }

    /// Returns how many buffered messages are more than the slots and the prefetch allow.
    pub(crate) fn surplus(&self) -> u32 {
        let room =
            if self.is_open && self.target > 0 { self.target.saturating_add(self.prefetch) } else { 0 };
        self.buffered.saturating_sub(room.saturating_sub(self.running))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn credit_equals_free_slots() {
        let mut slots = Slots { target: 4, running: 1, is_open: true, ..Slots::default() };
        assert_eq!(slots.due(), 3);
        slots.requested = 3;
        assert_eq!((slots.due(), slots.is_over()), (0, false));
        slots.target = 2;
        assert!(slots.is_over());
        slots.is_open = false;
        assert_eq!((slots.due(), slots.is_over()), (0, true));
    }

    #[test]
    fn layers_limit_the_credit() {
        let mut slots = Slots { target: 4, is_open: true, gate: Some(2), ..Slots::default() };
        assert_eq!(slots.due(), 2);
        (slots.requested, slots.buffered) = (1, 1);
        assert_eq!((slots.due(), slots.is_over()), (0, false));
    }

    #[test]
    fn nothing_may_stay_buffered_without_a_target() {
        let slots = Slots { target: 0, prefetch: 5, buffered: 3, is_open: true, ..Slots::default() };
        assert_eq!((slots.due(), slots.surplus(), slots.can_start()), (0, 3, false));
        let paused = Slots { target: 4, prefetch: 5, buffered: 3, ..Slots::default() };
        assert_eq!(paused.surplus(), 3);
    }

    proptest! {
        /// Random events of a pump: with the credit that is due, the broker can never send more than fits.
        #[test]
        fn held_messages_never_exceed_slots_and_prefetch(events in proptest::collection::vec((0_u8..5, 0_u32..9), 1..200)) {
            let mut slots = Slots { target: 4, prefetch: 2, is_open: true, ..Slots::default() };
            for (event, number) in events {
                match event {
                    0 if slots.requested > 0 => { slots.requested -= 1; slots.buffered += 1; }
                    1 if slots.running > 0 => slots.running -= 1,
                    2 => slots.target = number,
                    3 => slots.prefetch = number,
                    4 => slots.is_open = number > 3,
                    _ => {}
                }
                while slots.buffered > 0 && slots.can_start() {
                    slots.buffered -= 1;
                    slots.running += 1;
                }
                if slots.is_over() {
                    // A drain returns the credit.
                    slots.requested = 0;
                }
                slots.buffered -= slots.surplus();
                slots.requested += slots.due();
                let room = if slots.is_open && slots.target > 0 { slots.target + slots.prefetch } else { 0 };
                prop_assert!(slots.requested + slots.buffered <= room.saturating_sub(slots.running));
            }
        }
    }
}
