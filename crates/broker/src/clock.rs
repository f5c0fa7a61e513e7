use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use peeklock_types::Timestamp;
use tokio::time::Instant;

use crate::shift::{self, Moves};

/// The smallest difference between the two clocks that has an effect.
const STEP_MIN: Duration = Duration::from_millis(100);
/// The difference from which a wall clock that is behind is logged.
const BEHIND_MIN: Duration = Duration::from_secs(2);

/// A clock of wall time that follows the system's wall clock forward and never goes back.
///
/// It advances with the monotonic clock. The monotonic clock stands still while the machine sleeps, and does not change when the
/// system's time is set; when the wall clock is ahead for such a reason, this clock steps forward to it. When the wall
/// clock is set back, this clock continues without a step. `docs/design/time.md` explains what a step does.
#[derive(Clone, Debug)]
pub struct Clock {
    shared: Arc<Shared>,
}

/// The time, and the sum of all steps of the clock until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub now: Timestamp,
    pub stepped: Duration,
}

#[derive(Debug)]
struct Shared {
    start: Instant,
    /// The time since 1970 at `start`.
    start_wall: Duration,
    wall: Wall,
    /// The sum of all steps, in nanoseconds. It never falls.
    stepped_ns: AtomicU64,
    /// Whether the wall clock was behind when it was read last.
    is_behind: AtomicBool,
}

/// The wall clock to follow.
enum Wall {
    /// The clock of the system. The start on the real monotonic clock distinguishes a step from a runtime whose time is
    /// virtual.
    System(std::time::Instant),
    Given(Box<dyn Fn() -> Timestamp + Send + Sync>),
    None,
}

impl fmt::Debug for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wall::System(_) => "System",
            Wall::Given(_) => "Given",
            Wall::None => "None",
        })
    }
}

impl Clock {
    /// Returns a clock that follows the clock of the system.
    pub fn start() -> Self {
        Self::new(since_1970(), Wall::System(std::time::Instant::now()))
    }

    /// Returns a clock that now shows `wall` and follows no other clock, for tests with a time of their own.
    pub fn start_at(wall: Timestamp) -> Self {
        Self::new(span_of(wall), Wall::None)
    }

    /// Returns a clock that follows the wall clock `wall`, for simulations.
    pub fn following(wall: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self::new(span_of(wall()), Wall::Given(Box::new(wall)))
    }

    fn new(start_wall: Duration, wall: Wall) -> Self {
        let start = Instant::now();
        let (stepped_ns, is_behind) = (AtomicU64::new(0), AtomicBool::new(false));
        Clock { shared: Arc::new(Shared { start, start_wall, wall, stepped_ns, is_behind }) }
    }

    pub fn now(&self) -> Timestamp {
        self.read().now
    }

    /// Reads the time, and follows the wall clock if it is ahead.
    pub fn read(&self) -> Moment {
        let shared = &*self.shared;
        // The wall clock is read first: if the thread is stopped in between, the wall clock does not seem to be ahead.
        let wall = shared.wall.read();
        let own = shared.start_wall + shared.start.elapsed();
        let stepped = match wall {
            Some(wall) => shared.follow(wall, own),
            None => shared.stepped(),
        };
        Moment { now: timestamp(own + stepped) + shift::current(), stepped }
    }

    /// Returns the sum of all steps so far. It is read from memory: no step is noticed here.
    pub fn stepped(&self) -> Duration {
        self.shared.stepped()
    }

    /// Returns the moment at which [`Clock::now`] reaches `at`, if the clock does not step and no test moves it.
    pub fn instant(&self, at: Timestamp) -> Instant {
        let shared = &*self.shared;
        let passed = shared.start_wall + shared.stepped() + shift::current();
        // The result is rounded up by 1 ms: `now` truncates to milliseconds, and a task that wakes early would spin for
        // the rest of the millisecond.
        shared.start + span_of(at).saturating_sub(passed) + Duration::from_millis(1)
    }

    /// Returns the moves of the clock by tests from now on. A task that sleeps until a [`Clock::instant`] computes it
    /// again after each move.
    pub fn moves(&self) -> Moves {
        Moves::from_now_on()
    }
}

impl Wall {
    fn read(&self) -> Option<Duration> {
        match self {
            Wall::System(_) => Some(since_1970()),
            Wall::Given(wall) => Some(span_of(wall())),
            Wall::None => None,
        }
    }
}

impl Shared {
    fn stepped(&self) -> Duration {
        Duration::from_nanos(self.stepped_ns.load(Ordering::Acquire))
    }

