//! One configuration file of any supported kind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use peeklock_spec::{Document, Misfit, Name, NamespaceSpec, Problem, emulator, utf8};

use crate::options::{NamespaceName, Options};

const FILE_SIZE_BYTES_MAX: u64 = 64 << 20;
const READABLE_BY_OTHERS: u32 = 0o044;

pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) options: Options,
    pub(super) default: NamespaceSpec,
    pub(super) namespaces: Vec<(String, NamespaceSpec)>,
    document: Document,
}

impl File {
    pub(super) fn read(path: &Path) -> Result<File> {
        let file = load(path)
            .with_context(|| format!("cannot read the configuration {}", path.display()))
            .and_then(|bytes| {
                File::parse(path, &bytes).map_err(|problem| anyhow!("{}: {problem}", path.display()))
            })?;
        file.warn_of_readers();
        Ok(file)
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<File, Problem> {
        let text = utf8(bytes)?;
        let document = if is_json(path, text) { Document::json(text)? } else { Document::toml(text)? };
        if emulator::is_config(&document) {
            return File::of_emulator(path, document);
        }
        let mut options: Options = document.read()?;
        let default = options.take_default_namespace();
        check(&document, &default, &[])?;
        let mut namespaces = Vec::new();
        for (name, space) in std::mem::take(&mut options.namespaces.0) {
            check(&document, &space, &["namespaces", name.as_text()])?;
            namespaces.push((name.0, space));
        }
        Ok(File { path: path.to_owned(), options, default, namespaces, document })
    }

    /// The first namespace is the default one, as in the emulators.
    fn of_emulator(path: &Path, document: Document) -> Result<File, Problem> {
        let mut spaces = emulator::read(&document)?.into_iter();
        let default = spaces.next().map(|(_, space)| space).unwrap_or_default();
        let mut namespaces = Vec::new();
        for (name, space) in spaces {
            let name = NamespaceName::parse_name(&name)
                .map_err(|error| document.problem(&["UserConfig", "Namespaces"], error))?;
            namespaces.push((name.0, space));
        }
        Ok(File { path: path.to_owned(), options: Options::default(), default, namespaces, document })
    }

    /// Returns the place of an option in the file.
    pub(super) fn place(&self, key: &str) -> String {
        let keys: Vec<&str> = key.split('.').collect();
        let path = self.path.display();
        if self.document.has(&keys) {
            return format!("{path}, line {}", self.document.problem(&keys, "").line);
        }
        path.to_string()
    }

    fn warn_of_readers(&self) {
        let has_keys = !self.default.keys.0.is_empty()
            || self.options.storage.key.is_some()
            || self.namespaces.iter().any(|(_, space)| !space.keys.0.is_empty());
        let mode = fs::metadata(&self.path).map_or(0, |metadata| metadata.permissions().mode());
        if has_keys && mode & READABLE_BY_OTHERS != 0 {
            eprintln!(
                "warning: {0} holds keys and other users can read it; do `chmod 600 {0}`",
                self.path.display()
            );
        }
    }
}

fn load(path: &Path) -> Result<Vec<u8>> {
    let size = fs::metadata(path)?.len();
    if size > FILE_SIZE_BYTES_MAX {
        bail!("it has {size} bytes; at most {FILE_SIZE_BYTES_MAX} are read");
    }
    Ok(fs::read(path)?)
}

/// Detects JSON by the file name, or by the first character.
fn is_json(path: &Path, text: &str) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "toml" => false,
        "json" | "jsonc" => true,
        _ => text.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '/']),
    }
}

fn check(document: &Document, space: &NamespaceSpec, under: &[&str]) -> Result<(), Problem> {
    space.check().map_err(|Misfit { path, message }| {
        let path: Vec<&str> = under.iter().copied().chain(path.iter().map(String::as_str)).collect();
        document.problem(&path, message)
    })
}
