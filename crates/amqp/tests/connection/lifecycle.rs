//! Sessions and links: each request is answered once, and numbers are reused.

use peeklock_amqp::connection::{AttachReply, Config, Error, Event};
use peeklock_amqp::{
    AmqpError, Attach, Begin, Detach, End, Performative, ReceiverSettleMode, Role, SenderSettleMode, Source,
    Target, TargetNode, condition,
};

use super::support::{Script, attach, link_flow, outgoing, transfer};

fn detach(handle: u32) -> Detach {
    Detach { handle, closed: true, error: None }
}

#[test]
fn a_begin_is_answered_with_every_field_clients_read() {
    let (mut script, _) = Script::server();
    script.send(9, Begin::new(0, 2_048, u32::MAX));
    let sent = script.sent();
    let [Performative::Begin(begin)] = &sent.iter().map(|s| s.performative.clone()).collect::<Vec<_>>()[..]
    else {
        panic!("{sent:?}")
    };
    assert_eq!(begin.remote_channel, Some(9));
    assert_eq!((begin.next_outgoing_id, begin.incoming_window, begin.handle_max), (1, 5_000, 1_023));
    assert!(begin.outgoing_window > 0);
}

#[test]
fn an_attach_reply_echoes_modes_and_termini_and_has_the_mandatory_fields() {
    let (mut script, _) = Script::server();
    let request = Attach {
        snd_settle_mode: SenderSettleMode::Unsettled,
        rcv_settle_mode: ReceiverSettleMode::Second,
        ..attach("receiver", 3, Role::Receiver)
    };
    script.send(1, request.clone());
    let Event::Attach { link, .. } = script.events().remove(0) else { panic!("an attach") };
    script.machine.accept(link, AttachReply { max_message_size: Some(262_144), ..AttachReply::default() });
    let Performative::Attach(reply) = script.sent_performatives().remove(0) else { panic!("an attach") };
    assert_eq!((reply.name, reply.role), (request.name, Role::Sender));
    assert_eq!(reply.snd_settle_mode, SenderSettleMode::Unsettled);
    assert_eq!(reply.rcv_settle_mode, ReceiverSettleMode::Second);
    assert_eq!((reply.source, reply.target), (request.source, request.target));
    assert_eq!(reply.initial_delivery_count, Some(0));
    assert_eq!(reply.max_message_size, Some(262_144));
}

#[test]
fn a_reply_never_has_an_empty_terminus_or_no_size() {
    let (mut script, _) = Script::server();
    let request = Attach {
        source: Some(Source::default()),
        target: Some(Target::Node(TargetNode::default())),
        ..attach("cbs", 0, Role::Sender)
    };
    script.send(1, request);
    let Event::Attach { link, .. } = script.events().remove(0) else { panic!("an attach") };
    script.machine.accept(link, AttachReply::default());
    let Performative::Attach(reply) = script.sent_performatives().remove(0) else { panic!("an attach") };
    assert_ne!(reply.source.unwrap(), Source::default());
    assert_ne!(reply.target.unwrap(), Target::Node(TargetNode::default()));
    assert!(reply.max_message_size.unwrap() > 0);
}

