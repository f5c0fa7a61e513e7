//! In which order a queue hands out its messages.

mod stats;
mod view;

pub use stats::{HISTOGRAM_BOUNDS_MS, Histogram};
pub use view::{ClassView, ExplainedMessage, OrderView, TENANTS_SHOWN_MAX, TargetView, TenantView, Window};
