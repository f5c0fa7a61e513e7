//! Starts and ends of connections: headers, SASL, open, pipelining, close.

use bytes::{Bytes, BytesMut};
use peeklock_amqp::connection::{Config, Connection, Error, Event, SaslClient};
use peeklock_amqp::{
    AmqpError, Begin, Close, Encode, Frame, FrameWriter, Open, Performative, Protocol, ProtocolHeader, Role,
    SaslCode, SaslFrame, SaslInit, Symbol, condition, decode_frame,
};

use super::support::{Pair, Script, T0, attach, frames};

fn server() -> Script {
    Script::new(Connection::server(Config::server("server"), T0))
}

fn sasl_init(mechanism: &'static str) -> BytesMut {
    let init = SaslInit { mechanism: mechanism.into(), initial_response: Some(Bytes::new()), hostname: None };
    let mut frame = BytesMut::new();
    FrameWriter::sasl(&mut frame, &SaslFrame::Init(init)).finish();
    frame
}

fn take_sasl(script: &mut Script) -> SaslFrame {
    let out = script.machine.output();
    let (frame, len) = decode_frame(out, u32::MAX).expect("a frame").expect("all of it");
    let Frame::Sasl(sasl) = frame else { panic!("{frame:?}") };
    let _ = out.split_to(len);
    sasl
}

#[test]
fn a_server_offers_sasl_and_waits_for_the_decision() {
    let mut script = server();
    script.header(Protocol::Sasl).unwrap();
    assert_eq!(script.take_header().protocol, Protocol::Sasl);
    let SaslFrame::Mechanisms(offer) = take_sasl(&mut script) else { panic!("mechanisms") };
    assert!(offer.mechanisms.contains(&Symbol::from("ANONYMOUS")));
    script.bytes(&sasl_init("ANONYMOUS")).unwrap();
    let events = script.events();
    assert!(
        matches!(&events[..], [Event::SaslInit { mechanism, .. }] if *mechanism == "ANONYMOUS"),
        "{events:?}"
    );
    assert!(!script.machine.has_output(), "no outcome before the driver's decision");
    script.machine.sasl_outcome(SaslCode::Ok, Some(Bytes::from_static(b"Welcome!")));
    let SaslFrame::Outcome(outcome) = take_sasl(&mut script) else { panic!("an outcome") };
    assert_eq!(
        (outcome.code, outcome.additional_data.unwrap()),
        (SaslCode::Ok, Bytes::from_static(b"Welcome!"))
    );
    script.header(Protocol::Amqp).unwrap();
    script.send(0, Open::new("peer"));
    assert!(matches!(script.events()[..], [Event::Opened { sasl: true, .. }]));
}

#[test]
fn a_start_without_sasl_is_accepted_and_reported() {
    let mut script = server();
    script.header(Protocol::Amqp).unwrap();
    script.send(0, Open::new("peer"));
    assert!(matches!(script.events()[..], [Event::Opened { sasl: false, .. }]));
    assert_eq!(script.take_header().protocol, Protocol::Amqp);
    let Performative::Open(open) = script.sent_performatives().remove(0) else { panic!("an open") };
    assert_eq!((open.max_frame_size, open.channel_max, open.idle_time_out), (65_536, 4_999, Some(120_000)));
}

#[test]
fn sasl_fails_with_an_outcome_and_nothing_more() {
    let mut script = server();
    script.header(Protocol::Sasl).unwrap();
    script.bytes(&sasl_init("PLAIN")).unwrap();
    script.machine.sasl_outcome(SaslCode::Auth, None);
    assert!(script.machine.is_closed());
    script.take_header();
    take_sasl(&mut script);
    let SaslFrame::Outcome(outcome) = take_sasl(&mut script) else { panic!("an outcome") };
    assert_eq!(outcome.code, SaslCode::Auth);
    script.bytes(b"whatever comes now").unwrap();
    assert!(!script.machine.has_output());
}

#[test]
fn a_mechanism_that_was_not_offered_is_refused() {
    let mut script = server();
    script.header(Protocol::Sasl).unwrap();
    assert_eq!(script.bytes(&sasl_init("GSSAPI")), Err(Error::Mechanism { wanted: "GSSAPI".to_owned() }));
    assert!(script.events().is_empty() && script.machine.is_closed());
}

