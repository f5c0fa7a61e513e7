//! Reads the official emulators' `Config.json`, that of Service Bus and that of Event Hubs, with comments. `""` means that a value is not
//! set.
//!
//! Some settings that the emulators do not have are accepted under the same `Properties`, in the same style. Defaults are those of Azure, not
//! the lower ones of the emulators, except the window of duplicate detection.

mod entities;
mod properties;
mod rules;

use serde::Deserialize;

use crate::document::{Document, Problem};
use crate::namespace::NamespaceSpec;

/// Returns whether a document is a `Config.json` and not a configuration of Peeklock.
pub fn is_config(document: &Document) -> bool {
    document.has(&["UserConfig"])
}

/// Returns the namespaces of a file by name, in the order of the file.
pub fn read(document: &Document) -> Result<Vec<(String, NamespaceSpec)>, Problem> {
    let is_for_hubs =
        ["NamespaceConfig", "LoggingConfig"].iter().any(|key| document.has(&["UserConfig", key]));
    if is_for_hubs {
        let spaces = document.read::<File<HubsConfig>>()?.user_config.namespace_config;
        let numbered = spaces.into_iter().enumerate();
        return numbered
            .map(|(at, space)| {
                Ok((space.name.clone(), space.spec(&Place::new(document, "NamespaceConfig", at))?))
            })
            .collect();
    }
    let spaces = document.read::<File<QueuesConfig>>()?.user_config.namespaces;
    let numbered = spaces.into_iter().enumerate();
    numbered
        .map(|(at, space)| Ok((space.name.clone(), space.spec(&Place::new(document, "Namespaces", at))?)))
        .collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct File<T> {
    user_config: T,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct QueuesConfig {
    namespaces: Vec<entities::Namespace>,
    #[serde(default, rename = "Logging")]
    _logging: Option<Logging>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct HubsConfig {
    namespace_config: Vec<entities::HubNamespace>,
    #[serde(default, rename = "LoggingConfig")]
    _logging_config: Option<Logging>,
}

/// The configuration of the emulator's log. It is accepted and ignored, because logs go to standard error.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Logging {
    #[serde(default, rename = "Type")]
    _kind: Option<String>,
}

/// A place in the document, for errors.
struct Place<'a> {
    document: &'a Document,
    path: Vec<String>,
}

impl<'a> Place<'a> {
    fn new(document: &'a Document, list: &str, at: usize) -> Self {
        let root = Place { document, path: vec!["UserConfig".to_owned()] };
        root.item(list, at)
    }

    /// Returns the place of a list item. Errors count from 1.
    fn item(&self, list: &str, at: usize) -> Self {
        self.under(&[list, &format!("[{}]", at + 1)])
    }

    fn under(&self, keys: &[&str]) -> Self {
        let keys = keys.iter().map(|key| (*key).to_owned());
        Place { document: self.document, path: self.path.iter().cloned().chain(keys).collect() }
    }

    fn problem(&self, message: impl Into<String>) -> Problem {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        self.document.problem(&path, message)
    }
}
