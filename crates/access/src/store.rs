//! The file of policies. It contains the keys in the clear, because a signature can only be checked with the key.
//! Therefore only its owner may read it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use peeklock_types::{EntityName, Timestamp};
use serde::{Deserialize, Serialize};

use crate::policy::{Policy, PolicyError};
use crate::right::{Right, Rights};
use crate::secret::Secret;

const FORMAT: u32 = 1;
/// The limit on the size of the file, far above the size of all policies in practice.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
const OWNER_ONLY: u32 = 0o600;
const OTHERS: u32 = 0o077;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot read the key file {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("the key file {} can be used by others (mode {mode:03o}); run: chmod 600 {}", path.display(), path.display())]
    Permissions { path: PathBuf, mode: u32 },
    #[error("the key file {} has more than {FILE_BYTES_MAX} bytes", path.display())]
    TooLarge { path: PathBuf },
    #[error("the key file {} is damaged at line {line}, column {column}; restore it, or remove it and make the policies anew", path.display())]
    Damaged { path: PathBuf, line: usize, column: usize },
    #[error("the key file {} has format {found}; this version knows format {FORMAT}", path.display())]
    Format { path: PathBuf, found: u32 },
    #[error("the key file {}: {what}", path.display())]
    Entry { path: PathBuf, what: String },
    #[error(transparent)]
    Declared(#[from] PolicyError),
    #[error("the policy '{name}' is declared twice")]
    DeclaredTwice { name: String },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Contents {
    format: u32,
    policies: Vec<StoredPolicy>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredPolicy {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entity: Option<String>,
    rights: Vec<String>,
    primary_key: String,
    secondary_key: String,
    created_at_ms: u64,
    modified_at_ms: u64,
}

/// Loads the policies in the file, or none if there is no file.
pub(crate) fn load(path: &Path) -> Result<Vec<Policy>, OpenError> {
    let read_error = |error| OpenError::Read { path: path.to_owned(), error };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(read_error(error)),
    };
    // The metadata is that of the open file, because the path may name another file meanwhile.
    let metadata = file.metadata().map_err(read_error)?;
    if metadata.mode() & OTHERS != 0 {
        return Err(OpenError::Permissions { path: path.to_owned(), mode: metadata.mode() & 0o777 });
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(OpenError::TooLarge { path: path.to_owned() });
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(read_error)?;
    // The message of the JSON parser could contain a key.
    let contents: Contents = serde_json::from_slice(&text).map_err(|error| OpenError::Damaged {
        path: path.to_owned(),
        line: error.line(),
        column: error.column(),
    })?;
    if contents.format != FORMAT {
        return Err(OpenError::Format { path: path.to_owned(), found: contents.format });
    }
    let entry_error = |what| OpenError::Entry { path: path.to_owned(), what };
    contents.policies.into_iter().map(|entry| entry.into_policy().map_err(entry_error)).collect()
}

/// Replaces the file as a whole: after a crash it is the old one or the new one.
pub(crate) fn save<'p>(path: &Path, policies: impl Iterator<Item = &'p Policy>) -> io::Result<()> {
    let contents = Contents { format: FORMAT, policies: policies.map(StoredPolicy::of).collect() };
    let text = serde_json::to_vec_pretty(&contents).map_err(io::Error::other)?;
    let temporary = path.with_extension("json.new");
    // A file left behind by a crash may have another mode.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(&temporary)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

impl StoredPolicy {
    fn of(policy: &Policy) -> StoredPolicy {
        StoredPolicy {
            name: policy.name.clone(),
            entity: policy.scope.as_ref().map(ToString::to_string),
            rights: policy.rights.iter().map(|right| right.to_string()).collect(),
            primary_key: policy.primary.expose().to_owned(),
            secondary_key: policy.secondary.expose().to_owned(),
            created_at_ms: policy.created_at.as_millis(),
            modified_at_ms: policy.modified_at.as_millis(),
        }
    }

    fn into_policy(self) -> Result<Policy, String> {
        let right = |name: &String| {
            Right::parse(name)
                .ok_or_else(|| format!("the policy '{}' has the unknown right '{name}'", self.name))
        };
        let rights: Rights = self.rights.iter().map(right).collect::<Result<_, _>>()?;
        let scope =
            self.entity.as_deref().map(EntityName::parse).transpose().map_err(|error| error.to_string())?;
        let policy = Policy {
            name: self.name,
            scope,
            rights,
            primary: Secret::new(self.primary_key),
            secondary: Secret::new(self.secondary_key),
            created_at: Timestamp::from_millis(self.created_at_ms),
            modified_at: Timestamp::from_millis(self.modified_at_ms),
        };
        policy.check().map_err(|error| error.to_string())?;
        Ok(policy)
    }
}
