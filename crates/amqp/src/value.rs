//! One AMQP value of any type, owned.

use bytes::Bytes;

use crate::text::{Symbol, Text};

/// Any AMQP value. Strings and binaries are cheap to clone.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Value {
    #[default]
    Null,
    Boolean(bool),
    Ubyte(u8),
    Ushort(u16),
    Uint(u32),
    Ulong(u64),
    Byte(i8),
    Short(i16),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
    /// IEEE 754-2008 bytes, stored as received.
    Decimal32([u8; 4]),
    Decimal64([u8; 8]),
    Decimal128([u8; 16]),
    Char(char),
    /// Milliseconds since 1970 UTC.
    Timestamp(i64),
    /// Network byte order.
    Uuid([u8; 16]),
    Binary(Bytes),
    String(Text),
    Symbol(Symbol),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Array(Array),
    Described(Box<Described>),
}

/// The type of a value, without its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Null,
    Boolean,
    Ubyte,
    Ushort,
    Uint,
    Ulong,
    Byte,
    Short,
    Int,
    Long,
    Float,
    Double,
    Decimal32,
    Decimal64,
    Decimal128,
    Char,
    Timestamp,
    Uuid,
    Binary,
    String,
    Symbol,
    List,
    Map,
    Array,
    Described,
}

/// A value with a descriptor that defines its meaning.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    pub descriptor: Value,
    pub value: Value,
}

/// Values of one kind. An empty array has a kind, too, because its encoding contains it.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// Descriptors shared by all elements, outermost first; nearly always empty.
    descriptors: Option<Box<[Value]>>,
    kind: Kind,
    elements: Vec<Value>,
}

/// An AMQP array holds one kind of value, and this one would hold two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an array of {expected:?} cannot hold a {found:?}")]
pub struct MixedArray {
    pub expected: Kind,
    pub found: Kind,
}

impl Array {
    /// Creates an array. Rejects the kind `Kind::Described`: use [`Array::described`], which shares the descriptor.
    pub fn new(kind: Kind, elements: Vec<Value>) -> Result<Self, MixedArray> {
        Self::described(Vec::new(), kind, elements)
    }

    /// Creates an array whose elements all have the same descriptors (outermost first).
    pub fn described(descriptors: Vec<Value>, kind: Kind, elements: Vec<Value>) -> Result<Self, MixedArray> {
        let stray =
            elements.iter().map(Value::kind).find(|found| *found != kind || *found == Kind::Described);
        match stray {
            Some(found) => Err(MixedArray { expected: kind, found }),
            None if kind == Kind::Described => Err(MixedArray { expected: kind, found: kind }),
            None => Ok(Self::decoded(descriptors, kind, elements)),
        }
    }

    /// Creates an array without checks, for the decoder, which reads every element by the one constructor of the array.
    pub(crate) fn decoded(descriptors: Vec<Value>, kind: Kind, elements: Vec<Value>) -> Self {
        let descriptors = (!descriptors.is_empty()).then(|| descriptors.into_boxed_slice());
        Self { descriptors, kind, elements }
    }

    pub fn symbols(symbols: impl IntoIterator<Item = Symbol>) -> Self {
        let elements = symbols.into_iter().map(Value::Symbol).collect();
        Self { descriptors: None, kind: Kind::Symbol, elements }
    }

    pub fn uuids(uuids: impl IntoIterator<Item = [u8; 16]>) -> Self {
        let elements = uuids.into_iter().map(Value::Uuid).collect();
        Self { descriptors: None, kind: Kind::Uuid, elements }
    }

    pub fn longs(longs: impl IntoIterator<Item = i64>) -> Self {
        let elements = longs.into_iter().map(Value::Long).collect();
        Self { descriptors: None, kind: Kind::Long, elements }
    }

    pub fn strings(strings: impl IntoIterator<Item = Text>) -> Self {
        let elements = strings.into_iter().map(Value::String).collect();
        Self { descriptors: None, kind: Kind::String, elements }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn descriptors(&self) -> &[Value] {
        self.descriptors.as_deref().unwrap_or_default()
    }

    /// Returns the elements without their shared descriptors.
    pub fn elements(&self) -> &[Value] {
        &self.elements
    }

    pub fn into_elements(self) -> Vec<Value> {
        self.elements
    }
}

impl Value {
    pub fn described(descriptor: impl Into<Value>, value: impl Into<Value>) -> Self {
        Self::Described(Box::new(Described { descriptor: descriptor.into(), value: value.into() }))
    }

    /// Creates a symbol from a literal; `Value::from(&str)` creates a string.
    pub fn symbol(text: &'static str) -> Self {
        Self::Symbol(Symbol::from_static(text))
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Null => Kind::Null,
            Self::Boolean(_) => Kind::Boolean,
            Self::Ubyte(_) => Kind::Ubyte,
            Self::Ushort(_) => Kind::Ushort,
            Self::Uint(_) => Kind::Uint,
            Self::Ulong(_) => Kind::Ulong,
            Self::Byte(_) => Kind::Byte,
            Self::Short(_) => Kind::Short,
            Self::Int(_) => Kind::Int,
            Self::Long(_) => Kind::Long,
            Self::Float(_) => Kind::Float,
            Self::Double(_) => Kind::Double,
            Self::Decimal32(_) => Kind::Decimal32,
            Self::Decimal64(_) => Kind::Decimal64,
            Self::Decimal128(_) => Kind::Decimal128,
            Self::Char(_) => Kind::Char,
            Self::Timestamp(_) => Kind::Timestamp,
            Self::Uuid(_) => Kind::Uuid,
            Self::Binary(_) => Kind::Binary,
            Self::String(_) => Kind::String,
            Self::Symbol(_) => Kind::Symbol,
            Self::List(_) => Kind::List,
            Self::Map(_) => Kind::Map,
            Self::Array(_) => Kind::Array,
            Self::Described(_) => Kind::Described,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Returns the text of a string or a symbol.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text.as_str()),
            Self::Symbol(symbol) => Some(symbol.as_str()),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Boolean(value) = self { Some(*value) } else { None }
    }

