//! Explains which subscriptions of a topic would receive a message, and why a message waits.

use std::sync::Arc;

use bytes::Bytes;
use peeklock_access::Right;
use peeklock_api::{Explained, ExplainedMessage, ExplainedRule, Page, Sample, messages, topics};
use peeklock_broker::engine;
use peeklock_filter::{SystemProperty, Value, ViewBuilder};
use peeklock_types::{SequenceNumber, limits};

use super::call::{Answer, Call, parse};
use super::route::{Route, route};
use crate::problem::Problem;
use crate::request::shown;
use crate::runtime;

pub(super) fn routes() -> Vec<Route> {
    vec![
        route(&topics::EXPLAIN, Right::Manage, Call::explain),
        route(&messages::EXPLAIN, Right::Listen, Call::explain_message),
    ]
}

impl Call<(), Sample> {
    async fn explain(self) -> Result<Answer<Page<Explained>>, Problem> {
        let (call, sample) = self.split();
        let view = view(sample)?;
        let explained = call.namespace.broker.explain(call.entity()?, view).await?;
        Ok(Answer::ok(Page::whole(explained.into_iter().map(info))))
    }
}

impl Call {
    async fn explain_message(self) -> Result<Answer<ExplainedMessage>, Problem> {
        self.check_entity().await?;
        let number = self.message_number()?;
        let wrong = || {
            let number = shown(number);
            Problem::bad(format!("'{number}' is no sequence number; give that of a message, like 17"))
        };
        let number = number.parse().map(SequenceNumber).map_err(|_| wrong())?;
        let explained = self.namespace.broker.explain_message(self.entity()?, number).await?;
        Ok(Answer::ok(runtime::explained(explained)))
    }
}

fn info(explained: engine::Explained) -> Explained {
    let name = explained.subscription.topic_and_subscription().map(|(_, name)| name.to_owned());
    let rules = explained.rules.into_iter().map(|rule| ExplainedRule {
        name: rule.name.to_string(),
        matched: rule.matched,
        why: rule.why,
    });
    Explained {
        subscription: name.unwrap_or_default(),
        copies: u64::try_from(explained.copy_count).unwrap_or(u64::MAX),
        dead_letters: explained.dead_letter,
        rules: rules.collect(),
    }
}

/// Parses the body of an `explain` request. For fuzzing: it must return for any bytes.
pub fn check_body(bytes: &[u8]) -> Result<(), String> {
    let sample = parse(&Bytes::copy_from_slice(bytes)).map_err(|problem| problem.to_string())?;
    view(sample).map(|_| ()).map_err(|problem| problem.to_string())
}

/// Returns the view of the message for filters.
fn view(sample: Sample) -> Result<Bytes, Problem> {
    let mut view = ViewBuilder::new();
    let system = [
        (SystemProperty::MessageId, sample.message_id),
        (SystemProperty::CorrelationId, sample.correlation_id),
        (SystemProperty::SessionId, sample.session_id),
        (SystemProperty::ReplyToSessionId, sample.reply_to_session_id),
        (SystemProperty::To, sample.to),
        (SystemProperty::ReplyTo, sample.reply_to),
        (SystemProperty::Label, sample.label),
        (SystemProperty::ContentType, sample.content_type),
        (SystemProperty::PartitionKey, sample.partition_key),
    ];
    for (property, text) in system {
        if let Some(text) = text {
            view.system(property, &Value::Text(Arc::from(text)));
        }
    }
    for (name, value) in sample.properties.0 {
        view.user(&name, &value.0);
    }
    let view = view.finish();
    if view.len() > limits::VIEW_SIZE_BYTES_MAX {
        let max = limits::VIEW_SIZE_BYTES_MAX;
        return Err(Problem::bad(format!(
            "the message's properties take {} bytes; at most {max} are allowed",
            view.len()
        )));
    }
    Ok(view)
}
