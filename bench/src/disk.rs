//! The bare disk: `pwrite` and `fdatasync` round and round in a file that was written before.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

const FILE_BYTES: u64 = 64 << 20;

pub(crate) struct Raw {
    file: File,
    at: u64,
}

impl Raw {
    /// Written once and synced, so that later writes change no metadata.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(folder.join("raw"))?;
        let block = vec![0x5a; 1 << 20];
        for at in (0..FILE_BYTES).step_by(block.len()) {
            file.write_all_at(&block, at)?;
        }
        file.sync_all()?;
        Ok(Raw { file, at: 0 })
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

    /// Records per second when `count` records of `size_bytes` are written and synced together.
    pub(crate) fn rate(&mut self, count: usize, size_bytes: usize, time: Duration) -> Result<f64> {
        let block = vec![0xa5; count * size_bytes];
        let start = Instant::now();
        let mut rounds = 0_u32;
        while start.elapsed() < time {
            self.write(&block)?;
            rounds += 1;
        }
        Ok(f64::from(rounds) * count as f64 / start.elapsed().as_secs_f64())
    }

    /// How long each of `rounds` single writes of one block took.
    pub(crate) fn latencies(&mut self, size_bytes: usize, rounds: usize) -> Result<Vec<Duration>> {
        let block = vec![0xa5; size_bytes];
        (0..rounds)
            .map(|_| {
                let start = Instant::now();
                self.write(&block)?;
                Ok(start.elapsed())
            })
            .collect()
    }
}
