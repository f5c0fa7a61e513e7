//! Bytes that real clients wrote, decoded. See `fixtures/README.md`.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use peeklock_amqp::{
    Batch, Frame, Message, Performative, ProtocolHeader, SaslFrame, Transfer, decode_frame, is_batch,
};

pub(crate) const STREAMS: [(&str, &[u8]); 6] = [
    ("js-servicebus", include_bytes!("../fixtures/streams/js-servicebus.bin")),
    ("python-servicebus-send", include_bytes!("../fixtures/streams/python-servicebus-send.bin")),
    ("python-servicebus-receive", include_bytes!("../fixtures/streams/python-servicebus-receive.bin")),
    ("python-eventhub", include_bytes!("../fixtures/streams/python-eventhub.bin")),
    ("python-proton", include_bytes!("../fixtures/streams/python-proton.bin")),
    ("rhea-server", include_bytes!("../fixtures/streams/rhea-server.bin")),
];

/// Everything that one side sent, in order.
#[derive(Default)]
pub(crate) struct Said {
    pub(crate) sasl: Vec<SaslFrame>,
    pub(crate) performatives: Vec<Performative>,
    pub(crate) deliveries: Vec<(Transfer, Vec<u8>)>,
}

pub(crate) fn read(name: &str) -> Said {
    let (_, mut rest) = *STREAMS.iter().find(|(known, _)| *known == name).unwrap();
    let mut said = Said::default();
    while !rest.is_empty() {
        if rest.starts_with(b"AMQP") {
            ProtocolHeader::decode(rest).unwrap().unwrap();
            rest = &rest[ProtocolHeader::LEN..];
            continue;
        }
        let (frame, len) =
            decode_frame(rest, 1 << 20).unwrap_or_else(|error| panic!("{name}: {error}")).unwrap();
        rest = &rest[len..];
        match frame {
            Frame::Empty => {}
            Frame::Sasl(frame) => said.sasl.push(frame),
            Frame::Amqp { performative, payload, .. } => {
                if let Performative::Transfer(transfer) = &performative {
                    said.deliveries.push((transfer.clone(), payload.to_vec()));
                }
                said.performatives.push(performative);
            }
        }
    }
    said
}

/// Returns the messages that a client sent to an entity, with batches split; not those to `$cbs`.
pub(crate) fn sent_messages(name: &str) -> Vec<Vec<u8>> {
    let is_request = |message: &[u8]| Message::decode(message).unwrap().property("operation").is_some();
    let mut messages = Vec::new();
    for (transfer, payload) in read(name).deliveries {
        if is_batch(transfer.message_format.unwrap_or(0)) {
            messages.extend(Batch::new(&payload).map(|message| message.unwrap().to_vec()));
        } else if !is_request(&payload) {
            messages.push(payload);
        }
    }
    messages
}

pub(crate) fn listed_messages() -> Vec<(&'static str, Vec<u8>)> {
    let lines = include_str!("../fixtures/messages.hex").lines();
    lines.map(|line| line.split_once(' ').map(|(name, hex)| (name, unhex(hex))).unwrap()).collect()
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}