#[test]
fn all_frames_up_to_attach_may_arrive_in_one_piece() {
    let mut pipeline = BytesMut::from(&ProtocolHeader { protocol: Protocol::Sasl }.to_bytes()[..]);
    pipeline.extend_from_slice(&sasl_init("ANONYMOUS"));
    pipeline.extend_from_slice(&ProtocolHeader { protocol: Protocol::Amqp }.to_bytes());
    put(&mut pipeline, 0, &Open::new("peer"));
    put(&mut pipeline, 1, &Begin::new(0, 100, 100));
    put(&mut pipeline, 1, &attach("a", 1, Role::Receiver));
    put(&mut pipeline, 1, &attach("b", 2, Role::Sender));

    for chunk_len in [1, 7, 64, pipeline.len()] {
        let mut script = server();
        let mut input = BytesMut::new();
        let mut events = Vec::new();
        for chunk in pipeline.chunks(chunk_len) {
            input.extend_from_slice(chunk);
            script.machine.handle_input(T0, &mut input).unwrap();
            for event in script.events() {
                if matches!(event, Event::SaslInit { .. }) {
                    script.machine.sasl_outcome(SaslCode::Ok, None);
                    script.machine.handle_input(T0, &mut input).unwrap();
                }
                events.push(event);
            }
            events.extend(script.events());
        }
        assert!(input.is_empty());
        assert!(
            matches!(
                events[..],
                [
                    Event::SaslInit { .. },
                    Event::Opened { .. },
                    Event::SessionBegun { .. },
                    Event::Attach { .. },
                    Event::Attach { .. }
                ]
            ),
            "{chunk_len}: {events:?}"
        );
    }
}

fn put(out: &mut BytesMut, channel: u16, performative: &impl Encode) {
    FrameWriter::amqp(out, channel, performative).finish();
}

#[test]
fn garbage_is_answered_with_our_header_and_ends_the_connection() {
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"AMQP\x00\x00\x09\x01", b"AMQP\x02\x01\x00\x00", b"\x16\x03"]
    {
        let mut script = server();
        let mut input = BytesMut::from(garbage);
        let result = script.machine.handle_input(T0, &mut input);
        assert!(matches!(result, Err(Error::Header { .. })), "{garbage:?}");
        assert_eq!(script.take_header().protocol, Protocol::Sasl);
        assert!(script.machine.is_closed() && !script.machine.has_output());
    }
}

#[test]
fn a_frame_above_our_maximum_closes_with_a_framing_error() {
    let (mut script, _) = Script::server();
    let result = script.bytes(&[0, 1, 0, 1, 2, 0, 0, 0]);
    assert!(matches!(result, Err(Error::Protocol(error)) if error.condition == condition::FRAMING_ERROR));
    let Performative::Close(close) = script.sent_performatives().remove(0) else { panic!("a close") };
    assert_eq!(close.error.unwrap().condition, condition::FRAMING_ERROR);
    assert!(script.machine.is_closed());
}

#[test]
fn undecodable_bytes_close_with_a_decode_error() {
    let (mut script, _) = Script::server();
    let result = script.bytes(&[0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x14, 0xff]);
    assert!(matches!(result, Err(Error::Protocol(error)) if error.condition == condition::DECODE_ERROR));
}

#[test]
fn a_frame_before_open_is_answered_by_open_and_close() {
    let mut script = server();
    script.header(Protocol::Amqp).unwrap();
    assert!(script.try_send(0, Begin::new(0, 1, 1), &[]).is_err());
    script.take_header();
    let sent = script.sent_performatives();
    assert!(matches!(sent[..], [Performative::Open(_), Performative::Close(_)]), "{sent:?}");
}

