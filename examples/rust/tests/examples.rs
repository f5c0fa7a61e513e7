//! Every example runs to its end on a broker in memory, and does what it promises. None has more than 150 lines.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::process::Command;

fn run(program: &str) -> String {
    let output = Command::new(program).env_remove("RUST_LOG").output().unwrap();
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}{errors}");
    told.into_owned()
}

#[test]
fn competing_consumers_work_on_every_job() {
    let told = run(env!("CARGO_BIN_EXE_competing_consumers"));
    assert!(told.contains("killed: dies with 1 job"), "{told}");
    assert!(told.contains("120 jobs worked on"), "{told}");
    assert!(told.contains("left in the queue: 0, dead-lettered: 0"), "{told}");
    for worker in ["pump: ", "late: ", "pausing: ", "failing: "] {
        assert!(told.contains(worker), "{told}");
    }
}

#[test]
fn a_pool_of_its_own_keeps_urgent_orders_ahead() {
    let told = run(env!("CARGO_BIN_EXE_priority_queue"));
    assert_eq!(told.matches("high: order").count(), 10, "{told}");
    assert_eq!(told.matches("low: order").count(), 20, "{told}");
}

#[test]
fn classes_are_worked_on_in_the_order_of_their_urgency() {
    let told = run(env!("CARGO_BIN_EXE_priority_classes"));
    let lines: Vec<_> = told.lines().collect();
    for (line, class) in lines.iter().zip(["high", "normal", "low"]) {
        assert_eq!(line.split(' ').filter(|word| *word == class).count(), 10, "{told}");
    }
}

#[test]
fn every_example_is_short() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin");
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let count = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(count <= 150, "{} has {count} lines", path.display());
    }
}
