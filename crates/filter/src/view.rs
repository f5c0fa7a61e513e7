//! A message as filters see it: its system and user properties, one behind the other.

use bytes::Bytes;

use crate::system::SystemProperty;
use crate::value::{Value, ValueRef};
use crate::wire::{DecodeError, Decoder, put_text};

/// Stands where a system property has its code.
const USER: u8 = 0xff;

/// A view of a message whose properties cannot be known. A rule that would have to look at them fails on it, so the message is not passed over
/// in silence.
pub const UNREADABLE: &[u8] = &[USER];

/// Makes a view. A property that is not set is left out, or given as null.
///
/// Identifiers (`MessageId`, `CorrelationId` and so on) are given as text, whatever type the peer sent, because filters
/// compare them with text.
#[derive(Clone, Debug)]
pub struct ViewBuilder {
    bytes: Vec<u8>,
}

/// Most views fit, and need not grow step by step.
const USUAL_SIZE_BYTES: usize = 256;

impl Default for ViewBuilder {
    fn default() -> Self {
        Self { bytes: Vec::with_capacity(USUAL_SIZE_BYTES) }
    }
}

impl ViewBuilder {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn system(&mut self, property: SystemProperty, value: &Value) {
        self.bytes.push(property.code());
        value.encode(&mut self.bytes);
    }

    pub fn user(&mut self, name: &str, value: &Value) {
        self.user_ref(name, &value.borrow());
    }

    /// Spares the copy of a text that lies in the message.
    pub fn system_ref(&mut self, property: SystemProperty, value: &ValueRef<'_>) {
        self.bytes.push(property.code());
        value.encode(&mut self.bytes);
    }

    /// Spares the copy of a text that lies in the message.
    pub fn user_ref(&mut self, name: &str, value: &ValueRef<'_>) {
        self.bytes.push(USER);
        put_text(name, &mut self.bytes);
        value.encode(&mut self.bytes);
    }

    /// A copy of just the right size: to share a vector with room to spare would take a block of memory more.
    pub fn finish(self) -> Bytes {
        Bytes::copy_from_slice(&self.bytes)
    }
}

/// One property of a view.
#[derive(Clone, Debug)]
pub enum Entry<'a> {
    System(SystemProperty, ValueRef<'a>),
    User(&'a str, ValueRef<'a>),
}

/// Reads a view from the front. Ends after the first entry that cannot be read.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    decoder: Decoder<'a>,
}

impl<'a> Entries<'a> {
    pub fn of(view: &'a [u8]) -> Self {
        Self { decoder: Decoder { rest: view } }
    }

    fn read(&mut self) -> Result<Entry<'a>, DecodeError> {
        match self.decoder.byte("a property")? {
            USER => {
                let name = self.decoder.text("the name of a property")?;
                Ok(Entry::User(name, ValueRef::decode(&mut self.decoder)?))
            }
            code => {
                let property =
                    SystemProperty::of_code(code).ok_or(DecodeError::Value("a system property"))?;
                Ok(Entry::System(property, ValueRef::decode(&mut self.decoder)?))
            }
        }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.decoder.rest.is_empty() {
            return None;
        }
        let entry = self.read();
        if entry.is_err() {
            self.decoder.rest = &[];
        }
        Some(entry)
    }
}
