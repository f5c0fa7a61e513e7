//! The rights of a connection: tokens, claims, and the links that rest on them.

pub(crate) mod cbs;
pub(crate) mod claims;
