//! Feeds single frames of Microsoft's .NET SDKs (see `fixtures/README.md`) to a server, each at a point where such a
//! client sends it. They contain forms that our own client never writes: one symbol instead of an array, a sender
//! without initial-delivery-count, a receiver without target, empty maps.

use peeklock_amqp::connection::{AttachReply, Config, Connection, Event, LinkId};
use peeklock_amqp::{
    Attach, Batch, DeliveryState, DeliveryTag, Frame, Message, Performative, Protocol, SaslCode, SaslFrame,
    Symbol, Target, Transfer, decode_frame,
};

use super::support::{Script, T0, deliveries, outgoing, transfer};

const FRAMES: &str = include_str!("../fixtures/dotnet-frames.txt");
const OPEN: &str = "open, Service Bus";
const SENDER: &str = "attach of a sender";
const RECEIVER: &str = "attach of a PeekLock receiver";
const OLD_SENDER: &str = "track 1: the same WITHOUT initial-delivery-count";

/// Returns the frames with their titles.
fn recorded() -> Vec<(&'static str, Vec<u8>)> {
    let mut title = "";
    let mut frames = Vec::new();
    for line in FRAMES.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("# ") {
            Some(text) => title = text,
            None => frames.push((title, unhex(line))),
        }
    }
    frames
}

fn unhex(digits: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.as_bytes().chunks(2).map(byte).collect()
}

/// Returns the frame whose title begins with this text, moved to another channel.
fn frame(title: &str, channel: u16) -> Vec<u8> {
    let all = recorded();
    let (_, mut bytes) = all.into_iter().find(|(found, _)| found.starts_with(title)).unwrap();
    bytes[6..8].copy_from_slice(&channel.to_be_bytes());
    bytes
}

fn performative(bytes: &[u8]) -> (u16, Performative) {
    match decode_frame(bytes, u32::MAX).unwrap().unwrap().0 {
        Frame::Amqp { channel, performative, .. } => (channel, performative),
        other => panic!("{other:?}"),
    }
}

