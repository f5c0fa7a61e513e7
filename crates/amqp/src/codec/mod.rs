//! Bytes ↔ types. Decoding borrows from the input and copies only what outlives it: a slice of the read buffer
//! kept by one small string would pin the whole buffer.

mod composite;
mod constructor;
mod decode;
mod decode_value;
mod decoder;
mod descriptor;
mod encode;
mod encode_value;
mod error;
mod hot;
mod unions;

pub use decode::Decode;
pub use decoder::{DEPTH_MAX, Decoder, VALUES_MAX, ZERO_WIDTH_ELEMENTS_MAX};
pub use encode::Encode;
pub use error::{DecodeError, Problem};

pub(crate) use composite::composite;
pub(crate) use constructor::{
    ARRAY8, ARRAY32, BINARY8, BINARY32, DECIMAL128, DESCRIBED, LIST0, LIST8, LIST32, MAP8, MAP32, NULL,
    STRING8, SYMBOL8, Width, width,
};
pub(crate) use decode::read_field;
pub(crate) use decoder::Compound;
pub(crate) use descriptor::section;
pub(crate) use encode::{CompoundWriter, ListWriter, length_u32, put_counted, put_descriptor};
