//! Case-insensitive names of properties, rules and parameters.

use std::borrow::Cow;
use std::cmp::Ordering;

fn folded(text: &str) -> impl Iterator<Item = char> {
    text.chars().flat_map(char::to_lowercase)
}

/// Returns whether two names are the same property.
pub fn same_name(left: &str, right: &str) -> bool {
    if left.is_ascii() && right.is_ascii() {
        return left.eq_ignore_ascii_case(right);
    }
    folded(left).eq(folded(right))
}

pub(crate) fn compare_names(left: &str, right: &str) -> Ordering {
    folded(left).cmp(folded(right))
}

/// Returns the form in which all spellings of a name are equal. It is borrowed if the name is in that form already.
pub(crate) fn fold_name(name: &str) -> Cow<'_, str> {
    if name.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(folded(name).collect())
}
