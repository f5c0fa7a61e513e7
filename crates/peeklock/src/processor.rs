//! Processors: they receive messages, call a handler for each, and settle by its result.
//!
//! ```no_run
//! # async fn example(client: peeklock::Client) -> Result<(), peeklock::Error> {
//! use std::time::Duration;
//! use peeklock::handler::{HandlerError, Json};
//! use peeklock::processor::Renew;
//!
//! async fn handle(Json(order): Json<serde_json::Value>) -> Result<(), HandlerError> {
//!     println!("{order}");
//!     Ok(())
//! }
//!
//! let processor = client
//!     .processor("orders")
//!     .handler(handle)
//!     .max_concurrent(16)
//!     .auto_renew(Renew::UpTo(Duration::from_secs(300)))
//!     .start()
//!     .await?;
//! processor.pause().await?;
//! processor.resume().await?;
//! let report = processor.stop(Duration::from_secs(30)).await?;
//! println!("{report}");
//! # Ok(())
//! # }
//! ```

mod batch;
mod builder;
mod check;
mod dead_letter;
mod errors;
mod gate;
mod handle;
mod kill_switch;
mod locks;
mod pace;
mod pump;
mod renewal;
mod repeat;
mod runner;
mod slots;
mod status;

pub use batch::{Batch, BatchHandler};
pub use builder::ProcessorBuilder;
pub use errors::{ErrorContext, ErrorSource};
pub use handle::Processor;
pub use kill_switch::KillSwitch;
pub use renewal::Renew;
pub use status::{State, Status, StopReport};

pub(crate) use builder::{Built, Common, check_count, common_setters};
pub(crate) use check::check;
pub(crate) use handle::{Command, Remote};
pub(crate) use pump::{HandOver, Pump, PumpEnd, STOP_DEADLINE, SessionLimits, Settings};
pub(crate) use runner::Runner;
