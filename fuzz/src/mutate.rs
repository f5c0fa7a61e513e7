//! Mutations with some knowledge of AMQP (type codes, sizes, starts of frames) and of the words of filters.

use fastrand::Rng;

use crate::{INPUT_LEN_MAX, Target};

/// Bytes with a meaning: format codes, short values, descriptors, whole small composites.
const TOKENS: [&[u8]; 34] = [
    b"\x00",
    b"\x40",
    b"\x41",
    b"\x43",
    b"\x44",
    b"\x45",
    b"\x56\x01",
    b"\x50\xff",
    b"\x52\xff",
    b"\x53\x14",
    b"\x54\x80",
    b"\x60\xff\xff",
    b"\x70\xff\xff\xff\xff",
    b"\x71\x80\x00\x00\x00",
    b"\x80\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x83\x00\x00\x00\x00\x00\x00\x00\x00",
    b"\x73\x00\x00\xd8\x00",
    b"\xa0\x00",
    b"\xa1\x01x",
    b"\xa3\x01x",
    b"\xb0\x00\x00\x00\x00",
    b"\xb1\xff\xff\xff\xff",
    b"\xc0\x01\x00",
    b"\xc1\x01\x00",
    b"\xd0\x00\x00\x00\x04\x00\x00\x00\x00",
    b"\xd1\x00\x00\x00\x04\x00\x00\x00\x00",
    b"\xe0\x02\xff\x40",
    b"\xf0\x00\x00\x00\x05\x7f\xff\xff\xff\x40",
    b"\x00\x53\x24\x45",
    b"\x00\x53\x25\x45",
    b"\x00\x53\x34\xc0\x04\x01\xa0\x01t",
    b"\x00\x53\x75\xa0\x01x",
    b"\x00\xa3\x12amqp:transfer:list",
    b"\x00\x53\x30\x45",
];

/// Words and signs of the filter language, and values of a view.
const FILTER_TOKENS: [&[u8]; 43] = [
    b" AND ",
    b" OR ",
    b"NOT ",
    b" = ",
    b" <> ",
    b" < ",
    b" >= ",
    b" IN (",
    b",",
    b")",
    b"(",
    b" LIKE ",
    b" ESCAPE '!'",
    b"'%a_'",
    b" IS NULL",
    b" IS NOT NULL",
    b"EXISTS(a)",
    b"sys.",
    b"Label",
    b"user.",
    b"[a b]",
    b"\"a\"",
    b"'text'",
    b"''",
    b"1",
    b"0",
    b"-",
    b"+",
    b"*",
    b"/",
    b"%",
    b"9223372036854775807",
    b"2.5",
    b"1e308",
    b"TRUE",
    b"NULL",
    b"@p",
    b"newid()",
    b"p(a)",
    b"SET a = ",
    b";REMOVE a",
    b"\0",
    b"\xff\x01a\x03\x01\0\0\0\0\0\0\0",
];

const JSON_TOKENS: [&[u8]; 24] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"null",
    b"true",
    b"-1",
    b"1e400",
    b"0.5",
    b"18446744073709551616",
    b"//",
    b"/*",
    b"*/",
    b"\"rules\":{",
    b"\"type\":\"uuid\"",
    b"\"P1DT1S\"",
    b"\"10MiB\"",
    b"\xff",
];

const XML_TOKENS: [&[u8]; 24] = [
    b"<",
    b">",
    b"/>",
    b"</",
    b"<a>",
    b"</a>",
    b"<?xml?>",
    b"<!--",
    b"-->",
    b"<![CDATA[",
    b"]]>",
    b"<!DOCTYPE a>",
    b"&amp;",
    b"&#x0;",
    b"&b;",
    b" xmlns=\"\"",
    b" xmlns:i=\"u\"",
    b" i:type=\"SqlFilter\"",
    b" i:nil=\"true\"",
    b"\"",
    b":",
    b"P1DT1S",
    b"-1",
    b"\xff",
];

const NUMBERS: [u32; 10] = [0, 1, 7, 8, 255, 256, 511, 512, 0x7fff_ffff, u32::MAX];
const PREFIX_LEN: usize = 8;

/// Creates an input from an input of the corpus, sometimes with parts of another.
pub fn mutate(random: &mut Rng, target: Target, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = pick(random, corpus).clone();
    for _ in 0..random.usize(1..=4) {
        let other = pick(random, corpus);
        match target {
            Target::Connection if random.u8(..) < 180 => mutate_frames(random, &mut input, other),
            Target::Filter => mutate_bytes(random, &mut input, other, &FILTER_TOKENS),
            Target::Json => mutate_bytes(random, &mut input, other, &JSON_TOKENS),
            Target::Xml => mutate_bytes(random, &mut input, other, &XML_TOKENS),
            _ => mutate_bytes(random, &mut input, other, &TOKENS),
        }
    }
    input.truncate(INPUT_LEN_MAX);
    input
}

