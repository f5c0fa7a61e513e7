//! Settles many deliveries with one command to the driver, and returns the result of each.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use peeklock_amqp::DeliveryState;
use peeklock_amqp::connection::DeliveryId;

use crate::driver::command::ReceiverCommand;
use crate::error::Error;
use crate::outcome::Outcome;
use crate::receiver::{Delivery, ReceiverLink};

/// The result of a settlement, with the key that its caller has given it.
pub type Settled = (u64, Result<(), Error>);

/// Settles deliveries of any receivers, many with one command, and returns the result of each by its key.
///
/// ```no_run
/// # async fn example(mut receiver: peeklock_client::Receiver) -> Result<(), peeklock_client::Error> {
/// use std::future::poll_fn;
/// use peeklock_client::{Outcome, Settler};
///
/// let (mut settler, mut deliveries, mut results) = (Settler::default(), Vec::new(), Vec::new());
/// receiver.next_many(&mut deliveries, 100).await?;
/// for (key, delivery) in (0..).zip(deliveries) {
///     settler.push(key, delivery, Outcome::Complete);
/// }
/// settler.send().await;
/// poll_fn(|cx| settler.poll_settled(cx, &mut results)).await;
/// for (key, result) in results {
///     println!("{key}: {result:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Settler {
    /// The settlements that are not sent yet, by their link.
    batches: Vec<Batch>,
    results: Arc<Results>,
    /// The number of results that have not been returned.
    pending_count: usize,
    /// The links with such results: a link is detached when nobody holds it.
    links: Vec<Arc<ReceiverLink>>,
}

impl Settler {
    /// Adds a settlement to those that [`Settler::send`] sends. Its result has the same key.
    pub fn push(&mut self, key: u64, delivery: Delivery, outcome: Outcome) {
        let (link, id) = delivery.into_unsettled();
        self.pending_count += 1;
        let Some(id) = id else { return self.results.push(key, link.without_lock(&outcome)) };
        let settlement = Settlement { key, id, state: outcome.into_state() };
        match self.batches.last_mut() {
            Some(batch) if Arc::ptr_eq(&batch.link, &link) => batch.settlements.push(settlement),
            _ => {
                self.hold(&link);
                let (settlements, results) = (vec![settlement], Arc::clone(&self.results));
                self.batches.push(Batch { link, settlements, results });
            }
        }
    }

    fn hold(&mut self, link: &Arc<ReceiverLink>) {
        if !self.links.iter().any(|held| Arc::ptr_eq(held, link)) {
            self.links.push(Arc::clone(link));
        }
    }

    fn count(&mut self, returned: usize) {
        self.pending_count = self.pending_count.saturating_sub(returned);
        if self.pending_count == 0 {
            self.links.clear();
        }
    }

    /// Sends the settlements. Waits only while the connection is too busy to take them.
    pub async fn send(&mut self) {
        while let Some(batch) = self.batches.pop() {
            let link = Arc::clone(&batch.link);
            // A batch that is not taken returns the reason as the result of each of its settlements.
            let _ = link.tell(ReceiverCommand::SettleEach(batch)).await;
        }
    }

    /// Adds the results that have arrived to `into`. Waits for the first one.
    pub fn poll_settled(&mut self, cx: &mut Context<'_>, into: &mut Vec<Settled>) -> Poll<()> {
        let before = into.len();
        let polled = self.results.poll(cx, into);
        self.count(into.len() - before);
        polled
    }

    /// Adds the results that have arrived to `into`, without waiting.
    pub fn try_settled(&mut self, into: &mut Vec<Settled>) {
        let before = into.len();
        into.append(&mut self.results.lock().list);
        self.count(into.len() - before);
    }
}

/// One settlement of a batch.
pub(crate) struct Settlement {
    pub(crate) key: u64,
    pub(crate) id: DeliveryId,
    pub(crate) state: DeliveryState,
}

/// The settlements over one link. Those that the driver does not take fail when the batch is dropped.
pub(crate) struct Batch {
    link: Arc<ReceiverLink>,
    settlements: Vec<Settlement>,
    results: Arc<Results>,
}

impl Batch {
    /// Takes the settlements, and the place for their results.
    pub(crate) fn take(mut self) -> (Vec<Settlement>, Arc<Results>) {
        (std::mem::take(&mut self.settlements), Arc::clone(&self.results))
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        for settlement in self.settlements.drain(..) {
            self.results.push(settlement.key, Err(self.link.lost()));
        }
    }
}

/// The results that the driver has added and their caller has not taken: at most one for each settlement.
#[derive(Default)]
pub(crate) struct Results {
    arrived: Mutex<Arrived>,
}

#[derive(Default)]
struct Arrived {
    list: Vec<Settled>,
    waker: Option<Waker>,
}

impl Results {
    fn lock(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, key: u64, result: Result<(), Error>) {
        let mut arrived = self.lock();
        arrived.list.push((key, result));
        let waker = arrived.waker.take();
        drop(arrived);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, cx: &mut Context<'_>, into: &mut Vec<Settled>) -> Poll<()> {
        let mut arrived = self.lock();
        if arrived.list.is_empty() {
            match &mut arrived.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        into.append(&mut arrived.list);
        Poll::Ready(())
    }
}
