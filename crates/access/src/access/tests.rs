//! Policies and the checks of tokens and secrets.

use super::*;
use crate::right::Right;
use crate::token::sign;

const RESOURCE: &str = "sb%3a%2f%2flocalhost%2forders";

fn declared() -> Access {
    let policies = vec![
        Policy::with_one_key("root", "SAS_KEY_VALUE", &[Right::Manage]),
        Policy::with_one_key("reader", "other", &[Right::Listen]),
    ];
    Access::open(None, policies).unwrap()
}

fn token_for(resource: &str, secret: &str, name: &str, expiry: u64) -> String {
    let signature = sign(&Secret::new(secret), resource, &expiry.to_string())
        .replace('+', "%2B")
        .replace('/', "%2F")
        .replace('=', "%3D");
    format!("SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={name}")
}

fn token(secret: &str, name: &str, expiry: u64) -> String {
    token_for(RESOURCE, secret, name, expiry)
}

fn entity(name: &str) -> EntityName {
    EntityName::parse(name).unwrap()
}

fn rights(rights: &[Right]) -> PolicyChange {
    PolicyChange { rights: Some(Rights::of(rights)), ..PolicyChange::default() }
}

const NOW: Timestamp = Timestamp::ZERO;

#[test]
fn a_good_token_gives_the_rights_of_its_key() {
    let claim = declared().check_token(&token("other", "reader", 100), "sb://localhost/orders", 50).unwrap();
    let orders = Scope::parse("orders");
    assert!(claim.allows(Right::Listen, &orders, 50));
    assert!(!claim.allows(Right::Send, &orders, 50));
    assert!(!claim.allows(Right::Listen, &orders, 100));
    assert!(!claim.allows(Right::Listen, &Scope::parse("invoices"), 50));
}

#[test]
fn bad_tokens_return_the_reason() {
    let check = |token: &str| declared().check_token(token, "sb://localhost/orders", 50).unwrap_err();
    assert_eq!(check("eyJhbGciOi"), TokenError::Kind);
    assert_eq!(check("SharedAccessSignature sr=a&sig=b&se=1"), TokenError::Missing("skn"));
    assert_eq!(check(&"x".repeat(TOKEN_BYTES_MAX + 1)), TokenError::TooLong(TOKEN_BYTES_MAX + 1));
    let long = declared().check_token(&token("SAS_KEY_VALUE", "root", 100), &"/a".repeat(5000), 50);
    assert_eq!(long, Err(TokenError::AudienceTooLong(10_000)));
    assert_eq!(check(&token("wrong", "root", 100)), TokenError::Signature("root".into()));
    assert_eq!(check(&token("SAS_KEY_VALUE", "nobody", 100)), TokenError::Signature("nobody".into()));
    assert_eq!(check(&token("SAS_KEY_VALUE", "root", 20)), TokenError::Expired(30));
    let elsewhere =
        declared().check_token(&token("SAS_KEY_VALUE", "root", 100), "sb://localhost/invoices", 50);
    assert!(matches!(elsewhere, Err(TokenError::Scope { .. })));
}

#[test]
fn a_secret_in_the_clear_is_checked_as_well() {
    assert!(declared().check_secret("root", b"SAS_KEY_VALUE").is_some());
    assert!(declared().check_secret("root", b"SAS_KEY_VALUe").is_none());
    assert!(declared().check_secret("nobody", b"").is_none());
}

#[test]
fn a_policy_of_an_entity_is_valid_for_it_and_its_parts_only() {
    let access = declared();
    let (policy, is_new) = access.put(Some(&entity("Orders")), "app", rights(&[Right::Listen]), NOW).unwrap();
    assert!(is_new);
    let key = policy.primary.expose();
    let good = |resource: &str, audience: &str| {
        access.check_token(&token_for(resource, key, "app", 100), audience, 50)
    };
    let claim = good(RESOURCE, "sb://localhost/orders").unwrap();
    assert!(claim.allows(Right::Listen, &Scope::parse("orders/$DeadLetterQueue"), 50));
    assert!(claim.allows(Right::Listen, &Scope::parse("orders/Subscriptions/audit"), 50));
    assert!(!claim.allows(Right::Listen, &Scope::parse("orders/2024"), 50), "another entity");
    // The token is signed for the whole namespace with the key of one queue.
    assert_eq!(good("sb%3a%2f%2flocalhost%2f", "sb://localhost/"), Err(TokenError::Signature("app".into())));
    assert_eq!(
        good("sb%3a%2f%2flocalhost%2f", "sb://h/orders/2024"),
        Err(TokenError::Signature("app".into()))
    );
    assert!(good("sb%3a%2f%2flocalhost%2f", "sb://h/orders/$management").is_ok());
    let claim = access.check_secret("app", key.as_bytes()).unwrap();
    assert!(claim.allows(Right::Listen, &Scope::parse("orders"), 50));
    assert!(!claim.allows(Right::Listen, &Scope::NAMESPACE, 50));
}

