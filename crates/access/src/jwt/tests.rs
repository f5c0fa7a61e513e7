//! Bearer tokens, key sets, and the checks of claims.

use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};

use super::*;

// Created and signed with the openssl command.
const RSA_PEM: &str = "\
-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAsnlnP7W53zZ09LpcCvyA
knVZX2z/z9O4lAPltpocaEf/rvXu6coBmF+ERDJ/gMvv+MwGmTEx0++V/33qE2pQ
AsIsoa7UKpNM6qTPtKopubpdXEGTuVi2J8kmMdtgk6fjnlGMMbf48ANTUg4UNjMI
2TMxpzCtNrl/mDx4sTRtGdMQyD9fuhTayqgBimfjdvHrw/6TcLA8Q1dXoYZDj/uH
zEWBt10IqjnLobTOUuQp5tfh4GizKmgHyRyD95APmftJXnh70bl104AqRtmn9aYf
OWoxe0SbRW287WISFtahqYbW+u5IoYxhVsuJtkcUylOtQWY5iPagck9xrnT+taij
HQIDAQAB
-----END PUBLIC KEY-----
";
const RSA_MODULUS: &str = "snlnP7W53zZ09LpcCvyAknVZX2z_z9O4lAPltpocaEf_rvXu6coBmF-ERDJ_gMvv-MwGmTEx0--V_33qE2pQAsIsoa7UKpNM6qTPtKopubpdXEGTuVi2J8kmMdtgk6fjnlGMMbf48ANTUg4UNjMI2TMxpzCtNrl_mDx4sTRtGdMQyD9fuhTayqgBimfjdvHrw_6TcLA8Q1dXoYZDj_uHzEWBt10IqjnLobTOUuQp5tfh4GizKmgHyRyD95APmftJXnh70bl104AqRtmn9aYfOWoxe0SbRW287WISFtahqYbW-u5IoYxhVsuJtkcUylOtQWY5iPagck9xrnT-taijHQ";
const RSA_TOKEN: &str = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6ImsxIn0.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkIjoicGVla2xvY2siLCJleHAiOjE3MDAwMDAwMDAsInJvbGVzIjpbIkF6dXJlIFNlcnZpY2UgQnVzIERhdGEgUmVjZWl2ZXIiXX0.msH7C3v-TTQIOr0C4T6rngnxV2FeUCJT9LnVfEM2yEgJ9JRMMlQvUBxPGQHo4dX1bISQAWnlS_zBe-mofMv3arCUuQJ6YV8MtxM6HgwW9ZYBkOalWkh56_VZybiYN34hJzstfZcvbVxF6vEkUkX_Pe4cqYiBilw0_SOcgNlgh6u7uhzbigeCO9Vu1MoKTc8JPeehxIksBrCELX3yk2-kx7Y4_QfSkspxeI3594MWRJ6V85bDvNgYUdCkDJz4JfuB1z5eQJRUhPt63-8HISF0AzgtFAm6-WvIsHG1aRxkOVZKCfz3wLOgiB3ULdeMFn5-iZ1F5SVw3AyT9QIzPUD5GA";
const RSA_TOKEN_END_S: u64 = 1_700_000_000;

fn load(text: &str) -> Result<JwtKeys, JwtError> {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    std::fs::write(&keys, text).unwrap();
    JwtKeys::load(JwtOptions { keys, issuer: "https://issuer.example".into(), audience: "peeklock".into() })
}

fn key_set(keys: &str) -> String {
    format!("{{\"keys\":[{keys}]}}")
}

fn encode(text: &str) -> String {
    BASE64.encode(text)
}

/// Returns an Ed25519 key and the key set with it.
fn issuer() -> (Ed25519KeyPair, JwtKeys) {
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
    let x = BASE64.encode(pair.public_key().as_ref());
    let jwk = format!("{{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"k1\",\"x\":\"{x}\"}}");
    (pair, load(&key_set(&jwk)).unwrap())
}

fn signed(pair: &Ed25519KeyPair, header: &str, claims: &str) -> String {
    let message = format!("{}.{}", encode(header), encode(claims));
    let signature = pair.sign(message.as_bytes());
    format!("{message}.{}", BASE64.encode(signature.as_ref()))
}

const HEADER: &str = r#"{"alg":"EdDSA","kid":"k1"}"#;

