//! The table of routes, and the selection of a request's handler.

use std::pin::Pin;

use axum::body::Body;
use axum::response::Response;
use http::Method;
use peeklock_access::Right;
use peeklock_api::{Endpoint, Parameter, Query};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::call::{Answer, Call};
use super::names::Names;
use crate::auth::authorize;
use crate::problem::Problem;
use crate::request::Head;
use crate::state::HttpState;

type Handler = Box<dyn Fn(Call, Body) -> Handled + Send + Sync>;
type Handled = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// An endpoint with its right and its handler.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) paths: &'static [&'static str],
    pub(super) summary: &'static str,
    pub(super) statuses: &'static [u16],
    /// The right on the entity in the path, or on the namespace; `None` for a public route.
    pub(super) right: Option<Right>,
    pub(super) parameters: &'static [Parameter],
    pub(super) body: Option<SchemaOf>,
    pub(super) answer: SchemaOf,
    handler: Handler,
}

/// Declares a route. The types of the handler are those of the endpoint.
pub(super) fn route<Q, B, A, F, R>(endpoint: &'static Endpoint<Q, B, A>, right: Right, handler: F) -> Route
where
    Q: Query + Send + 'static,
    B: DeserializeOwned + JsonSchema + Send + 'static,
    A: Serialize + JsonSchema + 'static,
    F: Fn(Call<Q, B>) -> R + Copy + Send + Sync + 'static,
    R: Future<Output = Result<Answer<A>, Problem>> + Send + 'static,
{
    let takes_body = endpoint.takes_body();
    let run = move |call: Call, body: Body| -> Handled {
        Box::pin(async move {
            let call = call.read(takes_body.then_some(body)).await?;
            handler(call).await?.into_response()
        })
    };
    Route {
        method: endpoint.method.clone(),
        paths: endpoint.paths,
        summary: endpoint.summary,
        statuses: endpoint.statuses,
        right: Some(right),
        parameters: Q::PARAMETERS,
        body: takes_body.then_some(SchemaGenerator::subschema_for::<B>),
        answer: SchemaGenerator::subschema_for::<A>,
        handler: Box::new(run),
    }
}

impl Route {
    /// Declares that a route needs no authorisation. Such a route ignores the query.
    pub(super) fn public(self) -> Self {
        Route { right: None, ..self }
    }

    /// Authorises a request, then parses and answers it. `names` are the names in the path.
    pub(super) async fn run(
        &self,
        state: &HttpState,
        head: Head,
        names: Names,
        body: Body,
    ) -> Result<Response, Problem> {
        let namespace = state.namespace(&head).clone();
        if let Some(right) = self.right {
            authorize(&namespace, &head, names.authorised_path(), right)?;
            let known: Vec<_> = self.parameters.iter().map(|parameter| parameter.name).collect();
            head.check_query(&known)?;
        }
        (self.handler)(Call::new(state.clone(), namespace, head, names), body).await
    }
}

/// Returns the route of a request and the names in its path.
pub(super) fn find<'r>(routes: &'r [Route], head: &Head) -> Result<(&'r Route, Names), Problem> {
    let mut allowed: Vec<&str> = Vec::new();
    for route in routes {
        let path = route.paths.iter().find(|path| matches(path, &head.segments));
        match path {
            Some(path) if route.method == head.parts.method => {
                return Ok((route, Names::read(path, &head.segments)?));
            }
            Some(_) => allowed.push(route.method.as_str()),
            None => {}
        }
    }
    if allowed.is_empty() {
        let path = crate::request::shown(head.parts.uri.path());
        return Err(Problem::NotFound(format!(
            "nothing is at '{path}'; /api/openapi.json tells what there is. A '/' in a name is written %2F"
        )));
    }
    Err(head.not_allowed(&allowed.join(", ")))
}

fn matches(path: &str, segments: &[String]) -> bool {
    let mut given = segments.iter();
    let mut wanted = path.trim_start_matches('/').split('/');
    wanted.all(|wanted| given.next().is_some_and(|given| wanted.starts_with('{') || wanted == given))
        && given.next().is_none()
}
