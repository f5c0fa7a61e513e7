//! The input of filters: the system and user properties of a message in one byte string.

use bytes::Bytes;

use crate::system::SystemProperty;
use crate::value::{Value, ValueRef};
use crate::wire::{DecodeError, Decoder, put_text};

/// The code of a user property, in the place of that of a system property.
const USER: u8 = 0xff;

/// The view of a message whose properties cannot be read. A rule that reads properties fails on it, so that the message is not skipped
/// silently.
pub const UNREADABLE: &[u8] = &[USER];

/// Builds a view. Unset properties are left out or null.
///
/// Identifiers such as `MessageId` and `CorrelationId` are text, whatever type the peer sent, because filters compare them with text.
#[derive(Clone, Debug)]
pub struct ViewBuilder {
    bytes: Vec<u8>,
}

/// Most views fit into this capacity.
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

    /// Like [`Self::system`], without copying a text of the message first.
    pub fn system_ref(&mut self, property: SystemProperty, value: &ValueRef<'_>) {
        self.bytes.push(property.code());
        value.encode(&mut self.bytes);
    }

    /// Like [`Self::user`], without copying a text of the message first.
    pub fn user_ref(&mut self, name: &str, value: &ValueRef<'_>) {
        self.bytes.push(USER);
        put_text(name, &mut self.bytes);
        value.encode(&mut self.bytes);
    }

    /// Returns a copy of the exact size. Sharing a vector with spare capacity would allocate another block.
    pub fn finish(self) -> Bytes {
        Bytes::copy_from_slice(&self.bytes)
    }
}

/// One property of a view.
#[derive(Clone, Debug)]
pub enum ViewProperty<'a> {
    System(SystemProperty, ValueRef<'a>),
    User(&'a str, ValueRef<'a>),
}

/// Reads a view from the front. Ends after the first entry that cannot be decoded.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    decoder: Decoder<'a>,
}

impl<'a> Entries<'a> {
    pub fn of(view: &'a [u8]) -> Self {
        Self { decoder: Decoder::new(view) }
    }

    fn read(&mut self) -> Result<ViewProperty<'a>, DecodeError> {
        match self.decoder.byte("a property")? {
            USER => {
                let name = self.decoder.text("the name of a property")?;
                Ok(ViewProperty::User(name, ValueRef::decode(&mut self.decoder)?))
            }
            code => {
                let property =
                    SystemProperty::of_code(code).ok_or(DecodeError::Value("a system property"))?;
                Ok(ViewProperty::System(property, ValueRef::decode(&mut self.decoder)?))
            }
        }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<ViewProperty<'a>, DecodeError>;

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
