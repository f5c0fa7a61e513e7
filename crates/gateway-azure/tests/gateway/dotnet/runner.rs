//! Replays a recording: sends the client's frames, waits for the broker's frames, and compares them.

use std::collections::HashMap;

use peeklock_access::{Secret, sign};
use peeklock_amqp::{Protocol, ProtocolHeader};
use peeklock_broker::Clock;
use peeklock_types::Timestamp;

use super::build::{Known, millis};
use super::notation::Expr;
use super::outside::Outside;
use super::script::{Frame, Step, steps};
use super::wire::Wire;
use crate::support::Rig;

/// A time just before the recordings were made, so that their clients' times are in the future.
const START: &str = "2026-11-17T20:30:00.000Z";
const TOKEN_LIFE_S: u64 = 3600;

/// Replays the recording of that name to a new broker.
pub(super) async fn replay(name: &str) {
    let start = Timestamp::from_millis(u64::try_from(millis(START)).unwrap());
    let rig = Rig::start_at(Clock::start_at(start)).await;
    let outside = Outside::default();
    let mut player = Player { rig, outside, known: Known::default(), wires: HashMap::new(), connection: 1 };
    for (number, step) in steps(name) {
        if let Err(what) = player.play(step).await {
            panic!("tests/dotnet/{name}.txt, line {number}: {what}");
        }
    }
    for (connection, wire) in player.wires {
        assert!(wire.left().is_empty(), "{name}, connection {connection}: not expected: {:?}", wire.left());
    }
}

struct Player {
    rig: Rig,
    outside: Outside,
    known: Known,
    wires: HashMap<u32, Wire>,
    connection: u32,
}

impl Player {
    fn wire(&mut self) -> &mut Wire {
        let rig = &self.rig;
        self.wires.entry(self.connection).or_insert_with(|| Wire::new(rig.connect()))
    }

    async fn play(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Outside(text) => self.outside.happens(&self.rig, &text).await,
            Step::Connection(number) => self.connection = number,
            Step::Pause(time) => tokio::time::sleep(time).await,
            Step::Silence { channel, time } => return self.wire().is_silent(channel, time).await,
            Step::Header { is_sent, is_sasl } => {
                let header =
                    ProtocolHeader { protocol: if is_sasl { Protocol::Sasl } else { Protocol::Amqp } };
                if is_sent {
                    self.wire().send_header(header).await;
                } else {
                    assert_eq!(self.wire().header().await, header);
                }
            }
            Step::Send(frame) => self.send(frame).await,
            Step::Expect(frame) => return self.expect(&frame).await,
            Step::ServerCloses => {
                let mut wire = self.wires.remove(&self.connection).expect("a connection");
                return wire.end().await;
            }
            Step::ClientCloses => drop(self.wires.remove(&self.connection)),
        }
        Ok(())
    }

    /// Selects the session of delivery ids and handles.
    fn enter_session(&mut self, channel: u16) {
        self.known.session = format!("{} {channel}", self.connection);
    }

    async fn send(&mut self, mut frame: Frame) {
        self.enter_session(frame.channel);
        let now_s = self.rig.broker.clock().now().as_millis() / 1000;
        for section in &mut frame.sections {
            section.for_each(&mut |part| sign_token(part, now_s));
            self.known.note_times(section);
        }
        self.known.note_times(&frame.performative);
        let performative = self.known.value(&frame.performative, "*");
        let payload = self.known.encoded(&frame.sections);
        self.wire().send(frame.channel, &performative, &payload).await;
    }

    async fn expect(&mut self, frame: &Frame) -> Result<(), String> {
        self.enter_session(frame.channel);
        let found = self.wire().next(frame.channel).await?;
        self.known.compare(&frame.performative, "*", &found.performative, "")?;
        self.known.compare_sections(&frame.sections, &found.payload, "the message")
    }
}

/// Writes a signature and an expiry into a token.
fn sign_token(part: &mut Expr, now_s: u64) {
    let Expr::Text(text) = part else { return };
    if let Some((_, resource)) = text.split_once("SharedAccessSignature sr=") {
        let resource = resource.split_once('&').unwrap().0;
        let end = (now_s + TOKEN_LIFE_S).to_string();
        let signature = sign(&Secret::new("secret"), resource, &end);
        let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        *text = text.replace("sig=SIG", &format!("sig={signature}")).replace("EXPIRY", &end);
    }
}
