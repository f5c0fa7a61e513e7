//! The order in which the service sorts headers for a signature.
//!
//! It is not the order of bytes: hyphens count only between names that are otherwise equal, and underscores sort before
//! digits, digits before letters. The SDKs sort this way; third-party clients often sort by bytes.

use std::cmp::Ordering;

/// Compares header names in lower case, in the order of the service.
pub(crate) fn of_service(left: &str, right: &str) -> Ordering {
    let weights = |name: &str| name.bytes().filter_map(weight).collect::<Vec<_>>();
    let by_weight = weights(left).cmp(&weights(right));
    by_weight.then_with(|| by_hyphens(left, right))
}

/// Returns the sort weight of a byte: punctuation before digits before letters. Hyphens have no weight.
fn weight(byte: u8) -> Option<(u8, u8)> {
    const PUNCTUATION: &[u8] = b"!#$%&*.^_`|~+";
    match byte {
        b'0'..=b'9' => Some((1, byte)),
        b'a'..=b'z' => Some((2, byte)),
        b'A'..=b'Z' => Some((2, byte.to_ascii_lowercase())),
        _ => {
            let at = PUNCTUATION.iter().position(|known| *known == byte)?;
            Some((0, u8::try_from(at).unwrap_or(u8::MAX)))
        }
    }
}

/// Compares two names that differ only in hyphens: the name whose first hyphen is later sorts first.
fn by_hyphens(left: &str, right: &str) -> Ordering {
    let at = left.bytes().zip(right.bytes()).position(|(left, right)| left != right);
    let hyphen_at = |name: &str| at.and_then(|at| name.as_bytes().get(at)) == Some(&b'-');
    match at {
        Some(_) => hyphen_at(left).cmp(&hyphen_at(right)),
        None => left.len().cmp(&right.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hyphens_have_no_weight_and_underscores_sort_first() {
        let mut names =
            ["x-ms-meta-ab", "x-ms-meta-a-a", "x-ms-meta-a_b", "x-ms-meta-a1", "x-ms-date", "x-ms-meta-a"];
        names.sort_by(|left, right| of_service(left, right));
        assert_eq!(
            names,
            ["x-ms-date", "x-ms-meta-a", "x-ms-meta-a_b", "x-ms-meta-a1", "x-ms-meta-a-a", "x-ms-meta-ab"]
        );
        assert_eq!(of_service("ab", "a-b"), Ordering::Less);
        assert_eq!(of_service("a-b", "ab"), Ordering::Greater);
        assert_eq!(of_service("a-b", "a-b"), Ordering::Equal);
    }
}
