//! Queue Storage over the broker's queues: messages put here can be received over AMQP, and vice versa.

mod message;
mod messages;
mod metadata;
mod queues;
mod receipt;
mod refusal;
mod service;

use axum::body::Body;
use axum::response::Response;
use http::Method;
use peeklock_types::EntityName;
use peeklock_web::shown;

use crate::auth::{Needs, Permit, Resource};
use crate::call::Call;
use crate::problem::Problem;

/// The resource in a path.
enum Place<'c> {
    Service,
    Queue(&'c str),
    Messages(&'c str),
    Message(&'c str, &'c str),
}

pub(crate) async fn answer(call: &Call<'_>, permit: &Permit, body: Body) -> Result<Response, Problem> {
    let request = Request { call, permit };
    match place(call)? {
        Place::Service => request.service(body).await,
        Place::Queue(queue) => request.queue(&name(queue)?).await,
        Place::Messages(queue) => request.messages(&name(queue)?, body).await,
        Place::Message(queue, message) => request.message(&name(queue)?, message, body).await,
    }
}

fn place<'c>(call: &'c Call<'_>) -> Result<Place<'c>, Problem> {
    let Some(queue) = call.container.as_deref() else { return Ok(Place::Service) };
    let Some(inside) = call.inside.as_deref() else { return Ok(Place::Queue(queue)) };
    match inside.split_once('/') {
        None if inside == "messages" => Ok(Place::Messages(queue)),
        Some(("messages", "")) => Ok(Place::Messages(queue)),
        Some(("messages", message)) if !message.contains('/') => Ok(Place::Message(queue, message)),
        _ => Err(Problem::bad(
            "InvalidUri",
            format!("'{}' is nothing that a queue has; ask for 'messages'", shown(inside)),
        )),
    }
}

fn name(queue: &str) -> Result<EntityName, Problem> {
    let is_one = !queue.contains('/');
    let name = EntityName::parse(queue).ok().filter(|name| is_one && !name.is_subscription());
    name.ok_or_else(|| refusal::bad_name(queue))
}

/// A request with its permit. The body is passed separately, because it cannot be shared between threads.
#[derive(Clone, Copy)]
struct Request<'r, 's> {
    call: &'r Call<'s>,
    permit: &'r Permit,
}

impl Request<'_, '_> {
    fn comp(&self) -> &str {
        self.call.query("comp").unwrap_or_default()
    }

    fn method(&self) -> &Method {
        self.call.method()
    }

    fn may(
        &self,
        resource: Resource,
        of_account: &'static str,
        of_service: &'static str,
    ) -> Result<(), Problem> {
        self.permit.check(Needs { resource, of_account, of_service })
    }

    /// Returns the rejection of a call that is not supported.
    fn unknown(&self) -> Problem {
        Problem::not_supported(format!(
            "{} with comp='{}' and restype='{}' is not supported here; docs/storage-queues.md says what is",
            shown(self.method().as_str()),
            shown(self.comp()),
            shown(self.call.query("restype").unwrap_or_default()),
        ))
    }
}
