//! AMQP frame by frame, correct or not.

use std::net::SocketAddr;

use bytes::{Buf, BytesMut};
use peeklock_amqp::{
    AmqpError, Attach, Begin, Encode, Frame, FrameWriter, Message, Open, Performative, Role, SaslFrame,
    SaslInit, Source, Symbol, Target, Transfer, Value, decode_frame, encode_frame,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{PATIENCE, ROOT, ROOT_SECRET, Rig};

pub(crate) const SASL_HEADER: &[u8] = b"AMQP\x03\x01\x00\x00";
pub(crate) const AMQP_HEADER: &[u8] = b"AMQP\x00\x01\x00\x00";

pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    input: BytesMut,
    pub(crate) output: BytesMut,
}

impl Wire {
    /// Completes the handshake and begins one session on channel 0.
    pub(crate) async fn open(address: SocketAddr, plain: Option<(&str, &str)>) -> Wire {
        let mut wire = Wire::start(address, plain).await;
        wire.until(|frame| matches!(frame, Performative::Begin(_)).then_some(())).await.expect("a session");
        wire
    }

    /// Like [`Self::open`], without reading the broker's frames.
    pub(crate) async fn start(address: SocketAddr, plain: Option<(&str, &str)>) -> Wire {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut wire = Wire { stream, input: BytesMut::new(), output: BytesMut::new() };
        wire.output.extend_from_slice(SASL_HEADER);
        let (mechanism, response) = match plain {
            Some((name, secret)) => ("PLAIN", format!("\0{name}\0{secret}")),
            None => ("ANONYMOUS", String::new()),
        };
        let init = SaslInit {
            mechanism: Symbol::from_static(mechanism),
            initial_response: Some(response.into()),
            hostname: None,
        };
        FrameWriter::sasl(&mut wire.output, &SaslFrame::Init(init)).finish();
        wire.output.extend_from_slice(AMQP_HEADER);
        wire.put(&Open { max_frame_size: 65_536, ..Open::new("hostile") });
        wire.put(&Begin::new(0, 5_000, 5_000));
        wire.flush().await;
        wire
    }

    pub(crate) async fn root(rig: &Rig) -> Wire {
        Wire::open(rig.amqp(), Some((ROOT, ROOT_SECRET))).await
    }

    pub(crate) async fn anonymous(rig: &Rig) -> Wire {
        Wire::open(rig.amqp(), None).await
    }

    pub(crate) fn put(&mut self, performative: &impl Encode) {
        encode_frame(&mut self.output, 0, performative, &[]);
    }

    pub(crate) fn put_on(&mut self, channel: u16, performative: &impl Encode) {
        encode_frame(&mut self.output, channel, performative, &[]);
    }

    pub(crate) fn put_message(&mut self, transfer: &Transfer, message: &[u8]) {
        encode_frame(&mut self.output, 0, transfer, message);
    }

    /// Writes the frames. Errors are ignored: a rejected peer cannot write, but it can still read the reason.
    pub(crate) async fn flush(&mut self) {
        let _ = self.stream.write_all(&self.output).await;
        self.output.clear();
    }

    pub(crate) fn put_sender(&mut self, handle: u32, address: &str) {
        let target = Some(Target::with_address(address.to_owned()));
        let attach = Attach::new(format!("s{handle}"), handle, Role::Sender);
        self.put(&Attach {
            source: Some(Source::default()),
            target,
            initial_delivery_count: Some(0),
            ..attach
        });
    }

    pub(crate) fn put_receiver(&mut self, handle: u32, address: &str) {
        let source = Some(Source::with_address(address.to_owned()));
        let attach = Attach::new(format!("r{handle}"), handle, Role::Receiver);
        self.put(&Attach { source, target: Some(Target::with_address("here")), ..attach });
    }

