//! Shared access keys and the tokens signed with them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, Mac};
use percent_encoding::percent_decode_str;
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::address::Scope;

/// What a key may do. `Manage` includes the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    Send,
    Listen,
    Manage,
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

/// A named secret with its rights on the whole namespace. It has no `Debug` form, so that it cannot be logged.
#[derive(Clone)]
pub struct AccessKey {
    name: String,
    secret: String,
    rights: Vec<Right>,
}

impl AccessKey {
    pub fn new(name: impl Into<String>, secret: impl Into<String>, rights: Vec<Right>) -> Self {
        AccessKey { name: name.into(), secret: secret.into(), rights }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn has_secret(&self, secret: &str) -> bool {
        self.secret.as_bytes().ct_eq(secret.as_bytes()).into()
    }
}

/// All keys of the namespace.
#[derive(Clone, Default)]
pub struct Keys(Vec<AccessKey>);

/// What a peer has shown that it may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) scope: Scope,
    rights: Vec<Right>,
    /// Seconds since 1970; `None` while the connection lives.
    expires_at_s: Option<u64>,
}

impl Claim {
    pub(crate) fn allows(&self, right: Right, scope: &Scope, now_s: u64) -> bool {
        let has = self.rights.contains(&right) || self.rights.contains(&Right::Manage);
        has && self.scope.covers(scope) && !self.has_expired(now_s)
    }

    pub(crate) fn has_expired(&self, now_s: u64) -> bool {
        self.expires_at_s.is_some_and(|end| end <= now_s)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("the token is not a shared access signature; this broker knows only those")]
    Kind,
    #[error("the token has no '{0}' part")]
    Missing(&'static str),
    #[error("the token's expiry '{0}' is not a number of seconds")]
    Expiry(String),
    #[error("the token expired {0} s ago; check the clocks, or make a new token")]
    Expired(u64),
    #[error(
        "the key '{0}' is unknown or the signature does not fit; check SharedAccessKeyName and SharedAccessKey"
    )]
    Signature(String),
    #[error("the token is for {signed}, not for {asked}")]
    Scope { signed: Scope, asked: Scope },
}

impl Keys {
    pub fn new(keys: Vec<AccessKey>) -> Self {
        Keys(keys)
    }

    pub fn iter(&self) -> impl Iterator<Item = &AccessKey> {
        self.0.iter()
    }

    /// Checks a token that a peer offers for `audience`.
    pub(crate) fn check_token(&self, token: &str, audience: &str, now_s: u64) -> Result<Claim, TokenError> {
        let parts = TokenParts::parse(token)?;
        let expires_at_s: u64 =
            parts.expiry.parse().map_err(|_| TokenError::Expiry(parts.expiry.to_owned()))?;
        let key = self.signer(&parts).ok_or_else(|| TokenError::Signature(parts.key_name.clone()))?;
        if expires_at_s <= now_s {
            return Err(TokenError::Expired(now_s - expires_at_s));
        }
        let signed = Scope::parse(&decode(parts.resource));
        let asked = Scope::parse(audience);
        if !signed.covers(&asked) {
            return Err(TokenError::Scope { signed, asked });
        }
        Ok(Claim { scope: asked, rights: key.rights.clone(), expires_at_s: Some(expires_at_s) })
    }

    /// Checks a name and a secret given in the clear (SASL PLAIN); good for the whole connection.
    pub(crate) fn check_secret(&self, name: &str, secret: &[u8]) -> Option<Claim> {
        let key = self.0.iter().find(|key| key.name == name)?;
        let fits: bool = key.secret.as_bytes().ct_eq(secret).into();
        fits.then(|| Claim { scope: Scope::NAMESPACE, rights: key.rights.clone(), expires_at_s: None })
    }

    fn signer(&self, parts: &TokenParts<'_>) -> Option<&AccessKey> {
        let key = self.0.iter().find(|key| key.name == parts.key_name)?;
        let expected = sign(&key.secret, parts.resource, parts.expiry);
        let fits: bool = expected.as_bytes().ct_eq(decode(parts.signature).as_bytes()).into();
        fits.then_some(key)
    }
}

