//! Converts between bytes and types. Decoding borrows from the input and copies only data that outlives it: one small
//! string that kept a slice of the read buffer would pin the whole buffer.

mod composite;
mod constructor;
mod decimals;
mod decode;
mod decode_value;
mod decoder;
mod descriptor;
mod encode;
mod encode_value;
mod error;
mod hot;
mod short;
mod unions;

pub use constructor::{BINARY8, BINARY32, DESCRIBED, LIST0, LIST8, LIST32, NULL, STRING8, Width, width};
pub use decimals::mend_decimals;
pub use decode::Decode;
pub use decoder::{Compound, DEPTH_MAX, Decoder, VALUES_MAX, ZERO_WIDTH_ELEMENTS_MAX};
pub use descriptor::section;
pub use encode::{CompoundWriter, Encode, length_u32, put_counted, put_descriptor};
pub use error::{DecodeError, Problem};
pub use short::Short;

pub(crate) use composite::composite;
pub(crate) use constructor::SYMBOL8;
pub(crate) use decode::read_field;
pub(crate) use encode::ListWriter;
