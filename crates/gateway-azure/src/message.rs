//! Requests to `$cbs` and `$management`, and their responses.

use bytes::Bytes;
use peeklock_amqp::{Body, Encode, Message, MessageId, Text, Value};

/// A request to `$cbs` or `$management`, reduced to the fields in use.
pub(crate) struct RequestMessage {
    pub(crate) message_id: Option<MessageId>,
    pub(crate) reply_to: Option<String>,
    pub(crate) body: Value,
    properties: Vec<(Text, Value)>,
}

impl RequestMessage {
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, peeklock_amqp::DecodeError> {
        let message = Message::decode(payload)?;
        Ok(RequestMessage {
            message_id: message.properties.message_id,
            reply_to: message.properties.reply_to.map(|to| to.to_string()),
            body: match message.body {
                Body::Value(value) => value,
                _ => Value::Null,
            },
            properties: message.application_properties,
        })
    }

    /// Returns an application property.
    pub(crate) fn property(&self, key: &str) -> Option<&Value> {
        self.properties.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }
}

/// Encodes a response. SDKs find their request by the correlation id, which must have the same type as the request's
/// message id.
pub(crate) fn encode_response(
    correlation: Option<MessageId>,
    properties: Vec<(&'static str, Value)>,
    body: Value,
) -> Bytes {
    Message { body: Body::Value(body), ..response_head(correlation, properties) }.to_bytes()
}

/// Does the same without a body.
pub(crate) fn response_head(
    correlation: Option<MessageId>,
    properties: Vec<(&'static str, Value)>,
) -> Message {
    let mut message = Message::default();
    message.properties.correlation_id = correlation;
    message.application_properties =
        properties.into_iter().map(|(key, value)| (Text::from_static(key), value)).collect();
    message
}
