/// Returns the known word that was most likely meant.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Limits the cost of a long word from a peer. Differences after these characters do not matter.
    const CHARS_MAX: usize = 64;
    let plain = |word: &str| -> Vec<char> {
        let letters = word.chars().filter(|c| !matches!(c, '-' | '_'));
        letters.take(CHARS_MAX).flat_map(char::to_lowercase).collect()
    };
    let given = plain(given);
    let room = given.len().div_ceil(3).clamp(1, 4);
    let near = known.into_iter().map(|word| (distance(&given, &plain(word)), word));
    near.filter(|(distance, _)| *distance <= room).min_by_key(|(distance, _)| *distance).map(|(_, word)| word)
}

/// Returns how many letters have to be added, removed, replaced or swapped with their neighbour to get from one word to the other.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, from_letter) in from.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, to_letter) in to.iter().enumerate() {
            let replaced = row[j] + usize::from(from_letter != to_letter);
            let mut best = replaced.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *from_letter == to[j - 1] && from[i - 1] == *to_letter {
                best = best.min(before[j - 1] + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found() {
        let known = ["lockDuration", "maxDeliveryCount", "status", "retry"];
        let near = |given| nearest(given, known);
        assert_eq!(near("lockduration"), Some("lockDuration"));
        assert_eq!(near("lock-durration"), Some("lockDuration"));
        assert_eq!(near("statsu"), Some("status"));
        assert_eq!(near("maxDelivery"), None);
        assert_eq!(near("rety"), Some("retry"));
        assert_eq!(near("colour"), None);
        assert_eq!(near(""), None);
        assert_eq!(nearest("x", []), None);
    }
}
