//! `LIKE`: `%` matches any number of characters, `_` matches one.

use crate::run::Steps;

/// A compiled pattern: the pieces between the `%`.
///
/// The first piece must be at the start and the last at the end. Each other piece is matched at its leftmost place, which is always correct
/// because the rest can begin anywhere after it. So the matching needs no backtracking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    /// `None` matches any one character.
    Mixed(Vec<Option<char>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatternError {
    #[error("the escape must be one character")]
    EscapeLength,
    #[error("the pattern ends with its escape character")]
    EscapeAtEnd,
}

pub(crate) fn escape_char(escape: &str) -> Result<char, PatternError> {
    let mut chars = escape.chars();
    match (chars.next(), chars.next()) {
        (Some(escape), None) => Ok(escape),
        _ => Err(PatternError::EscapeLength),
    }
}

impl Pattern {
    pub(crate) fn compile(pattern: &str, escape: Option<char>) -> Result<Self, PatternError> {
        let (mut pieces, mut piece) = (Vec::new(), Vec::new());
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            match c {
                c if Some(c) == escape => piece.push(Some(chars.next().ok_or(PatternError::EscapeAtEnd)?)),
                '%' => pieces.push(Piece::of(std::mem::take(&mut piece))),
                '_' => piece.push(None),
                c => piece.push(Some(c)),
            }
        }
        pieces.push(Piece::of(piece));
        Ok(Self { pieces })
    }

    pub(crate) fn matches(&self, text: &str, steps: &Steps<'_>) -> Result<bool, String> {
        let Some((first, rest)) = self.pieces.split_first() else { return Ok(text.is_empty()) };
        let Some(text) = first.strip_front(text, steps)? else { return Ok(false) };
        let Some((last, middle)) = rest.split_last() else { return Ok(text.is_empty()) };
        let Some(mut text) = last.strip_back(text, steps)? else { return Ok(false) };
        for piece in middle {
            match piece.skip_first(text, steps)? {
                Some(behind) => text = behind,
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

impl Piece {
    fn of(chars: Vec<Option<char>>) -> Self {
        match chars.iter().copied().collect() {
            Some(literal) => Piece::Literal(literal),
            None => Piece::Mixed(chars),
        }
    }

    fn strip_front<'a>(&self, text: &'a str, steps: &Steps<'_>) -> Result<Option<&'a str>, String> {
        match self {
            Piece::Literal(literal) => {
                steps.take_bytes(literal.len())?;
                Ok(text.strip_prefix(literal.as_str()))
            }
            Piece::Mixed(piece) => {
                let mut chars = text.chars();
                for expected in piece {
                    steps.take(1)?;
                    match chars.next() {
                        Some(found) if expected.is_none_or(|expected| expected == found) => (),
                        _ => return Ok(None),
                    }
                }
                Ok(Some(chars.as_str()))
            }
        }
    }

    fn strip_back<'a>(&self, text: &'a str, steps: &Steps<'_>) -> Result<Option<&'a str>, String> {
        match self {
            Piece::Literal(literal) => {
                steps.take_bytes(literal.len())?;
                Ok(text.strip_suffix(literal.as_str()))
            }
            Piece::Mixed(piece) => {
                let mut chars = text.chars();
                for expected in piece.iter().rev() {
                    steps.take(1)?;
                    match chars.next_back() {
                        Some(found) if expected.is_none_or(|expected| expected == found) => (),
                        _ => return Ok(None),
                    }
                }
                Ok(Some(chars.as_str()))
            }
        }
    }

    /// Returns the text after the first occurrence of the piece.
    fn skip_first<'a>(&self, text: &'a str, steps: &Steps<'_>) -> Result<Option<&'a str>, String> {
        match self {
            Piece::Literal(literal) => {
                steps.take_bytes(text.len())?;
                Ok(text.find(literal.as_str()).and_then(|at| text.get(at + literal.len()..)))
            }
            Piece::Mixed(_) => {
                let mut chars = text.chars();
                loop {
                    if let Some(behind) = self.strip_front(chars.as_str(), steps)? {
                        return Ok(Some(behind));
                    }
                    if chars.next().is_none() {
                        return Ok(None);
                    }
                }
            }
        }
    }
}
