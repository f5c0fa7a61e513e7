//! Shared access signatures: a token that shows we know a key without sending the key.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ring::hmac;

use crate::Target;
use crate::target::{Audience, Credentials};

/// How long a token is good for. Renewed well before.
pub(crate) const TOKEN_LIFE: Duration = Duration::from_secs(3600);

/// Makes the tokens for the entities of one broker.
pub(crate) struct Signer {
    audience: Audience,
    source: Source,
}

enum Source {
    Key { name: String, secret: String },
    Given(String),
}

impl Signer {
    /// `None` when there are no tokens to make: a connection itself carries the credentials, or there are none.
    pub(crate) fn of(credentials: &Credentials) -> Option<Self> {
        match credentials {
            Credentials::Key { name, secret, audience } => {
                let source = Source::Key { name: name.clone(), secret: secret.clone() };
                Some(Self { audience: audience.clone(), source })
            }
            Credentials::Token { token, audience } => {
                Some(Self { audience: audience.clone(), source: Source::Given(token.clone()) })
            }
            Credentials::Anonymous | Credentials::Plain { .. } => None,
        }
    }

    /// For requests that have no connection with credentials around them: a user and a secret are a key, too.
    pub(crate) fn of_target(target: &Target) -> Option<Self> {
        match &target.credentials {
            Credentials::Plain { user, secret } => Some(Self {
                audience: Audience::of_address(&target.address()),
                source: Source::Key { name: user.clone(), secret: secret.clone() },
            }),
            credentials => Self::of(credentials),
        }
    }

    pub(crate) fn audience(&self, entity: &str) -> String {
        self.audience.of(entity)
    }

    pub(crate) fn token(&self, entity: &str) -> String {
        match &self.source {
            Source::Key { name, secret } => token(name, secret, &self.audience(entity)),
            Source::Given(token) => token.clone(),
        }
    }
}

/// A token for `audience`, good from now for [`TOKEN_LIFE`].
fn token(key_name: &str, secret: &str, audience: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    signed(key_name, secret, audience, now.saturating_add(TOKEN_LIFE).as_secs())
}

fn signed(key_name: &str, secret: &str, audience: &str, expires_at_s: u64) -> String {
    let resource = encode(audience);
    // The secret's text itself is the key, not what it may be the base64 of.
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = hmac::sign(&key, format!("{resource}\n{expires_at_s}").as_bytes());
    let signature = encode(&BASE64.encode(signature));
    format!("SharedAccessSignature sr={resource}&sig={signature}&se={expires_at_s}&skn={}", encode(key_name))
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_signed_over_its_encoded_resource_and_expiry() {
        // The signature was computed with Python's hmac module over "sb%3A%2F%2Flocalhost%2Forders\n1700000000".
        assert_eq!(
            signed("root key", "SAS_KEY_VALUE", "sb://localhost/orders", 1_700_000_000),
            "SharedAccessSignature sr=sb%3A%2F%2Flocalhost%2Forders&sig=OvnO5N1kEIwBmrclASqCxOgn6WOCEYukJlburvDlKlM%3D&se=1700000000&skn=root%20key"
        );
    }
}
