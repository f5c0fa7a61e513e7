//! Parts that every HTTP edge of the broker uses: bodies with limits, limits of a request, host names, XML.
//!
//! The crate contains no route, no authorisation and no rule about entities, messages or blobs.

mod body;
mod host;
mod limits;
mod shown;
pub mod xml;

pub use body::{BodyError, read_body};
pub use host::host_of;
pub use limits::Limits;
pub use shown::shown;