    /// Returns the number of any integer type, if it is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::Ulong(value) => Some(value),
            _ => self.as_i64().and_then(|value| u64::try_from(value).ok()),
        }
    }

    /// Returns the number of any integer type, if it fits.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Self::Ubyte(value) => Some(value.into()),
            Self::Ushort(value) => Some(value.into()),
            Self::Uint(value) => Some(value.into()),
            Self::Ulong(value) => i64::try_from(value).ok(),
            Self::Byte(value) => Some(value.into()),
            Self::Short(value) => Some(value.into()),
            Self::Int(value) => Some(value.into()),
            Self::Long(value) => Some(value),
            _ => None,
        }
    }

    pub fn as_u32(&self) -> Option<u32> {
        self.as_u64().and_then(|value| u32::try_from(value).ok())
    }

    pub fn as_i32(&self) -> Option<i32> {
        self.as_i64().and_then(|value| i32::try_from(value).ok())
    }

    /// Returns a timestamp, or an integer as milliseconds: SDKs send both for times.
    pub fn as_timestamp(&self) -> Option<i64> {
        if let Self::Timestamp(value) = self { Some(*value) } else { self.as_i64() }
    }

    pub fn as_uuid(&self) -> Option<[u8; 16]> {
        if let Self::Uuid(value) = self { Some(*value) } else { None }
    }

    pub fn as_bytes(&self) -> Option<&Bytes> {
        if let Self::Binary(value) = self { Some(value) } else { None }
    }

    pub fn as_list(&self) -> Option<&[Value]> {
        if let Self::List(values) = self { Some(values) } else { None }
    }

    pub fn as_map(&self) -> Option<&[(Value, Value)]> {
        if let Self::Map(entries) = self { Some(entries) } else { None }
    }

    pub fn as_array(&self) -> Option<&Array> {
        if let Self::Array(array) = self { Some(array) } else { None }
    }

    pub fn as_described(&self) -> Option<&Described> {
        if let Self::Described(described) = self { Some(described) } else { None }
    }

    /// Returns the elements of a list or an array: SDKs differ in which of them they send.
    pub fn as_elements(&self) -> Option<&[Value]> {
        match self {
            Self::List(values) => Some(values),
            Self::Array(array) => Some(array.elements()),
            _ => None,
        }
    }

    /// Returns the value of a string or symbol key, if this is a map.
    pub fn lookup(&self, key: &str) -> Option<&Value> {
        self.as_map()?.iter().find(|(name, _)| name.as_str() == Some(key)).map(|(_, value)| value)
    }
}

macro_rules! value_from {
    ($($source:ty => $variant:ident),* $(,)?) => {
        $(impl From<$source> for Value {
            fn from(value: $source) -> Self {
                Self::$variant(value)
            }
        })*
    };
}

value_from! {
    bool => Boolean, u8 => Ubyte, u16 => Ushort, u32 => Uint, u64 => Ulong, i8 => Byte, i16 => Short, i32 => Int,
    i64 => Long, f32 => Float, f64 => Double, char => Char, Bytes => Binary, Text => String, Symbol => Symbol,
    Vec<Value> => List, Vec<(Value, Value)> => Map, Array => Array,
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::String(Text::from_static(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text.into())
    }
}

impl From<Fields> for Value {
    fn from(fields: Fields) -> Self {
        Self::Map(fields.0.into_iter().map(|(key, value)| (Value::Symbol(key), value)).collect())
    }
}

/// A map with symbol keys, in the order of the wire. It is small, so a lookup is a scan.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fields(Vec<(Symbol, Value)>);

impl Fields {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Adds the pair, or replaces the value if the key exists.
    pub fn insert(&mut self, key: impl Into<Symbol>, value: impl Into<Value>) {
        let (key, value) = (key.into(), value.into());
        match self.0.iter_mut().find(|(name, _)| *name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key, value)),
        }
    }

    /// Does the same and returns the map, so that it can be built in one expression.
    #[must_use]
    pub fn with(mut self, key: impl Into<Symbol>, value: impl Into<Value>) -> Self {
        self.insert(key, value);
        self
    }

    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.0.iter().position(|(name, _)| *name == key)?;
        Some(self.0.remove(at).1)
    }

    pub fn iter(&self) -> std::slice::Iter<'_, (Symbol, Value)> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(Symbol, Value)> for Fields {
    fn from_iter<I: IntoIterator<Item = (Symbol, Value)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl IntoIterator for Fields {
    type Item = (Symbol, Value);
    type IntoIter = std::vec::IntoIter<(Symbol, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Fields {
    type Item = &'a (Symbol, Value);
    type IntoIter = std::slice::Iter<'a, (Symbol, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
