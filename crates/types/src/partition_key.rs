//! Maps partition keys to partitions.

/// Returns the partition of events with this key, in a hub with `partition_count` partitions. Every client and every
/// version must compute the same value: events of one key keep their order only within one partition.
pub fn partition_of_key(key: &str, partition_count: u32) -> u32 {
    let hash = u32::from(partition_key_hash(key).unsigned_abs());
    hash.checked_rem(partition_count).unwrap_or(0)
}

/// Computes Bob Jenkins' lookup3 over the UTF-8 bytes, with both seeds zero, folded to sixteen bits: the hash that
/// Event Hubs itself uses.
pub fn partition_key_hash(key: &str) -> i16 {
    let (b, c) = lookup3(key.as_bytes());
    let [low, next, ..] = (b ^ c).to_le_bytes();
    i16::from_le_bytes([low, next])
}

/// The bytes that one step of the hash consumes, as three numbers.
const BLOCK_BYTES: usize = 12;

fn lookup3(bytes: &[u8]) -> (u32, u32) {
    // The hash uses only the low 32 bits of the length.
    #[expect(clippy::cast_possible_truncation, reason = "the function is defined modulo 2^32")]
    let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32);
    let (mut a, mut b, mut c) = (start, start, start);
    let mut rest = bytes;
    // The last block, even a complete one, goes through the final step instead.
    while rest.len() > BLOCK_BYTES {
        let (block, behind) = rest.split_at(BLOCK_BYTES);
        add(block, &mut a, &mut b, &mut c);
        mix(&mut a, &mut b, &mut c);
        rest = behind;
    }
    if !rest.is_empty() {
        let mut block = [0; BLOCK_BYTES];
        block[..rest.len()].copy_from_slice(rest);
        add(&block, &mut a, &mut b, &mut c);
        finish(&mut a, &mut b, &mut c);
    }
    (b, c)
}

fn add(block: &[u8], a: &mut u32, b: &mut u32, c: &mut u32) {
    for (sum, bytes) in [a, b, c].into_iter().zip(block.as_chunks::<4>().0) {
        *sum = sum.wrapping_add(u32::from_le_bytes(*bytes));
    }
}

fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    *a = a.wrapping_sub(*c) ^ c.rotate_left(4);
    *c = c.wrapping_add(*b);
    *b = b.wrapping_sub(*a) ^ a.rotate_left(6);
    *a = a.wrapping_add(*c);
    *c = c.wrapping_sub(*b) ^ b.rotate_left(8);
    *b = b.wrapping_add(*a);
    *a = a.wrapping_sub(*c) ^ c.rotate_left(16);
    *c = c.wrapping_add(*b);
    *b = b.wrapping_sub(*a) ^ a.rotate_left(19);
    *a = a.wrapping_add(*c);
    *c = c.wrapping_sub(*b) ^ b.rotate_left(4);
    *b = b.wrapping_add(*a);
}

fn finish(a: &mut u32, b: &mut u32, c: &mut u32) {
    *c = (*c ^ *b).wrapping_sub(b.rotate_left(14));
    *a = (*a ^ *c).wrapping_sub(c.rotate_left(11));
    *b = (*b ^ *a).wrapping_sub(a.rotate_left(25));
    *c = (*c ^ *b).wrapping_sub(b.rotate_left(16));
    *a = (*a ^ *c).wrapping_sub(c.rotate_left(4));
    *b = (*b ^ *a).wrapping_sub(a.rotate_left(14));
    *c = (*c ^ *b).wrapping_sub(b.rotate_left(24));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_map_to_the_same_partitions_as_in_event_hubs() {
        let forty = "0123456789".repeat(4);
        let vectors: [(&str, i16, u32, u32, u32); 21] = [
            ("", 0, 0, 0, 0),
            ("a", -16220, 0, 0, 28),
            ("ab", 2093, 1, 3, 13),
            ("abc", -14161, 1, 1, 17),
            ("abcd", 23398, 2, 8, 6),
            ("abcde", 27137, 1, 7, 1),
            ("abcdefg", -14024, 0, 4, 8),
            ("abcdefgh", 22170, 2, 0, 26),
            ("abcdefghijk", -2676, 0, 6, 20),
            ("abcdefghijkl", -2373, 1, 3, 5),
            ("abcdefghijklm", -31855, 3, 5, 15),
            ("7", -15263, 3, 3, 31),
            ("131", 30562, 2, 2, 2),
            ("pk1", 13741, 1, 1, 13),
            ("device-42", -21548, 0, 8, 12),
            ("customer/0001", -26647, 3, 7, 23),
            ("The quick brown fox jumps over the lazy dog", -31937, 1, 7, 1),
            (&forty, -13322, 2, 2, 10),
            ("é", -24812, 0, 2, 12),
            ("ключ", -32174, 2, 4, 14),
            ("日本語", -23353, 1, 3, 25),
        ];
        for (key, hash, of_4, of_10, of_32) in vectors {
            assert_eq!(partition_key_hash(key), hash, "{key}");
            let places = [4, 10, 32].map(|count| partition_of_key(key, count));
            assert_eq!(places, [of_4, of_10, of_32], "{key}");
        }
        let hashes = [
            ("7149583486996073602", 12977),
            ("FWfAT", -22341),
            ("sOdeEAsyQoEuEFPGerWO", -6503),
            ("!c*_!I@1^c", 15372),
            ("$0cb", 26269),
            ("-4189260826195535198", 453),
        ];
        for (key, hash) in hashes {
            assert_eq!(partition_key_hash(key), hash, "{key}");
        }
        assert_eq!(partition_of_key("a", 0), 0, "a hub without partitions causes no panic");
    }
}