/// Returns a server behind the SASL layer, opened, with a session on the channel.
fn server(channel: u16) -> Script {
    let mut script = Script::new(Connection::server(Config::server("server"), T0));
    script.header(Protocol::Sasl).unwrap();
    script.bytes(&frame("SASL init", 0)).unwrap();
    assert!(matches!(&script.events()[..], [Event::SaslInit { mechanism, .. }] if *mechanism == "MSSBCBS"));
    script.machine.sasl_outcome(SaslCode::Ok, None);
    script.header(Protocol::Amqp).unwrap();
    script.bytes(&frame(OPEN, 0)).unwrap();
    script.bytes(&frame("begin with an empty map", channel)).unwrap();
    let events = script.events();
    let [Event::Opened { open, sasl: true }, Event::SessionBegun { .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(
        open.properties.as_ref().unwrap().get("product").unwrap().as_str(),
        Some("Messaging.ServiceBus")
    );
    script.machine.output().clear();
    script
}

fn attach(script: &mut Script, bytes: &[u8]) -> (LinkId, Box<Attach>) {
    script.bytes(bytes).unwrap();
    let mut events = script.events();
    let Some(Event::Attach { link, attach, .. }) = events.pop() else { panic!("{events:?}") };
    assert!(events.is_empty(), "{events:?}");
    script.machine.accept(link, AttachReply::default());
    let sent = script.sent_performatives();
    assert!(matches!(&sent[..], [Performative::Attach(_)]), "{sent:?}");
    (link, attach)
}

/// Returns a server that has sent five deliveries to a receiver on channel 1.
fn with_deliveries() -> Script {
    let mut script = server(1);
    let (link, _) = attach(&mut script, &frame(RECEIVER, 1));
    script.grant(0, 10);
    for tag in 0..5 {
        script.machine.send(link, &outgoing(tag), &[b"message"]).unwrap();
    }
    script.machine.output().clear();
    script
}

/// Returns a server with a link on which the client sends.
fn with_sender(title: &str, channel: u16) -> Script {
    let mut script = server(channel);
    let (link, _) = attach(&mut script, &frame(title, channel));
    script.machine.set_credit(link, 10);
    script.machine.output().clear();
    script
}

#[test]
fn every_frame_decodes_to_the_type_in_its_title() {
    let frames = recorded();
    assert_eq!(frames.len(), 21);
    for (title, bytes) in frames {
        let (frame, len) = decode_frame(&bytes, 65_536).unwrap().unwrap();
        assert_eq!(len, bytes.len(), "{title}");
        let name = match &frame {
            Frame::Sasl(SaslFrame::Init(_)) => "sasl-init",
            Frame::Amqp { performative, .. } => performative.name(),
            other => panic!("{title}: {other:?}"),
        };
        assert!(title.contains(&format!("): {name} ch")), "{title}: {name}");
        if let Frame::Amqp { payload, performative: Performative::Transfer(_), .. } = frame {
            Message::decode(payload).unwrap_or_else(|error| panic!("{title}: {error}"));
        }
    }
}

#[test]
fn every_attach_is_accepted() {
    let mut count = 0;
    // The first frame belongs to the SASL layer.
    for (title, bytes) in recorded().into_iter().skip(1) {
        let (channel, Performative::Attach(sent)) = performative(&bytes) else { continue };
        let (_, taken) = attach(&mut server(channel), &bytes);
        assert_eq!(taken, sent, "{title}");
        count += 1;
    }
    assert_eq!(count, 9);
}

#[test]
fn forms_that_only_dotnet_writes_are_read_correctly() {
    let attach_of = |title: &str| match performative(&frame(title, 1)).1 {
        Performative::Attach(attach) => attach,
        other => panic!("{other:?}"),
    };
    let old_sender = attach_of(OLD_SENDER);
    assert_eq!(old_sender.initial_delivery_count, None);
    assert_eq!(attach_of("track 1: receiver WITHOUT target").target, None);
    let one_symbol = attach_of("Event Hubs: desired-capabilities is one symbol");
    assert_eq!(one_symbol.desired_capabilities, [Symbol::from_static("com.microsoft:georeplication")]);
    assert_eq!(attach_of("Event Hubs: reader").desired_capabilities.len(), 2);
    assert!(attach_of(RECEIVER).source.unwrap().filter.unwrap().is_empty());
    assert!(matches!(attach_of("coordinator").target, Some(Target::Coordinator(_))));
}

#[test]
fn transfers_are_accepted() {
    for (title, through) in [
        ("declare", "coordinator"),
        ("discharge", "coordinator"),
        ("send in a transaction", SENDER),
        ("a batch of two", SENDER),
    ] {
        let mut script = with_sender(through, 1);
        script.bytes(&frame(title, 1)).unwrap();
        let taken = deliveries(script.events());
        assert_eq!(taken.len(), 1, "{title}");
        assert!(!taken[0].settled, "{title}");
        assert_eq!(taken[0].state.is_some(), title.contains("transaction"), "{title}");
        if title.contains("batch") {
            assert_eq!(Batch::new(&taken[0].payload).count(), 2);
        }
    }
}

#[test]
fn requests_have_an_empty_delivery_tag() {
    let mut script = with_sender(OLD_SENDER, 1);
    for id in 0..3 {
        let tag = Some(DeliveryTag::new(b"").unwrap());
        script.transfer(Transfer { delivery_tag: tag, settled: Some(true), ..transfer(0, id) }, b"request");
    }
    assert_eq!(deliveries(script.events()).len(), 3);
}

#[test]
fn credit_and_outcomes_are_accepted() {
    let mut script = with_deliveries();
    script.bytes(&frame("drain", 1)).unwrap();
    // Ten credits at a delivery-count of three: the five deliveries have used two.
    assert!(matches!(script.events()[..], [Event::Flow { credit: 8, drain: true, .. }]));
    for title in ["abandon with properties", "dead-letter with reason", "complete in a transaction"] {
        let mut script = with_deliveries();
        let sent = frame(title, 1);
        let (_, Performative::Disposition(disposition)) = performative(&sent) else { panic!("{title}") };
        script.bytes(&sent).unwrap();
        let events = script.events();
        let [Event::Disposition { tag, state: Some(state), settled: false, .. }] = &events[..] else {
            panic!("{title}: {events:?}")
        };
        assert_eq!(*tag, DeliveryTag::from(disposition.first - 65_536), "{title}");
        assert_eq!(Some(state), disposition.state.as_ref(), "{title}");
        assert!(!matches!(state, DeliveryState::Accepted), "{title}");
    }
}