fn pick<'a>(random: &mut Rng, corpus: &'a [Vec<u8>]) -> &'a Vec<u8> {
    static EMPTY: Vec<u8> = Vec::new();
    random.choice(corpus).unwrap_or(&EMPTY)
}

fn mutate_bytes(random: &mut Rng, input: &mut Vec<u8>, other: &[u8], tokens: &[&[u8]]) {
    let at = random.usize(..=input.len());
    match random.u8(..9) {
        0 => if_there(input, at, |byte| *byte ^= 1 << random.u8(..8)),
        1 => if_there(input, at, |byte| *byte = random.u8(..)),
        // Sizes and counts that are off by one.
        2 => if_there(input, at, |byte| *byte = byte.wrapping_add(if random.bool() { 1 } else { 255 })),
        3 => insert(input, at, random.choice(tokens).copied().unwrap_or_default()),
        4 => overwrite(input, at, random.choice(tokens).copied().unwrap_or_default()),
        5 => overwrite(input, at, &random.choice(NUMBERS).unwrap_or_default().to_be_bytes()),
        6 => drop(input.drain(at..random.usize(at..=input.len().min(at + 64)))),
        7 => {
            let end = random.usize(at..=input.len().min(at + 64));
            let repeated = input.get(at..end).unwrap_or_default().to_vec();
            insert(input, at, &repeated);
        }
        _ => {
            let from = random.usize(..=other.len());
            let to = random.usize(from..=other.len().min(from + 256));
            insert(input, at, other.get(from..to).unwrap_or_default());
        }
    }
}

fn if_there(input: &mut [u8], at: usize, change: impl FnOnce(&mut u8)) {
    if let Some(byte) = input.get_mut(at) {
        change(byte);
    }
}

fn insert(input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if input.len() + bytes.len() <= INPUT_LEN_MAX {
        input.splice(at..at, bytes.iter().copied());
    }
}

fn overwrite(input: &mut [u8], at: usize, bytes: &[u8]) {
    input.iter_mut().skip(at).zip(bytes).for_each(|(place, byte)| *place = *byte);
}

/// Changes a frame and corrects its size, or changes the order of frames: bytes after a wrong size are never reached.
fn mutate_frames(random: &mut Rng, input: &mut Vec<u8>, other: &[u8]) {
    let Some((prefix, stream)) = input.split_first_chunk::<PREFIX_LEN>() else { return };
    let (mut prefix, mut frames) = (*prefix, split_frames(stream));
    let others = split_frames(other.get(PREFIX_LEN..).unwrap_or_default());
    let at = random.usize(..=frames.len());
    match random.u8(..7) {
        0 => overwrite(&mut prefix, random.usize(..PREFIX_LEN), &[random.u8(..)]),
        1 if at < frames.len() => drop(frames.remove(at)),
        2 if at < frames.len() => frames.insert(at, frames.get(at).cloned().unwrap_or_default()),
        3 if at < frames.len() => frames.swap(0, at),
        4 => frames.insert(at, random.choice(others).unwrap_or_default()),
        _ => {
            if let Some(frame) = frames.get_mut(at) {
                mutate_body(random, frame, other);
            }
        }
    }
    *input = [prefix.to_vec(), frames.concat()].concat();
}

fn mutate_body(random: &mut Rng, frame: &mut Vec<u8>, other: &[u8]) {
    if frame.starts_with(b"AMQP") || frame.len() < 8 {
        return mutate_bytes(random, frame, other, &TOKENS);
    }
    let mut body = frame.split_off(8);
    mutate_bytes(random, &mut body, other, &TOKENS);
    frame.append(&mut body);
    let size = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    overwrite(frame, 0, &size.to_be_bytes());
}

/// Splits the input into protocol headers and frames as long as the sizes are plausible; the rest is the last piece.
fn split_frames(mut stream: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while !stream.is_empty() {
        let size = stream.first_chunk().map_or(0, |size| u32::from_be_bytes(*size));
        let len = if stream.starts_with(b"AMQP") { 8 } else { usize::try_from(size).unwrap_or(usize::MAX) };
        let len = if (8..=stream.len()).contains(&len) { len } else { stream.len() };
        let (frame, rest) = stream.split_at(len);
        frames.push(frame.to_vec());
        stream = rest;
    }
    frames
}
