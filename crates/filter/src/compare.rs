//! Equality and order of values.

use std::cmp::Ordering;

use crate::value::ValueRef;
use crate::{guid, time};

/// The relation of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Ordered(Ordering),
    /// The values are equal or different; they have no order.
    Equal(bool),
    /// The values are neither less, equal nor greater: one is NaN.
    Unordered,
    /// The kinds of the values cannot be compared.
    Mismatch,
}

pub(crate) fn relate(left: &ValueRef<'_>, right: &ValueRef<'_>) -> Relation {
    match (left, right) {
        (ValueRef::Bool(left), ValueRef::Bool(right)) => Relation::Equal(left == right),
        (ValueRef::Text(left), ValueRef::Text(right)) => Relation::Ordered(left.cmp(right)),
        (ValueRef::Binary(left), ValueRef::Binary(right)) => Relation::Equal(left == right),
        (ValueRef::Uuid(left), ValueRef::Uuid(right)) => Relation::Equal(left == right),
        (ValueRef::Long(left), ValueRef::Long(right))
        | (ValueRef::Time(left), ValueRef::Time(right))
        | (ValueRef::Span(left), ValueRef::Span(right)) => Relation::Ordered(left.cmp(right)),
        (ValueRef::Double(left), ValueRef::Double(right)) => ordered(left.partial_cmp(right)),
        (ValueRef::Long(left), ValueRef::Double(right)) => ordered(compare_mixed(*left, *right)),
        (ValueRef::Double(left), ValueRef::Long(right)) => {
            ordered(compare_mixed(*right, *left).map(Ordering::reverse))
        }
        (ValueRef::Text(text), other) => relate_text(text, other).reversed(),
        (other, ValueRef::Text(text)) => relate_text(text, other),
        _ => Relation::Mismatch,
    }
}

/// Relates a value to a text that may be the text form of a value of the same kind.
fn relate_text(text: &str, other: &ValueRef<'_>) -> Relation {
    let relation = match other {
        ValueRef::Uuid(uuid) => guid::parse(text).map(|parsed| Relation::Equal(parsed == *uuid)),
        ValueRef::Time(ms) => time::parse_time(text).map(|parsed| Relation::Ordered(ms.cmp(&parsed))),
        ValueRef::Span(ticks) => time::parse_span(text).map(|parsed| Relation::Ordered(ticks.cmp(&parsed))),
        _ => None,
    };
    relation.unwrap_or(Relation::Mismatch)
}

fn ordered(ordering: Option<Ordering>) -> Relation {
    ordering.map_or(Relation::Unordered, Relation::Ordered)
}

impl Relation {
    fn reversed(self) -> Self {
        match self {
            Relation::Ordered(ordering) => Relation::Ordered(ordering.reverse()),
            other => other,
        }
    }

    pub(crate) fn is_equal(self) -> bool {
        matches!(self, Relation::Ordered(Ordering::Equal) | Relation::Equal(true))
    }
}

/// Compares the exact numbers. A conversion would make different large numbers equal, and equality would not be transitive.
fn compare_mixed(whole: i64, number: f64) -> Option<Ordering> {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    if number.is_nan() {
        return None;
    }
    if number >= TWO_TO_63 {
        return Some(Ordering::Less);
    }
    if number < -TWO_TO_63 {
        return Some(Ordering::Greater);
    }
    #[allow(clippy::cast_possible_truncation, reason = "the number is in range and has no fraction")]
    let truncated = number.trunc() as i64;
    let behind_point = if number.fract() > 0.0 {
        Ordering::Less
    } else if number.fract() < 0.0 {
        Ordering::Greater
    } else {
        Ordering::Equal
    };
    Some(whole.cmp(&truncated).then(behind_point))
}

/// Returns the whole number that a double represents, if it is one.
pub(crate) fn as_whole(number: f64) -> Option<i64> {
    #[allow(clippy::cast_possible_truncation, reason = "the next line compares the result with the double")]
    let whole = number.trunc() as i64;
    (compare_mixed(whole, number) == Some(Ordering::Equal)).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_numbers_compare_exactly() {
        let cases = [
            (1, 1.0, Some(Ordering::Equal)),
            (1, 1.5, Some(Ordering::Less)),
            (-1, -1.5, Some(Ordering::Greater)),
            (0, -0.0, Some(Ordering::Equal)),
            (i64::MAX, 9_223_372_036_854_775_808.0, Some(Ordering::Less)),
            (i64::MIN, -9_223_372_036_854_775_808.0, Some(Ordering::Equal)),
            (i64::MIN, f64::NEG_INFINITY, Some(Ordering::Greater)),
            (9_007_199_254_740_993, 9_007_199_254_740_992.0, Some(Ordering::Greater)),
            (0, f64::NAN, None),
        ];
        for (whole, number, expected) in cases {
            assert_eq!(compare_mixed(whole, number), expected, "{whole} and {number}");
        }
        assert_eq!(as_whole(5.0), Some(5));
        assert_eq!(as_whole(5.5), None);
        assert_eq!(as_whole(f64::INFINITY), None);
        assert_eq!(as_whole(f64::NAN), None);
    }
}
