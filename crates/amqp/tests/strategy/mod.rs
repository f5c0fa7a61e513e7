//! Arbitrary values and performatives, shared by the property tests.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

pub(crate) mod message;

use bytes::Bytes;
use peeklock_amqp::{
    AmqpError, Array, Attach, Begin, Close, Coordinator, DeliveryState, DeliveryTag, Detach, Disposition,
    End, Fields, Flow, Kind, Open, Performative, ReceiverSettleMode, Role, SaslChallenge, SaslCode,
    SaslFrame, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse, SenderSettleMode, Source, Symbol, Target,
    TargetNode, Text, Transfer, Value,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

pub(crate) fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![8 => vec(any::<u8>(), 0..40), 1 => vec(any::<u8>(), 250..300)].prop_map(Bytes::from)
}

pub(crate) fn text() -> impl Strategy<Value = Text> {
    prop_oneof![8 => "\\PC{0,12}", 1 => "[a-zß]{250,260}"].prop_map(Text::from)
}

pub(crate) fn symbol() -> impl Strategy<Value = Symbol> {
    prop_oneof![8 => "[ -~]{0,12}", 1 => "[ -~]{250,260}"].prop_map(|text| Symbol::parse(&text).unwrap())
}

fn scalar_of(kind: Kind) -> BoxedStrategy<Value> {
    match kind {
        Kind::Null => Just(Value::Null).boxed(),
        Kind::Boolean => any::<bool>().prop_map(Value::Boolean).boxed(),
        Kind::Ubyte => any::<u8>().prop_map(Value::Ubyte).boxed(),
        Kind::Ushort => any::<u16>().prop_map(Value::Ushort).boxed(),
        Kind::Uint => prop_oneof![0..=300u32, any::<u32>()].prop_map(Value::Uint).boxed(),
        Kind::Ulong => prop_oneof![0..=300u64, any::<u64>()].prop_map(Value::Ulong).boxed(),
        Kind::Byte => any::<i8>().prop_map(Value::Byte).boxed(),
        Kind::Short => any::<i16>().prop_map(Value::Short).boxed(),
        Kind::Int => prop_oneof![-150..=150i32, any::<i32>()].prop_map(Value::Int).boxed(),
        Kind::Long => prop_oneof![-150..=150i64, any::<i64>()].prop_map(Value::Long).boxed(),
        Kind::Float => proptest::num::f32::ANY
            .prop_filter("NaN is not itself", |f| !f.is_nan())
            .prop_map(Value::Float)
            .boxed(),
        Kind::Double => proptest::num::f64::ANY
            .prop_filter("NaN is not itself", |f| !f.is_nan())
            .prop_map(Value::Double)
            .boxed(),
        Kind::Decimal32 => any::<[u8; 4]>().prop_map(Value::Decimal32).boxed(),
        Kind::Decimal64 => any::<[u8; 8]>().prop_map(Value::Decimal64).boxed(),
        // A decimal that begins with 0x30 or 0xb0 is stored in another form.
        Kind::Decimal128 => any::<[u8; 16]>().prop_map(|[first, rest @ ..]| decimal128(first, rest)).boxed(),
        Kind::Char => any::<char>().prop_map(Value::Char).boxed(),
        Kind::Timestamp => any::<i64>().prop_map(Value::Timestamp).boxed(),
        Kind::Uuid => any::<[u8; 16]>().prop_map(Value::Uuid).boxed(),
        Kind::Binary => bytes().prop_map(Value::Binary).boxed(),
        Kind::String => text().prop_map(Value::String).boxed(),
        _ => symbol().prop_map(Value::Symbol).boxed(),
    }
}

