//! GUIDs in their usual text form, and new ones from a seed.

use std::fmt::Write;

const DIGIT_COUNT: usize = 32;
const DASHES_AT: [usize; 4] = [8, 13, 18, 23];

/// `6b29fc40-ca47-1067-b31d-00dd010662da`, with or without braces or dashes.
pub(crate) fn parse(text: &str) -> Option<[u8; 16]> {
    let text = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    let has_dashes = text.len() == DIGIT_COUNT + DASHES_AT.len();
    if !has_dashes && text.len() != DIGIT_COUNT {
        return None;
    }
    let (mut guid, mut at) = ([0; 16], 0);
    for (place, byte) in text.bytes().enumerate() {
        if has_dashes && DASHES_AT.contains(&place) {
            if byte != b'-' {
                return None;
            }
            continue;
        }
        let digit = u8::try_from(char::from(byte).to_digit(16)?).ok()?;
        let half: &mut u8 = guid.get_mut(at / 2)?;
        *half = *half << 4 | digit;
        at += 1;
    }
    (at == DIGIT_COUNT).then_some(guid)
}

pub(crate) fn print(guid: &[u8; 16]) -> String {
    guid.iter().enumerate().fold(String::with_capacity(36), |mut text, (at, byte)| {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The GUID with this number out of all that one seed gives, marked as random (RFC 9562, version 4).
pub(crate) fn random(seed: u64, number: u64) -> [u8; 16] {
    let first = mix(seed ^ mix(number.wrapping_mul(2)));
    let second = mix(seed ^ mix(number.wrapping_mul(2).wrapping_add(1)));
    let mut guid = (u128::from(first) << 64 | u128::from(second)).to_be_bytes();
    guid[6] = guid[6] & 0x0f | 0x40;
    guid[8] = guid[8] & 0x3f | 0x80;
    guid
}

/// SplitMix64: every bit of the input reaches every bit of the output.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
