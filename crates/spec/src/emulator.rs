//! The official emulators' `Config.json`: that of Service Bus and that of Event Hubs, comments and all. What is `""` there is not set.
//!
//! Settings of ours that the emulators do not have are taken under the same `Properties`, written in their way. What is left out is as on
//! Azure, not as in the emulators, whose own defaults are lower.

mod entities;
mod properties;
mod rules;

use serde::Deserialize;

use crate::document::{Document, Problem};
use crate::namespace::NamespaceSpec;

/// Whether a document is of this kind at all, and not one of ours.
pub fn is_config(document: &Document) -> bool {
    document.has(&["UserConfig"])
}

/// The namespaces of a file by name, in its order.
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

/// Taken and not obeyed: logs go to standard error.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Logging {
    #[serde(default, rename = "Type")]
    _kind: Option<String>,
}

/// Where in the document something is, for the problems with it.
struct Place<'a> {
    document: &'a Document,
    path: Vec<String>,
}

impl<'a> Place<'a> {
    fn new(document: &'a Document, list: &str, at: usize) -> Self {
        let root = Place { document, path: vec!["UserConfig".to_owned()] };
        root.item(list, at)
    }

    /// An item of a list, which errors count from 1.
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
