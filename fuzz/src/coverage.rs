//! Reports the code that an input reached, if the program was built with LLVM's counters (see the README). Otherwise reports nothing.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

static START: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static LEN: AtomicUsize = AtomicUsize::new(0);

/// LLVM's instrumentation calls this before `main`, once per module, with all the counters of the program.
///
/// # Safety
/// Only the instrumentation calls it, with the bounds of a static array.
#[allow(unsafe_code, reason = "the name and form that the instrumentation calls")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    START.store(start, Ordering::Relaxed);
    LEN.store(stop.addr().saturating_sub(start.addr()), Ordering::Relaxed);
}

/// The code that all inputs so far have reached, and how often in one run.
#[derive(Debug, Default)]
pub struct Coverage {
    /// For each counter, the classes of counts so far.
    seen: Vec<u8>,
}

impl Coverage {
    pub fn is_available() -> bool {
        LEN.load(Ordering::Relaxed) > 0
    }

    /// Sets all counters to zero, before an input runs.
    pub fn reset() {
        with_counters(|counters| counters.fill(0));
    }

    /// Returns whether the run since `reset` reached new code, and stores what it reached.
    pub fn is_new(&mut self) -> bool {
        let mut is_new = false;
        with_counters(|counters| {
            self.seen.resize(counters.len(), 0);
            for (seen, count) in self.seen.iter_mut().zip(counters.iter()) {
                let class = count_class(*count);
                is_new |= class & !*seen != 0;
                *seen |= class;
            }
        });
        is_new
    }

    pub fn reached_count(&self) -> usize {
        self.seen.iter().filter(|seen| **seen != 0).count()
    }
}

/// Returns one bit for each order of magnitude of a count: a second round of a loop is new, the hundred-and-first is not.
fn count_class(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..=7 => 8,
        8..=15 => 16,
        16..=31 => 32,
        32..=127 => 64,
        _ => 128,
    }
}

#[allow(unsafe_code, reason = "the counters are a static array that only the instrumentation names")]
fn with_counters(work: impl FnOnce(&mut [u8])) {
    let (start, len) = (START.load(Ordering::Relaxed), LEN.load(Ordering::Relaxed));
    if start.is_null() || len == 0 {
        return;
    }
    // SAFETY: the instrumentation gave the bounds of a static array. Targets run on this thread only, and none runs now.
    work(unsafe { std::slice::from_raw_parts_mut(start, len) });
}
