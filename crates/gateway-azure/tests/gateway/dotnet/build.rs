//! Builds AMQP values from a recording's notation. Values that the broker chose in the recording are replaced by those
//! of this run.

use std::collections::{HashMap, HashSet};

use bytes::{Bytes, BytesMut};
use peeklock_amqp::{Array, Encode, Symbol, Value};

use super::notation::{Expr, unhex};
use super::schema::{composite, section_code};

/// The values of this run for the names in the recording.
#[derive(Default)]
pub(super) struct Known {
    /// Lock tokens, in network byte order.
    guids: HashMap<String, [u8; 16]>,
    /// Ids of the broker: their kind, the recorded id, and the id of this run.
    ids: HashMap<(String, Expr), Value>,
    /// Times that the client has sent.
    times: HashSet<String>,
    /// The channel of the current frame: delivery ids and handles belong to a session.
    pub(super) session: String,
}

/// Map keys whose value is an id that the broker assigns.
const ID_KEYS: &[&str] = &["com.microsoft:producer-id"];

impl Known {
    /// Returns the key under which an id is stored: handles and delivery ids belong to a session.
    fn id_key(&self, kind: &str, recorded: &Expr) -> (String, Expr) {
        let scope = if matches!(kind, "handle" | "delivery-id") { self.session.as_str() } else { "" };
        (format!("{kind} {scope}"), recorded.clone())
    }

    pub(super) fn learn_id(&mut self, kind: &str, recorded: &Expr, found: &Value) {
        self.ids.insert(self.id_key(kind, recorded), found.clone());
    }

    pub(super) fn id(&self, kind: &str, recorded: &Expr) -> Option<&Value> {
        self.ids.get(&self.id_key(kind, recorded))
    }

    /// Returns the token of that name; a new name gets the given token.
    pub(super) fn guid_or(&mut self, name: &str, found: [u8; 16]) -> [u8; 16] {
        *self.guids.entry(name.to_owned()).or_insert(found)
    }

    pub(super) fn was_sent(&self, time: &str) -> bool {
        self.times.contains(time)
    }

    /// Stores the times in a frame that is about to be sent.
    pub(super) fn note_times(&mut self, sent: &Expr) {
        let times = &mut self.times;
        sent.clone().for_each(&mut |expr| {
            if let Expr::Word(text, _) = expr {
                times.insert(text.clone());
            }
        });
    }

    /// Returns the value of an expression; `kind` is the type of a word without its own.
    pub(super) fn value(&self, expr: &Expr, kind: &str) -> Value {
        match expr {
            Expr::Word(text, own) => word(text, own.as_deref().unwrap_or(kind)),
            Expr::Text(text) => text.clone().into(),
            Expr::Symbol(text) => Value::Symbol(Symbol::parse(text).unwrap()),
            Expr::Binary(bytes) => Value::Binary(bytes.clone().into()),
            Expr::Char(character) => Value::Char(*character),
            Expr::Uuid(name) => Value::Uuid(self.guid(name)),
            Expr::Tag(name) => Value::Binary(Bytes::copy_from_slice(&dotnet_order(self.guid(name)))),
            Expr::List(all) => Value::List(self.values(all)),
            Expr::Array(all) => array(self.values(all)),
            Expr::Map(entries) => Value::Map(entries.iter().map(|entry| self.entry(entry)).collect()),
            Expr::Described(descriptor, value) => {
                Value::described(self.value(descriptor, "*"), self.value(value, "*"))
            }
            Expr::Section(name, value) => Value::described(section_code(name), self.value(value, "*")),
            Expr::Composite(name, _) => self.composite(name, expr),
            Expr::Message(sections) => Value::Binary(self.encoded(sections)),
        }
    }

    fn values(&self, all: &[Expr]) -> Vec<Value> {
        all.iter().map(|expr| self.value(expr, "*")).collect()
    }

    fn entry(&self, (key, value): &(Expr, Expr)) -> (Value, Value) {
        let id = id_kind(key).and_then(|kind| self.id(kind, value)).cloned();
        (self.value(key, "*"), id.unwrap_or_else(|| self.value(value, "*")))
    }

