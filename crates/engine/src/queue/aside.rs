//! Sub-queues that use memory only once they are used: most queues never have a message beside their main part.

use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

use super::table::Table;
use super::{Messages, Part};

/// A part that is allocated when it is first changed.
#[derive(Debug, Default)]
pub(crate) struct Aside(Option<Box<Part>>);

static UNUSED: LazyLock<Part> = LazyLock::new(unused);

fn unused() -> Part {
    Part::new(Messages::new(Table::sparse(), false))
}

impl Aside {
    pub(super) fn is_used(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the part if it was ever changed.
    pub(super) fn used_mut(&mut self) -> Option<&mut Part> {
        self.0.as_deref_mut()
    }
}

impl Deref for Aside {
    type Target = Part;

    fn deref(&self) -> &Part {
        self.0.as_deref().unwrap_or_else(|| &UNUSED)
    }
}

impl DerefMut for Aside {
    fn deref_mut(&mut self) -> &mut Part {
        self.0.get_or_insert_with(|| Box::new(unused()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aside_is_empty_until_it_is_changed() {
        let mut aside = Aside::default();
        assert_eq!(aside.messages.count(), 0);
        assert!(!aside.is_used() && aside.used_mut().is_none());
        aside.noted.ready = true;
        assert!(aside.is_used() && aside.noted.ready && !Aside::default().noted.ready);
    }
}
