//! The names that most programs use.

pub use crate::{Backoff, Client, Delivery, Error, Message, Priority, ReceiveMode, Receiver, Sender};
