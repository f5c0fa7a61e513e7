//! JSON with comments and trailing commas.

use super::problem::Fault;
use super::{DOCUMENT_DEPTH_MAX, Key, Node, Value};
use crate::text::excerpt;

pub(crate) fn parse(text: &str) -> Result<Node, Fault> {
    // Some editors write a byte order mark.
    let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut parser = Parser { text, at: start, depth: 0 };
    parser.skip_blank()?;
    let root = parser.node()?;
    parser.skip_blank()?;
    if parser.at < text.len() {
        return Err(parser.unexpected("the end of the document"));
    }
    Ok(root)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self, expected: char) -> bool {
        let found = self.peek() == Some(expected);
        if found {
            self.at += expected.len_utf8();
        }
        found
    }

    fn unexpected(&self, expected: &str) -> Fault {
        let found = match self.peek() {
            Some(found) => format!("{found:?}"),
            None => "the end of the document".to_owned(),
        };
        Fault::new(self.at, format!("{found} where {expected} should be"))
    }

    /// Skips white space and comments.
    fn skip_blank(&mut self) -> Result<(), Fault> {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            let rest = rest.get(blank..).unwrap_or_default();
            let skipped = if rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                let end = rest.find("*/").ok_or_else(|| {
                    Fault::new(self.at + blank, "a comment that is not closed; end it with */")
                })?;
                end + 2
            } else {
                0
            };
            self.at += blank + skipped;
            if skipped == 0 {
                return Ok(());
            }
        }
    }

    fn node(&mut self) -> Result<Node, Fault> {
        let at = self.at;
        let value = match self.peek() {
            Some('{') => self.nested(Self::table)?,
            Some('[') => self.nested(Self::list)?,
            Some('"') => Value::Text(self.string()?),
            Some('-' | '0'..='9') => self.number()?,
            _ => self.word()?,
        };
        Ok(Node { at, value })
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, Fault>) -> Result<Value, Fault> {
        if self.depth == DOCUMENT_DEPTH_MAX {
            let message = format!("the document nests deeper than {DOCUMENT_DEPTH_MAX} levels");
            return Err(Fault::new(self.at, message));
        }
        self.at += 1;
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn table(&mut self) -> Result<Value, Fault> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        loop {
            self.skip_blank()?;
            if self.take('}') {
                return Ok(Value::Table(entries));
            }
            if self.peek() != Some('"') {
                return Err(self.unexpected("a key in double quotes or '}'"));
            }
            let key = Key { at: self.at, text: self.string()? };
            if !seen.insert(key.text.clone()) {
                return Err(Fault::new(key.at, format!("the key '{}' is given twice", excerpt(&key.text))));
            }
            self.skip_blank()?;
            if !self.take(':') {
                return Err(self.unexpected("':'"));
            }
            self.skip_blank()?;
            let node = self.node()?;
            entries.push((key, node));
            self.skip_blank()?;
            if !self.take(',') && self.peek() != Some('}') {
                return Err(self.unexpected("',' or '}'"));
            }
        }
    }

    fn list(&mut self) -> Result<Value, Fault> {
        let mut nodes = Vec::new();
        loop {
            self.skip_blank()?;
            if self.take(']') {
                return Ok(Value::List(nodes));
            }
            nodes.push(self.node()?);
            self.skip_blank()?;
            if !self.take(',') && self.peek() != Some(']') {
                return Err(self.unexpected("',' or ']'"));
            }
        }
    }

    fn word(&mut self) -> Result<Value, Fault> {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let value = match rest.get(..end) {
            Some("null") => Value::Null,
            Some("true") => Value::Boolean(true),
            Some("false") => Value::Boolean(false),
            _ => {
                return Err(
                    self.unexpected("a value (text in double quotes, a number, true, false, null, { or [)")
                );
            }
        };
        self.at += end;
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, Fault> {
        let rest = self.rest();
        let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.');
        let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
        let digits = rest.get(..end).unwrap_or_default();
        let value = number_of(digits).ok_or_else(|| {
            Fault::new(self.at, format!("'{}' is not a number as JSON writes them", excerpt(digits)))
        })?;
        self.at += end;
        Ok(value)
    }

    fn string(&mut self) -> Result<String, Fault> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = self.rest();
            let plain = rest.find(|c: char| c == '"' || c == '\\' || c < ' ').unwrap_or(rest.len());
            text.push_str(rest.get(..plain).unwrap_or_default());
            self.at += plain;
            match self.peek() {
                Some('"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some('\\') => text.push(self.escape()?),
                Some('\n' | '\r') | None => {
                    return Err(Fault::new(start, "text that is not closed; end it with '\"'"));
                }
                Some(other) => {
                    let message =
                        format!("the character {other:?} inside text; write it as \\u{:04x}", other as u32);
                    return Err(Fault::new(self.at, message));
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, Fault> {
        let at = self.at;
        self.at += 1;
        let letter = self.peek();
        self.at += letter.map_or(0, char::len_utf8);
        Ok(match letter {
            Some(plain @ ('"' | '\\' | '/')) => plain,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => return self.unicode(at),
            _ => {
                return Err(Fault::new(
                    at,
                    "an escape that JSON does not have; write \\\\ for one backslash",
                ));
            }
        })
    }

    fn unicode(&mut self, at: usize) -> Result<char, Fault> {
        let wrong = || Fault::new(at, "\\u needs four hexadecimal digits that make a character");
        let first = self.hex().ok_or_else(wrong)?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first).ok_or_else(wrong);
        }
        // A character beyond the first 65,536 has two escapes.
        if !self.rest().starts_with("\\u") {
            return Err(wrong());
        }
        self.at += 2;
        let second = self.hex().filter(|half| (0xdc00..0xe000).contains(half)).ok_or_else(wrong)?;
        char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)).ok_or_else(wrong)
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.rest().get(..4)?;
        let all_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.at += 4;
        if all_hex { u32::from_str_radix(digits, 16).ok() } else { None }
    }
}

