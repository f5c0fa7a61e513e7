//! A parsed document as an input of `serde`. Errors get their place and path while they are returned.

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer,
    MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::nearest::nearest;
use super::problem::Fault;
use super::{Key, Node, Value};
use crate::text::{excerpt, one_of};

pub(crate) fn read<T: DeserializeOwned>(root: &Node) -> Result<T, Fault> {
    T::deserialize(root)
}

impl de::Error for Fault {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Fault::unplaced(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Fault::unplaced(format!("{} where {expected} should be", shown(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Fault::unplaced(format!("{} is not {expected}", shown(found)))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        unknown("key", field, expected)
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        unknown("word", variant, expected)
    }

    fn missing_field(field: &'static str) -> Self {
        Fault::unplaced(format!("the key '{field}' is missing"))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Fault::unplaced(format!("the key '{field}' is given twice, in two spellings"))
    }
}

fn shown(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(value) => value.to_string(),
        Unexpected::Signed(value) => value.to_string(),
        Unexpected::Str(text) => format!("the text '{}'", excerpt(text)),
        Unexpected::Unit | Unexpected::Option => "null".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a table".to_owned(),
        other => other.to_string(),
    }
}

fn unknown(kind: &str, given: &str, known: &'static [&'static str]) -> Fault {
    // An error leaves out a longer list of known keys.
    const KNOWN_SHOWN_MAX: usize = 24;
    let given_shown = excerpt(given);
    let hint = match nearest(given, known.iter().copied()) {
        // The hint uses the spelling of the document.
        Some(near) if given.contains('-') => format!("; did you mean '{}'?", dashed(near)),
        Some(near) => format!("; did you mean '{near}'?"),
        None if known.is_empty() => "; none is known here".to_owned(),
        None if known.len() <= KNOWN_SHOWN_MAX => format!("; write {}", one_of(known)),
        None => String::new(),
    };
    Fault::unplaced(format!("unknown {kind} '{given_shown}'{hint}"))
}

/// Writes `lockDuration` as `lock-duration`.
fn dashed(key: &str) -> String {
    let mut dashed = String::new();
    for letter in key.chars() {
        if letter.is_ascii_uppercase() && !dashed.is_empty() {
            dashed.push('-');
        }
        dashed.push(letter.to_ascii_lowercase());
    }
    dashed
}

impl<'de> Deserializer<'de> for &Node {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let read = match &self.value {
            Value::Null => visitor.visit_unit(),
            Value::Boolean(value) => visitor.visit_bool(*value),
            Value::Integer(value) => match u64::try_from(*value) {
                Ok(value) => visitor.visit_u64(value),
                Err(_) => visitor.visit_i64(*value),
            },
            Value::Unsigned(value) => visitor.visit_u64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(text) => visitor.visit_str(text),
            Value::List(nodes) => visitor.visit_seq(List { nodes: nodes.iter(), index: 0 }),
            Value::Table(entries) => visitor.visit_map(Table::new(entries, &[])),
        };
        read.map_err(|fault| fault.at(self.at))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self).map_err(|fault| fault.at(self.at))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match &self.value {
            Value::Table(entries) => {
                visitor.visit_map(Table::new(entries, fields)).map_err(|fault| fault.at(self.at))
            }
            // `serde` would accept a list as the values of the fields in order.
            _ => Err(self.not("a table of keys and values")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match &self.value {
            Value::Text(text) => visitor.visit_enum(Word(text)).map_err(|fault| fault.at(self.at)),
            _ => Err(self.not("one of some words")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct
        map identifier ignored_any
    }
}

impl Node {
    fn not(&self, expected: &str) -> Fault {
        let found = match &self.value {
            Value::Null => Unexpected::Unit,
            Value::Boolean(value) => Unexpected::Bool(*value),
            Value::Integer(value) => Unexpected::Signed(*value),
            Value::Unsigned(value) => Unexpected::Unsigned(*value),
            Value::Float(value) => Unexpected::Float(*value),
            Value::Text(text) => Unexpected::Str(text),
            Value::List(_) => Unexpected::Seq,
            Value::Table(_) => Unexpected::Map,
        };
        Fault::invalid_type(found, &expected).at(self.at)
    }
}

struct List<'a> {
    nodes: std::slice::Iter<'a, Node>,
    index: usize,
}

impl<'de> SeqAccess<'de> for List<'_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let Some(node) = self.nodes.next() else { return Ok(None) };
        self.index += 1;
        let index = self.index;
        seed.deserialize(node).map(Some).map_err(|fault| fault.at(node.at).under(&format!("[{index}]")))
    }
}

struct Table<'a> {
    entries: std::slice::Iter<'a, (Key, Node)>,
    fields: &'static [&'static str],
    current: Option<&'a (Key, Node)>,
}

impl<'a> Table<'a> {
    fn new(entries: &'a [(Key, Node)], fields: &'static [&'static str]) -> Self {
        Table { entries: entries.iter(), fields, current: None }
    }

    /// Returns the field of a key.
    fn field<'k>(&self, key: &'k str) -> &'k str {
        self.fields.iter().copied().find(|field| is_spelling(key, field)).unwrap_or(key)
    }
}

/// Returns whether a key is another spelling of a field: `lock-duration` and `lock_duration` for `lockDuration`.
pub(super) fn is_spelling(key: &str, field: &str) -> bool {
    if !key.contains(['-', '_']) {
        return false;
    }
    let mut parts = key.split(['-', '_']);
    let mut rest = parts.next().and_then(|first| field.strip_prefix(first));
    for part in parts {
        rest = rest.and_then(|rest| {
            let (head, tail) = rest.split_at_checked(part.len())?;
            let capital = part.chars().next().is_some_and(|c| c.is_ascii_lowercase())
                && head.starts_with(|c: char| c.is_ascii_uppercase());
            (capital && head.eq_ignore_ascii_case(part)).then_some(tail)
        });
    }
    rest == Some("")
}

impl<'de> MapAccess<'de> for Table<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        self.current = self.entries.next();
        let Some((key, _)) = self.current else { return Ok(None) };
        let text: StrDeserializer<'_, Fault> = self.field(&key.text).into_deserializer();
        seed.deserialize(text).map(Some).map_err(|fault| fault.at(key.at))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        let Some((key, node)) = self.current else { return Err(Fault::unplaced("a key without its value")) };
        seed.deserialize(node).map_err(|fault| fault.at(node.at).under(&key.text))
    }
}

/// The name of an enum's variant.
struct Word<'a>(&'a str);

impl<'de> EnumAccess<'de> for Word<'_> {
    type Error = Fault;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Fault> {
        let text: StrDeserializer<'_, Fault> = self.0.into_deserializer();
        Ok((seed.deserialize(text)?, self))
    }
}

impl<'de> VariantAccess<'de> for Word<'_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _seed: T) -> Result<T::Value, Fault> {
        Err(Fault::unplaced("a word is not enough here"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _length: usize, _visitor: V) -> Result<V::Value, Fault> {
        Err(Fault::unplaced("a word is not enough here"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Fault> {
        Err(Fault::unplaced("a word is not enough here"))
    }
}
