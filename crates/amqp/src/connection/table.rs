//! Maps each channel of a connection, or each handle of a session, to its owner.

/// Numbers are assigned lowest first and reused once their owner is gone on both sides.
#[derive(Debug)]
pub(super) struct Table<I>(Vec<Option<I>>);

impl<I: Copy> Table<I> {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<I> {
        self.0.get(usize::try_from(number).ok()?).copied().flatten()
    }

    pub(super) fn lowest_free(&self) -> u32 {
        let index = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        u32::try_from(index).unwrap_or(u32::MAX)
    }

    /// Assigns a number. The caller has checked it against the maximum that limits this table.
    pub(super) fn set(&mut self, number: u32, owner: I) {
        let Ok(index) = usize::try_from(number) else { return };
        if index >= self.0.len() {
            self.0.resize(index + 1, None);
        }
        if let Some(slot) = self.0.get_mut(index) {
            *slot = Some(owner);
        }
    }

    pub(super) fn clear(&mut self, number: u32) {
        if let Some(slot) = usize::try_from(number).ok().and_then(|index| self.0.get_mut(index)) {
            *slot = None;
        }
        while let Some(None) = self.0.last() {
            self.0.pop();
        }
    }

    pub(super) fn owners(&self) -> impl Iterator<Item = I> + '_ {
        self.0.iter().copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_is_reused() {
        let mut table = Table::new();
        for expected in 0..3 {
            assert_eq!(table.lowest_free(), expected);
            table.set(expected, 'x');
        }
        table.clear(1);
        assert_eq!((table.get(1), table.lowest_free()), (None, 1));
        table.clear(2);
        table.clear(7);
        assert_eq!((table.owners().count(), table.lowest_free()), (1, 1));
    }
}
