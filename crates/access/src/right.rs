//! Rights, and sets of them.

use std::fmt;

/// A right of a key. `Manage` includes the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    Send,
    Listen,
    Manage,
}

impl Right {
    pub const ALL: [Right; 3] = [Right::Send, Right::Listen, Right::Manage];

    /// Parses a name without regard to case.
    pub fn parse(name: &str) -> Option<Right> {
        Right::ALL.into_iter().find(|right| name.eq_ignore_ascii_case(right.name()))
    }

    pub fn name(self) -> &'static str {
        match self {
            Right::Send => "Send",
            Right::Listen => "Listen",
            Right::Manage => "Manage",
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of rights in their original order. A set with `Manage` contains all three.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Rights([Option<Right>; Right::ALL.len()]);

impl Rights {
    pub const NONE: Rights = Rights([None; Right::ALL.len()]);
    pub const ALL: Rights = Rights([Some(Right::Send), Some(Right::Listen), Some(Right::Manage)]);

    pub fn of(rights: &[Right]) -> Rights {
        rights.iter().copied().collect()
    }

    pub fn has(self, right: Right) -> bool {
        self.0.contains(&Some(right))
    }

    pub fn is_empty(self) -> bool {
        self == Rights::NONE
    }

    /// Returns whether the set contains every right of `other`.
    pub fn includes(self, other: Rights) -> bool {
        other.iter().all(|right| self.has(right))
    }

    pub fn iter(self) -> impl Iterator<Item = Right> {
        self.0.into_iter().flatten()
    }

    /// Appends a right.
    fn add(&mut self, right: Right) {
        if !self.has(right)
            && let Some(place) = self.0.iter_mut().find(|place| place.is_none())
        {
            *place = Some(right);
        }
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        let mut all = Rights::NONE;
        rights.into_iter().for_each(|right| all.add(right));
        if all == Rights([Some(Right::Manage), None, None]) {
            return Rights::ALL;
        }
        if all.has(Right::Manage) {
            Right::ALL.into_iter().for_each(|right| all.add(right));
        }
        all
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, right) in self.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{right}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rights({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manage_includes_the_others() {
        let rights = Rights::of(&[Right::Manage]);
        assert!(Right::ALL.into_iter().all(|right| rights.has(right)));
        assert_eq!(rights.to_string(), "Send, Listen, Manage");
        assert!(!Rights::of(&[Right::Send]).has(Right::Manage));
        assert!(Rights::NONE.is_empty() && rights.includes(Rights::of(&[Right::Listen])));
    }

    #[test]
    fn rights_keep_their_original_order() {
        let text = |rights: &[Right]| Rights::of(rights).to_string();
        assert_eq!(text(&[Right::Manage, Right::Listen, Right::Send]), "Manage, Listen, Send");
        assert_eq!(text(&[Right::Listen, Right::Send, Right::Listen]), "Listen, Send");
        assert_eq!(text(&[Right::Listen, Right::Manage]), "Listen, Manage, Send");
    }
}