const SCALARS: [Kind; 21] = [
    Kind::Null,
    Kind::Boolean,
    Kind::Ubyte,
    Kind::Ushort,
    Kind::Uint,
    Kind::Ulong,
    Kind::Byte,
    Kind::Short,
    Kind::Int,
    Kind::Long,
    Kind::Float,
    Kind::Double,
    Kind::Decimal32,
    Kind::Decimal64,
    Kind::Decimal128,
    Kind::Char,
    Kind::Timestamp,
    Kind::Uuid,
    Kind::Binary,
    Kind::String,
    Kind::Symbol,
];

fn scalar() -> impl Strategy<Value = Value> {
    proptest::sample::select(SCALARS.to_vec()).prop_flat_map(scalar_of)
}

fn scalar_array() -> impl Strategy<Value = Value> {
    (proptest::sample::select(SCALARS.to_vec()), vec(symbol().prop_map(Value::Symbol), 0..2)).prop_flat_map(
        |(kind, descriptors)| {
            vec(scalar_of(kind), 0..6).prop_map(move |elements| {
                Value::Array(Array::described(descriptors.clone(), kind, elements).unwrap())
            })
        },
    )
}

/// Generates a value of any type, a few levels deep.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    prop_oneof![6 => scalar(), 1 => scalar_array()].prop_recursive(4, 48, 6, |inner| {
        let lists = vec(vec(inner.clone(), 0..4).prop_map(Value::List), 0..4);
        let maps = vec(vec((inner.clone(), inner.clone()), 0..3).prop_map(Value::Map), 0..4);
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::List),
            vec((inner.clone(), inner.clone()), 0..5).prop_map(Value::Map),
            (inner.clone(), inner).prop_map(|(descriptor, value)| Value::described(descriptor, value)),
            lists.prop_map(|lists| Value::Array(Array::new(Kind::List, lists).unwrap())),
            maps.prop_map(|maps| Value::Array(Array::new(Kind::Map, maps).unwrap())),
            vec(scalar_array(), 0..4)
                .prop_map(|arrays| Value::Array(Array::new(Kind::Array, arrays).unwrap())),
        ]
    })
}

pub(crate) fn fields() -> impl Strategy<Value = Fields> {
    vec((symbol(), scalar()), 0..4).prop_map(|entries| entries.into_iter().collect())
}

fn symbols() -> impl Strategy<Value = Vec<Symbol>> {
    vec(symbol(), 0..3)
}

pub(crate) fn error() -> impl Strategy<Value = AmqpError> {
    (symbol(), option::of(text()), option::of(fields()))
        .prop_map(|(condition, description, info)| AmqpError { condition, description, info })
}

fn plain_state() -> impl Strategy<Value = DeliveryState> {
    prop_oneof![
        (any::<u32>(), any::<u64>()).prop_map(|(section_number, section_offset)| DeliveryState::Received {
            section_number,
            section_offset
        }),
        Just(DeliveryState::Accepted),
        option::of(error()).prop_map(|error| DeliveryState::Rejected { error: error.map(Box::new) }),
        Just(DeliveryState::Released),
        (option::of(any::<bool>()), option::of(any::<bool>()), option::of(fields())).prop_map(
            |(delivery_failed, undeliverable_here, message_annotations)| DeliveryState::Modified {
                delivery_failed,
                undeliverable_here,
                message_annotations
            }
        ),
        bytes().prop_map(|txn_id| DeliveryState::Declared { txn_id }),
    ]
}

pub(crate) fn state() -> impl Strategy<Value = DeliveryState> {
    prop_oneof![
        3 => plain_state(),
        1 => (bytes(), option::of(plain_state())).prop_map(|(txn_id, outcome)| DeliveryState::Transactional {
            txn_id,
            outcome: outcome.map(Box::new)
        }),
    ]
}

