//! Files with secrets. A secret in an argument is visible in the list of processes. Errors do not contain the text of a file.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use peeklock_server::AccountKey;

use crate::text::KeySpec;

/// Returns the keys of a file: one on each line. Empty lines and lines that start with `#` are skipped.
pub(super) fn keys(path: &Path) -> Result<Vec<KeySpec>> {
    let text = read(path)?;
    let lines = (1..).zip(text.lines().map(str::trim));
    let used = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let keys: Vec<_> = used
        .map(|(number, line)| {
            KeySpec::parse(line).with_context(|| format!("{}, line {number}", path.display()))
        })
        .collect::<Result<_>>()?;
    if keys.is_empty() {
        bail!("{} contains no key; write one on a line, as NAME=SECRET", path.display());
    }
    Ok(keys)
}

/// Returns the key of the storage account, the only text of its file.
pub(super) fn storage_key(path: &Path) -> Result<AccountKey> {
    let text = read(path)?;
    AccountKey::parse(text.trim()).with_context(|| path.display().to_string())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read the secrets in {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_key_on_each_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let parse = |text: &str| {
            fs::write(&path, text).unwrap();
            keys(&path).map(|keys| keys.into_iter().map(|key| key.name).collect::<Vec<_>>())
        };
        assert_eq!(parse("# ours\n\napp=s3cret:Send\n  ops=other \n").unwrap(), ["app", "ops"]);
        for wrong in ["", "# nothing\n", "app=a\nhidden\n"] {
            let error = format!("{:#}", parse(wrong).unwrap_err());
            assert!(error.contains("keys") && !error.contains("hidden"), "{error}");
        }
        assert!(format!("{:#}", parse("app=a\nx\n").unwrap_err()).contains("line 2"));
        assert!(keys(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn a_storage_key_is_the_text_of_its_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "c2VjcmV0\n").unwrap();
        assert!(storage_key(file.path()).is_ok());
        fs::write(file.path(), "not base64!").unwrap();
        assert!(storage_key(file.path()).is_err());
    }
}
