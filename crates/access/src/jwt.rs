//! Bearer tokens (JWT) of an issuer that the namespace trusts. They are disabled unless a key set is configured.
//!
//! The key, not the token's `alg`, determines the kind of check. Only public keys are accepted, so a token signed with
//! a published key as a shared secret fails, and `none` is not accepted.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jsonwebtoken::jwk::{Jwk, JwkSet, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, decode_header};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

use crate::right::{Right, Rights};
use crate::token::{TokenError, shown};

const KEYS_MAX: usize = 64;
const KEY_FILE_BYTES_MAX: u64 = 1024 * 1024;
/// The tolerance for an issuer's clock that is ahead.
const CLOCK_SKEW_S: u64 = 60;

/// The configuration of the trusted issuer. Nothing has a default, because a token for another audience must not be
/// accepted.
#[derive(Clone, Debug)]
pub struct JwtOptions {
    /// The path of a key set (JSON, as issuers publish it) or of one public key (PEM).
    pub keys: PathBuf,
    pub issuer: String,
    pub audience: String,
}

#[derive(Debug, thiserror::Error)]
pub enum JwtError {
    #[error("cannot read the key set {}: {error}", path.display())]
    Read { path: PathBuf, error: std::io::Error },
    #[error("the key set {} has more than {KEY_FILE_BYTES_MAX} bytes", path.display())]
    TooLarge { path: PathBuf },
    #[error("{} is neither a key set in JSON ({json}) nor a public key in PEM form", path.display())]
    Format { path: PathBuf, json: String },
    #[error(
        "the key set {} has {count} keys that can check signatures; give it 1 to {KEYS_MAX} RSA, P-256, P-384 or Ed25519 public keys",
        path.display()
    )]
    Count { path: PathBuf, count: usize },
    #[error("bearer tokens need an issuer and an audience to check them against; neither may be empty")]
    Empty,
}

/// The keys of a trusted issuer.
#[derive(Clone)]
pub struct JwtKeys {
    keys: Vec<IssuerKey>,
    issuer: String,
    audience: String,
}

#[derive(Clone)]
struct IssuerKey {
    id: Option<String>,
    /// The algorithm that the key set restricts the key to, if any.
    algorithm: Option<KeyAlgorithm>,
    key: DecodingKey,
}

/// The verified claims of a bearer token.
pub(crate) struct Bearer {
    pub(crate) rights: Rights,
    pub(crate) expires_at_s: u64,
}

impl JwtKeys {
    pub fn load(options: JwtOptions) -> Result<Self, JwtError> {
        let JwtOptions { keys: path, issuer, audience } = options;
        if issuer.is_empty() || audience.is_empty() {
            return Err(JwtError::Empty);
        }
        let read_error = |error| JwtError::Read { path: path.clone(), error };
        if std::fs::metadata(&path).map_err(read_error)?.len() > KEY_FILE_BYTES_MAX {
            return Err(JwtError::TooLarge { path });
        }
        let text = std::fs::read(&path).map_err(read_error)?;
        let keys = match parse_keys(&text) {
            Ok(keys) => keys,
            Err(json) => return Err(JwtError::Format { path, json }),
        };
        if !(1..=KEYS_MAX).contains(&keys.len()) {
            return Err(JwtError::Count { path, count: keys.len() });
        }
        Ok(JwtKeys { keys, issuer, audience })
    }

    pub(crate) fn check(&self, token: &str, now_s: u64) -> Result<Bearer, TokenError> {
        let claims = self.verified_claims(token)?;
        if claims.iss != self.issuer {
            return Err(wrong("iss", &claims.iss, &self.issuer));
        }
        let audiences = claims.aud.list();
        let same = |audience: &&String| audience.trim_end_matches('/') == self.audience.trim_end_matches('/');
        if !audiences.iter().any(|audience| same(&audience)) {
            return Err(wrong("aud", &audiences.join(" "), &self.audience));
        }
        if claims.exp <= now_s {
            return Err(TokenError::Expired(now_s - claims.exp));
        }
        if let Some(early) = claims.nbf.and_then(|nbf| nbf.checked_sub(now_s)).filter(|s| *s > CLOCK_SKEW_S) {
            return Err(TokenError::NotYet(early));
        }
        let rights: Rights = claims.granted().collect();
        if rights.is_empty() {
            return Err(TokenError::NoRights);
        }
        Ok(Bearer { rights, expires_at_s: claims.exp })
    }

    fn verified_claims(&self, token: &str) -> Result<Claims, TokenError> {
        let header = decode_header(token).map_err(|_| {
            TokenError::Jwt("its header is damaged, or its 'alg' is not one of RS, PS, ES or EdDSA")
        })?;
        let (message, signature) =
            token.rsplit_once('.').ok_or(TokenError::Jwt("it does not have three parts"))?;
        let signature =
            BASE64.decode(signature).map_err(|_| TokenError::Jwt("its signature is not base64"))?;
        let signed = self.keys.iter().filter(|key| key.may_have_signed(header.kid.as_deref(), header.alg));
        if !signed.into_iter().any(|key| verify(&key.key, header.alg, message.as_bytes(), &signature)) {
            return Err(TokenError::JwtSignature);
        }
        let (_, payload) = message.split_once('.').ok_or(TokenError::Jwt("it does not have three parts"))?;
        let payload = BASE64.decode(payload).map_err(|_| TokenError::Jwt("its claims are not base64"))?;
        serde_json::from_slice(&payload).map_err(|_| {
            TokenError::Jwt("its claims must hold 'iss', 'aud' and 'exp' as texts and a number of seconds")
        })
    }
}

