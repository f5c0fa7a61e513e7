//! Session processors: they hold several sessions at a time, and call a handler for the messages of each in order.
//!
//! ```no_run
//! # async fn example(client: peeklock::Client) -> Result<(), peeklock::Error> {
//! use std::time::Duration;
//! use peeklock::handler::{Context, HandlerError, Text};
//! use peeklock::session_processor::SessionState;
//!
//! async fn handle(Text(line): Text, total: SessionState<u64>) -> Result<(), HandlerError> {
//!     let sum = total.load().await?.unwrap_or_default();
//!     total.store(&(sum + line.len() as u64)).await?;
//!     Ok(())
//! }
//!
//! let chat = client.session_processor("chat").handler(handle).max_sessions(8).start().await?;
//! chat.stop(Duration::from_secs(30)).await?;
//! # Ok(())
//! # }
//! ```

mod builder;
mod crew;
mod state;

pub use builder::SessionProcessorBuilder;
pub(crate) use builder::{Callback, call_back};
pub use state::SessionState;