fn claims(rest: &str) -> String {
    format!(r#"{{"iss":"https://issuer.example","aud":["other","peeklock/"],"exp":100{rest}}}"#)
}

#[test]
fn an_rsa_token_made_elsewhere_is_accepted_by_pem_and_by_key_set() {
    let set = key_set(&format!(r#"{{"kty":"RSA","kid":"k1","use":"sig","n":"{RSA_MODULUS}","e":"AQAB"}}"#));
    for keys in [RSA_PEM, &set] {
        let bearer = load(keys).unwrap().check(RSA_TOKEN, RSA_TOKEN_END_S - 1).unwrap();
        assert_eq!(bearer.rights, Rights::of(&[Right::Listen]));
        assert_eq!(bearer.expires_at_s, RSA_TOKEN_END_S);
        let late = load(keys).unwrap().check(RSA_TOKEN, RSA_TOKEN_END_S + 5);
        assert_eq!(late.err(), Some(TokenError::Expired(5)));
    }
    let other = set.replace("k1", "k2");
    let unknown = load(&other).unwrap().check(RSA_TOKEN, 0);
    assert_eq!(unknown.err(), Some(TokenError::JwtSignature), "signed with another key");
}

#[test]
fn a_curve_key_in_pem_form_is_accepted() {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    let pair =
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
    // The SubjectPublicKeyInfo of a P-256 key: a fixed head and the point.
    let head = "3059301306072a8648ce3d020106082a8648ce3d030107034200";
    let mut der: Vec<u8> =
        (0..head.len()).step_by(2).map(|at| u8::from_str_radix(&head[at..at + 2], 16).unwrap()).collect();
    der.extend_from_slice(pair.public_key().as_ref());
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der));
    let message =
        format!("{}.{}", encode(r#"{"alg":"ES256"}"#), encode(&claims(r#","rights":"send listen""#)));
    let signature = pair.sign(&random, message.as_bytes()).unwrap();
    let token = format!("{message}.{}", BASE64.encode(signature.as_ref()));
    let bearer = load(&pem).unwrap().check(&token, 50).unwrap();
    assert_eq!(bearer.rights, Rights::of(&[Right::Send, Right::Listen]));
}

#[test]
fn every_claim_is_checked() {
    let (pair, keys) = issuer();
    let check = |claims: &str| keys.check(&signed(&pair, HEADER, claims), 50).map(|bearer| bearer.rights);
    assert_eq!(check(&claims(r#","roles":["Manage"]"#)), Ok(Rights::ALL));
    assert_eq!(check(&claims(r#","roles":["Reader"]"#)), Err(TokenError::NoRights));
    assert_eq!(check(&claims("")), Err(TokenError::NoRights));
    assert_eq!(check(&claims(r#","roles":"Send","nbf":200"#)), Err(TokenError::NotYet(150)));
    assert_eq!(check(&claims(r#","roles":"Send","nbf":60"#)), Ok(Rights::of(&[Right::Send])));
    let with = |from: &str, to: &str| check(&claims(r#","roles":"Send""#).replace(from, to));
    assert!(matches!(with("issuer.example", "evil.example"), Err(TokenError::JwtClaim { claim: "iss", .. })));
    assert!(matches!(with("peeklock", "peeklock2"), Err(TokenError::JwtClaim { claim: "aud", .. })));
    assert!(matches!(with("100", "\"100\""), Err(TokenError::Jwt(_))), "the expiry is a text");
    assert!(matches!(with(r#""exp":100,"#, ""), Err(TokenError::Jwt(_))), "the expiry is missing");
    assert_eq!(with("100", "50"), Err(TokenError::Expired(0)));
}

#[test]
fn the_header_cannot_choose_the_kind_of_check() {
    let (pair, keys) = issuer();
    let all = claims(r#","roles":"Manage""#);
    let unsigned = format!("{}.{}.", encode(r#"{"alg":"none"}"#), encode(&all));
    assert!(matches!(keys.check(&unsigned, 50), Err(TokenError::Jwt(_))));
    for alg in ["HS256", "RS256", "ES256"] {
        let token = signed(&pair, &format!(r#"{{"alg":"{alg}"}}"#), &all);
        assert_eq!(keys.check(&token, 50).err(), Some(TokenError::JwtSignature), "{alg}");
    }
    // The token is signed with the published key as a shared secret.
    let message = format!("{}.{}", encode(r#"{"alg":"HS256","kid":"k1"}"#), encode(&all));
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, pair.public_key().as_ref());
    let forged = format!("{message}.{}", BASE64.encode(ring::hmac::sign(&secret, message.as_bytes())));
    assert_eq!(keys.check(&forged, 50).err(), Some(TokenError::JwtSignature));
    for broken in ["", ".", "..", "a.b.c", "a.b", &"x.".repeat(500)] {
        assert!(keys.check(broken, 50).is_err(), "{broken}");
    }
}

#[test]
fn key_sets_without_a_usable_key_are_rejected() {
    let error = |text: &str| load(text).err().unwrap().to_string();
    assert!(error("{").contains("neither a key set"));
    assert!(error(&key_set("")).contains("0 keys"));
    assert!(error(&key_set(r#"{"kty":"oct","k":"c2VjcmV0"}"#)).contains("0 keys"), "a secret");
    let encryption = format!(r#"{{"kty":"RSA","use":"enc","n":"{RSA_MODULUS}","e":"AQAB"}}"#);
    assert!(error(&key_set(&encryption)).contains("0 keys"));
}
