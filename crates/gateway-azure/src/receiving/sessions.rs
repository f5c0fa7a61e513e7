//! Session requests of links: the filter of an attach, and the session in its reply.

use std::time::Duration;

use peeklock_amqp::connection::AttachReply;
use peeklock_amqp::{Attach, Fields, Text, Value, condition};
use peeklock_broker::SessionAsk;
use peeklock_broker::engine::HeldSession;
use peeklock_types::{SessionId, Timestamp};

use crate::error::Refusal;

const FILTER: &str = "com.microsoft:session-filter";
const TIMEOUT: &str = "com.microsoft:timeout";
const LOCKED_UNTIL: &str = "com.microsoft:locked-until-utc";

/// The default time that a receiver waits for the next session.
const WAIT_DEFAULT: Duration = Duration::from_secs(65);
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// The session that a receiver requests, and the encoding of the request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SessionFilter {
    pub(crate) ask: SessionAsk,
    /// SDK quirk: Go decodes only a described value, JavaScript and .NET only a plain one. So the reply uses the
    /// encoding of the request.
    descriptor: Option<Value>,
}

impl SessionFilter {
    /// Decodes the session filter. Returns `None` if the attach has none.
    pub(crate) fn of(attach: &Attach) -> Result<Option<Self>, Refusal> {
        let filter = attach.source.as_ref().and_then(|source| source.filter.as_ref());
        let Some(value) = filter.and_then(|filter| filter.get(FILTER)) else { return Ok(None) };
        let (value, descriptor) = match value {
            Value::Described(described) => (&described.value, Some(described.descriptor.clone())),
            plain => (plain, None),
        };
        let ask = match value {
            Value::Null => SessionAsk::Next { timeout: wait_of(attach.properties.as_ref()) },
            Value::String(id) => SessionAsk::Named(SessionId::parse(id.as_str())?),
            _ => {
                let text = format!("the filter {FILTER} is neither a text nor null");
                return Err(Refusal::new(400, condition::INVALID_FIELD, text));
            }
        };
        Ok(Some(SessionFilter { ask, descriptor }))
    }

    /// Writes the locked session and the end of its lock to the attach reply.
    pub(crate) fn fill(&self, held: &HeldSession, reply: &mut AttachReply) {
        let id = Value::String(Text::from(held.session.as_str().to_owned()));
        let id = match &self.descriptor {
            Some(descriptor) => Value::described(descriptor.clone(), id),
            None => id,
        };
        reply.source.get_or_insert_default().filter = Some(Fields::new().with(FILTER, id));
        let until = Value::Long(ticks(held.locked_until));
        reply.properties.get_or_insert_default().insert(LOCKED_UNTIL, until);
    }
}

fn wait_of(properties: Option<&Fields>) -> Duration {
    let millis = properties.and_then(|properties| properties.get(TIMEOUT)).and_then(Value::as_u64);
    millis.map_or(WAIT_DEFAULT, |millis| Duration::from_millis(millis).min(WAIT_MAX))
}

/// Returns the time in .NET ticks: tenths of a microsecond since the year 1.
fn ticks(at: Timestamp) -> i64 {
    const UNIX_EPOCH_TICKS: i64 = 621_355_968_000_000_000;
    const TICKS_PER_MS: i64 = 10_000;
    // SDK quirk: .NET and JavaScript cannot represent a time beyond the year 9999.
    const TICKS_MAX: i64 = 3_155_378_975_999_999_999;
    let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    millis.saturating_mul(TICKS_PER_MS).saturating_add(UNIX_EPOCH_TICKS).min(TICKS_MAX)
}

#[cfg(test)]
mod tests {
    use peeklock_amqp::{Role, Source};

    use super::*;

    const GO_DESCRIPTOR: u64 = 0x0000_0013_7000_000c;

    fn attach(filter: Option<Value>, timeout: Option<Value>) -> Attach {
        let filter = filter.map(|value| Fields::new().with(FILTER, value));
        let source = Source { filter, ..Source::with_address("q") };
        let properties = timeout.map(|timeout| Fields::new().with(TIMEOUT, timeout));
        Attach { source: Some(source), properties, ..Attach::new("link", 0, Role::Receiver) }
    }

    fn asked(filter: Value, timeout: Option<Value>) -> SessionAsk {
        SessionFilter::of(&attach(Some(filter), timeout)).unwrap().unwrap().ask
    }

    fn named(id: &str) -> SessionAsk {
        SessionAsk::Named(SessionId::parse(id).unwrap())
    }

    #[test]
    fn session_filters_of_all_sdks_are_decoded() {
        assert_eq!(SessionFilter::of(&attach(None, None)).unwrap(), None);
        assert_eq!(asked("a".into(), None), named("a"));
        assert_eq!(asked("".into(), None), named(""));
        assert_eq!(asked(Value::described(GO_DESCRIPTOR, "a"), None), named("a"));
        assert_eq!(asked(Value::described(Value::symbol("any"), "a"), None), named("a"));
        let next = |timeout| SessionAsk::Next { timeout };
        assert_eq!(asked(Value::Null, None), next(WAIT_DEFAULT));
        assert_eq!(asked(Value::described(GO_DESCRIPTOR, Value::Null), None), next(WAIT_DEFAULT));
        assert_eq!(asked(Value::Null, Some(Value::Uint(250))), next(Duration::from_millis(250)));
        assert_eq!(asked(Value::Null, Some(Value::Uint(u32::MAX))), next(WAIT_MAX));
    }

    #[test]
    fn invalid_session_ids_are_rejected() {
        let refused = |value| SessionFilter::of(&attach(Some(value), None)).unwrap_err();
        assert_eq!(refused(Value::Int(1)).condition, condition::INVALID_FIELD);
        assert!(refused("x".repeat(129).into()).description.contains("129 characters"));
    }

    #[test]
    fn the_reply_uses_the_encoding_of_the_request() {
        let locked_until = Timestamp::from_millis(1_700_000_000_000);
        let held = HeldSession { session: SessionId::parse("chosen").unwrap(), locked_until };
        for question in [Value::Null, Value::described(GO_DESCRIPTOR, Value::Null)] {
            let filter = SessionFilter::of(&attach(Some(question.clone()), None)).unwrap().unwrap();
            let mut reply = AttachReply::default();
            filter.fill(&held, &mut reply);
            let expected = match question {
                Value::Null => Value::from("chosen"),
                _ => Value::described(GO_DESCRIPTOR, "chosen"),
            };
            assert_eq!(reply.source.unwrap().filter.unwrap().get(FILTER), Some(&expected));
            let until = reply.properties.unwrap().get(LOCKED_UNTIL).cloned();
            assert_eq!(until, Some(Value::Long(638_355_968_000_000_000)));
        }
    }

    #[test]
    fn ticks_start_at_the_year_one_and_stay_within_the_calendar_of_dotnet() {
        assert_eq!(ticks(Timestamp::ZERO), 621_355_968_000_000_000);
        assert_eq!(ticks(Timestamp::from_millis(1)), 621_355_968_000_010_000);
        assert_eq!(ticks(Timestamp::MAX), 3_155_378_975_999_999_999);
    }
}
