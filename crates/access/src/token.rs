//! Shared access signatures.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use percent_encoding::percent_decode_str;
use ring::hmac;
use subtle::ConstantTimeEq;

use crate::policy::Policy;
use crate::scope::Scope;
use crate::secret::Secret;

/// The limit on the length of a token. A longer token is rejected unread.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// The limit on the length of an audience. A longer audience is rejected unread: no entity has such a name.
pub const AUDIENCE_BYTES_MAX: usize = 4 * 1024;
/// The number of characters of a peer's text in errors.
const SHOWN_CHARS_MAX: usize = 64;

const PREFIX: &str = "SharedAccessSignature ";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the token is not a shared access signature; this broker knows only those")]
    Kind,
    #[error("the token has {0} bytes; at most {TOKEN_BYTES_MAX} are read")]
    TooLong(usize),
    #[error("the audience has {0} bytes; at most {AUDIENCE_BYTES_MAX} are read")]
    AudienceTooLong(usize),
    #[error("the token has no '{0}' part")]
    Missing(&'static str),
    #[error("the token's expiry '{0}' is not a number of seconds")]
    Expiry(String),
    #[error("ExpiredToken: the token expired {0} s ago; check the clocks, or make a new token")]
    Expired(u64),
    #[error(
        "the key '{0}' is unknown or the signature does not fit; check SharedAccessKeyName and SharedAccessKey"
    )]
    Signature(String),
    #[error("the token is for {signed}, not for {asked}")]
    Scope { signed: Scope, asked: Scope },
    #[error("the bearer token cannot be read: {0}")]
    Jwt(&'static str),
    #[error("the bearer token's signature fits no key of the configured key set")]
    JwtSignature,
    #[error("the bearer token's '{claim}' is {found}, not {wanted}")]
    JwtClaim { claim: &'static str, found: String, wanted: String },
    #[error("the bearer token becomes valid in {0} s; check the clocks")]
    NotYet(u64),
    #[error(
        "the bearer token names no right; its claim 'roles' or 'rights' must name Send, Listen or Manage"
    )]
    NoRights,
}

pub(crate) struct TokenParts<'a> {
    /// The percent-encoded text, because the signature covers this form.
    resource: &'a str,
    signature: &'a str,
    expiry: &'a str,
    pub(crate) key_name: String,
    pub(crate) expires_at_s: u64,
}

impl<'a> TokenParts<'a> {
    pub(crate) fn parse(token: &'a str) -> Result<Self, TokenError> {
        let parts = signature_text(token).ok_or(TokenError::Kind)?;
        let part = |name: &'static str| {
            let mut pairs = parts.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value).ok_or(TokenError::Missing(name))
        };
        let key_name = decode_key_name(part("skn")?);
        let expiry = part("se")?;
        let expires_at_s = expiry.parse().map_err(|_| TokenError::Expiry(shown(expiry)))?;
        Ok(TokenParts { resource: part("sr")?, signature: part("sig")?, expiry, key_name, expires_at_s })
    }

    pub(crate) fn scope(&self) -> Scope {
        Scope::parse(&decode(self.resource))
    }

    /// Returns the key of the policy that signed the token. Always tries both keys.
    pub(crate) fn signer(&self, policy: &Policy) -> Option<Secret> {
        let signature = decode(self.signature);
        let fits = |secret: &Secret| -> bool {
            let expected = sign(secret, self.resource, self.expiry);
            expected.as_bytes().ct_eq(signature.as_bytes()).into()
        };
        let (primary, secondary) = (fits(&policy.primary), fits(&policy.secondary));
        let signer = if primary { &policy.primary } else { &policy.secondary };
        (primary | secondary).then(|| signer.clone())
    }
}

/// Returns whether the token has the form of a shared access signature.
pub(crate) fn is_signature(token: &str) -> bool {
    signature_text(token).is_some()
}

/// Returns the name of the key in a shared access signature, without checking it.
pub fn key_name(token: &str) -> Option<String> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let mut pairs = signature_text(token)?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == "skn").map(|(_, name)| decode_key_name(name))
}

fn signature_text(token: &str) -> Option<&str> {
    token.strip_prefix(PREFIX).map(str::trim)
}

// SDK quirk: Python encodes the key name twice.
fn decode_key_name(name: &str) -> String {
    decode(&decode(name))
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Returns the part of a peer's text that errors contain.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

/// Returns the base64 of the HMAC-SHA256 over resource and expiry. The text of the secret is the key, without base64
/// decoding.
pub fn sign(secret: &Secret, resource: &str, expiry: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
    let mut signed = hmac::Context::with_key(&key);
    signed.update(resource.as_bytes());
    signed.update(b"\n");
    signed.update(expiry.as_bytes());
    BASE64.encode(signed.sign())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_made_elsewhere_is_accepted() {
        // Computed with Python's hmac module over "sb%3a%2f%2flocalhost%2forders\n1700000000".
        assert_eq!(
            sign(&Secret::new("SAS_KEY_VALUE"), "sb%3a%2f%2flocalhost%2forders", "1700000000"),
            "K7/ngevDW/Evqhvy0EgH/4VUVEFE/Vgklo/djMv9sJg="
        );
    }

    #[test]
    fn a_key_name_is_found_in_either_encoding() {
        for name in ["my%2520key", "my%20key"] {
            let token = format!("SharedAccessSignature sr=a&sig=b&se=1&skn={name}");
            assert_eq!(key_name(&token).as_deref(), Some("my key"));
        }
        assert_eq!(key_name("Bearer abc"), None);
    }
}
