//! Runs a few seeds, and checks that a seed determines its run.

use peeklock_sim::run;

#[test]
fn the_same_seed_gives_the_same_log() {
    let mut texts = Vec::new();
    for seed in [1, 6, 8, 14, 16] {
        let (first, second) = (run(seed), run(seed));
        assert!(first.log_text() == second.log_text(), "the two logs of seed {seed} differ");
        assert!(first.entries.len() > 100, "a run with few events shows little");
        texts.push(first.log_text());
    }
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), 5, "two seeds gave the same log");
}

#[test]
fn a_few_seeds_break_no_promise() {
    for seed in 1..=8 {
        let report = run(seed);
        let found: Vec<_> = report.violations.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "seed {seed}: {}", found.join("\n"));
    }
}
