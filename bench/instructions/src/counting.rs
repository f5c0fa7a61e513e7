//! Marks the code whose instructions are counted.
//!
//! Callgrind starts with counting off, and toggles it at the entry and at the exit of the functions whose names start with `toggle_`. They
//! are never inlined, and their constants differ, because the compiler would merge two equal functions.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_COUNTING: AtomicBool = AtomicBool::new(false);

/// Counts the instructions of `work`.
pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> T {
    IS_COUNTING.store(true, Ordering::Relaxed);
    let result = through(toggle_on, work);
    IS_COUNTING.store(false, Ordering::Relaxed);
    result
}

/// Excludes the instructions of `work` from [`counted`].
pub(crate) fn aside<T>(work: impl FnOnce() -> T) -> T {
    // Outside of `counted`, the toggle would switch the counting on.
    if IS_COUNTING.load(Ordering::Relaxed) { through(toggle_off, work) } else { work() }
}

fn through<T>(toggle: fn(&mut dyn FnMut()), work: impl FnOnce() -> T) -> T {
    let (mut work, mut result) = (Some(work), None);
    toggle(&mut || result = work.take().map(|work| work()));
    result.expect("the toggle calls the work once")
}

#[inline(never)]
fn toggle_on(work: &mut dyn FnMut()) {
    black_box(1);
    work();
}

#[inline(never)]
fn toggle_off(work: &mut dyn FnMut()) {
    black_box(0);
    work();
}
