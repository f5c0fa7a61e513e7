//! Structs as tagged fields.

use super::{DecodeError, Decoder, Wire, put_large, put_number, put_sized_value};

/// Appends a field, unless its value is the absent one. The tags of a struct rise.
#[inline]
pub fn put_field<T: Wire>(tag: u64, value: &T, out: &mut Vec<u8>) {
    if !value.is_absent() {
        put_number(tag, out);
        put_sized_value(value, out);
    }
}

/// Appends a field of many bytes, which `write` appends.
pub fn put_large_field(tag: u64, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    put_number(tag, out);
    put_large(out, write);
}

/// Returns the decoded value of a field. An omitted field has the value from before it existed, or else the absent
/// value of its type.
pub fn found_or<T: Wire>(found: Option<T>, before: Option<T>, what: &'static str) -> Result<T, DecodeError> {
    found.or(before).or_else(T::absent).ok_or(DecodeError::Missing(what))
}

/// Decodes fields from the front of a decoder until it is empty.
#[derive(Debug)]
pub struct Fields<'d, 'a> {
    decoder: &'d mut Decoder<'a>,
    last: Option<u64>,
}

impl<'d, 'a> Fields<'d, 'a> {
    pub fn new(decoder: &'d mut Decoder<'a>) -> Self {
        Fields { decoder, last: None }
    }

    /// Returns the next field with its value. Fails if the tags do not rise.
    pub fn next_field(&mut self) -> Result<Option<(u64, Decoder<'a>)>, DecodeError> {
        if self.decoder.is_empty() {
            return Ok(None);
        }
        let tag = self.decoder.number("the tag of a field")?;
        if self.last >= Some(tag) {
            return Err(DecodeError::Value("the order of fields"));
        }
        self.last = Some(tag);
        Ok(Some((tag, self.decoder.sized("a field")?)))
    }
}

/// Implements [`Wire`] for a struct whose fields are tagged: `TAG: field`, or `TAG: field = value` for a field that is
/// omitted when it has this value. A field that was added later needs such a value, the one that older data means,
/// unless its type can be absent (`Option`, `Vec`). Neither the value nor the tag may change afterwards. Tags are those
/// of a module of [`tags`](super::tags), and rise.
#[macro_export]
macro_rules! tagged_fields {
    ($type:ident in $tags:ident { $( $tag:ident : $field:ident $(= $before:expr)? ),* $(,)? }) => {
        impl $crate::wire::Wire for $type {
            const IS_OPEN: bool = true;

            fn put_value(&self, out: &mut Vec<u8>) {
                $( if $crate::tagged_fields!(@is_kept self.$field $(, $before)?) {
                    $crate::wire::put_field($tags::$tag, &self.$field, out);
                } )*
            }

            fn take_value(
                input: &mut $crate::wire::Decoder<'_>,
                _what: &'static str,
            ) -> Result<Self, $crate::wire::DecodeError> {
                let mut fields = $crate::wire::Fields::new(input);
                $( let mut $field = None; )*
                while let Some((tag, value)) = fields.next_field()? {
                    match tag {
                        $( $tags::$tag => $field = Some(value.whole(stringify!($field))?), )*
                        _ => return Err($crate::wire::DecodeError::Unknown { of: $tags::LIST, tag }),
                    }
                }
                Ok($type {
                    $( $field: $crate::wire::found_or(
                        $field,
                        $crate::tagged_fields!(@before $($before)?),
                        stringify!($field),
                    )?, )*
                })
            }
        }
    };
    (@is_kept $value:expr) => { true };
    (@is_kept $value:expr, $before:expr) => { $value != $before };
    (@before) => { None };
    (@before $before:expr) => { Some($before) };
}

/// Implements [`Wire`] for an enum without data: `code = Variant`. A code is never reused for another variant.
#[macro_export]
macro_rules! coded {
    ($type:ident, $name:literal { $( $code:literal = $variant:ident ),* $(,)? }) => {
        impl $crate::wire::Wire for $type {
            const IS_OPEN: bool = false;

            fn put_value(&self, out: &mut Vec<u8>) {
                out.push(match self {
                    $( $type::$variant => $code, )*
                });
            }

            fn take_value(
                input: &mut $crate::wire::Decoder<'_>,
                what: &'static str,
            ) -> Result<Self, $crate::wire::DecodeError> {
                match input.byte(what)? {
                    $( $code => Ok($type::$variant), )*
                    code => Err($crate::wire::DecodeError::Unknown { of: $name, tag: code.into() }),
                }
            }
        }
    };
}
