//! Measures the bare disk: `pwrite` and `fdatasync` in turn, in a file that was written before or in a new one.
//!
//! The thread does nothing else, like the writer of a journal: on a busy machine a thread that also computes waits longer for a core
//! after each sync, and the disk would look slower than it is.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

const FILE_BYTES: u64 = 64 << 20;
const MIB: usize = 1 << 20;

/// The channel to the writing thread, which ends when this is dropped.
pub(crate) struct Raw {
    orders: mpsc::Sender<Order>,
}

enum Order {
    Rate { block_bytes: usize, time: Duration, reply: mpsc::Sender<Result<f64>> },
    NewRate { size_bytes: u64, reply: mpsc::Sender<Result<f64>> },
    Latencies { block_bytes: usize, rounds: usize, reply: mpsc::Sender<Result<Vec<Duration>>> },
}

impl Raw {
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let mut writer = Writer::new(folder)?;
        let (orders, incoming) = mpsc::channel();
        std::thread::spawn(move || {
            for order in incoming {
                // An error means that the caller no longer waits for the reply.
                match order {
                    Order::Rate { block_bytes, time, reply } => {
                        drop(reply.send(writer.rate(block_bytes, time)))
                    }
                    Order::NewRate { size_bytes, reply } => drop(reply.send(writer.new_rate(size_bytes))),
                    Order::Latencies { block_bytes, rounds, reply } => {
                        drop(reply.send(writer.latencies(block_bytes, rounds)));
                    }
                }
            }
        });
        Ok(Raw { orders })
    }

    /// Returns the records per second when `count` records of `size_bytes` are written and synced together.
    pub(crate) fn rate(&self, count: usize, size_bytes: usize, time: Duration) -> Result<f64> {
        let (reply, answer) = mpsc::channel();
        self.orders.send(Order::Rate { block_bytes: count * size_bytes, time, reply })?;
        let blocks = answer.recv().context("the writing thread is gone")??;
        Ok(blocks * count as f64)
    }

    /// Returns the bytes per second when a new file of this size is written, 1 MiB per sync. Its space is reserved before. Unlike a file
    /// that is written again and again, it needs new pages in the page cache, as everything that a broker has to keep.
    pub(crate) fn new_rate(&self, size_bytes: u64) -> Result<f64> {
        let (reply, answer) = mpsc::channel();
        self.orders.send(Order::NewRate { size_bytes, reply })?;
        answer.recv().context("the writing thread is gone")?
    }

    /// Returns the time of each of `rounds` single writes of one block.
    pub(crate) fn latencies(&self, block_bytes: usize, rounds: usize) -> Result<Vec<Duration>> {
        let (reply, answer) = mpsc::channel();
        self.orders.send(Order::Latencies { block_bytes, rounds, reply })?;
        answer.recv().context("the writing thread is gone")?
    }
}

struct Writer {
    folder: PathBuf,
    file: File,
    at: u64,
}

impl Writer {
    /// Writes the file once and syncs it, so that later writes change no metadata.
    fn new(folder: &Path) -> Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(folder.join("raw"))?;
        let block = vec![0x5a; MIB];
        for at in (0..FILE_BYTES).step_by(block.len()) {
            file.write_all_at(&block, at)?;
        }
        file.sync_all()?;
        Ok(Writer { folder: folder.to_path_buf(), file, at: 0 })
    }

    fn write(&mut self, block: &[u8]) -> Result<()> {
        if self.at + block.len() as u64 > FILE_BYTES {
            self.at = 0;
        }
        self.file.write_all_at(block, self.at)?;
        self.file.sync_data()?;
        self.at += block.len() as u64;
        Ok(())
    }

    /// Returns blocks per second.
    fn rate(&mut self, block_bytes: usize, time: Duration) -> Result<f64> {
        let block = vec![0xa5; block_bytes];
        let start = Instant::now();
        let mut rounds = 0_u32;
        while start.elapsed() < time {
            self.write(&block)?;
            rounds += 1;
        }
        Ok(f64::from(rounds) / start.elapsed().as_secs_f64())
    }

    fn new_rate(&self, size_bytes: u64) -> Result<f64> {
        let path = self.folder.join("new");
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        // Some file systems reserve no space. The result is then slightly lower.
        let _ = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size_bytes);
        file.sync_all()?;
        let block = vec![0xa5; MIB];
        let start = Instant::now();
        for at in (0..size_bytes).step_by(MIB) {
            file.write_all_at(&block, at)?;
            file.sync_data()?;
        }
        let rate = size_bytes as f64 / start.elapsed().as_secs_f64();
        std::fs::remove_file(&path)?;
        Ok(rate)
    }

    fn latencies(&mut self, block_bytes: usize, rounds: usize) -> Result<Vec<Duration>> {
        let block = vec![0xa5; block_bytes];
        (0..rounds)
            .map(|_| {
                let start = Instant::now();
                self.write(&block)?;
                Ok(start.elapsed())
            })
            .collect()
    }
}
