use std::collections::BTreeSet;

/// Which messages of a row wait to be handed out. Every waiting message before `from` is in `returned`; those after it need no index, because
/// the row itself holds them in order.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    from: u64,
    returned: BTreeSet<u64>,
    count: u64,
}

impl Waiting {
    /// For so many that wait somewhere in the row.
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
            // Mostly it is the first one that goes: no need to look at it again.
            self.from = number + 1;
        }
    }

    /// All that wait before a number that is told too; those from there on are in the row.
    pub(crate) fn returned(&self) -> (impl Iterator<Item = u64>, u64) {
        (self.returned.iter().copied(), self.from)
    }

    /// The first that waits. `row` finds the first message at or after a number, and whether it waits.
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
                row(self.from).expect("the count says that one waits, and none has returned");
            if waits {
                self.from = number;
                return Some(number);
            }
            self.from = number + 1;
        }
    }
}
