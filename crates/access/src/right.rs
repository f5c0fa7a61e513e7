use std::fmt;

/// What a key may do. `Manage` includes the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    Send,
    Listen,
    Manage,
}

impl Right {
    pub const ALL: [Right; 3] = [Right::Send, Right::Listen, Right::Manage];

    /// Case does not matter.
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

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of rights. One with `Manage` holds all three.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    pub const NONE: Rights = Rights(0);
    pub const ALL: Rights = Rights(0b111);

    pub fn of(rights: &[Right]) -> Rights {
        rights.iter().copied().collect()
    }

    pub fn has(self, right: Right) -> bool {
        self.0 & right.bit() != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether every right of `other` is here too.
    pub fn includes(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.has(*right))
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        let bits = rights.into_iter().fold(0, |bits, right| bits | right.bit());
        if bits & Right::Manage.bit() != 0 { Rights::ALL } else { Rights(bits) }
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
}
