//! Keys on the command line.

use anyhow::{Result, bail};
use peeklock_server::{Policy, Right};

/// A key in the form `NAME=SECRET[:Send,Listen,Manage]`, with all rights by default.
#[derive(Clone)]
pub(crate) struct KeySpec {
    pub(crate) name: String,
    pub(crate) secret: String,
    pub(crate) rights: Vec<Right>,
}

impl KeySpec {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        // Errors do not contain the text, because it has a secret.
        let Some((name, rest)) = text.split_once('=') else { bail!("a key is written NAME=SECRET") };
        // A secret may contain a colon, so the part after it counts as rights only if it is a list of rights.
        let (secret, rights) = match rest.rsplit_once(':').map(|(secret, list)| (secret, parse_rights(list)))
        {
            Some((secret, Some(rights))) => (secret, rights),
            _ => (rest, vec![Right::Manage]),
        };
        if name.is_empty() || secret.is_empty() {
            bail!("a key needs a name and a secret: NAME=SECRET");
        }
        Ok(KeySpec { name: name.to_owned(), secret: secret.to_owned(), rights })
    }

    pub(crate) fn into_policy(self) -> Policy {
        Policy::with_one_key(self.name, self.secret, &self.rights)
    }
}

fn parse_rights(list: &str) -> Option<Vec<Right>> {
    let right = |name: &str| match name.to_ascii_lowercase().as_str() {
        "send" => Some(Right::Send),
        "listen" => Some(Right::Listen),
        "manage" => Some(Right::Manage),
        _ => None,
    };
    list.split(',').map(right).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_all_rights_by_default() {
        let key = KeySpec::parse("app=s3cret").unwrap();
        assert_eq!(
            (key.name.as_str(), key.secret.as_str(), key.rights),
            ("app", "s3cret", vec![Right::Manage])
        );
        let key = KeySpec::parse("app=a=b:c==:Send,listen").unwrap();
        assert_eq!((key.secret.as_str(), key.rights), ("a=b:c==", vec![Right::Send, Right::Listen]));
        let key = KeySpec::parse("app=with:colon").unwrap();
        assert_eq!(key.secret, "with:colon");
        for wrong in ["app", "=x", "app=", "app=:Send"] {
            assert!(KeySpec::parse(wrong).is_err(), "{wrong}");
        }
        let told = KeySpec::parse("hidden").err().unwrap().to_string();
        assert!(!told.contains("hidden"), "{told}");
    }
}
