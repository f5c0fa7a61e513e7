//! The link to the broker's transaction coordinator, opened with the first transaction.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use peeklock_amqp::connection::{Connection, LinkId, Outgoing};
use peeklock_amqp::{
    Attach, Coordinator as CoordinatorTarget, DeliveryState, DeliveryTag, Encode, Message, Role,
    SenderSettleMode, Source, Symbol, Target, Value, condition,
};

use super::command::{Discharge, Reply};
use super::sessions::Sessions;
use crate::error::{Error, MalformedReason};
use crate::spares::{Declared, Spares};

const LOCAL_TRANSACTIONS: Symbol = Symbol::from_static("amqp:local-transactions");
/// The capability of a broker that compares the number of steps in a discharge with those that have arrived.
const STEP_COUNT_CAPABILITY: Symbol = Symbol::from_static("peeklock:step-count");
/// The annotation with the number of steps.
const STEP_COUNT: &str = "x-opt-peeklock-step-count";
/// The annotation that begins a new transaction under the id of the one that ends.
const RENEW: &str = "x-opt-peeklock-renew";

/// Descriptors of the two requests to a coordinator, AMQP 1.0 §4.5.
const DECLARE: u64 = 0x31;
const DISCHARGE: u64 = 0x32;

pub(super) struct Coordinator {
    pub(super) link: LinkId,
    next_number: u64,
    waiting: VecDeque<Waiting>,
    pending: BTreeMap<u64, Pending>,
    /// Whether the broker compares the number of steps.
    counts_steps: bool,
    spares: Arc<Spares>,
}

struct Waiting {
    number: u64,
    request: Bytes,
    /// The messages that must leave before the request.
    unsent: Unsent,
}

/// The caller that waits for an outcome.
enum Pending {
    Declare(Reply<Declared>),
    Discharge {
        reply: Reply<DeliveryState>,
        /// The id under which the next transaction begins.
        renewed: Option<Bytes>,
    },
}

/// Marks on the messages of a transaction that have not left yet.
#[derive(Clone, Default)]
pub(crate) struct Unsent(Arc<()>);