    /// Returns the next frame, or `None` at the end of the connection.
    pub(crate) async fn next(&mut self) -> Option<(Performative, Vec<u8>)> {
        loop {
            if self.input.starts_with(b"AMQP") && self.input.len() >= 8 {
                self.input.advance(8);
                continue;
            }
            match decode_frame(&self.input, u32::MAX).expect("the broker sends AMQP") {
                Some((frame, size)) => {
                    let found = match frame {
                        Frame::Amqp { performative, payload, .. } => Some((performative, payload.to_vec())),
                        Frame::Empty | Frame::Sasl(_) => None,
                    };
                    self.input.advance(size);
                    if found.is_some() {
                        return found;
                    }
                }
                None => {
                    let read = timeout(PATIENCE, self.stream.read_buf(&mut self.input)).await;
                    // A reset after the last frame counts as an end.
                    if read.expect("the broker sends bytes").unwrap_or(0) == 0 {
                        return None;
                    }
                }
            }
        }
    }

    /// Returns the first wanted frame, or `None` if the connection ends before.
    pub(crate) async fn until<T>(&mut self, wanted: impl Fn(&Performative) -> Option<T>) -> Option<T> {
        while let Some((frame, _)) = self.next().await {
            if let Some(found) = wanted(&frame) {
                return Some(found);
            }
        }
        None
    }

    /// Returns the error of the connection, the session or the link, whichever ends first.
    pub(crate) async fn refusal(&mut self) -> AmqpError {
        self.until(|frame| match frame {
            Performative::Detach(detach) => detach.error.clone(),
            Performative::End(end) => end.error.clone(),
            Performative::Close(close) => close.error.clone(),
            _ => None,
        })
        .await
        .expect("the broker sends the reason")
    }

    /// Returns whether a link is accepted; a rejected one is detached at once.
    pub(crate) async fn granted(&mut self) -> Result<(), AmqpError> {
        let granted = self.until(|frame| match frame {
            Performative::Attach(attach) => {
                let has_node = match attach.role {
                    Role::Sender => attach.source.is_some(),
                    Role::Receiver => attach.target.is_some(),
                };
                has_node.then_some(Ok(()))
            }
            Performative::Detach(detach) => Some(Err(detach.error.clone().unwrap())),
            Performative::Close(close) => Some(Err(close.error.clone().unwrap())),
            _ => None,
        });
        granted.await.expect("an answer to the attach")
    }

    /// Attaches the request and response links of a service with the handles 0 and 1.
    pub(crate) async fn service(&mut self, address: &str) {
        self.put_sender(0, address);
        self.put_receiver(1, address);
        self.put(&peeklock_amqp::Flow {
            handle: Some(1),
            link_credit: Some(1000),
            delivery_count: Some(0),
            next_incoming_id: Some(1),
            incoming_window: 5_000,
            outgoing_window: 5_000,
            ..Default::default()
        });
        self.flush().await;
        self.granted().await.unwrap();
        self.granted().await.unwrap();
    }

    pub(crate) fn put_request(&mut self, number: u32, message: &[u8]) {
        let tag = peeklock_amqp::DeliveryTag::from(number);
        let transfer = Transfer {
            handle: 0,
            delivery_id: Some(number),
            delivery_tag: Some(tag),
            message_format: Some(0),
            settled: Some(true),
            ..Transfer::default()
        };
        self.put_message(&transfer, message);
    }

    /// Returns an application property of the next response.
    pub(crate) async fn response(&mut self, key: &str) -> Option<Value> {
        while let Some((frame, payload)) = self.next().await {
            if matches!(frame, Performative::Transfer(_)) {
                return Message::decode(&payload).unwrap().property(key).cloned();
            }
        }
        None
    }

    pub(crate) async fn put_token(&mut self, number: u32, audience: &str, token: &str) -> i32 {
        let request = Message::value(token.to_owned())
            .with_message_id("put")
            .with_property("operation", "put-token")
            .with_property("name", audience.to_owned());
        self.put_request(number, &request.to_bytes());
        self.flush().await;
        self.response("status-code").await.and_then(|status| status.as_i32()).expect("a status")
    }
}
