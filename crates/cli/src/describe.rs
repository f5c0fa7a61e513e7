//! Pages about entities for terminals, and lines of JSON for programs.

use std::io::{self, Write};

use peeklock::low_level::{Counts, QueueSettings, Runtime};
use serde::Serialize;

use crate::order;
use crate::settings;

/// Writes one object per line.
pub(crate) fn json_lines<T: Serialize>(out: &mut Vec<u8>, items: &[T]) -> io::Result<()> {
    items.iter().try_for_each(|item| writeln!(out, "{}", serde_json::to_string(item)?))
}

/// Summarizes the order of an entity; empty without one.
pub(crate) fn order_of(settings: &QueueSettings) -> String {
    settings.order.as_deref().map(order::summary).unwrap_or_default()
}

/// Labels and their values in two columns.
pub(crate) struct Page<'a>(pub(crate) &'a mut Vec<u8>);

impl Page<'_> {
    pub(crate) fn line(&mut self, label: &str, value: &dyn std::fmt::Display) -> io::Result<()> {
        let line = format!("{label:<24} {value}");
        writeln!(self.0, "{}", line.trim_end())
    }

    /// Writes the settings that differ from the default, with the names of their flags.
    pub(crate) fn settings(&mut self, settings: &QueueSettings) -> io::Result<()> {
        let unusual = settings::unusual(settings);
        let told = match (unusual.is_empty(), settings.order.is_some()) {
            (true, false) => "all as by default",
            (true, true) => "as by default, but for the order",
            (false, _) => "as by default, but",
        };
        self.line("Settings", &told)?;
        unusual.into_iter().try_for_each(|(key, value)| self.line(&format!("  {key}"), &value))
    }

    pub(crate) fn order(&mut self, settings: &QueueSettings, runtime: Option<&Runtime>) -> io::Result<()> {
        let Some(order) = &settings.order else { return Ok(()) };
        order::show(self.0, order, runtime.and_then(|runtime| runtime.order.as_ref()))
    }

    pub(crate) fn counts(&mut self, counts: &Counts) -> io::Result<()> {
        self.line("Active", &counts.active_count)?;
        self.line("Locked", &counts.locked_count)?;
        self.line("Deferred", &counts.deferred_count)?;
        self.line("Scheduled", &counts.scheduled_count)?;
        self.line("Dead-lettered", &counts.dead_letter_count)?;
        self.line("Being forwarded", &counts.transfer_count)?;
        self.line("Not forwardable", &counts.transfer_dead_letter_count)?;
        self.line("Bytes", &counts.size_bytes)
    }
}
