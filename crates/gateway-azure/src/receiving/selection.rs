//! Rejects receiver options of JMS clients that Service Bus does not support over plain AMQP. If they were ignored, the
//! client would receive messages that it has not selected.

use peeklock_amqp::{Attach, Role, Value};

use crate::error::Refusal;
use crate::hub::SELECTOR;

/// The numeric form of the selector's descriptor.
const SELECTOR_CODE: u64 = 0x0000_468C_0000_0004;
/// The mode of a link that browses messages without removing them.
const COPY: &str = "copy";

pub(crate) fn check(attach: &Attach) -> Result<(), Refusal> {
    let Some(source) = attach.source.as_ref().filter(|_| attach.role == Role::Receiver) else {
        return Ok(());
    };
    if source.distribution_mode.as_ref().is_some_and(|mode| mode.as_str() == COPY) {
        let text =
            "a link cannot browse messages; peek at them with an SDK of Service Bus or with `peeklock peek`";
        return Err(Refusal::not_implemented(text));
    }
    let mut filters = source.filter.iter().flat_map(|filter| filter.iter());
    if filters.any(|(key, value)| is_selector(key.as_str(), value)) {
        let text = "a link cannot select messages; send to a topic, and give a subscription a rule that selects them";
        return Err(Refusal::not_implemented(text));
    }
    Ok(())
}

fn is_selector(key: &str, value: &Value) -> bool {
    let Value::Described(described) = value else { return key == SELECTOR };
    match &described.descriptor {
        Value::Symbol(name) => name.as_str() == SELECTOR,
        Value::Ulong(code) => *code == SELECTOR_CODE,
        _ => key == SELECTOR,
    }
}