fn source() -> impl Strategy<Value = Source> {
    let first = (option::of(text()), option::of(0..3u32), option::of(symbol()), option::of(any::<u32>()));
    let second =
        (option::of(any::<bool>()), option::of(fields()), option::of(symbol()), option::of(fields()));
    (first, second, option::of(plain_state()), symbols(), symbols()).prop_map(
        |((address, durable, expiry_policy, timeout), second, default_outcome, outcomes, capabilities)| {
            let (dynamic, dynamic_node_properties, distribution_mode, filter) = second;
            Source {
                address,
                durable,
                expiry_policy,
                timeout,
                dynamic,
                dynamic_node_properties,
                distribution_mode,
                filter,
                default_outcome,
                outcomes,
                capabilities,
            }
        },
    )
}

fn target() -> impl Strategy<Value = Target> {
    let node =
        (option::of(text()), option::of(0..3u32), option::of(symbol()), option::of(any::<u32>()), symbols());
    prop_oneof![
        3 => (node, option::of(any::<bool>()), option::of(fields())).prop_map(|(node, dynamic, properties)| {
            let (address, durable, expiry_policy, timeout, capabilities) = node;
            let dynamic_node_properties = properties;
            Target::Node(TargetNode {
                address, durable, expiry_policy, timeout, dynamic, dynamic_node_properties, capabilities,
            })
        }),
        1 => symbols().prop_map(|capabilities| Target::Coordinator(Coordinator { capabilities })),
    ]
}

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Sender), Just(Role::Receiver)]
}

fn receiver_mode() -> impl Strategy<Value = ReceiverSettleMode> {
    prop_oneof![Just(ReceiverSettleMode::First), Just(ReceiverSettleMode::Second)]
}

fn sender_mode() -> impl Strategy<Value = SenderSettleMode> {
    prop_oneof![
        Just(SenderSettleMode::Unsettled),
        Just(SenderSettleMode::Settled),
        Just(SenderSettleMode::Mixed)
    ]
}

fn open() -> impl Strategy<Value = Open> {
    let limits = (any::<u32>(), any::<u16>(), option::of(any::<u32>()));
    (text(), option::of(text()), limits, (symbols(), symbols(), symbols(), symbols()), option::of(fields()))
        .prop_map(
            |(container_id, hostname, (max_frame_size, channel_max, idle_time_out), lists, properties)| {
                Open {
                    container_id,
                    hostname,
                    max_frame_size,
                    channel_max,
                    idle_time_out,
                    outgoing_locales: lists.0,
                    incoming_locales: lists.1,
                    offered_capabilities: lists.2,
                    desired_capabilities: lists.3,
                    properties,
                }
            },
        )
}

