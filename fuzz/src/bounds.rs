//! Bounds the memory and the time of one input: memory with a counting allocator, time with a thread that watches.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most memory that an input of [`crate::INPUT_LEN_MAX`] may allocate, far less than its size fields can announce.
pub const MEMORY_BYTES_MAX: usize = 48 << 20;
/// The longest time for one input. Most inputs take microseconds; the limit is generous, because the machine may be busy.
pub const INPUT_TIME_MAX: Duration = Duration::from_secs(10);

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// The allocator of the system, with a count of the bytes that each thread holds.
#[derive(Debug)]
pub struct Counting;

// SAFETY: every call goes to the allocator of the system unchanged; the counts are separate numbers.
#[allow(unsafe_code, reason = "the only way to count the bytes that an input allocates")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        gave(layout.size());
        // SAFETY: the memory came from `System` through `alloc` above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: as for `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        gave(layout.size());
        took(size);
        // SAFETY: as for `dealloc`, with the new size that the caller requests.
        unsafe { System.realloc(memory, layout, size) }
    }
}

fn took(size: usize) {
    // A thread that ends allocates after its count was dropped.
    let _ = HELD.try_with(|held| {
        held.set(held.get().saturating_add(size));
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

fn gave(size: usize) {
    let _ = HELD.try_with(|held| held.set(held.get().saturating_sub(size)));
}

/// Runs the work and returns the most memory that this thread held beyond what it held before.
///
/// Returns 0 in a program that does not use [`Counting`] as its allocator.
pub fn peak_bytes_of(work: impl FnOnce()) -> usize {
    let before = HELD.get();
    PEAK.set(before);
    work();
    PEAK.get().saturating_sub(before)
}

/// The time at which the current input started, and the input.
type Running = (Instant, Vec<u8>);

/// Calls a function, on a thread of its own, with an input that exceeds the time limit.
#[derive(Debug, Clone, Default)]
pub struct Watchdog {
    running: Arc<Mutex<Option<Running>>>,
}

impl Watchdog {
    pub fn start(on_hang: impl Fn(&[u8]) + Send + 'static) -> Self {
        let watchdog = Self::default();
        let running = Arc::clone(&watchdog.running);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(INPUT_TIME_MAX / 10);
                let running = running.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((since, input)) = &*running
                    && since.elapsed() > INPUT_TIME_MAX
                {
                    on_hang(input);
                }
            }
        });
        watchdog
    }

    pub fn begin(&self, input: &[u8]) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), input.to_vec()));
    }

    pub fn end(&self) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
