//! Declares each composite type once: the struct, its encoding and its decoding.

/// Declares a composite type: `Name: code { field: Type = default for a missing field, .. }`.
///
/// A field without a default is required, unless its type defines the meaning of absence (`Option`, `Vec<Symbol>`).
///
/// SDK quirk: all fields are written, including trailing nulls. The pyamqp of azure-eventhub 5.15 reads fields (and the
/// payload of a transfer) by position without checking the count, and treats an empty terminus as a missing one.
macro_rules! composite {
    (
        $(#[$meta:meta])*
        pub struct $name:ident: $code:literal {
            $($(#[$field_meta:meta])* pub $field:ident: $type:ty $(= $default:expr)?,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $name {
            pub(crate) const CODE: u8 = $code;

            /// Decodes the list after the descriptor.
            pub(crate) fn decode_fields(
                decoder: &mut $crate::codec::Decoder<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                decoder.descend()?;
                let mut list = decoder.enter_list(stringify!($name))?;
                let value = Self {
                    $($field: {
                        let value: Option<$type> = $crate::codec::read_field(decoder, &mut list)?;
                        $crate::codec::composite!(@or_default decoder, $name, $field, value $(, $default)?)
                    },)*
                };
                decoder.leave(&list);
                decoder.ascend();
                Ok(value)
            }
        }

        impl $crate::codec::Decode for $name {
            fn decode(
                decoder: &mut $crate::codec::Decoder<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                decoder.expect_descriptor(Self::CODE, stringify!($name))?;
                Self::decode_fields(decoder)
            }
        }

        impl $crate::codec::Encode for $name {
            fn encode(&self, out: &mut bytes::BytesMut) {
                $crate::codec::put_descriptor(out, Self::CODE);
                let mut list = $crate::codec::ListWriter::begin(out);
                $(list.field(out, &self.$field);)*
                list.finish(out);
            }
        }
    };
    (@or_default $decoder:ident, $name:ident, $field:ident, $value:ident) => {
        $value.ok_or_else(|| {
            $decoder.error($crate::codec::Problem::MissingField {
                composite: stringify!($name),
                field: stringify!($field),
            })
        })?
    };
    (@or_default $decoder:ident, $name:ident, $field:ident, $value:ident, $default:expr) => {
        $value.unwrap_or($default)
    };
}

pub(crate) use composite;