#[test]
fn either_key_is_valid_and_replacing_one_ends_its_claims() {
    let access = declared();
    let mut revision = access.revision();
    let (policy, _) = access.put(None, "app", rights(&[Right::Send]), NOW).unwrap();
    assert!(revision.has_changed().unwrap());
    revision.mark_unchanged();
    let claim_by = |secret: &Secret| access.check_token(&token(secret.expose(), "app", 100), "orders", 50);
    let (first, second) = (claim_by(&policy.primary).unwrap(), claim_by(&policy.secondary).unwrap());
    assert!(access.is_current(&first) && access.is_current(&second));
    let renewed = access.regenerate(None, "app", Which::Primary, NOW).unwrap();
    assert!(revision.has_changed().unwrap());
    assert_eq!(renewed.secondary, policy.secondary);
    assert!(!access.is_current(&first) && access.is_current(&second));
    assert!(claim_by(&policy.primary).is_err() && claim_by(&renewed.primary).is_ok());
    access.put(None, "app", rights(&[Right::Listen]), NOW).unwrap();
    assert!(!access.is_current(&second), "the claim includes Send");
    access.remove(None, "app").unwrap();
    assert!(claim_by(&renewed.primary).is_err());
    assert!(matches!(access.remove(None, "app"), Err(ChangeError::NoSuchPolicy { .. })));
}

#[test]
fn declared_policies_cannot_be_changed() {
    let access = declared();
    assert!(matches!(access.remove(None, "root"), Err(ChangeError::Declared { .. })));
    assert!(matches!(
        access.put(None, "root", PolicyChange::default(), NOW),
        Err(ChangeError::Declared { .. })
    ));
    assert!(matches!(
        access.regenerate(None, "root", Which::Primary, NOW),
        Err(ChangeError::Declared { .. })
    ));
}

#[test]
fn bad_policies_are_rejected() {
    let access = declared();
    let put = |name: &str, change| access.put(None, name, change, NOW).map(drop).unwrap_err().to_string();
    assert!(put("a b", rights(&[Right::Send])).contains("' '"));
    assert!(put("", rights(&[Right::Send])).contains("1 to 256"));
    assert!(put("app", PolicyChange::default()).contains("no rights"));
    for number in 0..POLICIES_PER_SCOPE_MAX - 2 {
        access.put(None, &format!("p{number}"), rights(&[Right::Send]), NOW).unwrap();
    }
    assert!(put("one-more", rights(&[Right::Send])).contains("12 policies"));
}

#[test]
fn policies_are_stored_in_a_file_that_only_its_owner_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let root = || vec![Policy::with_one_key("root", "well known", &[Right::Manage])];
    let access = Access::open(Some(path.clone()), root()).unwrap();
    let (stored, _) = access.put(Some(&entity("Orders")), "app", rights(&[Right::Send]), NOW).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(stored.primary.expose()) && !text.contains("well known"));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let again = Access::open(Some(path.clone()), root()).unwrap();
    assert_eq!(again.policy(Some(&entity("orders")), "app"), Some(stored));

    // A declared policy takes precedence over the stored one of the same name, as long as it is declared.
    again.put(None, "both", rights(&[Right::Send]), NOW).unwrap();
    let both = vec![Policy::with_one_key("both", "declared", &[Right::Listen])];
    let declared = Access::open(Some(path.clone()), both).unwrap();
    assert!(declared.check_secret("both", b"declared").is_some());

    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    let refused = Access::open(Some(path.clone()), root()).err().unwrap().to_string();
    assert!(refused.contains("chmod 600"), "{refused}");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(&path, "{\"format\":1,\n \"policies\":[{\"primaryKey\":\"s3cret\"}]}").unwrap();
    let refused = Access::open(Some(path), root()).err().unwrap().to_string();
    assert!(refused.contains("line 2") && !refused.contains("s3cret"), "{refused}");
}

#[test]
fn a_deleted_entity_leaves_no_policies() {
    let access = declared();
    for name in ["orders", "orders/2024", "orders2"] {
        access.put(Some(&entity(name)), "app", rights(&[Right::Send]), NOW).unwrap();
    }
    access.forget_entity(&entity("Orders")).unwrap();
    assert!(access.policies(Some(&entity("orders"))).is_empty());
    assert_eq!(access.policies(Some(&entity("orders2"))).len(), 1);
    assert_eq!(access.policies(Some(&entity("orders/2024"))).len(), 1);
    assert_eq!(access.key_names(), ["app", "reader", "root"]);
}
