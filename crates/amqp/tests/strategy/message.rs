//! Arbitrary messages.

use peeklock_amqp::{Body, Header, Message, MessageId, Properties};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn message_id() -> impl Strategy<Value = MessageId> {
    prop_oneof![
        any::<u64>().prop_map(MessageId::Ulong),
        any::<[u8; 16]>().prop_map(MessageId::Uuid),
        super::bytes().prop_map(MessageId::Binary),
        super::text().prop_map(MessageId::String),
    ]
}

fn properties() -> impl Strategy<Value = Properties> {
    let text = || option::of(super::text());
    let ids = (option::of(message_id()), option::of(message_id()), option::of(super::bytes()));
    let texts = (text(), text(), text(), text(), text());
    let symbols = (option::of(super::symbol()), option::of(super::symbol()));
    let numbers = (any::<Option<i64>>(), any::<Option<i64>>(), any::<Option<u32>>());
    (ids, texts, symbols, numbers).prop_map(|(ids, texts, symbols, numbers)| Properties {
        message_id: ids.0,
        user_id: ids.2,
        to: texts.0,
        subject: texts.1,
        reply_to: texts.2,
        correlation_id: ids.1,
        content_type: symbols.0,
        content_encoding: symbols.1,
        absolute_expiry_time: numbers.0,
        creation_time: numbers.1,
        group_id: texts.3,
        group_sequence: numbers.2,
        reply_to_group_id: texts.4,
    })
}

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        Just(Body::None),
        vec(super::bytes(), 1..4).prop_map(Body::Data),
        vec(vec(super::value(), 0..4), 1..3).prop_map(Body::Sequence),
        super::value().prop_map(Body::Value),
    ]
}

fn header() -> impl Strategy<Value = Header> {
    (
        any::<Option<bool>>(),
        any::<Option<u8>>(),
        any::<Option<u32>>(),
        any::<Option<bool>>(),
        any::<Option<u32>>(),
    )
        .prop_map(|(durable, priority, ttl, first_acquirer, delivery_count)| Header {
            durable,
            priority,
            ttl,
            first_acquirer,
            delivery_count,
        })
        .prop_filter("an empty header reads as none", |header| *header != Header::default())
}

pub(crate) fn message() -> impl Strategy<Value = Message> {
    let maps = (super::fields(), super::fields(), super::fields());
    let entries = vec((super::text(), super::value()), 0..4);
    (option::of(header()), maps, properties(), entries, body()).prop_map(
        |(header, maps, properties, application_properties, body)| Message {
            header,
            delivery_annotations: maps.0,
            message_annotations: maps.1,
            properties,
            application_properties,
            body,
            footer: maps.2,
        },
    )
}
