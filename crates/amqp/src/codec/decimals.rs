//! Writes decimals in the one form that every SDK reads.

use super::constructor::{ARRAY8, ARRAY32, DECIMAL128, DESCRIBED, LIST8, LIST32, MAP8, MAP32, Width, width};

const DECIMAL128_BYTES: usize = 16;

/// Moves the exponent of each decimal128 among these encoded values to the place where SDKs read it.
///
/// SDK quirk: pyamqp writes the exponent as IEEE 754 defines it, but reads it two bits higher, where the service and
/// .NET write it. Exponents 6144 to 6271 (with their bias) cover every decimal in practical use. .NET reads both forms.
pub fn mend_decimals(encoded: &mut [u8]) {
    // Hardly any message has a decimal, and few contain this byte.
    if encoded.contains(&DECIMAL128) {
        mend_each(encoded);
    }
}

/// Corrects each decimal. Lists, maps and described values are entered by skipping their header, so no recursion is
/// needed.
fn mend_each(encoded: &mut [u8]) {
    let mut at = 0_usize;
    while let Some(code) = encoded.get(at).copied() {
        at += 1;
        let step = match code {
            DESCRIBED => Some(0),
            LIST8 | MAP8 => Some(2),
            LIST32 | MAP32 => Some(8),
            DECIMAL128 => {
                mend_at(encoded, at);
                Some(DECIMAL128_BYTES)
            }
            ARRAY8 => mend_array(encoded, at, 1),
            ARRAY32 => mend_array(encoded, at, 4),
            _ => match width(code) {
                Some(Width::Fixed(len)) => Some(len),
                Some(Width::Counted8) => number(encoded, at, 1).map(|len| len.saturating_add(1)),
                Some(Width::Counted32) => number(encoded, at, 4).map(|len| len.saturating_add(4)),
                None => None,
            },
        };
        let Some(step) = step else { return };
        at = at.saturating_add(step);
    }
}

/// Corrects the elements of an array of decimals. Returns the length of the array after its code.
fn mend_array(encoded: &mut [u8], at: usize, number_len: usize) -> Option<usize> {
    let len = number(encoded, at, number_len)?.saturating_add(number_len);
    let end = at.saturating_add(len).min(encoded.len());
    let code_at = at + 2 * number_len;
    if encoded.get(code_at) == Some(&DECIMAL128) {
        let mut element = code_at + 1;
        while element < end {
            mend_at(encoded, element);
            element += DECIMAL128_BYTES;
        }
    }
    Some(len)
}

fn mend_at(encoded: &mut [u8], at: usize) {
    match encoded.get_mut(at) {
        Some(first @ 0x30) => *first = 0x0c,
        Some(first @ 0xb0) => *first = 0x8c,
        _ => {}
    }
}

fn number(encoded: &[u8], at: usize, len: usize) -> Option<usize> {
    let bytes = encoded.get(at..at + len)?;
    Some(bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Encode;
    use crate::value::{Array, Kind, Value};

    fn decimal(first: u8) -> Value {
        let mut bytes = [0x94; 16];
        bytes[0] = first;
        Value::Decimal128(bytes)
    }

    fn mended(value: &Value) -> Value {
        let mut encoded = value.to_bytes().to_vec();
        mend_decimals(&mut encoded);
        crate::codec::Decode::decode_all(&encoded).unwrap()
    }

    #[test]
    fn decimals_are_corrected_at_every_nesting_level() {
        let of = |plus: u8, minus: u8| {
            let array = Array::new(Kind::Decimal128, vec![decimal(plus), decimal(minus)]).unwrap();
            Value::List(vec![
                decimal(plus),
                Value::Map(vec![("\u{94}0".into(), decimal(minus)), ("n".into(), 0x9430_i32.into())]),
                Value::described(Value::symbol("d"), decimal(plus)),
                Value::Array(array),
                Value::Binary(vec![0x94, 0x30].into()),
                Value::List(vec![decimal(minus); 40]),
            ])
        };
        assert_eq!(mended(&of(0x30, 0xb0)), of(0x0c, 0x8c));
        assert_eq!(mended(&of(0x2f, 0x31)), of(0x2f, 0x31), "other exponents stay unchanged");
    }

    #[test]
    fn broken_values_are_left_unchanged() {
        for code in 0..=255_u8 {
            for len in 0..20 {
                let mut encoded = vec![0x94; len];
                encoded.insert(0, code);
                mend_decimals(&mut encoded);
                encoded.fill(0xff);
                encoded[0] = code;
                mend_each(&mut encoded);
            }
        }
    }
}
