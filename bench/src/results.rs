//! The newest results of every part: raw values in a JSON file, and the page that is made from them.
//!
//! A run of some parts replaces their results and keeps the others, so every part on the page names its version, date and machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::report::{Row, number};
use crate::{Arguments, machine};

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Results {
    /// The parts by name.
    parts: BTreeMap<String, Part>,
}

/// The results of one part.
#[derive(Serialize, Deserialize)]
pub(crate) struct Part {
    version: String,
    date: String,
    machine: String,
    repetitions: usize,
    /// The share of the cores that other programs used during the measurement.
    others_share: f64,
    rows: Vec<Row>,
    /// The output of a benchmark that makes its own table.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    text: String,
}

impl Part {
    /// Returns a part without results. The version is read now, because the source may change during a run.
    pub(crate) fn begin(arguments: &Arguments) -> Self {
        Part {
            version: machine::version(),
            date: machine::date(),
            machine: machine::describe_machine(&arguments.data),
            repetitions: arguments.repetitions,
            others_share: 0.0,
            rows: Vec::new(),
            text: String::new(),
        }
    }

    pub(crate) fn finish(&mut self, rows: Vec<Row>, text: String, others_share: f64) -> Result<()> {
        for row in &rows {
            let is_whole = !row.values.is_empty() && row.values.iter().all(|value| value.is_finite());
            ensure!(is_whole, "'{}' has the values {:?}", row.what, row.values);
            let (median, verdict) = (number(row.median()), row.verdict(others_share));
            eprintln!("  {}: {median} {} {:?} {verdict}", row.what, row.unit, row.values);
        }
        (self.rows, self.text, self.others_share) = (rows, text, others_share);
        Ok(())
    }

    pub(crate) fn table(&self, name: &str) -> String {
        let mut page = format!(
            "\n## {name}\n\nVersion {}, {}, {} repetitions; other programs used {:.0} % of the cores.\n",
            self.version,
            self.date,
            self.repetitions,
            self.others_share * 100.0
        );
        if !self.rows.is_empty() {
            page.push_str("\n| what | median | spread | target | |\n| --- | --- | --- | --- | --- |\n");
        }
        for row in &self.rows {
            let _ = writeln!(
                page,
                "| {} | {} {} | {} | {} | {} |",
                row.what,
                number(row.median()),
                row.unit,
                row.spread(),
                row.target_text(),
                row.verdict(self.others_share)
            );
        }
        if !self.text.is_empty() {
            let _ = write!(page, "\n```text\n{}\n```\n", self.text.trim_end());
        }
        page
    }
}

impl Results {
    /// Reads the results of earlier runs, if there are any.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let Ok(text) = std::fs::read_to_string(file) else { return Ok(Results::default()) };
        serde_json::from_str(&text).with_context(|| format!("cannot read {}", file.display()))
    }

    pub(crate) fn set(&mut self, name: &str, part: Part) {
        self.parts.insert(name.to_owned(), part);
    }

    /// Writes the raw values and the page.
    pub(crate) fn write(&self, page_file: &Path, raw_file: &Path, order: &[&str]) -> Result<()> {
        let raw = serde_json::to_string_pretty(self)? + "\n";
        for (file, text) in [(raw_file, raw), (page_file, self.to_markdown(order))] {
            std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }

    fn to_markdown(&self, order: &[&str]) -> String {
        let mut page = format!("# Results\n\n{INTRODUCTION}");
        let parts = || order.iter().filter_map(|name| Some((*name, self.parts.get(*name)?)));
        for (index, machine) in self.machines(order).into_iter().enumerate() {
            let on: Vec<&str> =
                parts().filter(|(_, part)| part.machine == machine).map(|(name, _)| name).collect();
            let _ =
                write!(page, "{}Parts {}:\n\n{machine}\n", if index > 0 { "" } else { "\n" }, on.join(", "));
        }
        page.push_str("## Targets\n\n| part | what | median | target | |\n| --- | --- | --- | --- | --- |\n");
        for (name, part) in parts() {
            for row in part.rows.iter().filter(|row| row.target.is_some()) {
                let (median, verdict) = (number(row.median()), row.verdict(part.others_share));
                let target = row.target_text();
                let _ = writeln!(
                    page,
                    "| {name} | {} | {median} {} | {target} | {verdict} |",
                    row.what, row.unit
                );
            }
        }
        parts().for_each(|(name, part)| page.push_str(&part.table(name)));
        page
    }

    /// Returns the machines of the parts, each once.
    fn machines(&self, order: &[&str]) -> Vec<&str> {
        let mut machines: Vec<&str> = Vec::new();
        for part in order.iter().filter_map(|name| self.parts.get(*name)) {
            if !machines.contains(&part.machine.as_str()) {
                machines.push(&part.machine);
            }
        }
        machines
    }
}

const INTRODUCTION: &str = "\
This page is made by `cargo xtask bench`, or `cargo xtask bench --only PART` for some parts; [LIMITS.md](LIMITS.md) explains each missed target.

Durability is on: every confirmed send and every confirmed completion was on disk before it was confirmed. The spread is the least and the
greatest value; long rows without a target have fewer repetitions. Both sides of a ratio are measured inside the same repetition. Clients and
broker share the cores of the machine. \"Other programs\" contains the time that the host of a virtual machine took away; with more than a tenth, a
comparison with a target is *disturbed* and nothing is claimed.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Target;

    fn part(version: &str, machine: &str, value: f64) -> Part {
        Part {
            version: version.to_owned(),
            date: "today".to_owned(),
            machine: machine.to_owned(),
            repetitions: 1,
            others_share: 0.0,
            rows: vec![Row::new("rate", "messages/s", vec![value]).target(Target::AtLeast(10.0))],
            text: String::new(),
        }
    }

    #[test]
    fn a_run_of_one_part_keeps_the_results_of_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let (page, raw) = (folder.path().join("r.md"), folder.path().join("r.json"));
        let mut results = Results::read(&raw).unwrap();
        results.set("load", part("v1", "- Machine: a\n", 5.0));
        results.set("hubs", part("v1", "- Machine: a\n", 20.0));
        results.write(&page, &raw, &["load", "hubs"]).unwrap();
        let mut results = Results::read(&raw).unwrap();
        results.set("load", part("v2", "- Machine: b\n", 15.0));
        results.write(&page, &raw, &["load", "hubs"]).unwrap();
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(text.contains("| load | rate | 15.0 messages/s | ≥ 10.0 | reached |"), "{text}");
        assert!(text.contains("## load\n\nVersion v2, today"), "{text}");
        assert!(text.contains("## hubs\n\nVersion v1, today"), "{text}");
        assert!(text.contains("Parts load:\n\n- Machine: b\n"), "{text}");
        assert!(text.contains("Parts hubs:\n\n- Machine: a\n"), "{text}");
    }

    #[test]
    fn a_value_that_is_no_number_is_an_error() {
        let mut part = part("v1", "", 1.0);
        let error = part.finish(vec![Row::new("ratio", "", vec![f64::NAN])], String::new(), 0.0).unwrap_err();
        assert_eq!(error.to_string(), "'ratio' has the values [NaN]");
    }
}
