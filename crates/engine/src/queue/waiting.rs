use std::collections::BTreeSet;

/// The messages of a row that wait for delivery. Every waiting message before `from` is in `returned`; later ones need
/// no index, because the row itself contains them in order.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    from: u64,
    returned: BTreeSet<u64>,
    count: u64,
}

impl Waiting {
    /// Creates the index for a number of messages that wait anywhere in the row.
    pub(crate) fn of(count: u64) -> Waiting {
        Waiting { count, ..Waiting::default() }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    #[inline]
    pub(crate) fn add(&mut self, number: u64) {
        self.count += 1;
        if number < self.from {
            self.returned.insert(number);
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, number: u64) {
        self.count -= 1;
        if number < self.from {
            self.returned.remove(&number);
        } else if number == self.from {
            // Usually the first message leaves. The search then continues after it.
            self.from = number + 1;
        }
    }

    /// Returns all waiting messages before a number, and that number; later ones are in the row.
    pub(crate) fn returned(&self) -> (impl Iterator<Item = u64>, u64) {
        (self.returned.iter().copied(), self.from)
    }

    /// Returns the first waiting message. `row` finds the first message at or after a number, and returns whether it
    /// waits.
    #[inline]
    pub(crate) fn first(&mut self, row: impl Fn(u64) -> Option<(u64, bool)>) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        if let Some(&number) = self.returned.first() {
            return Some(number);
        }
        loop {
            let (number, waits) =
                row(self.from).expect("by the count a message waits, and none has returned");
            if waits {
                self.from = number;
                return Some(number);
            }
            self.from = number + 1;
        }
    }
}