/// Parses a JSON number: `-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?`.
fn number_of(text: &str) -> Option<Value> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) =
        unsigned.split_once(['e', 'E']).map_or((unsigned, None), |(m, e)| (m, Some(e)));
    let (whole, fraction) = mantissa.split_once('.').map_or((mantissa, None), |(w, f)| (w, Some(f)));
    let exponent_is_fine =
        exponent.is_none_or(|exponent| digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)));
    let has_leading_zero = whole.len() > 1 && whole.starts_with('0');
    if !digits(whole) || has_leading_zero || !fraction.is_none_or(digits) || !exponent_is_fine {
        return None;
    }
    if fraction.is_none() && exponent.is_none() {
        if let Ok(integer) = text.parse() {
            return Some(Value::Integer(integer));
        }
        if let Ok(unsigned) = text.parse() {
            return Some(Value::Unsigned(unsigned));
        }
    }
    text.parse().ok().filter(|float: &f64| float.is_finite()).map(Value::Float)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        parse(text).unwrap().value
    }

    fn refused(text: &str) -> String {
        parse(text).unwrap_err().locate(text).to_string()
    }

    #[test]
    fn comments_and_trailing_commas_are_accepted() {
        let text =
            "\u{feff}// first\n{ /* a */ \"a\": [1, 2, ], // last\n \"b\": { \"c\": null, }, }\n// end";
        let Value::Table(entries) = value(text) else { panic!("not a table") };
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].0.text, "a");
        assert_eq!(value("\"http://x\""), Value::Text("http://x".to_owned()));
    }

    #[test]
    fn numbers_and_text_follow_the_json_standard() {
        assert_eq!(value("-12"), Value::Integer(-12));
        assert_eq!(value("18446744073709551615"), Value::Unsigned(u64::MAX));
        assert_eq!(value("1.5e2"), Value::Float(150.0));
        assert_eq!(value(r#""a\n\"\u00e4\ud83d\ude00""#), Value::Text("a\n\"ä😀".to_owned()));
        for wrong in [
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "--1",
            "0x10",
            "1e999",
            "NaN",
            "tru",
            "'a'",
            "\"\\x\"",
            "\"a\nb\"",
            "\"\\ud83d\"",
            "\"\\ud83dx\"",
            "\"\\u12g4\"",
            "\"\\u12",
            "\"\\",
            "{a: 1}",
            "[1 2]",
            "{\"a\" 1}",
            "{\"a\": 1 \"b\": 2}",
            "",
            "1 2",
            "/*",
            "[,]",
            "\"\t\"",
            "\"\\uä\"",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_error_has_its_place() {
        assert_eq!(refused("{\n  \"ä\": 1,\n  \"ä\": 2 }"), "line 3, column 3: the key 'ä' is given twice");
        assert_eq!(refused("{ \"ä\" 1 }"), "line 1, column 7: '1' where ':' should be");
        assert_eq!(
            refused("[1,"),
            "line 1, column 4: the end of the document where a value (text in double quotes, a number, true, false, null, { or [) should be"
        );
        assert_eq!(refused("/* x"), "line 1, column 1: a comment that is not closed; end it with */");
    }

    #[test]
    fn nesting_is_limited() {
        assert!(parse(&("[".repeat(DOCUMENT_DEPTH_MAX) + &"]".repeat(DOCUMENT_DEPTH_MAX))).is_ok());
        assert!(refused(&"[".repeat(1_000_000)).contains("deeper than 32"));
        assert!(refused(&"{\"a\":".repeat(1_000_000)).contains("deeper than 32"));
    }
}
