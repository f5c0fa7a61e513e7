//! Authorisation: a shared key permits everything in its account, a shared access signature the resources and
//! operations that it names.

mod order;
mod permit;
mod sas;
mod shared_key;

use http::StatusCode;
use http::header::AUTHORIZATION;

use crate::call::Call;
use crate::problem::Problem;

pub(crate) use permit::{Needs, Permit, Resource};

/// Checks the signature of a request and returns the operations that it permits.
pub(crate) fn authorize(call: &Call<'_>) -> Result<Permit, Problem> {
    let Some(authorization) = call.header(AUTHORIZATION) else {
        return match call.query("sig") {
            Some(signature) => sas::check(call, signature),
            None => Err(unsigned()),
        };
    };
    let (scheme, credentials) = authorization.trim().split_once(' ').unwrap_or((&authorization, ""));
    match scheme {
        "SharedKey" => shared_key::check(call, credentials, shared_key::Scheme::Full),
        "SharedKeyLite" => shared_key::check(call, credentials, shared_key::Scheme::Lite),
        _ => Err(Problem::authentication(format!(
            "'{}' is none of SharedKey and SharedKeyLite; sign with the key of the account, or use a shared access signature",
            peeklock_web::shown(scheme)
        ))),
    }
}

fn unsigned() -> Problem {
    let text = "the request has no Authorization header and no shared access signature; sign it with the key of the account";
    Problem::new(StatusCode::UNAUTHORIZED, "NoAuthenticationInformation", text)
}
