//! Parsers of flags, for `clap`.

use std::convert::Infallible;

use crate::text::NONE;
use crate::written::Maybe;

/// Parses a value that can be absent: `none` removes it.
pub fn or_none<T, E>(
    parse: impl Fn(&str) -> Result<T, E> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<Maybe<T>, E> + Clone + Send + Sync + 'static {
    move |text| if text == NONE { Ok(None) } else { parse(text).map(Some) }
}

/// Accepts any text.
pub fn any_text(text: &str) -> Result<String, Infallible> {
    Ok(text.to_owned())
}

/// Accepts any text; an empty one removes the value.
pub(crate) fn text_unless_empty(text: &str) -> Result<Maybe<String>, Infallible> {
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}
