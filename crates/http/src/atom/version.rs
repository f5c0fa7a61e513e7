//! Versions of the management protocol.

use crate::problem::Problem;
use crate::request::{Head, shown};

/// The version of the management protocol that a client uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    /// The version of scripts for event hubs.
    V2014,
    V2015,
    V2017,
    V2021,
    V2024,
}

impl Version {
    const ALL: [Version; 5] =
        [Version::V2014, Version::V2015, Version::V2017, Version::V2021, Version::V2024];

    pub(super) fn name(self) -> &'static str {
        match self {
            Version::V2014 => "2014-01",
            Version::V2015 => "2015-01",
            Version::V2017 => "2017-04",
            Version::V2021 => "2021-05",
            Version::V2024 => "2024-05",
        }
    }

    /// Returns whether descriptions have `MaxMessageSizeInKilobytes`.
    pub(super) fn has_message_size(self) -> bool {
        self > Version::V2017
    }

    pub(super) fn of(head: &Head) -> Result<Self, Problem> {
        let Some(given) = head.query("api-version") else { return Ok(Version::V2021) };
        Self::ALL.into_iter().find(|version| version.name() == given).ok_or_else(|| {
            let known = Self::ALL.map(Version::name).join(", ");
            Problem::bad(format!("the api-version '{}' is unknown; use one of {known}", shown(given)))
        })
    }
}