struct TokenParts<'a> {
    /// As written, still percent-encoded: that is what was signed.
    resource: &'a str,
    signature: &'a str,
    expiry: &'a str,
    key_name: String,
}

impl<'a> TokenParts<'a> {
    fn parse(token: &'a str) -> Result<Self, TokenError> {
        let parts = token.strip_prefix("SharedAccessSignature ").ok_or(TokenError::Kind)?;
        let part = |name: &'static str| {
            let mut pairs = parts.trim().split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value).ok_or(TokenError::Missing(name))
        };
        // SDK quirk: Python encodes the key name twice.
        let key_name = decode(&decode(part("skn")?));
        Ok(TokenParts { resource: part("sr")?, signature: part("sig")?, expiry: part("se")?, key_name })
    }
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Base64 of the HMAC-SHA256 over resource and expiry. The secret's text itself is the key, not what it may be the base64 of.
fn sign(secret: &str, resource: &str, expiry: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(resource.as_bytes());
    mac.update(b"\n");
    mac.update(expiry.as_bytes());
    BASE64.encode(mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESOURCE: &str = "sb%3a%2f%2flocalhost%2forders";

    fn keys() -> Keys {
        Keys::new(vec![
            AccessKey::new("root", "SAS_KEY_VALUE", vec![Right::Manage]),
            AccessKey::new("reader", "other", vec![Right::Listen]),
        ])
    }

    fn token(secret: &str, name: &str, expiry: u64) -> String {
        let signature = sign(secret, RESOURCE, &expiry.to_string())
            .replace('+', "%2B")
            .replace('/', "%2F")
            .replace('=', "%3D");
        format!("SharedAccessSignature sr={RESOURCE}&sig={signature}&se={expiry}&skn={name}")
    }

    #[test]
    fn a_good_token_gives_the_rights_of_its_key() {
        let claim = keys().check_token(&token("other", "reader", 100), "sb://localhost/orders", 50).unwrap();
        let orders = Scope::parse("orders");
        assert!(claim.allows(Right::Listen, &orders, 50));
        assert!(!claim.allows(Right::Send, &orders, 50));
        assert!(!claim.allows(Right::Listen, &orders, 100));
        assert!(!claim.allows(Right::Listen, &Scope::parse("invoices"), 50));
    }

    #[test]
    fn a_signature_made_elsewhere_fits() {
        // Computed with Python's hmac module over "sb%3a%2f%2flocalhost%2forders\n1700000000".
        assert_eq!(
            sign("SAS_KEY_VALUE", RESOURCE, "1700000000"),
            "K7/ngevDW/Evqhvy0EgH/4VUVEFE/Vgklo/djMv9sJg="
        );
    }

    #[test]
    fn bad_tokens_say_why() {
        let check = |token: &str| keys().check_token(token, "sb://localhost/orders", 50).unwrap_err();
        assert_eq!(check("eyJhbGciOi"), TokenError::Kind);
        assert_eq!(check("SharedAccessSignature sr=a&sig=b&se=1"), TokenError::Missing("skn"));
        assert_eq!(check(&token("wrong", "root", 100)), TokenError::Signature("root".into()));
        assert_eq!(check(&token("SAS_KEY_VALUE", "nobody", 100)), TokenError::Signature("nobody".into()));
        assert_eq!(check(&token("SAS_KEY_VALUE", "root", 20)), TokenError::Expired(30));
        let elsewhere =
            keys().check_token(&token("SAS_KEY_VALUE", "root", 100), "sb://localhost/invoices", 50);
        assert!(matches!(elsewhere, Err(TokenError::Scope { .. })));
    }

    #[test]
    fn a_secret_in_the_clear_is_checked_too() {
        assert!(keys().check_secret("root", b"SAS_KEY_VALUE").is_some());
        assert!(keys().check_secret("root", b"SAS_KEY_VALUe").is_none());
        assert!(keys().check_secret("nobody", b"").is_none());
    }
}
