//! Sessions: requests for one, and the operations of its holder.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::{Attach, Fields, Text, Value};
use peeklock_types::{LockToken, SequenceNumber, Timestamp};

use crate::error::Error;
use crate::management::Management;
use crate::outcome::Outcome;
use crate::received::ReceivedMessage;
use crate::receiver::ReceiveMode;
use crate::shared::Shared;

const FILTER: &str = "com.microsoft:session-filter";
const TIMEOUT: &str = "com.microsoft:timeout";
const LOCKED_UNTIL: &str = "com.microsoft:locked-until-utc";

/// The session that a receiver requests.
#[derive(Clone, Debug)]
pub(crate) enum SessionWish {
    /// No session.
    None,
    Named(Text),
    /// Any unlocked session that has messages.
    Next {
        wait: Duration,
    },
}

impl SessionWish {
    /// Returns how much longer the broker may take to answer.
    pub(crate) fn wait(&self) -> Duration {
        match self {
            SessionWish::Next { wait } => *wait,
            SessionWish::None | SessionWish::Named(_) => Duration::ZERO,
        }
    }

    pub(crate) fn fill(&self, attach: &mut Attach) {
        let id = match self {
            SessionWish::None => return,
            SessionWish::Named(id) => Value::String(id.clone()),
            SessionWish::Next { wait } => {
                let millis = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
                attach.properties.get_or_insert_default().insert(TIMEOUT, millis);
                Value::Null
            }
        };
        attach.source.get_or_insert_default().filter = Some(Fields::new().with(FILTER, id));
    }
}

/// The session that a broker has locked for a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldSession {
    id: Text,
    locked_until: Option<Timestamp>,
}

impl HeldSession {
    /// Reads the broker's attach response.
    pub(crate) fn of(attach: &Attach) -> Option<Self> {
        let filter = attach.source.as_ref()?.filter.as_ref()?.get(FILTER)?;
        let id = match filter {
            Value::Described(described) => &described.value,
            plain => plain,
        };
        let Value::String(id) = id else { return None };
        let ticks = attach.properties.as_ref().and_then(|properties| properties.get(LOCKED_UNTIL));
        let locked_until = ticks.and_then(Value::as_i64).and_then(time_of_ticks);
        Some(HeldSession { id: id.clone(), locked_until })
    }
}

/// Converts a .NET time: ticks of 100 ns since the year 1.
fn time_of_ticks(ticks: i64) -> Option<Timestamp> {
    const UNIX_EPOCH_TICKS: i64 = 621_355_968_000_000_000;
    const TICKS_PER_MS: i64 = 10_000;
    let millis = ticks.checked_sub(UNIX_EPOCH_TICKS)?.checked_div(TICKS_PER_MS)?;
    u64::try_from(millis).ok().map(Timestamp::from_millis)
}

