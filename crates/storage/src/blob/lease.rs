//! Lease Blob and Lease Container.

use std::time::Duration;

use axum::response::Response;
use http::{HeaderName, StatusCode};
use peeklock_broker::blob::limits::{LEASE_SPAN_S_MAX, LEASE_SPAN_S_MIN};
use peeklock_broker::blob::{
    BlobName, Condition, ContainerName, LeaseAction, LeaseId, LeaseSpan, LeaseTerm, Leased,
};
use peeklock_web::shown;

use super::headers::{condition, lease_id, put_state};
use super::refusal::refused;
use crate::answer::{empty, put_header};
use crate::auth::{Needs, Permit, Resource};
use crate::call::Call;
use crate::problem::Problem;

const LEASE_ID: &str = "x-ms-lease-id";
const PROPOSED: &str = "x-ms-proposed-lease-id";
const DURATION: &str = "x-ms-lease-duration";
const BREAK_PERIOD: &str = "x-ms-lease-break-period";

pub(super) async fn act(
    call: &Call<'_>,
    permit: &Permit,
    container: ContainerName,
    blob: Option<BlobName>,
) -> Result<Response, Problem> {
    let action = action(call)?;
    permit.check(needs(&action, blob.is_some()))?;
    // In this call, the id names the lease to change and is not a condition.
    let condition = Condition { lease_id: None, ..condition(call)? };
    let leased = call.account.broker.lease_blob(container, blob, action, condition).await.map_err(refused)?;
    Ok(answer(call, action, &leased))
}

fn needs(action: &LeaseAction, is_blob: bool) -> Needs {
    let letters = if matches!(action, LeaseAction::Break { .. }) { "wd" } else { "w" };
    match is_blob {
        true => Needs { resource: Resource::Object, of_account: letters, of_service: letters },
        false => Needs { resource: Resource::Container, of_account: letters, of_service: "" },
    }
}

fn action(call: &Call<'_>) -> Result<LeaseAction, Problem> {
    let Some(action) = call.header("x-ms-lease-action") else {
        return Err(Problem::missing_header("x-ms-lease-action"));
    };
    let given = |name| lease_id(call, name)?.ok_or_else(|| Problem::missing_header(name));
    Ok(match action.trim().to_ascii_lowercase().as_str() {
        "acquire" => {
            let id = lease_id(call, PROPOSED)?.unwrap_or_else(new_id);
            LeaseAction::Acquire { id, span: span(call)? }
        }
        "renew" => LeaseAction::Renew { id: given(LEASE_ID)? },
        "change" => LeaseAction::Change { id: given(LEASE_ID)?, proposed: given(PROPOSED)? },
        "release" => LeaseAction::Release { id: given(LEASE_ID)? },
        "break" => LeaseAction::Break { period: break_period(call)? },
        _ => {
            let text = format!("is '{}'; give acquire, renew, change, release or break", shown(&action));
            return Err(Problem::header("x-ms-lease-action", text));
        }
    })
}

/// Returns a random GUID, version 4.
fn new_id() -> LeaseId {
    LeaseId(
        uuid::Builder::from_random_bytes(peeklock_broker::random::u128().to_be_bytes()).into_uuid().as_u128(),
    )
}

fn span(call: &Call<'_>) -> Result<LeaseSpan, Problem> {
    let Some(text) = call.header(DURATION) else { return Err(Problem::missing_header(DURATION)) };
    let fits = LEASE_SPAN_S_MIN..=LEASE_SPAN_S_MAX;
    match text.trim().parse::<i64>() {
        Ok(-1) => Ok(LeaseSpan::Infinite),
        Ok(s) if u64::try_from(s).is_ok_and(|s| fits.contains(&s)) => {
            Ok(LeaseSpan::Fixed(Duration::from_secs(s.unsigned_abs())))
        }
        _ => Err(Problem::header(
            DURATION,
            format!(
                "is '{}'; give {LEASE_SPAN_S_MIN} to {LEASE_SPAN_S_MAX} seconds, or -1 for a lease without end",
                shown(&text)
            ),
        )),
    }
}

fn break_period(call: &Call<'_>) -> Result<Option<Duration>, Problem> {
    let Some(text) = call.header(BREAK_PERIOD).filter(|text| !text.trim().is_empty()) else {
        return Ok(None);
    };
    match text.trim().parse::<u64>() {
        Ok(s) if s <= LEASE_SPAN_S_MAX => Ok(Some(Duration::from_secs(s))),
        _ => Err(Problem::header(
            BREAK_PERIOD,
            format!("is '{}'; give 0 to {LEASE_SPAN_S_MAX} seconds", shown(&text)),
        )),
    }
}

fn answer(call: &Call<'_>, action: LeaseAction, leased: &Leased) -> Response {
    let status = match action {
        LeaseAction::Acquire { .. } => StatusCode::CREATED,
        LeaseAction::Break { .. } => StatusCode::ACCEPTED,
        LeaseAction::Renew { .. } | LeaseAction::Change { .. } | LeaseAction::Release { .. } => {
            StatusCode::OK
        }
    };
    let mut response = empty(status);
    put_state(&mut response, leased.etag, leased.modified_at);
    let id = HeaderName::from_static(LEASE_ID);
    match leased.lease.map(|lease| (lease.id, lease.term)) {
        None => {}
        Some((_, LeaseTerm::Breaking { until })) => {
            // Rounded up to whole seconds, so that a client does not retry too early.
            let rest = until.since(call.now());
            let seconds = rest.as_secs() + u64::from(rest.subsec_nanos() > 0);
            put_header(&mut response, &HeaderName::from_static("x-ms-lease-time"), &seconds.to_string());
        }
        Some((held, _)) => put_header(&mut response, &id, &held.to_string()),
    }
    response
}
