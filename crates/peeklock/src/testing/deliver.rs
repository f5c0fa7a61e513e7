//! Calls a handler without a broker.

use crate::handler::{Handler, HandlerError, Job};
use crate::{Message, Outcome, ReceivedMessage};

/// Returns a delivery of this message for [`TestDelivery::to`]. It has no broker and no lock.
///
/// ```
/// use peeklock::handler::Text;
/// use peeklock::testing::deliver;
/// use peeklock::{Message, Outcome};
///
/// async fn cook(Text(order): Text) -> Outcome {
///     if order.is_empty() { Outcome::Abandon } else { Outcome::Complete }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// assert_eq!(deliver(Message::text("coffee")).to(cook).await.unwrap(), Outcome::Complete);
/// # });
/// ```
pub fn deliver(message: Message) -> TestDelivery {
    TestDelivery { job: Job::detached(ReceivedMessage { message: message.into_amqp(), lock_token: None }) }
}

/// A delivery without a broker, from [`deliver`].
#[must_use = "call to"]
pub struct TestDelivery {
    job: Job,
}

impl TestDelivery {
    /// Adds a state for the extractor [`State`](crate::handler::State).
    pub fn state<S: Send + Sync + 'static>(self, state: S) -> Self {
        TestDelivery { job: self.job.with_state(state) }
    }

    /// Calls a handler and returns its result, or the error of an argument that cannot be extracted.
    pub async fn to<Arguments, H: Handler<Arguments>>(self, handler: H) -> Result<Outcome, HandlerError> {
        handler.call(self.job).await
    }
}
