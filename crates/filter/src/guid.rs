//! GUIDs as text, and new ones from a seed.

use uuid::fmt::{Hyphenated, Simple};
use uuid::{Builder, Uuid};

/// Parses `6b29fc40-ca47-1067-b31d-00dd010662da`, with or without braces or hyphens.
pub(crate) fn parse(text: &str) -> Option<[u8; 16]> {
    let text = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    if ![Hyphenated::LENGTH, Simple::LENGTH].contains(&text.len()) {
        return None;
    }
    Uuid::try_parse(text).ok().map(Uuid::into_bytes)
}

pub(crate) fn print(guid: &[u8; 16]) -> String {
    Uuid::from_bytes(*guid).to_string()
}

/// Returns the version 4 GUID with this number in the sequence that belongs to the seed.
pub(crate) fn random(seed: u64, number: u64) -> [u8; 16] {
    let first = mix(seed ^ mix(number.wrapping_mul(2)));
    let second = mix(seed ^ mix(number.wrapping_mul(2).wrapping_add(1)));
    let bytes = (u128::from(first) << 64 | u128::from(second)).to_be_bytes();
    Builder::from_random_bytes(bytes).into_uuid().into_bytes()
}

/// Mixes a number as SplitMix64 does: every bit of the input affects every bit of the output.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
