//! Shared access signatures: tokens that prove possession of a key without sending it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ring::hmac;

use crate::Target;
use crate::target::{Audience, Credentials};

/// The lifetime of a token. The client renews it well before its end.
pub(crate) const TOKEN_LIFE: Duration = Duration::from_secs(3600);

/// Creates the tokens for the entities of one broker.
pub(crate) struct Signer {
    audience: Audience,
    source: Source,
}

enum Source {
    Key { name: String, secret: String },
    Given(String),
}

impl Signer {
    /// Returns `None` if the connection itself carries the credentials, or if there are none.
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

    /// Returns a signer for HTTP requests, which have no authenticated connection. It uses the user and secret of SASL PLAIN as a key.
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

/// Returns a token for `audience` that is valid for [`TOKEN_LIFE`] from now.
fn token(key_name: &str, secret: &str, audience: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    signed(key_name, secret, audience, now.saturating_add(TOKEN_LIFE).as_secs())
}

fn signed(key_name: &str, secret: &str, audience: &str, expires_at_s: u64) -> String {
    let resource = encode(audience);
    // The text of the secret is the key, without base64 decoding.
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
        // Computed with Python's hmac module over "sb%3A%2F%2Flocalhost%2Forders\n1700000000".
        assert_eq!(
            signed("root key", "SAS_KEY_VALUE", "sb://localhost/orders", 1_700_000_000),
            "SharedAccessSignature sr=sb%3A%2F%2Flocalhost%2Forders&sig=OvnO5N1kEIwBmrclASqCxOgn6WOCEYukJlburvDlKlM%3D&se=1700000000&skn=root%20key"
        );
    }
}
