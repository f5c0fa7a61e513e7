//! Decimal numbers as text. AMQP 1.0 §1.6.13 to §1.6.15: IEEE 754 with a binary coefficient.

use crate::value::Value;

/// One of the three widths: the bits in total, of the exponent and of the coefficient, and the bias of the exponent.
struct Format {
    bits: u32,
    exponent_bits: u32,
    bias: i32,
    digits_max: u32,
}

const DECIMAL32: Format = Format { bits: 32, exponent_bits: 8, bias: 101, digits_max: 7 };
const DECIMAL64: Format = Format { bits: 64, exponent_bits: 10, bias: 398, digits_max: 16 };
const DECIMAL128: Format = Format { bits: 128, exponent_bits: 14, bias: 6176, digits_max: 34 };

/// SDK quirk: .NET and Python shift the upper bits of the exponent two places too far, so the first byte of their
/// decimal128 is 0x0C, with the sign 0x8C, instead of 0x30 and 0xB0. Read by the standard, the number would be below
/// 10^-4500.
const SHIFTED: u8 = 0x0C;
const STANDARD: u8 = 0x30;
const SIGN: u8 = 0x80;

/// Fractions with more digits are written with an exponent.
const FRACTION_EXPONENT_MIN: i32 = -40;

/// Writes a decimal number as text, such as `-3.250` or `1E20`. Returns `None` if the value is no decimal, infinite, or
/// not a number.
pub fn show_decimal(value: &Value) -> Option<String> {
    match value {
        Value::Decimal32(bytes) => DECIMAL32.show(u32::from_be_bytes(*bytes).into()),
        Value::Decimal64(bytes) => DECIMAL64.show(u64::from_be_bytes(*bytes).into()),
        Value::Decimal128(bytes) => {
            let mut bytes = *bytes;
            if bytes[0] & !SIGN == SHIFTED {
                bytes[0] ^= SHIFTED ^ STANDARD;
            }
            DECIMAL128.show(u128::from_be_bytes(bytes))
        }
        _ => None,
    }
}

/// Parses a text into a decimal128 in the form of .NET and Python. Returns `None` if it is no number or has more than
/// 34 digits.
pub fn parse_decimal(text: &str) -> Option<Value> {
    let (text, is_negative) = match text.strip_prefix('-') {
        Some(text) => (text, true),
        None => (text.strip_prefix('+').unwrap_or(text), false),
    };
    let (text, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let coefficient: u128 = digits.parse().ok()?;
    let exponent = exponent.parse::<i32>().ok()?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let mut bytes = DECIMAL128.write(coefficient, exponent)?.to_be_bytes();
    if bytes[0] == STANDARD {
        bytes[0] = SHIFTED;
    }
    bytes[0] |= if is_negative { SIGN } else { 0 };
    Some(Value::Decimal128(bytes))
}

impl Format {
    fn coefficient_bits(&self) -> u32 {
        self.bits - 1 - self.exponent_bits
    }

    fn show(&self, bits: u128) -> Option<String> {
        let is_negative = bits >> (self.bits - 1) & 1 == 1;
        let rest = bits & mask(self.bits - 1);
        // Two leading ones mean that the coefficient begins with the bits 100, which are omitted; four mean that it is
        // no number.
        let (exponent, coefficient) = match rest >> (self.bits - 5) {
            0b1111 => return None,
            0b1100..=0b1110 => {
                let bits = self.coefficient_bits() - 2;
                (rest >> bits & mask(self.exponent_bits), rest & mask(bits) | 1 << (bits + 2))
            }
            _ => (rest >> self.coefficient_bits(), rest & mask(self.coefficient_bits())),
        };
        // A coefficient above the maximum counts as zero.
        let coefficient = if coefficient < 10_u128.pow(self.digits_max) { coefficient } else { 0 };
        let exponent = i32::try_from(exponent).ok()? - self.bias;
        Some(show(is_negative, coefficient, exponent))
    }

    fn write(&self, coefficient: u128, exponent: i32) -> Option<u128> {
        let exponent_max = 3 << (self.exponent_bits - 2);
        let exponent = u32::try_from(exponent.checked_add(self.bias)?).ok()?;
        let fits = coefficient < 10_u128.pow(self.digits_max) && exponent < exponent_max;
        fits.then(|| u128::from(exponent) << self.coefficient_bits() | coefficient)
    }
}

fn mask(bits: u32) -> u128 {
    (1 << bits) - 1
}

fn show(is_negative: bool, coefficient: u128, exponent: i32) -> String {
    let sign = if is_negative { "-" } else { "" };
    let digits = coefficient.to_string();
    match exponent {
        0 => format!("{sign}{digits}"),
        FRACTION_EXPONENT_MIN..=-1 => {
            let places = exponent.unsigned_abs() as usize;
            let digits = format!("{digits:0>width$}", width = places + 1);
            let (whole, fraction) = digits.split_at(digits.len() - places);
            format!("{sign}{whole}.{fraction}")
        }
        _ => format!("{sign}{digits}E{exponent}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(first: [u8; 2], coefficient: u64) -> Value {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&first);
        bytes[8..].copy_from_slice(&coefficient.to_be_bytes());
        Value::Decimal128(bytes)
    }

    #[test]
    fn a_decimal_survives_showing_and_parsing() {
        for (first, coefficient, text) in [
            ([0x0C, 0x3C], 0x145, "3.25"),
            ([0x8C, 0x3A], 3250, "-3.250"),
            ([0x0C, 0x40], 7, "7"),
            ([0x0C, 0x3A], 5, "0.005"),
            ([0x0C, 0x54], 1, "1E10"),
        ] {
            let value = wide(first, coefficient);
            assert_eq!(show_decimal(&value).as_deref(), Some(text));
            assert_eq!(parse_decimal(text), Some(value), "{text}");
        }
        assert_eq!(
            show_decimal(&wide([0x30, 0x3C], 0x145)).as_deref(),
            Some("3.25"),
            "the form of the standard"
        );
        let digits = "1234567890123456789012345678901234";
        assert_eq!(show_decimal(&parse_decimal(digits).unwrap()).as_deref(), Some(digits));
        assert_eq!(parse_decimal(&format!("{digits}5")), None);
        for wrong in ["", "-", ".", "1.2.3", "x", "1e", "1E9999", "inf"] {
            assert_eq!(parse_decimal(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn narrow_decimals_are_shown() {
        let narrow =
            |exponent: u32, coefficient: u32| Value::Decimal32((exponent << 23 | coefficient).to_be_bytes());
        assert_eq!(show_decimal(&narrow(99, 325)).as_deref(), Some("3.25"));
        let large = (0b11_u32 << 29 | 101 << 21 | (9_999_999 - (1 << 23))).to_be_bytes();
        assert_eq!(show_decimal(&Value::Decimal32(large)).as_deref(), Some("9999999"));
        let value = Value::Decimal64((397_u64 << 53 | 15).to_be_bytes());
        assert_eq!(show_decimal(&value).as_deref(), Some("1.5"));
        assert_eq!(show_decimal(&Value::Decimal32([0x78, 0, 0, 0])), None, "infinity");
        assert_eq!(show_decimal(&Value::Decimal64([0x7C, 0, 0, 0, 0, 0, 0, 0])), None, "not a number");
        assert_eq!(show_decimal(&Value::Null), None);
    }
}
