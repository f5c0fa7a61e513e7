//! The names that most programs use.

pub use crate::handler::{Context, HandlerError, Json, State};
pub use crate::{
    Backoff, Client, Delivery, Error, Message, Outcome, Priority, ReceiveMode, Receiver, Retry, Sender,
};
