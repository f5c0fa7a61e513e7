//! Measures the bare disk: `pwrite` and `fdatasync` in turn, in a file that was written before.
//!
//! The thread does nothing else, like the writer of a journal: on a busy machine a thread that also computes waits longer for a core
//! after each sync, and the disk would look slower than it is.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

const FILE_BYTES: u64 = 64 << 20;

/// The channel to the writing thread, which ends when this is dropped.
pub(crate) struct Raw {
    orders: mpsc::Sender<Order>,
}

enum Order {
    Rate { block_bytes: usize, time: Duration, reply: mpsc::Sender<Result<f64>> },
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

    /// Returns the time of each of `rounds` single writes of one block.
    pub(crate) fn latencies(&self, block_bytes: usize, rounds: usize) -> Result<Vec<Duration>> {
        let (reply, answer) = mpsc::channel();
        self.orders.send(Order::Latencies { block_bytes, rounds, reply })?;
        answer.recv().context("the writing thread is gone")?
    }
}

struct Writer {
    file: File,
    at: u64,
}

impl Writer {
    /// Writes the file once and syncs it, so that later writes change no metadata.
    fn new(folder: &Path) -> Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(folder.join("raw"))?;
        let block = vec![0x5a; 1 << 20];
        for at in (0..FILE_BYTES).step_by(block.len()) {
            file.write_all_at(&block, at)?;
        }
        file.sync_all()?;
        Ok(Writer { file, at: 0 })
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
