//! Threads for blocking work: reading bodies, writing snapshots and cold segments.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use crate::locked;
use crate::shared::{Shared, StopOnPanic};

/// The number of readers: enough requests in parallel to keep a slow device busy.
const READER_COUNT: usize = 4;

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// One pool for each kind of work, so that the kinds do not wait for each other.
pub(crate) struct Pools {
    pub(crate) readers: Pool,
    /// Writes snapshots and cold segments. The pool is separate from the readers, so that a receiver does not wait for
    /// a long sync.
    pub(crate) movers: Pool,
    /// Moves runs of streams. This is the largest amount of work, and senders of large bodies do not wait for it.
    pub(crate) gatherers: Pool,
}

impl Pools {
    pub(crate) fn inline() -> Self {
        Pools { readers: Pool::inline(), movers: Pool::inline(), gatherers: Pool::inline() }
    }

    /// Creates pools whose jobs are sent to the returned receivers: reads, moves, runs of streams.
    pub(crate) fn handed_over() -> (Self, [mpsc::UnboundedReceiver<Job>; 3]) {
        let [(readers, reads), (movers, moves), (gatherers, gathers)] = [(); 3].map(|()| Pool::handed_over());
        (Pools { readers, movers, gatherers }, [reads, moves, gathers])
    }

    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<(Self, Vec<JoinHandle<()>>)> {
        let (readers, mut threads) = Pool::start("wal-reader", READER_COUNT, shared)?;
        let (movers, more) = Pool::start("wal-mover", 1, shared)?;
        threads.extend(more);
        let (gatherers, more) = Pool::start("wal-gatherer", 1, shared)?;
        threads.extend(more);
        Ok((Pools { readers, movers, gatherers }, threads))
    }

    pub(crate) fn close(&self) {
        [&self.readers, &self.movers, &self.gatherers].into_iter().for_each(Pool::close);
    }
}

#[derive(Clone)]
pub(crate) struct Pool {
    workers: Workers,
}

/// The place where the jobs of a pool run.
#[derive(Clone)]
enum Workers {
    Threads(Arc<JobQueue>),
    /// The caller runs a job at once. A run without threads is repeatable.
    Caller,
    /// The receiver of the channel runs a job at any time.
    Other(mpsc::UnboundedSender<Job>),
}

#[derive(Default)]
struct JobQueue {
    state: Mutex<JobState>,
    changed: Condvar,
}

#[derive(Default)]
struct JobState {
    jobs: VecDeque<Job>,
    closing: bool,
}

impl Pool {
    fn inline() -> Self {
        Pool { workers: Workers::Caller }
    }

    fn handed_over() -> (Self, mpsc::UnboundedReceiver<Job>) {
        let (jobs, taken) = mpsc::unbounded_channel();
        (Pool { workers: Workers::Other(jobs) }, taken)
    }

    pub(crate) fn start(
        name: &'static str,
        thread_count: usize,
        shared: &Arc<Shared>,
    ) -> io::Result<(Self, Vec<JoinHandle<()>>)> {
        let queue = Arc::new(JobQueue::default());
        let mut threads = Vec::new();
        for _ in 0..thread_count {
            let queue = Arc::clone(&queue);
            let alarm = StopOnPanic { shared: Arc::clone(shared), who: name };
            let thread = std::thread::Builder::new().name(name.to_owned());
            threads.push(thread.spawn(move || queue.work(alarm))?);
        }
        Ok((Pool { workers: Workers::Threads(queue) }, threads))
    }

    /// Adds a job. The receiver fails if the pool is closed before the job has run.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (answer, receiver) = oneshot::channel();
        let job = move || {
            // The requester may no longer wait.
            let _ = answer.send(job());
        };
        match &self.workers {
            Workers::Caller => job(),
            Workers::Threads(queue) => queue.push(Box::new(job)),
            // If the other end is gone, the dropped job makes the receiver fail.
            Workers::Other(jobs) => drop(jobs.send(Box::new(job))),
        }
        receiver
    }

    /// Makes the threads end after the waiting jobs.
    pub(crate) fn close(&self) {
        if let Workers::Threads(queue) = &self.workers {
            locked(&queue.state).closing = true;
            queue.changed.notify_all();
        }
    }
}

impl JobQueue {
    fn push(&self, job: Job) {
        let mut state = locked(&self.state);
        if !state.closing {
            state.jobs.push_back(job);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Runs jobs until the pool is closed. A job that panics stops the journal, and the waiting jobs are dropped, so
    /// that their receivers fail.
    fn work(&self, _alarm: StopOnPanic) {
        let _drain = DropJobsOnPanic(self);
        while let Some(job) = self.next() {
            job();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = locked(&self.state);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closing {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

struct DropJobsOnPanic<'a>(&'a JobQueue);

impl Drop for DropJobsOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = locked(&self.0.state);
            state.closing = true;
            let jobs = std::mem::take(&mut state.jobs);
            drop(state);
            drop(jobs);
        }
    }
}