/// A session that a [`Receiver`](crate::Receiver) holds. It is cheap to clone, so that one task can renew the lock while another one
/// receives.
///
/// The lock ends when the receiver is closed or when it expires. After that, every call fails with [`Error::SessionLockLost`].
///
/// ```no_run
/// # async fn example(client: peeklock_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let mut table = client.receiver("orders").session("table-4").open().await?;
/// let session = table.session().cloned().expect("the receiver was opened for a session");
/// let total = session.state().await?.map_or(0, |state| state.len());
/// while let Some(delivery) = table.next().await? {
///     delivery.complete().await?;
///     session.set_state(Some(vec![b'x'; total + 1].into())).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    entity: Arc<str>,
    id: Text,
    /// The expiry of the lock in milliseconds; 0 if the broker did not send it.
    locked_until: AtomicU64,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, entity: Arc<str>, held: HeldSession) -> Self {
        let locked_until = AtomicU64::new(held.locked_until.map_or(0, Timestamp::as_millis));
        Session { inner: Arc::new(Inner { shared, entity, id: held.id, locked_until }) }
    }

    /// Returns the id of the session.
    pub fn id(&self) -> &str {
        self.inner.id.as_str()
    }

    /// Returns the expiry of the lock, as of the opening or the last renewal.
    pub fn locked_until(&self) -> Timestamp {
        Timestamp::from_millis(self.inner.locked_until.load(Ordering::Relaxed))
    }

    /// Extends the lock and returns its new expiry.
    pub async fn renew(&self) -> Result<Timestamp, Error> {
        let until = self.management().await?.renew_session(self.id()).await?;
        self.inner.locked_until.store(until.as_millis(), Ordering::Relaxed);
        Ok(until)
    }

    /// Returns the state of the session.
    pub async fn state(&self) -> Result<Option<Bytes>, Error> {
        self.management().await?.session_state(self.id()).await
    }

    /// Stores bytes as the state of the session for its next holder; `None` removes the state.
    pub async fn set_state(&self, state: Option<Bytes>) -> Result<(), Error> {
        self.management().await?.set_session_state(self.id(), state).await
    }

    /// Fetches deferred messages of the session by their sequence numbers. In peek-lock mode, settle them with [`Session::settle`].
    pub async fn receive_deferred(
        &self,
        numbers: &[SequenceNumber],
        mode: ReceiveMode,
    ) -> Result<Vec<ReceivedMessage>, Error> {
        self.management().await?.receive_deferred(numbers, mode, Some(self.id())).await
    }

    /// Settles messages of the session by their lock tokens, for messages that were not received over a link.
    pub async fn settle(&self, tokens: &[LockToken], outcome: Outcome) -> Result<(), Error> {
        self.management().await?.in_session(self.id()).settle(tokens, outcome).await
    }

    async fn management(&self) -> Result<Management<'_>, Error> {
        Management::open(&self.inner.shared, &self.inner.entity).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use peeklock_amqp::{Role, Source};

    #[test]
    fn the_response_contains_the_session_and_its_lock() {
        let mut attach = Attach::new("link", 0, Role::Sender);
        assert_eq!(HeldSession::of(&attach), None);
        let filter = |value: Value| Some(Fields::new().with(FILTER, value));
        attach.source = Some(Source { filter: filter(Value::Null), ..Source::default() });
        assert_eq!(HeldSession::of(&attach), None);
        attach.source = Some(Source { filter: filter("a".into()), ..Source::default() });
        attach.properties = Some(Fields::new().with(LOCKED_UNTIL, 621_355_968_000_010_000_i64));
        let expected = HeldSession { id: "a".into(), locked_until: Some(Timestamp::from_millis(1)) };
        assert_eq!(HeldSession::of(&attach), Some(expected.clone()));
        let described = Value::described(Value::symbol("any"), "a");
        attach.source = Some(Source { filter: filter(described), ..Source::default() });
        assert_eq!(HeldSession::of(&attach), Some(expected));
    }

    #[test]
    fn a_request_has_the_form_of_the_sdks() {
        let filled = |wish: SessionWish| {
            let mut attach = Attach::new("link", 0, Role::Receiver);
            wish.fill(&mut attach);
            let filter = attach.source.and_then(|source| source.filter);
            let timeout = attach.properties.and_then(|mut properties| properties.remove(TIMEOUT));
            (filter.and_then(|mut filter| filter.remove(FILTER)), timeout)
        };
        assert_eq!(filled(SessionWish::None), (None, None));
        assert_eq!(filled(SessionWish::Named("a".into())), (Some("a".into()), None));
        let next = SessionWish::Next { wait: Duration::from_secs(2) };
        assert_eq!(filled(next), (Some(Value::Null), Some(Value::Uint(2000))));
    }

    #[test]
    fn times_before_1970_are_rejected() {
        assert_eq!(time_of_ticks(0), None);
        assert_eq!(time_of_ticks(i64::MIN), None);
    }
}
