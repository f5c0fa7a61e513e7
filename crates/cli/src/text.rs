//! Keys on the command line.

use anyhow::{Result, bail};
use peeklock_server::{Policy, Right};

/// A key in the form `NAME=SECRET[:Send,Listen,Manage]`, with all rights by default. What follows the last colon is always a list of rights, so
/// a secret with a colon needs one.
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
        let (secret, rights) = match rest.rsplit_once(':') {
            Some((secret, list)) => (secret, parse_rights(list)?),
            None => (rest, vec![Right::Manage]),
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

fn parse_rights(list: &str) -> Result<Vec<Right>> {
    let right = |name: &str| match name.trim().to_ascii_lowercase().as_str() {
        "send" => Ok(Right::Send),
        "listen" => Ok(Right::Listen),
        "manage" => Ok(Right::Manage),
        // The text may be the end of a secret.
        _ => bail!(
            "after its last ':', a key has rights: Send, Listen or Manage, separated by commas. Write NAME=SECRET:Send,Listen; a secret that \
             contains ':' needs the rights after it, such as NAME=SECRET:Manage"
        ),
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
        let key = KeySpec::parse("app=with:colon:Manage").unwrap();
        assert_eq!((key.secret.as_str(), key.rights), ("with:colon", vec![Right::Manage]));
        for wrong in ["app", "=x", "app=", "app=:Send", "app=x:", "app=x:Snd", "app=x:Send,"] {
            assert!(KeySpec::parse(wrong).is_err(), "{wrong}");
        }
        let told = KeySpec::parse("app=with:hidden").err().unwrap().to_string();
        assert!(told.contains("NAME=SECRET:Manage") && !told.contains("hidden"), "{told}");
        let told = KeySpec::parse("hidden").err().unwrap().to_string();
        assert!(!told.contains("hidden"), "{told}");
    }
}
