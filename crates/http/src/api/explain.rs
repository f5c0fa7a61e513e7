//! Which subscriptions of a topic would get a message, and why the others would not; and why a message waits.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use peeklock_filter::{SystemProperty, Value, ViewBuilder};
use peeklock_types::{SequenceNumber, limits};

use super::shape::{Explained, Page, Sample};
use super::{Call, json, parse};
use crate::problem::Problem;
use crate::request::shown;
use crate::runtime;

impl Call<'_> {
    pub(super) async fn explain(&self, body: Body) -> Result<Response, Problem> {
        let sample: Sample = self.body(body).await?;
        let view = view(sample)?;
        let explained = self.namespace.broker.explain(self.entity()?, view).await?;
        let items = explained.into_iter().map(Explained::of).collect();
        json(StatusCode::OK, None, &Page { items, next: None })
    }

    pub(super) async fn explain_message(&self) -> Result<Response, Problem> {
        let number = self.names.number.as_deref().unwrap_or_default();
        let wrong = || {
            let number = shown(number);
            Problem::bad(format!("'{number}' is no sequence number; give that of a message, like 17"))
        };
        let number = number.parse().map(SequenceNumber).map_err(|_| wrong())?;
        let explained = self.namespace.broker.explain_message(self.entity()?, number).await?;
        json(StatusCode::OK, None, &runtime::explained(explained))
    }
}

/// Reads the body of an `explain`. For fuzzing: it must come back, whatever the bytes.
pub fn check_body(bytes: &[u8]) -> Result<(), String> {
    let sample = parse(&Bytes::copy_from_slice(bytes)).map_err(|problem| problem.to_string())?;
    view(sample).map(|_| ()).map_err(|problem| problem.to_string())
}

/// The message as filters see it.
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
