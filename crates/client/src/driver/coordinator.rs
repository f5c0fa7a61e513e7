//! The link to the broker's transaction coordinator, opened with the first transaction.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use peeklock_amqp::connection::{Connection, LinkId, Outgoing};
use peeklock_amqp::{
    Attach, Coordinator as CoordinatorTarget, DeliveryState, DeliveryTag, Role, SenderSettleMode, Source,
    Symbol, Target,
};

use super::command::Reply;
use crate::error::Error;

const LOCAL_TRANSACTIONS: Symbol = Symbol::from_static("amqp:local-transactions");

pub(super) struct Coordinator {
    pub(super) link: LinkId,
    next_number: u64,
    waiting: VecDeque<(u64, Bytes)>,
    pending: BTreeMap<u64, Reply<DeliveryState>>,
}

impl Coordinator {
    /// Attaches the link on its own session. Returns `None` if the connection has no free session.
    pub(super) fn attach(serial: u64, connection: &mut Connection) -> Option<Self> {
        let session = connection.begin()?;
        let name = format!("coordinator-{serial}");
        let mut attach = Attach::new(name.clone(), 0, Role::Sender);
        attach.snd_settle_mode = SenderSettleMode::Unsettled;
        attach.source = Some(Source::with_address(name));
        let target = CoordinatorTarget { capabilities: vec![LOCAL_TRANSACTIONS] };
        attach.target = Some(Target::Coordinator(target));
        attach.initial_delivery_count = Some(0);
        let Some(link) = connection.attach(session, attach) else {
            connection.end(session, None);
            return None;
        };
        Some(Self { link, next_number: 0, waiting: VecDeque::new(), pending: BTreeMap::new() })
    }

    pub(super) fn push(&mut self, request: Bytes, reply: Reply<DeliveryState>) {
        // Removes requests whose caller has stopped waiting, so that they do not accumulate.
        self.pending.retain(|_, reply| !reply.is_closed());
        let number = self.next_number;
        self.next_number += 1;
        self.waiting.push_back((number, request));
        self.pending.insert(number, reply);
    }

    pub(super) fn pump(&mut self, connection: &mut Connection) {
        while let Some((number, request)) = self.waiting.front() {
            let Ok(tag) = DeliveryTag::new(&number.to_be_bytes()) else { return };
            let delivery = Outgoing { tag, message_format: 0, settled: false, state: None };
            if connection.send(self.link, &delivery, &[request]).is_err() {
                return;
            }
            self.waiting.pop_front();
        }
    }

    pub(super) fn handle_outcome(&mut self, tag: DeliveryTag, state: Option<DeliveryState>) {
        let Ok(number) = tag.as_slice().try_into() else { return };
        let Some(reply) = self.pending.remove(&u64::from_be_bytes(number)) else { return };
        let _ = reply.send(Ok(state.unwrap_or(DeliveryState::Rejected { error: None })));
    }

    pub(super) fn end(self, error: &Error) {
        for reply in self.pending.into_values() {
            let _ = reply.send(Err(error.clone()));
        }
    }
}
