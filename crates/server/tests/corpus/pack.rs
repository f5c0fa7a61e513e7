//! A data directory as one file: for each file its path and size, and the runs of bytes that are not zero.
//!
//! Log segments are mostly zeros, so that a directory of a hundred megabytes takes a few kilobytes. All numbers are u64, little-endian.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The step in bytes in which runs are searched.
const STEP: usize = 64;
/// Files and folders that are not packed: each start creates them, or no test reads them.
const LEFT_OUT: [&str; 3] = ["LOCK", "RESERVE", "tls"];

const FOLDERS: [&str; 3] = ["wal", "cold", "snap"];

pub(crate) fn pack(directory: &Path) -> Vec<u8> {
    let mut files = Vec::new();
    collect(directory, &mut files);
    files.sort();
    let mut out = Vec::new();
    for file in files {
        let name = file.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
        let bytes = fs::read(&file).unwrap();
        put_bytes(name.as_bytes(), &mut out);
        put(bytes.len(), &mut out);
        let runs = runs(&bytes);
        put(runs.len(), &mut out);
        for (start, end) in runs {
            put(start, &mut out);
            put_bytes(&bytes[start..end], &mut out);
        }
    }
    out
}

pub(crate) fn unpack(mut packed: &[u8], directory: &Path) {
    // A folder without files is not in the pack.
    FOLDERS.iter().for_each(|folder| fs::create_dir_all(directory.join(folder)).unwrap());
    while !packed.is_empty() {
        let name = std::str::from_utf8(take_bytes(&mut packed)).unwrap();
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = File::create(path).unwrap();
        file.set_len(take(&mut packed) as u64).unwrap();
        for _ in 0..take(&mut packed) {
            let start = take(&mut packed);
            file.write_all_at(take_bytes(&mut packed), start as u64).unwrap();
        }
    }
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let is_left_out = LEFT_OUT.iter().any(|name| path.ends_with(name));
        match path.is_dir() {
            _ if is_left_out => {}
            true => collect(&path, files),
            false => files.push(path),
        }
    }
}

fn runs(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for start in (0..bytes.len()).step_by(STEP) {
        let end = (start + STEP).min(bytes.len());
        if bytes[start..end].iter().all(|byte| *byte == 0) {
            continue;
        }
        match runs.last_mut() {
            Some((_, last)) if *last == start => *last = end,
            _ => runs.push((start, end)),
        }
    }
    runs
}

fn put(number: usize, out: &mut Vec<u8>) {
    out.extend((number as u64).to_le_bytes());
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put(bytes.len(), out);
    out.extend_from_slice(bytes);
}

fn take(packed: &mut &[u8]) -> usize {
    let (number, rest) = packed.split_first_chunk().unwrap();
    *packed = rest;
    usize::try_from(u64::from_le_bytes(*number)).unwrap()
}

fn take_bytes<'a>(packed: &mut &'a [u8]) -> &'a [u8] {
    let length = take(packed);
    let (bytes, rest) = packed.split_at(length);
    *packed = rest;
    bytes
}
