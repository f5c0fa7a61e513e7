//! XML of the Azure clients: reads a document into a small tree and writes elements as text. The callers interpret the
//! elements.

mod read;
mod write;

pub use read::{DEPTH_MAX, ELEMENT_COUNT_MAX, Element, Space, XmlError, read};
pub use write::Writer;

/// The namespace of ATOM feeds and entries.
pub const ATOM: &str = "http://www.w3.org/2005/Atom";
/// The namespace of Service Bus descriptions.
pub const SERVICE_BUS: &str = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
/// The namespace of the message counts in a description.
pub const COUNTS: &str = "http://schemas.microsoft.com/netservices/2011/06/servicebus";
/// The namespace of arrays in a description.
pub const ARRAYS: &str = "http://schemas.microsoft.com/2003/10/Serialization/Arrays";
/// The namespace of `i:type` and `i:nil`.
pub const INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";
/// The namespace of the types that `i:type` names.
pub const SCHEMA: &str = "http://www.w3.org/2001/XMLSchema";
