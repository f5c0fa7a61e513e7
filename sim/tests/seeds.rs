//! A short swarm, and the promise that makes it worth anything: a seed says it all.

use peeklock_sim::run;

#[test]
fn the_same_seed_gives_the_same_log() {
    let (first, second) = (run(11), run(11));
    assert!(first.log_text() == second.log_text(), "the two logs of one seed differ");
    assert!(first.entries.len() > 100, "a run in which little happens shows little");
    assert!(run(12).log_text() != first.log_text(), "two seeds gave one log");
}

#[test]
fn a_few_seeds_break_no_promise() {
    for seed in 1..=8 {
        let report = run(seed);
        let found: Vec<_> = report.violations.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "seed {seed}: {}", found.join("\n"));
    }
}
