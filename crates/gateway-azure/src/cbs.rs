//! The token service: `$cbs`.

use bytes::Bytes;
use peeklock_amqp::connection::SessionId;
use peeklock_amqp::{Value, condition};

use crate::conversation::Conversation;
use crate::error::Refusal;
use crate::link::Service;
use crate::management::ReplyTo;
use crate::message::RequestMessage;

impl Conversation<'_> {
    pub(crate) fn on_token(&mut self, session: SessionId, payload: &Bytes) -> Result<(), Refusal> {
        let request = RequestMessage::decode(payload).map_err(|error| Refusal::unreadable(&error))?;
        let link = self.response_link(session, &Service::Cbs, request.reply_to.as_deref());
        let Some((link, place)) = link.and_then(|link| Some((link, self.take_place(link)?))) else {
            return Err(Refusal::no_way_back(request.reply_to.as_deref()));
        };
        let mut properties = Vec::new();
        let mut put = |key: &'static str, value: Value| properties.push((key, value));
        match self.put_token(&request) {
            // SDK quirk: azservicebus for Rust takes nothing but 202 for success.
            Ok(()) => {
                put("status-code", Value::Int(202));
                put("status-description", Value::from("Accepted"));
            }
            Err(reason) => {
                put("status-code", Value::Int(401));
                put("status-description", Value::from(reason));
                put("error-condition", Value::symbol(condition::AUTH_FAILED));
            }
        }
        self.respond(ReplyTo { link, place, correlation: request.message_id }, properties, Value::Null);
        Ok(())
    }

    fn put_token(&mut self, request: &RequestMessage) -> Result<(), String> {
        match request.property("operation").and_then(Value::as_str) {
            Some("put-token") => {}
            other => return Err(format!("$cbs knows the operation put-token, not {other:?}")),
        }
        let audience = request.property("name").and_then(Value::as_str).ok_or("the request has no 'name'")?;
        let token = request.body.as_str().ok_or("the request's body is not a token")?;
        // The 'type' is not looked at. SDK quirk: Python labels its shared access signatures 'jwt'.
        self.take_token(token, audience)
    }
}
