//! The order in which the service sorts headers before they are signed.
//!
//! Not that of their bytes: hyphens count only between names that are otherwise alike, and underscores come before digits before letters. The SDKs
//! sort that way; clients of others' making often sort by bytes.

use std::cmp::Ordering;

/// Compares names of headers, in lower case, as the service does.
pub(crate) fn of_service(left: &str, right: &str) -> Ordering {
    let weights = |name: &str| name.bytes().filter_map(weight).collect::<Vec<_>>();
    let by_weight = weights(left).cmp(&weights(right));
    by_weight.then_with(|| by_hyphens(left, right))
}

/// Punctuation before digits before letters; hyphens have no weight.
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

/// Of two names that differ in hyphens only, the one whose first hyphen comes later is first.
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
    fn hyphens_weigh_nothing_and_underscores_come_first() {
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