fn begin() -> impl Strategy<Value = Begin> {
    let numbers = (option::of(any::<u16>()), any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
    (numbers, symbols(), symbols(), option::of(fields())).prop_map(
        |(numbers, offered_capabilities, desired_capabilities, properties)| Begin {
            remote_channel: numbers.0,
            next_outgoing_id: numbers.1,
            incoming_window: numbers.2,
            outgoing_window: numbers.3,
            handle_max: numbers.4,
            offered_capabilities,
            desired_capabilities,
            properties,
        },
    )
}

fn attach() -> impl Strategy<Value = Attach> {
    let front = (text(), any::<u32>(), role(), sender_mode(), receiver_mode());
    let unsettled = option::of(vec((bytes().prop_map(Value::Binary), scalar()), 0..3));
    let middle = (option::of(source()), option::of(target()), unsettled, any::<bool>());
    let back =
        (option::of(any::<u32>()), option::of(any::<u64>()), symbols(), symbols(), option::of(fields()));
    (front, middle, back).prop_map(|(front, middle, back)| Attach {
        name: front.0,
        handle: front.1,
        role: front.2,
        snd_settle_mode: front.3,
        rcv_settle_mode: front.4,
        source: middle.0,
        target: middle.1,
        unsettled: middle.2,
        incomplete_unsettled: middle.3,
        initial_delivery_count: back.0,
        max_message_size: back.1,
        offered_capabilities: back.2,
        desired_capabilities: back.3,
        properties: back.4,
    })
}

fn flow() -> impl Strategy<Value = Flow> {
    let id = || option::of(any::<u32>());
    let flags = (any::<bool>(), any::<bool>());
    ((id(), id(), id(), id(), id()), any::<[u32; 3]>(), flags, option::of(fields())).prop_map(
        |(ids, numbers, (drain, echo), properties)| Flow {
            next_incoming_id: ids.0,
            incoming_window: numbers[0],
            next_outgoing_id: numbers[1],
            outgoing_window: numbers[2],
            handle: ids.1,
            delivery_count: ids.2,
            link_credit: ids.3,
            available: ids.4,
            drain,
            echo,
            properties,
        },
    )
}

fn tag() -> impl Strategy<Value = DeliveryTag> {
    vec(any::<u8>(), 0..=32).prop_map(|tag| DeliveryTag::new(&tag).unwrap())
}

fn transfer() -> impl Strategy<Value = Transfer> {
    let front = (any::<u32>(), option::of(any::<u32>()), option::of(tag()), option::of(any::<u32>()));
    let flags = any::<[bool; 4]>();
    (front, option::of(any::<bool>()), option::of(receiver_mode()), option::of(state()), flags).prop_map(
        |(front, settled, rcv_settle_mode, state, flags)| Transfer {
            handle: front.0,
            delivery_id: front.1,
            delivery_tag: front.2,
            message_format: front.3,
            settled,
            more: flags[0],
            rcv_settle_mode,
            state,
            resume: flags[1],
            aborted: flags[2],
            batchable: flags[3],
        },
    )
}

fn disposition() -> impl Strategy<Value = Disposition> {
    (role(), any::<u32>(), option::of(any::<u32>()), any::<bool>(), option::of(state()), any::<bool>())
        .prop_map(|(role, first, last, settled, state, batchable)| Disposition {
            role,
            first,
            last,
            settled,
            state,
            batchable,
        })
}

pub(crate) fn performative() -> impl Strategy<Value = Performative> {
    prop_oneof![
        open().prop_map(Performative::from),
        begin().prop_map(Performative::from),
        attach().prop_map(Performative::from),
        flow().prop_map(Performative::from),
        transfer().prop_map(Performative::from),
        disposition().prop_map(Performative::from),
        (any::<u32>(), any::<bool>(), option::of(error())).prop_map(|(handle, closed, error)| Detach {
            handle,
            closed,
            error
        }
        .into()),
        option::of(error()).prop_map(|error| End { error }.into()),
        option::of(error()).prop_map(|error| Close { error }.into()),
    ]
}

fn sasl_code() -> impl Strategy<Value = SaslCode> {
    let codes = [SaslCode::Ok, SaslCode::Auth, SaslCode::Sys, SaslCode::SysPerm, SaslCode::SysTemp];
    proptest::sample::select(codes.to_vec())
}

pub(crate) fn sasl_frame() -> impl Strategy<Value = SaslFrame> {
    prop_oneof![
        symbols().prop_map(|mechanisms| SaslFrame::Mechanisms(SaslMechanisms { mechanisms })),
        (symbol(), option::of(bytes()), option::of(text())).prop_map(
            |(mechanism, initial_response, hostname)| {
                SaslFrame::Init(SaslInit { mechanism, initial_response, hostname })
            }
        ),
        bytes().prop_map(|challenge| SaslFrame::Challenge(SaslChallenge { challenge })),
        bytes().prop_map(|response| SaslFrame::Response(SaslResponse { response })),
        (sasl_code(), option::of(bytes()))
            .prop_map(|(code, additional_data)| SaslFrame::Outcome(SaslOutcome { code, additional_data })),
    ]
}

fn decimal128(first: u8, rest: [u8; 15]) -> Value {
    let first = if matches!(first, 0x30 | 0xb0) { 0 } else { first };
    let mut bytes = [first; 16];
    bytes[1..].copy_from_slice(&rest);
    Value::Decimal128(bytes)
}
