//! One recorded connection: writes frames as they were recorded and reads the broker's frames, per session.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use peeklock_amqp::{Decode, Decoder, ProtocolHeader, Value, encode_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::compare::described_name;
use super::script::CONNECTION;

/// The time limit for a frame, on the virtual clock.
const FRAME_TIME_MAX: Duration = Duration::from_secs(100);
const FRAME_HEADER_LEN: usize = 8;

/// A frame of the broker.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) performative: Value,
    pub(super) payload: Bytes,
}

pub(super) struct Wire {
    stream: DuplexStream,
    input: BytesMut,
    /// The client's channel per channel of the broker.
    channels: HashMap<u16, u16>,
    /// Frames that were received and not consumed yet, per channel of the client.
    waiting: HashMap<u16, VecDeque<Received>>,
}

impl Wire {
    pub(super) fn new(stream: DuplexStream) -> Self {
        Self { stream, input: BytesMut::new(), channels: HashMap::new(), waiting: HashMap::new() }
    }

    pub(super) async fn send_header(&mut self, header: ProtocolHeader) {
        self.stream.write_all(&header.to_bytes()).await.unwrap();
    }

    pub(super) async fn send(&mut self, channel: u16, performative: &Value, payload: &[u8]) {
        let mut frame = BytesMut::new();
        let is_sasl = described_name(performative).starts_with("sasl-");
        let channel = if channel == CONNECTION { 0 } else { channel };
        encode_frame(&mut frame, channel, performative, payload);
        frame[5] = u8::from(is_sasl);
        self.stream.write_all(&frame).await.unwrap();
    }

    pub(super) async fn header(&mut self) -> ProtocolHeader {
        while self.input.len() < ProtocolHeader::LEN {
            self.read().await.unwrap();
        }
        ProtocolHeader::decode(&self.input.split_to(ProtocolHeader::LEN)).unwrap().unwrap()
    }

    /// Returns the next frame of that session.
    pub(super) async fn next(&mut self, channel: u16) -> Result<Received, String> {
        loop {
            if let Some(frame) = self.waiting.get_mut(&channel).and_then(VecDeque::pop_front) {
                return Ok(frame);
            }
            while self.take_frame() {}
            if self.waiting.get(&channel).is_none_or(VecDeque::is_empty) {
                self.read().await.map_err(|what| format!("{what}; there is {:?}", self.left()))?;
            }
        }
    }

    /// Waits for a time in which no frame may arrive on that session; recorded times are rounded.
    pub(super) async fn is_silent(&mut self, channel: u16, time: Duration) -> Result<(), String> {
        let end = tokio::time::Instant::now() + time;
        let _ = tokio::time::timeout_at(end - time / 10, async { while self.read().await.is_ok() {} }).await;
        while self.take_frame() {}
        if let Some(frame) = self.waiting.get(&channel).and_then(VecDeque::front) {
            return Err(format!("this came too early: {frame:?}"));
        }
        tokio::time::sleep_until(end).await;
        Ok(())
    }

    /// Waits for the end of the stream. Returns an error for frames that were not consumed.
    pub(super) async fn end(&mut self) -> Result<(), String> {
        while self.read().await.is_ok() {}
        while self.take_frame() {}
        match &self.left()[..] {
            [] => Ok(()),
            left => Err(format!("not expected: {left:?}")),
        }
    }

    /// Returns the frames that were received and not consumed.
    pub(super) fn left(&self) -> Vec<(u16, &Received)> {
        let frames = |(channel, frames)| -> Vec<_> {
            let frames: &VecDeque<Received> = frames;
            frames.iter().map(|frame| (channel, frame)).collect()
        };
        self.waiting.iter().flat_map(|(channel, waiting)| frames((*channel, waiting))).collect()
    }

    async fn read(&mut self) -> Result<(), &'static str> {
        let read = self.stream.read_buf(&mut self.input);
        match tokio::time::timeout(FRAME_TIME_MAX, read).await {
            Ok(Ok(0)) => Err("the broker closed the socket"),
            Ok(result) => result.map(drop).map_err(|_| "the pipe broke"),
            Err(_) => Err("nothing comes"),
        }
    }

    /// Removes one frame from the input and adds it to its session. Returns false if there is no complete frame.
    fn take_frame(&mut self) -> bool {
        let Some(size) = self.input.first_chunk().map(|size| u32::from_be_bytes(*size)) else { return false };
        let len = usize::try_from(size).unwrap();
        if self.input.len() < len {
            return false;
        }
        let frame = self.input.split_to(len).freeze();
        let body = frame.slice(FRAME_HEADER_LEN..);
        if body.is_empty() {
            return true;
        }
        let mut decoder = Decoder::new(&body);
        let performative = Value::decode(&mut decoder).unwrap();
        let payload = body.slice(decoder.position()..);
        let channel = self.channel(u16::from_be_bytes([frame[6], frame[7]]), &performative);
        self.waiting.entry(channel).or_default().push_back(Received { performative, payload });
        true
    }

    fn channel(&mut self, channel: u16, performative: &Value) -> u16 {
        match described_name(performative) {
            "open" | "close" | "sasl-mechanisms" | "sasl-outcome" => return CONNECTION,
            "begin" => {
                let remote =
                    performative.as_described().and_then(|begin| begin.value.as_list()?.first()?.as_u32());
                let remote =
                    remote.and_then(|remote| u16::try_from(remote).ok()).expect("the begin that it answers");
                self.channels.insert(channel, remote);
            }
            _ => {}
        }
        *self.channels.get(&channel).expect("a frame of a session")
    }
}
