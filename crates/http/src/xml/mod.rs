//! XML as the management clients write and read it: a small tree in, text out. Knows nothing of what the elements mean.

mod read;
mod write;

pub use read::{DEPTH_MAX, ELEMENT_COUNT_MAX, Element, Space, XmlError, read};
pub use write::Writer;

pub(crate) const ATOM: &str = "http://www.w3.org/2005/Atom";
pub(crate) const SERVICE_BUS: &str = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
pub(crate) const COUNTS: &str = "http://schemas.microsoft.com/netservices/2011/06/servicebus";
pub(crate) const ARRAYS: &str = "http://schemas.microsoft.com/2003/10/Serialization/Arrays";
pub(crate) const INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";
pub(crate) const SCHEMA: &str = "http://www.w3.org/2001/XMLSchema";
