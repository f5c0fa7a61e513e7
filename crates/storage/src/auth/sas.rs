//! Shared access signatures in the query: for the account, or for one container, blob or queue.

use peeklock_types::Timestamp;
use peeklock_web::shown;

use super::permit::Permit;
use crate::Service;
use crate::call::{Call, is_version};
use crate::problem::Problem;
use crate::time::parse_iso;

/// The first version in which blob signatures include the type of their resource.
const VERSION_WITH_RESOURCE: &str = "2018-11-09";
/// The first version in which signatures include an encryption scope.
const VERSION_WITH_SCOPE: &str = "2020-12-06";
/// The oldest supported version. Earlier ones sign the fields in another order.
const VERSION_OLDEST: &str = "2015-04-05";

pub(super) fn check(call: &Call<'_>, signature: &str) -> Result<Permit, Problem> {
    let version = call.query("sv").unwrap_or_default();
    if !is_version(version) || version < VERSION_OLDEST {
        return Err(Problem::authentication(format!(
            "the signature's version (sv) is '{}'; make one of version {VERSION_OLDEST} or later",
            shown(version)
        )));
    }
    refuse_unknown_kinds(call)?;
    let permit = if call.query("ss").is_some() || call.query("srt").is_some() {
        check_account(call, version, signature)?
    } else {
        check_service(call, version, signature)?
    };
    check_times(call)?;
    check_protocol(call)?;
    Ok(permit)
}

/// Rejects signatures with unsupported restrictions, because ignoring a restriction would permit more than the
/// signature does.
fn refuse_unknown_kinds(call: &Call<'_>) -> Result<(), Problem> {
    let unknown = [
        ("si", "stored access policies are not kept"),
        ("skoid", "user delegation keys are not handed out"),
        ("sip", "addresses of clients are not checked"),
        ("sdd", "there are no directories"),
    ];
    match unknown.iter().find(|(name, _)| call.query(name).is_some_and(|value| !value.is_empty())) {
        Some((name, why)) => Err(Problem::authentication(format!(
            "the signature has '{name}', and {why} here; make one without it"
        ))),
        None => Ok(()),
    }
}

fn check_account(call: &Call<'_>, version: &str, signature: &str) -> Result<Permit, Problem> {
    let part = |name| call.query(name).unwrap_or_default();
    let name = call.account.name.as_str();
    let mut lines = vec![
        name,
        part("sp"),
        part("ss"),
        part("srt"),
        part("st"),
        part("se"),
        part("sip"),
        part("spr"),
        version,
    ];
    if version >= VERSION_WITH_SCOPE {
        lines.push(part("ses"));
    }
    // The last line also ends with a line feed.
    lines.push("");
    check_signature(call, &lines.join("\n"), signature)?;
    let letter = match call.service {
        Service::Blob => 'b',
        Service::Queue => 'q',
    };
    if !part("ss").contains(letter) {
        return Err(Problem::forbidden(
            "AuthorizationServiceMismatch",
            format!("the signature is for the services '{}'; this one is '{letter}'", shown(part("ss"))),
        ));
    }
    Ok(Permit::Account { resources: part("srt").to_owned(), permissions: part("sp").to_owned() })
}

fn check_service(call: &Call<'_>, version: &str, signature: &str) -> Result<Permit, Problem> {
    let part = |name| call.query(name).unwrap_or_default();
    let Some(container) = call.container.as_deref() else {
        return Err(Problem::authentication(
            "the signature is for one container or queue, and the path names none",
        ));
    };
    let is_object = call.service == Service::Blob && part("sr") == "b";
    if call.service == Service::Blob && !matches!(part("sr"), "b" | "c") {
        return Err(Problem::authentication(format!(
            "the signature's resource (sr) is '{}'; only 'b' for a blob and 'c' for a container are known",
            shown(part("sr"))
        )));
    }
    let mut resource = format!("/{}/{}/{container}", call.service.name(), call.account.name);
    if let (true, Some(inside)) = (is_object, &call.inside) {
        resource.push('/');
        resource.push_str(inside);
    }
    let mut lines =
        vec![part("sp"), part("st"), part("se"), &resource, part("si"), part("sip"), part("spr"), version];
    if call.service == Service::Blob {
        if version >= VERSION_WITH_RESOURCE {
            lines.extend([part("sr"), part("snapshot")]);
        }
        if version >= VERSION_WITH_SCOPE {
            lines.push(part("ses"));
        }
        lines.extend([part("rscc"), part("rscd"), part("rsce"), part("rscl"), part("rsct")]);
    }
    check_signature(call, &lines.join("\n"), signature)?;
    Ok(Permit::Service { permissions: part("sp").to_owned(), is_object })
}

fn check_signature(call: &Call<'_>, text: &str, signature: &str) -> Result<(), Problem> {
    if call.account.key.has_signed(text, signature) {
        return Ok(());
    }
    Err(Problem::authentication(format!(
        "the shared access signature does not fit; check the key of the account '{}'. What was to be signed: {text:?}",
        call.account.name
    )))
}

fn check_times(call: &Call<'_>) -> Result<(), Problem> {
    let time = |name| -> Result<Option<Timestamp>, Problem> {
        let Some(text) = call.query(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        let wrong = || Problem::authentication(format!("'{name}' is '{}', which is no time", shown(text)));
        parse_iso(text).map(Some).ok_or_else(wrong)
    };
    let now = call.now();
    let Some(end) = time("se")? else {
        return Err(Problem::authentication("the signature does not say when it ends (se)"));
    };
    if now >= end {
        return Err(Problem::authentication("the signature has expired (se); make a new one"));
    }
    if time("st")?.is_some_and(|start| now < start) {
        return Err(Problem::authentication("the signature is not valid yet (st)"));
    }
    Ok(())
}

fn check_protocol(call: &Call<'_>) -> Result<(), Problem> {
    match call.query("spr").unwrap_or_default() {
        "" | "https,http" | "http,https" => Ok(()),
        "https" if call.is_tls() => Ok(()),
        _ => Err(Problem::forbidden(
            "AuthorizationProtocolMismatch",
            "the signature is for HTTPS only (spr), and this is plain HTTP",
        )),
    }
}
