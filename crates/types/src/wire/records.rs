//! Enums as records: a kind, a length, positional values, and tagged fields behind them.

use super::{DecodeError, Decoder, Wire, close_sized, open_sized, put_fixed, put_large, put_number};
use crate::{BodyPlace, BodyRef, CommitGroupNumber};

/// The encoding of one positional value of a record, if its type alone does not determine it.
pub trait Codec<T> {
    fn put(value: &T, here: CommitGroupNumber, out: &mut Vec<u8>);
    fn take(input: &mut Decoder<'_>, here: CommitGroupNumber, what: &'static str) -> Result<T, DecodeError>;
}

/// The encoding of [`Wire`].
#[derive(Debug)]
pub struct Plain;

impl<T: Wire> Codec<T> for Plain {
    #[inline]
    fn put(value: &T, _: CommitGroupNumber, out: &mut Vec<u8>) {
        value.put(out);
    }

    #[inline]
    fn take(input: &mut Decoder<'_>, _: CommitGroupNumber, what: &'static str) -> Result<T, DecodeError> {
        T::take(input, what)
    }
}

/// An open value that is usually large.
#[derive(Debug)]
pub struct Large;

impl<T: Wire> Codec<T> for Large {
    fn put(value: &T, _: CommitGroupNumber, out: &mut Vec<u8>) {
        put_large(out, |out| value.put_value(out));
    }

    fn take(input: &mut Decoder<'_>, _: CommitGroupNumber, what: &'static str) -> Result<T, DecodeError> {
        input.sized(what)?.whole(what)
    }
}

/// Eight bytes, for numbers that are random and so usually large.
#[derive(Debug)]
pub struct Fixed;

impl Codec<u64> for Fixed {
    #[inline]
    fn put(value: &u64, _: CommitGroupNumber, out: &mut Vec<u8>) {
        put_fixed(*value, out);
    }

    #[inline]
    fn take(input: &mut Decoder<'_>, _: CommitGroupNumber, what: &'static str) -> Result<u64, DecodeError> {
        input.fixed(what)
    }
}

/// A body in the commit group of its own record is written as its offset in units of eight bytes, plus one. Any other
/// body is a zero, then eight bytes. A body in a later group is rejected.
#[derive(Debug)]
pub struct Place;

impl Codec<BodyRef> for Place {
    #[inline]
    fn put(body: &BodyRef, here: CommitGroupNumber, out: &mut Vec<u8>) {
        match body.place() {
            BodyPlace::InGroup { group, offset_bytes } if group == here => {
                put_number(u64::from(offset_bytes / 8) + 1, out);
            }
            _ => {
                out.push(0);
                put_fixed(body.to_raw(), out);
            }
        }
    }

    fn take(
        input: &mut Decoder<'_>,
        here: CommitGroupNumber,
        what: &'static str,
    ) -> Result<BodyRef, DecodeError> {
        let wrong = || DecodeError::Value(what);
        match input.number(what)? {
            0 => {
                let body = BodyRef::from_raw(input.fixed(what)?);
                match body.place() {
                    BodyPlace::InGroup { group, .. } if group > here => Err(wrong()),
                    _ => Ok(body),
                }
            }
            eighths => {
                let offset_bytes = u32::try_from(eighths - 1).ok().and_then(|eighths| eighths.checked_mul(8));
                offset_bytes.and_then(|offset| BodyRef::in_group(here, offset)).ok_or_else(wrong)
            }
        }
    }
}

/// Starts a record and returns where its fields start, for [`end_record`].
#[inline]
pub fn begin_record<const ROOM: usize>(kind: u64, out: &mut Vec<u8>) -> usize {
    put_number(kind, out);
    open_sized::<ROOM>(out)
}

#[inline]
pub fn end_record<const ROOM: usize>(start: usize, out: &mut Vec<u8>) {
    close_sized::<ROOM>(start, out);
}

/// Decodes the kind of a record and returns it with its fields.
pub fn take_record<'a>(input: &mut Decoder<'a>) -> Result<(u64, Decoder<'a>), DecodeError> {
    Ok((input.number("the kind of a record")?, input.sized("a record")?))
}

/// Encodes and decodes an enum as records: `KIND: Variant { positional, positional as Codec } { TAG: optional }`. Kinds
/// and tags are those of modules of [`tags`](super::tags). Positional values never change; a new field gets a tag.
/// `room` is the number of bytes that are reserved for the length: 1 for small records and more for those that are
/// usually large. Codecs are types in scope that implement [`Codec`].
///
/// Generates `put_record(&value, here, out)` and `take_fields(kind, fields, here)`, which returns `None` for a kind of
/// another enum.
#[macro_export]
macro_rules! records {
    (
        $type:ident, kinds $kinds:ident, fields $tags:ident, room $room:literal {
            $( $kind:ident : $variant:ident
                { $( $field:ident $(as $codec:ident)? ),* $(,)? }
                { $( $tag:ident : $optional:ident ),* $(,)? }
            ),* $(,)?
        }
    ) => {
        pub(super) fn put_record(value: &$type, here: $crate::CommitGroupNumber, out: &mut Vec<u8>) {
            match value {
                $( $type::$variant { $( $field, )* $( $optional, )* } => {
                    let start = $crate::wire::begin_record::<$room>($kinds::$kind, out);
                    $( <$crate::records!(@codec $($codec)?) as $crate::wire::Codec<_>>::put($field, here, out); )*
                    $( $crate::wire::put_field($tags::$tag, $optional, out); )*
                    $crate::wire::end_record::<$room>(start, out);
                } )*
            }
            // Only enums with references to bodies use `here`.
            let _ = here;
        }

        pub(super) fn take_fields(
            kind: u64,
            mut input: $crate::wire::Decoder<'_>,
            here: $crate::CommitGroupNumber,
        ) -> Result<Option<$type>, $crate::wire::DecodeError> {
            let _ = here;
            Ok(Some(match kind {
                $( $kinds::$kind => {
                    $( let $field = <$crate::records!(@codec $($codec)?) as $crate::wire::Codec<_>>::take(
                        &mut input,
                        here,
                        stringify!($field),
                    )?; )*
                    $( let mut $optional = None; )*
                    let mut fields = $crate::wire::Fields::new(&mut input);
                    while let Some((tag, value)) = fields.next_field()? {
                        match tag {
                            $( $tags::$tag => $optional = Some(value.whole(stringify!($optional))?), )*
                            _ => {
                                let _ = &value;
                                return Err($crate::wire::DecodeError::Unknown { of: $tags::LIST, tag });
                            }
                        }
                    }
                    $( let $optional = $crate::wire::found_or($optional, None, stringify!($optional))?; )*
                    $type::$variant { $( $field, )* $( $optional, )* }
                } )*
                _ => return Ok(None),
            }))
        }
    };
    (@codec) => { $crate::wire::Plain };
    (@codec $codec:ident) => { $codec };
}
