//! Encoded values and maps that are read in place.

use crate::codec::{Decode, DecodeError, Decoder, Problem};
use crate::value::Value;

/// One value, still encoded. Its outer form was checked, its content was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawValue<'a>(&'a [u8]);

impl<'a> RawValue<'a> {
    pub const fn new(encoded: &'a [u8]) -> Self {
        Self(encoded)
    }

    pub fn as_encoded(&self) -> &'a [u8] {
        self.0
    }

    pub fn decode(&self) -> Result<Value, DecodeError> {
        Value::decode_all(self.0)
    }

    /// Decodes into a type of its own, such as `Declare`.
    pub fn decode_as<T: Decode>(&self) -> Result<T, DecodeError> {
        T::decode_all(self.0)
    }

    /// Returns the text of a string or a symbol.
    pub fn as_str(&self) -> Option<&'a str> {
        let bytes = Decoder::new(self.0).characters("text").ok()?;
        std::str::from_utf8(bytes).ok()
    }

    /// Does the same, with an error that names the type that was found instead.
    pub fn decode_str(&self) -> Result<&'a str, DecodeError> {
        let mut decoder = Decoder::new(self.0);
        let bytes = decoder.characters("a string or symbol as key")?;
        std::str::from_utf8(bytes).map_err(|_| decoder.error(Problem::NotUtf8))
    }

    pub fn as_binary(&self) -> Option<&'a [u8]> {
        Decoder::new(self.0).binary().ok()
    }

    pub fn as_i64(&self) -> Option<i64> {
        self.scalar()?.as_i64()
    }

    pub fn as_timestamp(&self) -> Option<i64> {
        self.scalar()?.as_timestamp()
    }

    pub fn is_null(&self) -> bool {
        Decoder::new(self.0).take_null()
    }

    pub(crate) fn is_list(&self) -> bool {
        Decoder::new(self.0).enter_list("a list").is_ok()
    }

    /// Decodes the value if it is short, and therefore cheap to decode: no number is longer than this.
    fn scalar(&self) -> Option<Value> {
        const SCALAR_LEN_MAX: usize = 17;
        if self.0.len() <= SCALAR_LEN_MAX { self.decode().ok() } else { None }
    }
}

/// A map whose pairs are found one after the other, without decoding their values.
#[derive(Debug, Clone, Copy)]
pub struct RawMap<'a> {
    /// The announced number of values, including keys.
    count: u32,
    content: &'a [u8],
}

/// A key of a map and its value.
#[derive(Debug, Clone, Copy)]
pub struct Pair<'a> {
    pub key: RawValue<'a>,
    pub value: RawValue<'a>,
    encoded: &'a [u8],
}

impl<'a> Pair<'a> {
    /// Returns key and value as they are encoded in the map.
    pub fn as_encoded(&self) -> &'a [u8] {
        self.encoded
    }
}

impl<'a> RawMap<'a> {
    pub const EMPTY: Self = Self { count: 0, content: &[] };

    /// Reads the header of an encoded map.
    pub fn parse(encoded: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(encoded);
        let map = decoder.enter_map("a map")?;
        Ok(Self { count: map.count, content: decoder.remaining() })
    }

    pub fn from_content(count: u32, content: &'a [u8]) -> Self {
        Self { count, content }
    }

    /// Returns the map of a section. A missing or null section is an empty map.
    pub(super) fn section(value: Option<RawValue<'a>>) -> Result<Self, DecodeError> {
        match value {
            Some(value) if !value.is_null() => Self::parse(value.as_encoded()),
            _ => Ok(Self::EMPTY),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn entry_count(&self) -> usize {
        usize::try_from(self.count / 2).unwrap_or(usize::MAX)
    }

    /// Returns the encoded pairs, without the map's header.
    pub fn content(&self) -> &'a [u8] {
        self.content
    }

    pub fn entries(&self) -> Entries<'a> {
        Entries { decoder: Decoder::new(self.content), content: self.content, left: self.count / 2 }
    }

    /// Returns the value of a string or symbol key.
    pub fn get(&self, key: &str) -> Result<Option<RawValue<'a>>, DecodeError> {
        for entry in self.entries() {
            let entry = entry?;
            if Decoder::new(entry.key.0).characters("a key").is_ok_and(|found| found == key.as_bytes()) {
                return Ok(Some(entry.value));
            }
        }
        Ok(None)
    }

    /// Returns the text of a key; None when it is missing or no text.
    pub fn get_str(&self, key: &str) -> Result<Option<&'a str>, DecodeError> {
        Ok(self.get(key)?.and_then(|value| value.as_str()))
    }

    pub fn decode(&self) -> Result<Vec<(Value, Value)>, DecodeError> {
        self.entries()
            .map(|entry| entry.and_then(|entry| Ok((entry.key.decode()?, entry.value.decode()?))))
            .collect()
    }
}

/// Iterates over the pairs in the order of the wire. Ends after the first error.
#[derive(Debug)]
pub struct Entries<'a> {
    decoder: Decoder<'a>,
    content: &'a [u8],
    left: u32,
}

impl<'a> Entries<'a> {
    fn stop(&mut self) {
        self.left = 0;
        self.decoder = Decoder::new(&[]);
    }

    /// Returns an error for bytes after the last announced pair.
    fn excess(&mut self) -> Option<DecodeError> {
        let excess = self.decoder.remaining().len();
        let error = (excess != 0).then(|| self.decoder.error(Problem::Excess { excess }));
        self.stop();
        error
    }

    fn read(&mut self) -> Result<Pair<'a>, DecodeError> {
        let start = self.decoder.position();
        let key = RawValue(self.decoder.raw()?);
        let value = RawValue(self.decoder.raw()?);
        let encoded = self.content.get(start..self.decoder.position()).unwrap_or_default();
        Ok(Pair { key, value, encoded })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Pair<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // Most messages lack most sections, and the map of a missing section ends here.
        if self.left == 0 && self.decoder.is_empty() {
            return None;
        }
        self.next_or_excess()
    }
}

impl<'a> Entries<'a> {
    fn next_or_excess(&mut self) -> Option<Result<Pair<'a>, DecodeError>> {
        if self.left == 0 {
            return self.excess().map(Err);
        }
        self.left -= 1;
        Some(self.read().inspect_err(|_| self.stop()))
    }
}