    /// Encodes every field, as .NET does: a missing field is a null.
    fn composite(&self, name: &str, expr: &Expr) -> Value {
        let (code, fields) = composite(name);
        let known = |field: &str| fields.iter().any(|(name, _)| *name == field);
        expr.fields().iter().for_each(|(field, _)| assert!(known(field), "a {name} has no {field}"));
        let value = |(field, kind): &(&str, &str)| match expr.get(field) {
            Some(recorded) => {
                self.own_id(name, field, recorded).unwrap_or_else(|| self.value(recorded, kind))
            }
            None => Value::Null,
        };
        Value::described(code, fields.iter().map(value).collect::<Vec<_>>())
    }

    /// Returns the broker's id of this run, where a client repeats one.
    fn own_id(&self, composite: &str, field: &str, recorded: &Expr) -> Option<Value> {
        let kind = match (composite, field) {
            ("disposition", "first" | "last") => "delivery-id",
            ("discharge" | "transactional-state", "txn-id") => "txn-id",
            _ => return None,
        };
        Some(self.id(kind, recorded).unwrap_or_else(|| panic!("no {field} {recorded:?} so far")).clone())
    }

    pub(super) fn encoded(&self, sections: &[Expr]) -> Bytes {
        let mut out = BytesMut::new();
        sections.iter().for_each(|section| self.value(section, "*").encode(&mut out));
        out.freeze()
    }

    fn guid(&self, name: &str) -> [u8; 16] {
        match self.guids.get(name) {
            Some(guid) => *guid,
            None => {
                unhex(&name.replace('-', "")).try_into().unwrap_or_else(|_| panic!("no token {name} so far"))
            }
        }
    }
}

/// Returns the kind of id that a map key has as its value.
pub(super) fn id_kind(key: &Expr) -> Option<&'static str> {
    let Expr::Symbol(key) = key else { return None };
    ID_KEYS.iter().copied().find(|known| known == key)
}

fn array(values: Vec<Value>) -> Value {
    let kind = values.first().expect("an array with elements").kind();
    Value::Array(Array::new(kind, values).unwrap())
}

/// Returns the GUID in the byte order of .NET, whose first three groups are little-endian.
pub(super) fn dotnet_order(mut guid: [u8; 16]) -> [u8; 16] {
    guid[..4].reverse();
    guid[4..6].reverse();
    guid[6..8].reverse();
    guid
}

fn word(text: &str, kind: &str) -> Value {
    fn parsed<T: std::str::FromStr>(text: &str) -> T {
        text.parse().unwrap_or_else(|_| panic!("not a {}: {text}", std::any::type_name::<T>()))
    }
    match (text, kind) {
        ("null", _) => Value::Null,
        ("true", _) | ("receiver", "role") => true.into(),
        ("false", _) | ("sender", "role") => false.into(),
        (_, "ulong") if text.starts_with("0x") => Value::Ulong(u64::from_str_radix(&text[2..], 16).unwrap()),
        (_, "uint") if text.starts_with("0x") => Value::Uint(u32::from_str_radix(&text[2..], 16).unwrap()),
        (_, "ubyte") => Value::Ubyte(parsed(text)),
        (_, "ushort") => Value::Ushort(parsed(text)),
        (_, "uint") => Value::Uint(parsed(text)),
        (_, "ulong") => Value::Ulong(parsed(text)),
        (_, "byte") => Value::Byte(parsed(text)),
        (_, "short") => Value::Short(parsed(text)),
        (_, "int") => Value::Int(parsed(text)),
        (_, "long") => Value::Long(parsed(text)),
        (_, "float") => Value::Float(parsed(text)),
        (_, "double") => Value::Double(parsed(text)),
        (_, "decimal128") => Value::Decimal128(unhex(text).try_into().unwrap()),
        (_, "timestamp") => Value::Timestamp(millis(text)),
        _ => panic!("not a {kind}: {text}"),
    }
}

/// Returns the milliseconds since 1970 of `2026-11-17T20:31:07.986Z`.
pub(super) fn millis(time: &str) -> i64 {
    let numbers: Vec<i64> =
        time.split(|found: char| !found.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect();
    let [year, month, day, hour, minute, second, millis] = numbers[..] else { panic!("not a time: {time}") };
    // Days since 1970 in a calendar whose years begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    (((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + millis
}
