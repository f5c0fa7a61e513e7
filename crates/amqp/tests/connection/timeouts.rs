//! Heartbeats, silence, and endless handshakes or closes.

use std::time::Duration;

use bytes::BytesMut;
use peeklock_amqp::connection::{Config, Connection, Error, Millis};
use peeklock_amqp::{EMPTY_FRAME, Open, Performative, Protocol, condition};

use super::support::{Script, T0};

fn after(ms: u64) -> Millis {
    Millis(T0.0 + ms)
}

fn server(idle_time_out: Option<u32>) -> Script {
    let mut script = Script::new(Connection::server(Config::server("s"), T0));
    script.header(Protocol::Amqp).unwrap();
    script.send(0, Open { idle_time_out, ..Open::new("peer") });
    script.take_header();
    script.sent();
    script.events();
    script
}

#[test]
fn heartbeats_are_sent_at_half_the_peers_idle_time_out() {
    for (idle_ms, interval_ms) in [(60_000, 30_000), (700, 350), (1, 5)] {
        let mut script = server(Some(idle_ms));
        assert_eq!(script.machine.poll_timeout(), Some(after(interval_ms)), "{idle_ms}");
        script.machine.handle_timeout(after(interval_ms - 1)).unwrap();
        assert!(!script.machine.has_output());
        for beat in 1..4 {
            script.machine.handle_timeout(after(interval_ms * beat)).unwrap();
            assert_eq!(script.machine.output().split(), EMPTY_FRAME[..]);
        }
        assert_eq!(script.machine.poll_timeout(), Some(after(interval_ms * 4)));
    }
}

#[test]
fn no_idle_time_out_means_no_heartbeats() {
    for idle in [None, Some(0)] {
        let mut script = server(idle);
        assert_eq!(
            script.machine.poll_timeout(),
            Some(after(240_000)),
            "only the peer's silence has a deadline"
        );
        script.machine.handle_timeout(after(200_000)).unwrap();
        assert!(!script.machine.has_output());
    }
}

#[test]
fn a_silent_peer_is_disconnected_after_twice_our_idle_time_out() {
    let mut script = server(None);
    script.now = after(100_000);
    script.bytes(&EMPTY_FRAME).unwrap();
    script.machine.handle_timeout(after(339_999)).unwrap();
    assert_eq!(script.machine.handle_timeout(after(340_000)), Err(Error::Idle { silent_ms: 240_000 }));
    let sent = script.sent_performatives();
    assert!(
        matches!(&sent[..], [Performative::Close(c)]
            if c.error.as_ref().is_some_and(|e| e.condition == condition::RESOURCE_LIMIT_EXCEEDED)),
        "{sent:?}"
    );
    assert!(script.machine.is_closed());
    assert_eq!(script.machine.poll_timeout(), None);
}

#[test]
fn a_handshake_has_to_end() {
    let config = Config { handshake_timeout: Duration::from_secs(7), ..Config::server("s") };
    let mut server = Connection::server(config, T0);
    let mut input = BytesMut::from(&b"AMQP"[..]);
    server.handle_input(after(10), &mut input).unwrap();
    assert_eq!(server.poll_timeout(), Some(after(7_000)));
    server.handle_timeout(after(6_999)).unwrap();
    assert_eq!(server.handle_timeout(after(7_000)), Err(Error::Handshake { waited_ms: 7_000 }));
    assert!(server.is_closed());
}

#[test]
fn a_close_has_to_be_answered() {
    let mut script = server(None);
    script.machine.close(None);
    let at = script.machine.poll_timeout().expect("a deadline");
    assert!(at <= T0, "the wait starts at the next timeout, whenever the close was called");
    script.machine.handle_timeout(after(50_000)).unwrap();
    assert_eq!(script.machine.poll_timeout(), Some(after(60_000)));
    assert_eq!(script.machine.handle_timeout(after(60_000)), Err(Error::Close));
    assert!(script.machine.is_closed());
}