#[test]
fn a_refusal_is_attach_without_termini_then_detach_and_its_answer_is_not_answered() {
    let (mut script, _) = Script::server();
    let link = script.peer_attach(4, Role::Receiver);
    script.machine.refuse(link, AmqpError::new(condition::NOT_FOUND, "no such queue"));
    let sent = script.sent_performatives();
    let [Performative::Attach(reply), Performative::Detach(reason)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((&reply.source, &reply.target, reply.initial_delivery_count), (&None, &None, Some(0)));
    assert!(reason.closed && reason.handle == reply.handle);
    assert_eq!(reason.error.as_ref().unwrap().condition, condition::NOT_FOUND);
    script.send(1, link_flow(4, 0, 100));
    script.send(1, detach(4));
    assert_eq!(script.sent(), []);
    assert!(script.events().is_empty());
}

#[test]
fn each_side_detaches_a_handle_once() {
    let (mut script, _) = Script::server();
    script.sending_link(0);
    script.send(1, detach(0));
    assert!(matches!(script.sent_performatives()[..], [Performative::Detach(Detach { closed: true, .. })]));
    assert!(matches!(script.events()[..], [Event::Detached { closed: true, error: None, .. }]));

    let link = script.sending_link(0);
    script.machine.detach(link, Some(AmqpError::new(condition::STOLEN, "a higher epoch came")));
    script.machine.detach(link, None);
    assert_eq!(script.sent().len(), 1);
    assert!(script.events().is_empty(), "the peer has not answered");
    script.send(1, detach(0));
    assert_eq!(script.sent(), []);
    assert!(matches!(script.events()[..], [Event::Detached { .. }]));
}

#[test]
fn a_detach_that_keeps_the_link_is_answered_with_one_that_closes_it() {
    let (mut script, _) = Script::server();
    script.sending_link(0);
    script.send(1, Detach { handle: 0, closed: false, error: None });
    assert!(matches!(script.sent_performatives()[..], [Performative::Detach(Detach { closed: true, .. })]));
    assert!(matches!(script.events()[..], [Event::Detached { closed: false, .. }]));
}

#[test]
fn a_peer_may_detach_before_its_attach_is_answered() {
    let (mut script, _) = Script::server();
    let link = script.peer_attach(0, Role::Receiver);
    script.send(1, detach(0));
    let sent = script.sent_performatives();
    assert!(
        matches!(&sent[..], [Performative::Attach(a), Performative::Detach(_)] if a.source.is_none()),
        "{sent:?}"
    );
    assert!(matches!(script.events()[..], [Event::Detached { .. }]));
    script.machine.accept(link, AttachReply::default());
    script.machine.refuse(link, AmqpError::new(condition::NOT_FOUND, "too late"));
    assert_eq!(script.sent(), [], "stale ids are harmless");
}

#[test]
fn handles_are_reused_after_detach() {
    let (mut script, _) = Script::server();
    let first = script.sending_link(7);
    script.send(1, detach(7));
    script.sent();
    script.events();
    let second = script.sending_link(7);
    assert_ne!(first, second);
    script.grant(7, 1);
    assert!(script.machine.send(first, &outgoing(1), &[b"x"]).is_err(), "the old id is stale");
    script.machine.send(second, &outgoing(1), &[b"x"]).unwrap();
}

#[test]
fn a_handle_in_use_ends_the_session() {
    let (mut script, session) = Script::server();
    script.sending_link(0);
    script.send(1, attach("other", 0, Role::Receiver));
    let sent = script.sent_performatives();
    assert!(
        matches!(&sent[..], [Performative::End(End { error: Some(e) })] if e.condition == condition::HANDLE_IN_USE),
        "{sent:?}"
    );
    let events = script.events();
    assert!(
        matches!(&events[..], [Event::Detached { .. }, Event::SessionEnded { session: s, error: Some(_) }] if *s == session),
        "{events:?}"
    );
    script.send(1, attach("third", 5, Role::Receiver));
    script.send(1, End::default());
    assert_eq!(script.sent(), [], "no frames after end, and no answer to an answer");
    assert!(script.events().is_empty());
    script.send(1, Begin::new(0, 10, 10));
    assert_eq!(script.sent().len(), 1, "the channel is free again");
}

#[test]
fn a_frame_on_a_handle_without_link_ends_the_session() {
    let performatives: [Performative; 3] =
        [detach(9).into(), link_flow(9, 0, 1).into(), transfer(9, 0).into()];
    for performative in performatives {
        let (mut script, _) = Script::server();
        script.send(1, performative);
        let sent = script.sent_performatives();
        assert!(
            matches!(&sent[..], [Performative::End(End { error: Some(e) })] if e.condition == condition::UNATTACHED_HANDLE)
        );
    }
}

#[test]
fn each_side_ends_a_session_once_and_links_end_with_it() {
    let (mut script, session) = Script::server();
    let link = script.sending_link(0);
    script.peer_attach(1, Role::Sender);
    script.send(1, End::default());
    assert!(matches!(script.sent_performatives()[..], [Performative::End(End { error: None })]));
    let events = script.events();
    assert!(
        matches!(
            events[..],
            [Event::Detached { .. }, Event::Detached { .. }, Event::SessionEnded { error: None, .. }]
        ),
        "{events:?}"
    );
    script.machine.detach(link, None);
    script.machine.end(session, None);
    assert_eq!(script.sent(), []);
    // pyamqp may detach links after it ended their session.
    script.send(1, detach(0));
    script.send(1, End::default());
    assert_eq!(script.sent(), []);
    let result = script.try_send(1, attach("x", 0, Role::Receiver), &[]);
    assert!(
        matches!(result, Err(Error::Protocol(e)) if e.condition == condition::NOT_ALLOWED),
        "the channel is unmapped"
    );
}

#[test]
fn a_session_we_end_is_over_with_the_peers_end() {
    let (mut script, session) = Script::server();
    script.sending_link(0);
    script.machine.end(session, None);
    script.machine.end(session, None);
    assert_eq!(script.sent().len(), 1);
    assert!(matches!(script.events()[..], [Event::Detached { .. }]));
    script.send(1, link_flow(0, 0, 10));
    script.send(1, End::default());
    assert_eq!(script.sent(), []);
    assert!(matches!(script.events()[..], [Event::SessionEnded { .. }]));
}

#[test]
fn links_of_one_name_are_distinguished_by_role() {
    let (mut script, _) = Script::server();
    script.send(1, attach("cbs", 0, Role::Sender));
    script.send(1, attach("cbs", 1, Role::Receiver));
    let events = script.events();
    let [Event::Attach { link: a, .. }, Event::Attach { link: b, .. }] = events[..] else {
        panic!("{events:?}")
    };
    script.machine.accept(a, AttachReply::default());
    script.machine.accept(b, AttachReply::default());
    let sent = script.sent_performatives();
    assert!(matches!(
        &sent[..],
        [Performative::Attach(a), Performative::Attach(b)] if a.role == Role::Receiver && b.role == Role::Sender
    ));
}

#[test]
fn a_second_link_of_the_same_name_and_role_replaces_the_first() {
    let (mut script, _) = Script::server();
    script.send(1, attach("x", 0, Role::Receiver));
    let Event::Attach { link: first, .. } = script.events().remove(0) else { panic!("an attach") };
    script.machine.accept(first, AttachReply::default());
    script.sent();
    script.send(1, attach("x", 1, Role::Receiver));
    let events = script.events();
    assert!(
        matches!(&events[..], [Event::Detached { link, error: Some(e), .. }, Event::Attach { .. }]
            if *link == first && e.condition == condition::STOLEN),
        "{events:?}"
    );
    assert!(matches!(script.sent_performatives()[..], [Performative::Detach(_)]));
}

#[test]
fn a_client_pairs_replies_by_name_and_role() {
    let (mut script, session) = Script::client();
    let sender = script.machine.attach(session, attach("cbs", 0, Role::Sender)).unwrap();
    let receiver = script.machine.attach(session, attach("cbs", 0, Role::Receiver)).unwrap();
    let sent = script.sent_performatives();
    assert!(
        matches!(&sent[..], [Performative::Attach(a), Performative::Attach(b)] if a.handle == 0 && b.handle == 1)
    );
    // The peer answers in the other order and with handles of its own.
    script.send(5, attach("cbs", 70, Role::Sender));
    script.send(5, attach("cbs", 71, Role::Receiver));
    let events = script.events();
    assert!(
        matches!(events[..], [Event::Attached { link: a, .. }, Event::Attached { link: b, .. }] if a == receiver && b == sender),
        "{events:?}"
    );
}

#[test]
fn a_refused_client_gets_only_detached() {
    let (mut script, session) = Script::client();
    let link = script.machine.attach(session, attach("x", 0, Role::Sender)).unwrap();
    script.sent();
    script.send(5, Attach::new("x", 0, Role::Receiver));
    assert!(script.events().is_empty());
    let error = AmqpError::new(condition::NOT_FOUND, "no such queue");
    script.send(5, Detach { handle: 0, closed: true, error: Some(error.clone()) });
    let events = script.events();
    assert!(
        matches!(&events[..], [Event::Detached { link: l, error: Some(e), .. }] if *l == link && *e == error),
        "{events:?}"
    );
    assert!(
        matches!(script.sent_performatives()[..], [Performative::Detach(_)]),
        "a detach needs its answer"
    );
}

#[test]
fn a_client_that_detaches_before_the_reply_still_sends_one_detach() {
    let (mut script, session) = Script::client();
    let link = script.machine.attach(session, attach("x", 0, Role::Receiver)).unwrap();
    script.machine.detach(link, None);
    assert_eq!(script.sent().len(), 2);
    script.send(5, attach("x", 0, Role::Sender));
    script.send(5, detach(0));
    assert_eq!(script.sent(), []);
    assert!(matches!(script.events()[..], [Event::Detached { .. }]));
}

#[test]
fn a_server_uses_its_own_channels_and_reports_the_peers() {
    let (mut script, _) = Script::server_with(Config::server("s"));
    for channel in [40, 30] {
        script.send(channel, Begin::new(0, 10, 10));
    }
    let channels: Vec<u16> = script.sent().iter().map(|sent| sent.channel).collect();
    assert_eq!(channels, [1, 2], "channel 0 belongs to the first session");
}