#[test]
fn each_side_closes_once_and_an_answer_is_not_answered() {
    let (mut script, _) = Script::server();
    script.send(0, Close::default());
    assert!(matches!(script.sent_performatives()[..], [Performative::Close(_)]));
    assert!(matches!(script.events()[..], [Event::Closed { error: None }]));
    assert!(script.machine.is_closed());

    let (mut script, _) = Script::server();
    script.machine.close(Some(AmqpError::new(condition::CONNECTION_FORCED, "shutting down")));
    script.machine.close(None);
    assert_eq!(script.sent().len(), 1);
    assert!(!script.machine.is_closed(), "the peer has not answered");
    script.send(7, Begin::new(0, 1, 1));
    assert_eq!(script.sent(), [], "no frames after close");
    assert!(script.events().is_empty());
    script.send(0, Close::default());
    assert_eq!(script.sent(), []);
    assert!(matches!(script.events()[..], [Event::Closed { .. }]));
    assert!(script.machine.is_closed());
}

#[test]
fn heartbeats_of_the_peer_are_accepted() {
    let (mut script, _) = Script::server();
    script.bytes(&[0, 0, 0, 8, 2, 0, 0, 0, 0, 0, 0, 8, 2, 0, 0, 0]).unwrap();
    assert!(script.events().is_empty() && !script.machine.has_output());
}

#[test]
fn a_client_holds_its_frames_until_sasl_is_complete() {
    let client = Connection::client(Config::client("client", "host"), Some(SaslClient::anonymous()), T0);
    let mut pair = Pair::new(client, Connection::server(Config::server("server"), T0));
    let session = pair.client.begin().unwrap();
    pair.client.attach(session, attach("x", 0, Role::Sender)).unwrap();
    assert_eq!(pair.client.output().len(), ProtocolHeader::LEN, "only the SASL header may leave");
    pair.run();
    assert!(matches!(pair.server_events()[..], [Event::SaslInit { .. }]));
    pair.server.sasl_outcome(SaslCode::Ok, None);
    pair.run();
    let events = pair.server_events();
    assert!(
        matches!(
            events[..],
            [Event::Opened { sasl: true, .. }, Event::SessionBegun { .. }, Event::Attach { .. }]
        ),
        "{events:?}"
    );
    let events = pair.client_events();
    assert!(
        matches!(events[..], [Event::SaslOutcome { .. }, Event::Opened { .. }, Event::SessionBegun { .. }]),
        "{events:?}"
    );
}

#[test]
fn a_client_reports_why_sasl_failed() {
    let client = Connection::client(Config::client("c", "h"), Some(SaslClient::plain("user", "secret")), T0);
    let mut client = Script::new(client);
    let mut server = server();
    server.bytes(&client.machine.output().split()).unwrap();
    client.bytes(&server.machine.output().split()).unwrap();
    server.bytes(&client.machine.output().split()).unwrap();
    let events = server.events();
    assert!(
        matches!(&events[..], [Event::SaslInit { initial_response: Some(response), .. }] if response == "\0user\0secret"),
        "{events:?}"
    );
    server.machine.sasl_outcome(SaslCode::Auth, None);
    let result = client.bytes(&server.machine.output().split());
    assert_eq!(result, Err(Error::Sasl { code: SaslCode::Auth }));
    assert!(client.machine.is_closed() && !client.machine.has_output());
}

#[test]
fn a_client_needs_its_mechanism_offered() {
    let config = Config { sasl_mechanisms: vec!["PLAIN".into()], ..Config::server("s") };
    let mut server = Script::new(Connection::server(config, T0));
    let client = Connection::client(Config::client("c", "h"), Some(SaslClient::anonymous()), T0);
    let mut client = Script::new(client);
    server.bytes(&client.machine.output().split()).unwrap();
    let result = client.bytes(&server.machine.output().split());
    assert_eq!(result, Err(Error::Mechanism { wanted: "ANONYMOUS".to_owned() }));
}

#[test]
fn sessions_of_a_closing_connection_are_gone() {
    let (mut script, session) = Script::server();
    let link = script.sending_link(0);
    script.machine.close(None);
    script.sent();
    script.machine.end(session, None);
    script.machine.detach(link, None);
    assert!(script.machine.begin().is_none());
    assert!(!script.machine.has_output());
    assert!(frames(&script.machine.output().split()).is_empty());
}
