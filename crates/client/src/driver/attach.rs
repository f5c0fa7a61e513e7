//! Builds the attach frames of links.

use peeklock_amqp::{
    Attach, Described, ReceiverSettleMode, Role, SenderSettleMode, Source, Symbol, Target, Value,
};

use super::command::{LinkKind, LinkRequest};
use crate::clock::BROKER_TIME;
use crate::extensions;
use crate::receiver::ReceiveMode;

const OWNER_LEVEL: &str = "com.microsoft:epoch";
const SELECTOR: &str = "apache.org:selector-filter:string";

/// Returns the attach frame for a link. `serial` makes its name unique on the connection.
pub(super) fn attach_for(request: &LinkRequest, serial: u64) -> Attach {
    let entity = request.entity.to_string();
    let name = format!("{entity}-{serial}");
    match &request.kind {
        LinkKind::Send { producer, .. } => {
            let mut attach = Attach::new(name.clone(), 0, Role::Sender);
            attach.snd_settle_mode = SenderSettleMode::Unsettled;
            attach.source = Some(Source::with_address(name));
            attach.target = Some(Target::with_address(entity));
            attach.initial_delivery_count = Some(0);
            if let Some(producer) = producer {
                producer.fill(&mut attach);
            }
            attach
        }
        LinkKind::Receive { mode, session, selector, owner_level, .. } => {
            let mut attach = Attach::new(name.clone(), 0, Role::Receiver);
            (attach.snd_settle_mode, attach.rcv_settle_mode) = match mode {
                ReceiveMode::PeekLock => (SenderSettleMode::Unsettled, ReceiverSettleMode::Second),
                ReceiveMode::ReceiveAndDelete => (SenderSettleMode::Settled, ReceiverSettleMode::First),
            };
            attach.source = Some(Source::with_address(entity));
            attach.target = Some(Target::with_address(name));
            attach.desired_capabilities = vec![Symbol::from_static(BROKER_TIME)];
            attach.desired_capabilities.extend(extensions::DESIRED);
            session.fill(&mut attach);
            if let Some(selector) = selector {
                let filter = Value::Described(Box::new(Described {
                    descriptor: Value::Symbol(SELECTOR.into()),
                    value: selector.clone().into(),
                }));
                let source = attach.source.get_or_insert_default();
                source.filter.get_or_insert_default().insert(SELECTOR, filter);
            }
            if let Some(level) = owner_level {
                attach.properties.get_or_insert_default().insert(OWNER_LEVEL, Value::Long(*level));
            }
            attach
        }
    }
}