    /// Steps forward if the wall clock is ahead, and returns the sum of all steps. `own` is the time without steps.
    fn follow(&self, wall: Duration, own: Duration) -> Duration {
        let stepped = self.stepped();
        let shown = own + stepped;
        if wall < shown + STEP_MIN {
            self.note_behind(shown.saturating_sub(wall));
            return stepped;
        }
        let mut ahead = wall.saturating_sub(own);
        if let Wall::System(start) = &self.wall {
            // In a test with virtual time, the time that really passed is not a step.
            ahead = ahead.min(wall.saturating_sub(self.start_wall + start.elapsed()));
            if ahead < stepped + STEP_MIN {
                return stepped;
            }
        }
        let ahead_ns = u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX);
        let before = Duration::from_nanos(self.stepped_ns.fetch_max(ahead_ns, Ordering::AcqRel));
        if before < ahead {
            let by = ahead - before;
            tracing::warn!(
                "the system's clock is {by:.1?} ahead of the broker's, after a sleep of the machine or because it was set: the broker follows it"
            );
        }
        ahead.max(before)
    }

    /// Logs once that the wall clock is behind, until it is not.
    fn note_behind(&self, behind: Duration) {
        let is_behind = behind >= BEHIND_MIN;
        if is_behind == self.is_behind.load(Ordering::Relaxed) {
            return;
        }
        // In a test with virtual time, the wall clock is behind all the time.
        let is_virtual =
            matches!(&self.wall, Wall::System(start) if start.elapsed() + BEHIND_MIN < self.start.elapsed());
        if !self.is_behind.swap(is_behind, Ordering::Relaxed) && is_behind && !is_virtual {
            tracing::warn!(
                "the system's clock was set back and is {behind:.1?} behind the broker's, which never goes back; restart the broker to follow it"
            );
        }
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn span_of(at: Timestamp) -> Duration {
    Duration::from_millis(at.as_millis())
}

fn timestamp(since_1970: Duration) -> Timestamp {
    Timestamp::from_millis(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wall clock that a test sets, and a broker's clock that follows it.
    fn clocks() -> (Arc<AtomicU64>, Clock) {
        let wall = Arc::new(AtomicU64::new(1_000_000));
        let read = Arc::clone(&wall);
        let start = Instant::now();
        let clock =
            Clock::following(move || Timestamp::from_millis(read.load(Ordering::Relaxed)) + start.elapsed());
        (wall, clock)
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_the_wall_clock_forward() {
        let (wall, clock) = clocks();
        assert_eq!(clock.read(), Moment { now: at(1_000_000), stepped: Duration::ZERO });
        wall.store(1_600_000, Ordering::Relaxed);
        assert_eq!(clock.read(), Moment { now: at(1_600_000), stepped: Duration::from_secs(600) });
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(clock.now(), at(1_605_000));
        assert_eq!(clock.stepped(), Duration::from_secs(600));
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_never_goes_back() {
        let (wall, clock) = clocks();
        wall.store(1_600_000, Ordering::Relaxed);
        assert_eq!(clock.now(), at(1_600_000));
        wall.store(0, Ordering::Relaxed);
        assert_eq!(clock.now(), at(1_600_000));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(clock.now(), at(1_605_000), "time passes although the wall clock was set back");
        // The wall clock is set right again: only what it is ahead counts.
        wall.store(1_601_000, Ordering::Relaxed);
        assert_eq!(clock.read(), Moment { now: at(1_606_000), stepped: Duration::from_secs(601) });
    }

    #[tokio::test(start_paused = true)]
    async fn small_differences_have_no_effect() {
        let (wall, clock) = clocks();
        wall.store(1_000_099, Ordering::Relaxed);
        assert_eq!(clock.read(), Moment { now: at(1_000_000), stepped: Duration::ZERO });
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_is_earlier_after_a_step() {
        let (wall, clock) = clocks();
        let in_a_minute = at(1_060_000);
        assert_eq!(clock.instant(in_a_minute) - Instant::now(), Duration::from_millis(60_001));
        wall.store(1_050_000, Ordering::Relaxed);
        clock.read();
        assert_eq!(clock.instant(in_a_minute) - Instant::now(), Duration::from_millis(10_001));
        wall.store(2_000_000, Ordering::Relaxed);
        clock.read();
        assert!(clock.instant(in_a_minute) <= Instant::now() + Duration::from_millis(1));
    }

    // The time of the test stands still, and real time passes.
    #[tokio::test(start_paused = true)]
    async fn real_time_is_no_step_of_virtual_time() {
        let clock = Clock::start();
        let start = clock.now();
        std::thread::sleep(STEP_MIN + Duration::from_millis(20));
        assert_eq!(clock.read(), Moment { now: start, stepped: Duration::ZERO });
    }

    #[tokio::test]
    async fn the_clock_of_the_system_shows_its_time() {
        let clock = Clock::start();
        let (before, shown, after) = (since_1970(), clock.now(), since_1970());
        let tolerance = 100;
        assert!(shown.as_millis() + tolerance >= timestamp(before).as_millis());
        assert!(shown.as_millis() <= timestamp(after).as_millis() + tolerance);
    }
}
