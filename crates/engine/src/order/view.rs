//! The reported state of a queue's order.

use std::time::Duration;

use peeklock_types::{ClassName, SequenceNumber, Target, Timestamp};

use super::stats::Histogram;

/// The state of a queue with an order. Counts and times are since the start of the program, except those of the current
/// messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OrderView {
    /// The classes, the most urgent first.
    pub classes: Vec<ClassView>,
    pub tenant_classes: Vec<ClassView>,
    /// The tenants with the most messages that wait or are being processed, the busiest first; at most
    /// [`TENANTS_SHOWN_MAX`].
    pub tenants: Vec<TenantView>,
    /// The number of lanes: one for each class and tenant that has messages.
    pub lane_count: usize,
    /// Messages whose priority matched no class; they went to the default class.
    pub misfit_count: u64,
    /// Messages that share a lane with others, because there were too many tenants.
    pub crowded_count: u64,
    /// Messages that were rejected because of a send rate.
    pub throttled_count: u64,
    /// All waiting messages are over a rate until this time.
    pub limited_until: Option<Timestamp>,
}

pub const TENANTS_SHOWN_MAX: usize = 20;

/// One class of messages, or of tenants.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassView {
    pub name: ClassName,
    pub waiting_count: u64,
    pub locked_count: u64,
    /// The enqueueing time of the oldest waiting message.
    pub oldest: Option<Timestamp>,
    pub enqueued_count: u64,
    /// The number of first deliveries.
    pub started_count: u64,
    /// Messages that a receiver completed or dead-lettered.
    pub settled_count: u64,
    pub enqueued_per_second: f64,
    pub settled_per_second: f64,
    /// The time from the moment at which a message could be received to its first delivery.
    pub time_in_queue: Histogram,
    /// The time from the moment at which a message could be received to its settlement.
    pub critical_time: Histogram,
    pub target: Option<TargetView>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TenantView {
    /// The tenant. `None` for messages without a tenant, or of tenants that share a lane.
    pub tenant: Option<String>,
    pub class: ClassName,
    pub tenant_class: ClassName,
    pub waiting_count: u64,
    pub locked_count: u64,
}

/// The attainment of a class's target. A message is bad as soon as it has waited longer than the target, whether it has
/// started or not.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetView {
    pub target: Target,
    pub good_count: u64,
    pub bad_count: u64,
    /// The counts of recent windows, the shortest first: 5 min, 30 min, 1 h, 6 h, 3 d.
    pub windows: Vec<Window>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub span: Duration,
    pub good_count: u64,
    pub bad_count: u64,
}

impl TargetView {
    /// Returns the share of messages that met the target; `None` while there are no messages.
    pub fn attainment(&self) -> Option<f64> {
        share(self.good_count, self.bad_count)
    }

    /// Returns how fast a window uses up the permitted share of bad messages: 1 is exactly the permitted rate. `None`
    /// while the window has no messages.
    pub fn burn(&self, window: &Window) -> Option<f64> {
        let allowed = 1.0 - f64::from(self.target.objective_ppm) / 1e6;
        share(window.good_count, window.bad_count).map(|good| (1.0 - good) / allowed)
    }
}

fn share(good_count: u64, bad_count: u64) -> Option<f64> {
    let count = good_count + bad_count;
    #[expect(clippy::cast_precision_loss, reason = "a share is shown with a few digits")]
    (count > 0).then(|| good_count as f64 / count as f64)
}

/// Explains why a message has not been received yet, and which messages are ahead of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedMessage {
    pub sequence_number: SequenceNumber,
    pub class: Option<ClassName>,
    pub tenant_class: Option<ClassName>,
    pub tenant: Option<String>,
    /// One of `waiting`, `limited`, `locked`, `scheduled`, `delayed`, `deferred`, `in-session`.
    pub state: &'static str,
    /// One or more sentences for the user.
    pub why: String,
    /// The number of messages of each class that would be delivered before this one if no other arrived, the most
    /// urgent class first.
    pub ahead: Vec<(ClassName, u64)>,
}
