//! Health of the broker: it sends a message to itself and receives it, with full durability.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use peeklock_broker::engine::{EntityId, ReceiveMode};
use peeklock_broker::request::entities::Find;
use peeklock_broker::request::receiving::{Attach, Credit, ReceivingAnswer, Window};
use peeklock_broker::{
    AdminError, Answer, Batch, Broker, Delivered, DeliveredBody, Drain, Listing, Named, Page, PageStart,
    ReceiverReply, Reply, Request, SessionAsk, Ticket,
};
use peeklock_types::{EntityKind, EntityName, QueueSettings, SubQueue};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::problem::Problem;

/// The time for which a result is reused, so that many requests cause only one disk access.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// The time limit of the test. A slower broker is not ready.
const TEST_TIME_MAX: Duration = Duration::from_secs(5);
/// The maximum number of leftover messages from interrupted tests; fewer were ever in flight at once.
const LEFTOVER_COUNT_MAX: u64 = 1000;
const WINDOW_BYTES: i64 = 1 << 20;

/// The exact text of the official emulator, for which test frameworks wait.
const HEALTHY: &str = r#"{"status":"healthy","message":"Service is healthy."}"#;
const UNHEALTHY: &str =
    r#"{"status":"unhealthy","message":"Service not available. Please try after some time."}"#;

/// The health of all brokers of this server.
pub(crate) struct Health {
    brokers: Vec<Broker>,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    at: Option<Instant>,
    is_healthy: bool,
    number: u64,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error("a part of the broker has stopped")]
    Stopped,
    #[error("an answer did not fit its question")]
    Strange,
    #[error("the message that was sent did not come back")]
    Lost,
}

impl Health {
    pub(crate) fn new(brokers: Vec<Broker>) -> Self {
        Health { brokers, last: Mutex::new(Last::default()) }
    }

    /// Returns the result. Concurrent callers wait for one test and share its result.
    async fn is_healthy(&self) -> bool {
        let mut last = self.last.lock().await;
        if last.at.is_some_and(|at| at.elapsed() < FRESH_FOR) {
            return last.is_healthy;
        }
        last.number += 1;
        let result = tokio::time::timeout(TEST_TIME_MAX, self.test(last.number)).await;
        last.is_healthy = match result {
            Ok(Ok(())) => true,
            Ok(Err(failure)) => {
                tracing::warn!(%failure, "the self-test failed");
                false
            }
            Err(_) => {
                tracing::warn!("the self-test took longer than {TEST_TIME_MAX:?}");
                false
            }
        };
        last.at = Some(Instant::now());
        last.is_healthy
    }

    async fn test(&self, number: u64) -> Result<(), Failure> {
        for broker in &self.brokers {
            // The list reaches every shard; the message reaches only one.
            broker.list(Listing::All, Page { start: PageStart::Skip(0), top: 1 }).await?;
            pass_a_message(broker, number).await?;
        }
        Ok(())
    }
}

pub(crate) async fn answer(health: &Health) -> Response {
    let is_healthy = health.is_healthy().await;
    let (status, body) =
        if is_healthy { (StatusCode::OK, HEALTHY) } else { (StatusCode::SERVICE_UNAVAILABLE, UNHEALTHY) };
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Sends a message and receives it.
async fn pass_a_message(broker: &Broker, number: u64) -> Result<(), Failure> {
    let name = EntityName::self_test();
    let created = broker.create(name.clone(), EntityKind::Queue, QueueSettings::default(), None).await;
    match created.map_err(|error| (Problem::from(&error), error)) {
        Ok(_) | Err((Problem::Exists(_), _)) => {}
        Err((_, error)) => return Err(error.into()),
    }
    let shard = broker.place(&name);
    let Named::Entity(found) = broker.ask(shard, Find { name }).await? else { return Err(Failure::Strange) };

    let (peer, mut replies) = broker.peer();
    let shard = broker.shard(shard).ok_or(Failure::Stopped)?;
    let hand_over = |batch| async { shard.send(peer.clone(), batch).await.map_err(|_| Failure::Stopped) };
    let body = format!("self-test {} {number}", broker.clock().now().as_millis());
    let receiver = peer.id.receiver(0);
    hand_over(exchange(found.entity, receiver, &body)).await?;
    let (mut is_sent, mut is_back, mut limit) = (false, false, 1);
    while !(is_sent && is_back) {
        for reply in replies.recv().await.ok_or(Failure::Stopped)? {
            match reply {
                Reply::Answer(Answer::Sent(run)) => {
                    for sent in run {
                        sent.result.map_err(AdminError::from)?;
                        is_sent = true;
                    }
                }
                Reply::Answer(Answer::Receiving(ReceivingAnswer::Attach(attached))) => {
                    attached.result.map_err(AdminError::from)?;
                }
                Reply::Receiver(ReceiverReply::Deliveries(mut run)) => {
                    while let Some(Delivered { body: found, .. }) = run.pop_first() {
                        if matches!(found, DeliveredBody::Whole(found) if found == body.as_bytes()) {
                            is_back = true;
                        } else if limit < LEFTOVER_COUNT_MAX {
                            // This is a leftover message of an interrupted test; receiving it has removed it.
                            limit += 1;
                            hand_over(Batch::from(Credit { receiver, limit, drain: Drain::Keep })).await?;
                        } else {
                            return Err(Failure::Lost);
                        }
                    }
                }
                _ => return Err(Failure::Stopped),
            }
        }
    }
    hand_over(Batch::from(Request::Gone)).await
}

/// Returns a receiver with credit for one message, and one message.
fn exchange(entity: EntityId, receiver: peeklock_broker::engine::ReceiverId, body: &str) -> Batch {
    let (sub_queue, mode, session) = (SubQueue::Main, ReceiveMode::ReceiveAndDelete, SessionAsk::None);
    let mut batch = Batch::default();
    batch.ask(Ticket::new(0), Attach { entity, sub_queue, receiver, mode, session });
    batch.push(Window { receiver, size_bytes: WINDOW_BYTES });
    batch.push(Credit { receiver, limit: 1, drain: Drain::Keep });
    let mut messages = batch.messages();
    let written = messages.add(|out| {
        out.extend_from_slice(body.as_bytes());
        Ok::<_, Infallible>(None)
    });
    match written {
        Ok(()) => messages.send(Ticket::new(0), entity),
    }
    batch
}
