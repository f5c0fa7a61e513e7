//! Runs a few seeds, and checks that a seed determines its run.

use std::collections::BTreeSet;

use peeklock_sim::{Flaw, Scenario, run, run_with_flaw};

/// Returns the first seeds whose worlds have programs with the SDK.
fn seeds_with_programs(count: usize) -> impl Iterator<Item = u64> {
    (1..).filter(|seed| Scenario::draw(*seed).programs.is_some()).take(count)
}

#[test]
fn the_same_seed_gives_the_same_log() {
    let mut texts = Vec::new();
    let seeds: BTreeSet<u64> = [1, 6, 8, 14, 16].into_iter().chain(seeds_with_programs(3)).collect();
    for seed in &seeds {
        let (first, second) = (run(*seed), run(*seed));
        assert!(first.log_text() == second.log_text(), "the two logs of seed {seed} differ");
        assert!(first.entries.len() > 100, "a run with few events shows little");
        texts.push(first.log_text());
    }
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), seeds.len(), "two seeds gave the same log");
}

#[test]
fn a_few_seeds_break_no_promise() {
    for seed in 1..=8 {
        let report = run(seed);
        let found: Vec<_> = report.violations.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "seed {seed}: {}", found.join("\n"));
    }
}

#[test]
fn each_flaw_of_a_program_is_found_within_a_few_seeds() {
    for (name, flaw) in Flaw::ALL {
        let promise = match flaw {
            Flaw::CountsUnconfirmed => "nothing confirmed is lost",
            Flaw::SettlesEarly => "every message is worked on",
            Flaw::Stalls => "processors make progress",
            Flaw::LeavesLocks => "stopped processors hold no lock",
        };
        let is_found = |seed| {
            let report = run_with_flaw(seed, flaw);
            report.is_some_and(|report| report.violations.iter().any(|found| found.promise == promise))
        };
        assert!(seeds_with_programs(8).any(is_found), "{name} was not found");
    }
}
