//! One connection: its task, its links, and the requests that wait for shards.

pub(crate) mod address;
pub(crate) mod attach;
pub(crate) mod context;
pub(crate) mod conversation;
pub(crate) mod driver;
mod early;
pub(crate) mod ending;
pub(crate) mod limits;
pub(crate) mod link;
pub(crate) mod outcomes;
pub(crate) mod refuse;
pub(crate) mod request;
