//! Requests about the events of a partition.

use peeklock_hubs::block::Block;
use peeklock_hubs::{Producer, ReaderSpec};
use peeklock_types::ReceiverId;

use super::requests;
use crate::hub::{Fence, Partition};

requests! {
    EventRequest, EventAnswer;

    /// Stores the events of a block in a partition: all or none. `producer` has the number of the first event.
    Append {
        partition: Partition,
        block: Block,
        producer: Option<Producer>,
    } -> ();

    /// Attaches a reader of events to a partition. [`Credit`](super::receiving::Credit),
    /// [`Window`](super::receiving::Window) and [`Detach`](super::receiving::Detach) also apply to readers.
    AttachReader {
        partition: Partition,
        receiver: ReceiverId,
        spec: Box<ReaderSpec>,
        fence: Fence,
    } -> ();
}