fn wrong(claim: &'static str, found: &str, wanted: &str) -> TokenError {
    TokenError::JwtClaim { claim, found: format!("'{}'", shown(found)), wanted: format!("'{wanted}'") }
}

impl IssuerKey {
    fn may_have_signed(&self, id: Option<&str>, algorithm: Algorithm) -> bool {
        let id_fits = match (&self.id, id) {
            (Some(own), Some(named)) => own == named,
            _ => true,
        };
        // Both are names of RFC 7518; the crate has a separate type for each.
        let algorithm_fits = self.algorithm.is_none_or(|own| own.to_string() == format!("{algorithm:?}"));
        id_fits && algorithm_fits
    }
}

/// Verifies with the method of the key. An `alg` of another kind fails.
fn verify(key: &DecodingKey, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
    match (key.kind(), key.family()) {
        (DecodingKeyKind::RsaModulusExponent { n, e }, AlgorithmFamily::Rsa) => rsa(algorithm)
            .is_some_and(|means| RsaPublicKeyComponents { n, e }.verify(means, message, signature).is_ok()),
        (DecodingKeyKind::SecretOrDer(der), AlgorithmFamily::Rsa) => rsa(algorithm)
            .is_some_and(|means| UnparsedPublicKey::new(means, der).verify(message, signature).is_ok()),
        (DecodingKeyKind::SecretOrDer(point), family) => curve(family, algorithm)
            .is_some_and(|means| UnparsedPublicKey::new(means, point).verify(message, signature).is_ok()),
        (DecodingKeyKind::RsaModulusExponent { .. }, _) => false,
    }
}

fn rsa(algorithm: Algorithm) -> Option<&'static signature::RsaParameters> {
    match algorithm {
        Algorithm::RS256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

fn curve(
    family: AlgorithmFamily,
    algorithm: Algorithm,
) -> Option<&'static dyn signature::VerificationAlgorithm> {
    match (family, algorithm) {
        (AlgorithmFamily::Ec, Algorithm::ES256) => Some(&signature::ECDSA_P256_SHA256_FIXED),
        (AlgorithmFamily::Ec, Algorithm::ES384) => Some(&signature::ECDSA_P384_SHA384_FIXED),
        (AlgorithmFamily::Ed, Algorithm::EdDSA) => Some(&signature::ED25519),
        _ => None,
    }
}

fn parse_keys(text: &[u8]) -> Result<Vec<IssuerKey>, String> {
    let set = match serde_json::from_slice::<JwkSet>(text) {
        Ok(set) => set,
        Err(json) => return pem_key(text).map(|key| vec![key]).ok_or_else(|| json.to_string()),
    };
    Ok(set.keys.iter().filter_map(set_key).collect())
}

/// Returns `None` for a key that cannot verify signatures, or that is a secret, which does not belong in a published set.
fn set_key(jwk: &Jwk) -> Option<IssuerKey> {
    let common = &jwk.common;
    if common.public_key_use.as_ref().is_some_and(|use_of| *use_of != PublicKeyUse::Signature) {
        return None;
    }
    let key = DecodingKey::from_jwk(jwk).ok().filter(|key| key.family() != AlgorithmFamily::Hmac)?;
    Some(IssuerKey { id: common.key_id.clone(), algorithm: common.key_algorithm, key })
}

fn pem_key(text: &[u8]) -> Option<IssuerKey> {
    let key = DecodingKey::from_rsa_pem(text)
        .or_else(|_| DecodingKey::from_ec_pem(text))
        .or_else(|_| DecodingKey::from_ed_pem(text))
        .ok()?;
    Some(IssuerKey { id: None, algorithm: None, key })
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: OneOrMany,
    exp: u64,
    #[serde(default)]
    nbf: Option<u64>,
    #[serde(default)]
    roles: Option<OneOrMany>,
    #[serde(default)]
    rights: Option<OneOrMany>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn list(&self) -> &[String] {
        match self {
            OneOrMany::One(one) => std::slice::from_ref(one),
            OneOrMany::Many(many) => many,
        }
    }
}

impl Claims {
    fn granted(&self) -> impl Iterator<Item = Right> {
        let names = [&self.roles, &self.rights].into_iter().flatten().flat_map(OneOrMany::list);
        names.flat_map(|name| match right_of(name) {
            Some(right) => vec![right],
            None => name.split([' ', ',']).filter_map(right_of).collect(),
        })
    }
}

/// Accepts the names of rights and those of Azure's built-in roles.
fn right_of(role: &str) -> Option<Right> {
    let role = role.trim();
    let azure = ["Azure Service Bus Data ", "Azure Event Hubs Data "];
    match azure.iter().find_map(|prefix| role.strip_prefix(prefix)) {
        Some("Sender") => Some(Right::Send),
        Some("Receiver") => Some(Right::Listen),
        Some("Owner") => Some(Right::Manage),
        Some(_) => None,
        None => Right::parse(role),
    }
}

#[cfg(test)]
mod tests;
