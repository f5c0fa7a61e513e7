//! Metrics of all entities for Prometheus.

mod entities;
mod family;
mod hubs;

use std::fmt::Write;

use axum::response::Response;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use peeklock_access::{Claim, Right, Scope};
use peeklock_broker::AdminError;

use crate::auth::{basic, no_such_key, not_basic, now_s};
use crate::problem::Problem;
use crate::request::Head;
use crate::state::{Arrival, HttpState, Namespace};
use entities::Entities;
use family::{Family, Kind, Labels, seconds};
use hubs::Hubs;

const CONTENT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) async fn answer(state: &HttpState, head: &Head) -> Response {
    let told = match visible(state, head) {
        Ok(namespaces) => tell(state, &namespaces, head.arrival()).await.map_err(Problem::from),
        Err(problem) => Err(problem),
    };
    match told {
        Ok(text) => {
            let mut response = Response::new(text.into());
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(CONTENT));
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response
        }
        Err(problem) => refuse(problem),
    }
}

/// Returns the namespaces that a request may read: on loopback all, otherwise those of its key.
fn visible<'s>(state: &'s HttpState, head: &Head) -> Result<Vec<&'s Namespace>, Problem> {
    if head.is_local() {
        return Ok(state.namespaces().iter().collect());
    }
    let Some(token) = head.token() else {
        let text = "metrics need a key here: send its name and the key as HTTP Basic, or a token. On a loopback address they need none";
        return Err(Problem::Unauthorized(text.to_owned()));
    };
    match basic(token) {
        Some(pair) => {
            let (name, secret) = pair.ok_or_else(not_basic)?;
            let claims = state.namespaces().iter().filter_map(|namespace| {
                Some((namespace, namespace.access.check_secret(&name, secret.as_bytes())?))
            });
            let claims: Vec<_> = claims.collect();
            if claims.is_empty() {
                return Err(no_such_key());
            }
            let allowed: Vec<_> = claims
                .iter()
                .filter(|(namespace, claim)| may_watch(namespace, claim))
                .map(|(namespace, _)| *namespace)
                .collect();
            if allowed.is_empty() { Err(forbidden()) } else { Ok(allowed) }
        }
        None => {
            let namespace = state.namespace(head);
            let claim = namespace.access.check_token(token, "", now_s(namespace))?;
            if may_watch(namespace, &claim) { Ok(vec![namespace]) } else { Err(forbidden()) }
        }
    }
}

fn may_watch(namespace: &Namespace, claim: &Claim) -> bool {
    let has = |right| claim.allows(right, &Scope::NAMESPACE, now_s(namespace));
    has(Right::Listen) || has(Right::Manage)
}

fn forbidden() -> Problem {
    Problem::Forbidden(
        "metrics need a key of the whole namespace with the right Listen or Manage; this one has neither"
            .to_owned(),
    )
}

fn refuse(problem: Problem) -> Response {
    let is_unknown = matches!(problem, Problem::Unauthorized(_));
    let mut response = problem.into_json();
    if is_unknown {
        let ask = HeaderValue::from_static("Basic realm=\"peeklock\", charset=\"UTF-8\"");
        response.headers_mut().append(WWW_AUTHENTICATE, ask);
    }
    response
}

async fn tell(
    state: &HttpState,
    namespaces: &[&Namespace],
    arrival: Option<&Arrival>,
) -> Result<String, AdminError> {
    // Scrapes run one at a time, which limits the cost of frequent requests.
    let _alone = state.scraping().lock().await;
    let (mut entities, mut hubs) = (Entities::default(), Hubs::default());
    for namespace in namespaces {
        let is_first = state.namespaces().first().is_some_and(|first| std::ptr::eq(first, *namespace));
        // The first namespace has no label, because most brokers have only one; in Prometheus, a missing label equals
        // an empty one.
        let labels = Labels::default();
        let labels = if is_first { labels } else { labels.with("namespace", &namespace.name) };
        measure(namespace, &labels, &mut entities).await?;
        hubs.measure(namespace, &labels).await?;
    }
    let mut text = String::new();
    let left_out_count = entities.left_out_count + hubs.left_out_count;
    let mut of_broker = of_broker(state, arrival, left_out_count);
    of_broker.extend(damage(namespaces));
    for family in of_broker.iter().chain(entities.families()).chain(hubs.families()) {
        let written = write!(text, "{family}");
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
    }
    Ok(text)
}

/// Adds the entities of a namespace in pages, so that a shard can serve other requests between two pages.
async fn measure(namespace: &Namespace, labels: &Labels, entities: &mut Entities) -> Result<(), AdminError> {
    for shard in 0..namespace.broker.shard_count() {
        let mut after = None;
        loop {
            let page = namespace.broker.measure(shard, after).await?;
            let now = namespace.now();
            page.iter().for_each(|entity| entities.add(labels, now, entity));
            match page.last() {
                Some(last) => after = Some(last.name.clone()),
                None => break,
            }
        }
    }
    Ok(())
}

/// Returns the metrics of the broker as a whole.
fn of_broker(state: &HttpState, arrival: Option<&Arrival>, left_out_count: u64) -> Vec<Family> {
    let none = Labels::default();
    let gauge = |name: &str, help, labels: &Labels, value: f64| {
        let mut family = Family::new(name, Kind::Gauge, help);
        family.add(labels, value);
        family
    };
    let mut families = vec![
        gauge(
            "peeklock_build_info",
            "Always 1; the label says which version runs",
            &none.with("version", env!("CARGO_PKG_VERSION")),
            1.0,
        ),
        gauge(
            "peeklock_start_time_seconds",
            "When the broker was started, in seconds since 1970",
            &none,
            seconds(state.started_at().as_millis()),
        ),
        gauge(
            "peeklock_metrics_left_out",
            "Entities whose numbers had no room here",
            &none,
            count(left_out_count),
        ),
    ];
    if let Some(arrival) = arrival {
        let connections = |value: usize| count(u64::try_from(value).unwrap_or(u64::MAX));
        families.push(gauge(
            "peeklock_connections",
            "Open connections of all listeners and protocols",
            &none,
            connections(arrival.connection_count),
        ));
        families.push(gauge(
            "peeklock_connections_max",
            "How many there may be",
            &none,
            connections(arrival.connection_count_max),
        ));
    }
    families
}

/// Returns the metrics of damaged data on disk.
fn damage(namespaces: &[&Namespace]) -> [Family; 2] {
    let all = || namespaces.iter().map(|namespace| namespace.broker.damage());
    let counter = |name: &str, help, value: u64| {
        let mut family = Family::new(name, Kind::Counter, help);
        family.add(&Labels::default(), count(value));
        family
    };
    [
        counter(
            "peeklock_damaged_messages_total",
            "Messages that have lost their body to damage on the disk since the start; they are with the dead letters",
            all().map(|damage| damage.message_count).sum(),
        ),
        counter(
            "peeklock_damaged_events_total",
            "Events that were lost to damage on the disk since the start",
            all().map(|damage| damage.event_count).sum(),
        ),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "nothing is counted here that comes near 2^53")]
fn count(count: u64) -> f64 {
    count as f64
}
