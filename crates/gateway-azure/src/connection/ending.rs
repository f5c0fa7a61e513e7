//! One log line for each link, session or connection that the broker ends, with its peer and the reason.
//!
//! Peers can cause any number of these, so the number of lines per second is limited for all connections together.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use peeklock_amqp::connection::{Ended, LinkName, Scope};
use peeklock_amqp::{AmqpError, condition};
use peeklock_types::Timestamp;

use crate::connection::context::Context;

const LINES_PER_SECOND_MAX: u64 = 20;
/// The limits on characters of a name that a peer chose, and of a reason.
const NAME_LEN_MAX: usize = 128;
const REASON_LEN_MAX: usize = 1024;

/// Counts the lines of the current second, and those that were omitted since the last line.
#[derive(Default)]
pub(crate) struct LogBudget {
    /// The second in the upper bits, the count of its lines in the lower ones.
    spent: AtomicU64,
    omitted: AtomicU64,
}

impl LogBudget {
    const COUNT_BITS: u32 = 16;

    /// Returns the number of lines that were omitted before this one. Returns `None` if this line must be omitted, too.
    fn take(&self, now: Timestamp) -> Option<u64> {
        let second = now.as_millis() / 1000;
        let spend = |spent: u64| {
            let is_new = spent >> Self::COUNT_BITS != second;
            let count = if is_new { 0 } else { spent & ((1 << Self::COUNT_BITS) - 1) };
            (count < LINES_PER_SECOND_MAX).then_some((second << Self::COUNT_BITS) | (count + 1))
        };
        match self.spent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend) {
            Ok(_) => Some(self.omitted.swap(0, Ordering::Relaxed)),
            Err(_) => {
                self.omit(1);
                None
            }
        }
    }

    fn omit(&self, count: u64) {
        self.omitted.fetch_add(count, Ordering::Relaxed);
    }
}

/// The name of a connection in the log.
#[derive(Default)]
pub(crate) struct PeerName {
    address: Option<SocketAddr>,
    /// The container id that the peer sent.
    container: Option<String>,
}

impl PeerName {
    pub(crate) fn new(address: Option<SocketAddr>) -> Self {
        PeerName { address, container: None }
    }

    pub(crate) fn set_container(&mut self, name: &str) {
        self.container = Some(name.chars().take(NAME_LEN_MAX).collect());
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{address}")?,
            None => f.write_str("unknown address")?,
        }
        match &self.container {
            Some(container) => write!(f, " ({})", Short(container, NAME_LEN_MAX)),
            None => Ok(()),
        }
    }
}

/// The start of a text from a peer, up to the first token or key, with unprintable characters escaped.
struct Short<'t>(&'t str, usize);

/// The starts of secrets: users sometimes put tokens and connection strings into the wrong fields.
const SECRETS: [&str; 3] = ["sharedaccesssignature", "sharedaccesskey=", "sig="];

fn before_secret(text: &str) -> Option<&str> {
    let folded = text.to_ascii_lowercase();
    let start = SECRETS.iter().filter_map(|secret| folded.find(secret)).min()?;
    text.get(..start)
}

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(before) = before_secret(self.0) {
            return write!(f, "{}(hidden)", Short(before, self.1));
        }
        let mut rest = self.0.chars();
        for character in rest.by_ref().take(self.1) {
            match character {
                '\'' | '"' => write!(f, "{character}")?,
                _ => write!(f, "{}", character.escape_debug())?,
            }
        }
        if rest.next().is_some() { f.write_str("…") } else { Ok(()) }
    }
}

struct Subject<'s>(&'s Scope);

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Scope::Refusal(link) => write!(f, "refused {}", Named(link)),
            Scope::Link(link) => write!(f, "ended {}", Named(link)),
            Scope::Session(links) => {
                f.write_str("ended a session")?;
                for (index, link) in links.iter().enumerate() {
                    f.write_str(if index == 0 { " with " } else { ", " })?;
                    write!(f, "{}", Named(link))?;
                }
                Ok(())
            }
            Scope::Connection => f.write_str("closed the connection"),
        }
    }
}

struct Named<'l>(&'l LinkName);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LinkName { name, address } = self.0;
        write!(f, "link '{}'", Short(name.as_str(), NAME_LEN_MAX))?;
        match address {
            Some(address) => write!(f, " of '{}'", Short(address.as_str(), NAME_LEN_MAX)),
            None => Ok(()),
        }
    }
}

impl PeerName {
    /// Logs the links, sessions and connections that were ended since the last call.
    pub(crate) fn log_endings(&self, context: &mut Context<'_>) {
        let endings = context.connection.take_endings();
        for Ended { scope, error } in &endings.list {
            self.log_ending(context, scope, error, level_of(scope, error));
        }
        context.gateway.log_budget.omit(endings.omitted.into());
    }

    /// Logs a connection that ended by an error or a timeout of the peer.
    pub(crate) fn log_failure(&self, context: &Context<'_>, reason: &dyn fmt::Display) {
        self.log_ending(context, &Scope::Connection, reason, tracing::Level::WARN);
    }

    fn log_ending(
        &self,
        context: &Context<'_>,
        scope: &Scope,
        reason: &dyn fmt::Display,
        level: tracing::Level,
    ) {
        if level > tracing::level_filters::LevelFilter::current() {
            return;
        }
        let Some(omitted) = context.gateway.log_budget.take(context.now) else { return };
        let (peer, subject, reason) = (self, Subject(scope), reason.to_string());
        let reason = Short(&reason, REASON_LEN_MAX);
        let line = format_args!("{peer}: {subject}: {reason}");
        match level {
            tracing::Level::WARN => tracing::warn!("{line}"),
            tracing::Level::INFO => tracing::info!("{line}"),
            _ => tracing::debug!("{line}"),
        }
        if omitted > 0 {
            tracing::warn!("{omitted} more ends of links, sessions and connections were not logged");
        }
    }
}

/// Returns the log level. Correct programs cause some of these endings, which therefore are not warnings.
fn level_of(scope: &Scope, error: &AmqpError) -> tracing::Level {
    let is = |condition: &str| error.condition == condition;
    if is(condition::TIMEOUT) {
        // No session was available.
        return tracing::Level::DEBUG;
    }
    let is_usual = match scope {
        Scope::Refusal(_) => true,
        Scope::Link(_) => is(condition::STOLEN),
        Scope::Session(_) => false,
        // The broker is stopping.
        Scope::Connection => is(condition::CONNECTION_FORCED),
    };
    if is_usual { tracing::Level::INFO } else { tracing::Level::WARN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_limited_and_omitted_lines_are_counted() {
        let budget = LogBudget::default();
        let at = |millis| budget.take(Timestamp::from_millis(millis));
        let written = (0..50).filter(|_| at(7_000).is_some()).count();
        assert_eq!(written, 20);
        assert_eq!(at(8_000), Some(30));
        assert_eq!(at(8_001), Some(0));
    }

    #[test]
    fn names_of_a_peer_are_truncated_and_escaped() {
        let link = LinkName { name: "a\nb\u{1b}".into(), address: Some("x".repeat(200).into()) };
        let text = Subject(&Scope::Link(link)).to_string();
        assert!(text.starts_with("ended link 'a\\nb\\u{1b}' of 'xxx"), "{text}");
        assert!(text.ends_with("x…'") && text.len() < 180, "{text}");
        assert_eq!(Short("no SharedAccessSignature sr=x&sig=y", 99).to_string(), "no (hidden)");
    }
}
