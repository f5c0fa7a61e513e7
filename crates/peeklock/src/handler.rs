//! Handlers: async functions that work on one message. Their arguments are extracted from the delivery, and their result is an outcome.
//!
//! A handler is any async function whose arguments implement [`FromDelivery`] and whose result implements [`IntoOutcome`]:
//!
//! ```
//! use peeklock::handler::{Context, HandlerError, Json, State};
//! # use std::sync::Arc;
//! # #[derive(serde::Deserialize)] struct Order { number: u64 }
//! # struct Shop;
//! # impl Shop { async fn save(&self, order: &Order) -> Result<(), std::io::Error> { let _ = order.number; Ok(()) } }
//!
//! async fn handle(Json(order): Json<Order>, State(shop): State<Arc<Shop>>, context: Context) -> Result<(), HandlerError> {
//!     shop.save(&order).await.map_err(HandlerError::retry)?;
//!     Ok(())
//! }
//! ```
//!
//! Inside, a handler is a [`tower::Service`] for [`Job`]s, so every layer of tower that accepts any request works.

mod call;
mod catch_panic;
mod context;
mod extract;
mod failure;
mod function;
mod job;
mod layer;
mod outcome;
mod shared;
mod signal;

pub use context::Context;
pub(crate) use context::Work;
#[doc(hidden)]
pub use extract::Registered;
pub use extract::{Bytes, FromDelivery, Json, Property, PropertyName, State, Text};
pub use failure::HandlerError;
pub(crate) use failure::{Class, Failure};
pub use function::Handler;
pub(crate) use function::service_of;
pub use job::Job;
pub(crate) use job::States;
pub use layer::{Timeout, TimeoutLayer, Trace, TraceLayer};
pub use outcome::IntoOutcome;

pub(crate) use call::Call;
pub(crate) use catch_panic::catch_panic;
pub(crate) use shared::Shared;

/// The service that a processor calls: a handler with its layers.
pub type JobService = tower::util::BoxCloneSyncService<Job, crate::Outcome, tower::BoxError>;
