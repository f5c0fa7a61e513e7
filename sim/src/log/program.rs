//! The observations of programs with the Rust SDK, beside their sends and deliveries.

use std::sync::Arc;

use super::{MessageNumber, QueueIndex};

#[derive(Clone, Debug, PartialEq, Eq)]
#[rustfmt::skip]
pub enum ProgramEvent {
    /// A handler has done its work for a message.
    Worked { message: MessageNumber },
    /// All faults have ended, and the processors of a queue have had the time to work on its messages. `left` is the number of those that wait.
    WorkedOff { queue: QueueIndex, left: u64 },
    /// From here on one processor works alone on its queue, and these messages are sent to it.
    Probing { probe: u32, processor: Arc<str>, messages: Vec<MessageNumber> },
    Probed { probe: u32 },
    /// All processors of a queue were stopped in the middle of their work. `locked` is the number of messages that are locked then.
    Stopped { queue: QueueIndex, locked: u64 },
}