impl Unsent {
    /// Returns whether no other mark is left.
    fn is_empty(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl Coordinator {
    /// Attaches the link. Returns `None` if the connection has no room for it.
    pub(super) fn attach(
        serial: u64,
        spares: Arc<Spares>,
        sessions: &mut Sessions,
        connection: &mut Connection,
    ) -> Option<Self> {
        let session = sessions.pick(connection)?;
        let name = format!("coordinator-{serial}");
        let mut attach = Attach::new(name.clone(), 0, Role::Sender);
        attach.snd_settle_mode = SenderSettleMode::Unsettled;
        attach.source = Some(Source::with_address(name));
        let target = CoordinatorTarget { capabilities: vec![LOCAL_TRANSACTIONS] };
        attach.target = Some(Target::Coordinator(target));
        attach.desired_capabilities = vec![STEP_COUNT_CAPABILITY];
        attach.initial_delivery_count = Some(0);
        let link = sessions.attach(session, attach, connection)?;
        Some(Self {
            link,
            next_number: 0,
            waiting: VecDeque::new(),
            pending: BTreeMap::new(),
            counts_steps: false,
            spares,
        })
    }

    pub(super) fn handle_attached(&mut self, attach: &Attach) {
        self.counts_steps = attach.offered_capabilities.contains(&STEP_COUNT_CAPABILITY);
    }

    pub(super) fn declare(&mut self, reply: Reply<Declared>) {
        self.push(declare(), Unsent::default(), Pending::Declare(reply));
    }

    /// Ends a transaction. The next transaction begins in the same round trip.
    pub(super) fn discharge(&mut self, Discharge { id, fail, step_count, unsent, reply }: Discharge) {
        let renewed = (self.counts_steps && self.spares.has_room()).then(|| id.clone());
        let step_count = step_count.filter(|_| self.counts_steps);
        let request = discharge(&id, fail, step_count, renewed.is_some());
        self.push(request, unsent, Pending::Discharge { reply, renewed });
    }

    fn push(&mut self, request: Bytes, unsent: Unsent, pending: Pending) {
        // Removes requests whose caller has stopped waiting, so that they do not accumulate.
        self.pending.retain(|_, pending| !pending.is_abandoned());
        let number = self.next_number;
        self.next_number += 1;
        self.waiting.push_back(Waiting { number, request, unsent });
        self.pending.insert(number, pending);
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends the requests whose messages have left. A discharge must not overtake a step of its transaction.
    pub(super) fn pump(&mut self, connection: &mut Connection) {
        // Completes pending settlements, which are steps, too.
        connection.output();
        let is_blocked = connection.blocked_len() > 0;
        let mut index = 0;
        while let Some(Waiting { number, request, unsent }) = self.waiting.get(index) {
            if is_blocked || !unsent.is_empty() {
                index += 1;
                continue;
            }
            let Ok(tag) = DeliveryTag::new(&number.to_be_bytes()) else { return };
            let delivery = Outgoing { tag, message_format: 0, settled: false, state: None };
            if connection.send(self.link, &delivery, &[request]).is_err() {
                return;
            }
            self.waiting.remove(index);
        }
    }

    pub(super) fn handle_outcome(&mut self, tag: DeliveryTag, state: Option<DeliveryState>) {
        let Ok(number) = tag.as_slice().try_into() else { return };
        let Some(pending) = self.pending.remove(&u64::from_be_bytes(number)) else { return };
        let state = state.unwrap_or(DeliveryState::Rejected { error: None });
        match pending {
            Pending::Declare(reply) => drop(reply.send(self.declared(state))),
            Pending::Discharge { reply, renewed } => {
                if let Some(id) = renewed.filter(|_| has_ended(&state)) {
                    self.spares.put(Declared::now(id, self.counts_steps));
                }
                let _ = reply.send(Ok(state));
            }
        }
    }

    fn declared(&self, state: DeliveryState) -> Result<Declared, Error> {
        match state {
            DeliveryState::Declared { txn_id } => Ok(Declared::now(txn_id, self.counts_steps)),
            DeliveryState::Rejected { error } => Err(Error::not_committed(error.map(|error| *error))),
            _ => {
                let reason = MalformedReason::Missing("the transaction's id");
                Err(Error::malformed(&"$coordinator".into(), reason))
            }
        }
    }

    /// Handles the end of the link. The broker rolls back the transactions that were declared over it.
    pub(super) fn end(self, error: &Error) {
        self.spares.clear();
        for pending in self.pending.into_values() {
            match pending {
                Pending::Declare(reply) => drop(reply.send(Err(error.clone()))),
                Pending::Discharge { reply, .. } => drop(reply.send(Err(error.clone()))),
            }
        }
    }
}

impl Pending {
    fn is_abandoned(&self) -> bool {
        match self {
            Pending::Declare(reply) => reply.is_closed(),
            // A dropped transaction has no caller; its id is used again.
            Pending::Discharge { reply, renewed } => reply.is_closed() && renewed.is_none(),
        }
    }
}

fn declare() -> Bytes {
    Message::value(Value::described(DECLARE, Vec::<Value>::new())).to_bytes()
}

/// Returns whether a transaction has ended with this outcome of its discharge, committed or rolled back.
fn has_ended(state: &DeliveryState) -> bool {
    match state {
        DeliveryState::Accepted => true,
        DeliveryState::Rejected { error: Some(error) } => error.condition == condition::TRANSACTION_ROLLBACK,
        _ => false,
    }
}

fn discharge(id: &Bytes, fail: bool, step_count: Option<u32>, renew: bool) -> Bytes {
    let fields: Vec<Value> = vec![id.clone().into(), fail.into()];
    let mut message = Message::value(Value::described(DISCHARGE, fields));
    if let Some(count) = step_count {
        message.message_annotations.insert(STEP_COUNT, count);
    }
    if renew {
        message.message_annotations.insert(RENEW, true);
    }
    message.to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use peeklock_amqp::{Declare, Discharge, Sections};

    #[test]
    fn requests_have_the_form_of_the_coordinator() {
        let declare = declare();
        let sections = Sections::scan(&declare).unwrap();
        assert_eq!(sections.value().unwrap().decode_as::<Declare>(), Ok(Declare::default()));
        let id = Bytes::from_static(b"7");
        let discharge = discharge(&id, true, Some(3), true);
        let sections = Sections::scan(&discharge).unwrap();
        let expected = Discharge { txn_id: id, fail: Some(true) };
        assert_eq!(sections.value().unwrap().decode_as::<Discharge>(), Ok(expected));
        let count = sections.message_annotations().unwrap().get(STEP_COUNT).unwrap().unwrap();
        assert_eq!(count.as_i64(), Some(3));
        let renew = sections.message_annotations().unwrap().get(RENEW).unwrap().unwrap();
        assert_eq!(renew.decode_as(), Ok(true));
    }
}
