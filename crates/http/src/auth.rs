//! Authorisation. Every call apart from health and the API description requires a token; metrics have rules of their
//! own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::HeaderName;
use peeklock_access::{Claim, Right, Scope};
use peeklock_types::{EntityName, QueueSettings};

use crate::problem::Problem;
use crate::request::Head;
use crate::state::Namespace;

const FORWARD: HeaderName = HeaderName::from_static("servicebussupplementaryauthorization");
const FORWARD_DEAD_LETTERS: HeaderName = HeaderName::from_static("servicebusdlqsupplementaryauthorization");

/// Rejects a request whose token does not have `right` at `path`.
pub(crate) fn authorize(namespace: &Namespace, head: &Head, path: &str, right: Right) -> Result<(), Problem> {
    let Some(token) = head.token() else {
        let text = "the request has no Authorization header; send the name of a key and the key as HTTP Basic, a shared access signature, \
                    or a bearer token where that is on";
        return Err(Problem::Unauthorized(text.to_owned()));
    };
    let now_s = now_s(namespace);
    let claim = claim(namespace, token, path, now_s)?;
    let scope = Scope::parse(path);
    if claim.allows(right, &scope, now_s) {
        return Ok(());
    }
    Err(Problem::Forbidden(format!(
        "the key has the rights {}; this needs {right} on {scope}",
        claim.rights()
    )))
}

/// Returns the claim of a token or of a key.
fn claim(namespace: &Namespace, token: &str, path: &str, now_s: u64) -> Result<Claim, Problem> {
    match basic(token) {
        Some(pair) => {
            let (name, secret) = pair.ok_or_else(not_basic)?;
            namespace.access.check_secret(&name, secret.as_bytes()).ok_or_else(no_such_key)
        }
        None => Ok(namespace.access.check_token(token, path, now_s)?),
    }
}

/// Parses basic authorization. Returns `None` for another kind of authorization, and `Some(None)` if it is malformed.
pub(crate) fn basic(token: &str) -> Option<Option<(String, String)>> {
    const KIND: &str = "Basic ";
    let kind = token.get(..KIND.len())?;
    if !kind.eq_ignore_ascii_case(KIND) {
        return None;
    }
    let pair = || {
        let decoded = BASE64.decode(token.get(KIND.len()..)?.trim()).ok()?;
        let (name, secret) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
        Some((name.to_owned(), secret.to_owned()))
    };
    Some(pair())
}

pub(crate) fn not_basic() -> Problem {
    Problem::bad("the Authorization header is not HTTP Basic: base64 of NAME:KEY is expected")
}

pub(crate) fn no_such_key() -> Problem {
    Problem::Unauthorized("there is no key of this name with this secret".to_owned())
}

pub(crate) fn now_s(namespace: &Namespace) -> u64 {
    namespace.now().as_millis() / 1000
}

/// Rejects forwarding to a target to which the client may not send, because an entity forwards messages on behalf of
/// its owner. The right is proved by the token of the request or by a second token.
pub(crate) fn check_targets(
    namespace: &Namespace,
    head: &Head,
    settings: &QueueSettings,
    current: Option<&QueueSettings>,
) -> Result<(), Problem> {
    let targets = [
        (&settings.forward_to, current.map(|current| &current.forward_to), FORWARD),
        (
            &settings.forward_dead_letters_to,
            current.map(|current| &current.forward_dead_letters_to),
            FORWARD_DEAD_LETTERS,
        ),
    ];
    for (target, before, header) in targets {
        let Some(target) = target else { continue };
        let is_new = before.and_then(Option::as_ref) != Some(target);
        if is_new && !may_send(namespace, head, target, &header) {
            return Err(Problem::Forbidden(format!(
                "to forward to '{target}' takes the right Send on it; sign with a key that has it"
            )));
        }
    }
    Ok(())
}

fn may_send(namespace: &Namespace, head: &Head, target: &EntityName, header: &HeaderName) -> bool {
    let now_s = now_s(namespace);
    let scope = Scope::from(target);
    let allows = |token: &str| {
        let claim = claim(namespace, token, target.as_str(), now_s);
        claim.is_ok_and(|claim| claim.allows(Right::Send, &scope, now_s))
    };
    let extra = head.header(header);
    head.token().is_some_and(allows)
        || extra.is_some_and(allows)
        || extra.is_some_and(|token| is_for_host(namespace, head, token, now_s))
}

/// Returns whether the token permits sends in the whole namespace. SDK quirk: JavaScript signs the second token for the
/// bare host without a scheme, which denotes the whole namespace. A token for an entity has the same form, so a host that could be the
/// name of an entity must be a known one.
fn is_for_host(namespace: &Namespace, head: &Head, token: &str, now_s: u64) -> bool {
    let host = head.authority();
    if EntityName::parse(host).is_ok() && !namespace.is_known_host(host) {
        return false;
    }
    let claim = namespace.access.check_token(token, head.authority(), now_s);
    claim.is_ok_and(|claim| claim.is_of_namespace() && claim.rights().has(Right::Send))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_authorization_is_parsed() {
        let pair = |name: &str, key: &str| Some(Some((name.to_owned(), key.to_owned())));
        assert_eq!(basic("Basic YTpiOmM="), pair("a", "b:c"), "a key may have colons");
        assert_eq!(basic("basic YTpi"), pair("a", "b"));
        assert_eq!(basic("Basic YWI="), Some(None), "no colon");
        assert_eq!(basic("Basic ?"), Some(None));
        assert_eq!(basic("SharedAccessSignature sr=x"), None);
        assert_eq!(basic("é"), None);
    }
}
