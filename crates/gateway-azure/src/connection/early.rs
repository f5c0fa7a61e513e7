//! Identifies peers that lose an outcome that arrives too early.
//!
//! Microsoft.Azure.Amqp, the library below the .NET SDKs (2.4 to 2.7.1, and the preview of 3.0), marks a delivery as
//! sent and *then* checks once more whether it is settled. If it is, the library treats it as one that was sent settled
//! and writes *accepted* over the outcome. An outcome that is processed between these two steps, some 100 µs, loses its
//! content: *declared* becomes *accepted*, and the program gets an `InvalidCastException` in place of its transaction;
//! *rejected* becomes *accepted*, and the program treats a rejected message as stored. Only a broker on the same
//! machine answers so fast.
//!
//! The versions in use cannot be repaired, so the broker waits: it sends such a peer an outcome other than *accepted* 1
//! to 2 ms after the last frame of its delivery. *Accepted* over *accepted* does no harm and is never delayed. Nothing
//! else is delayed either: the SDKs send requests to `$cbs` and `$management` settled, and outcomes of received
//! messages are not affected.

use std::time::Duration;

use peeklock_amqp::{Open, Value};

/// Delays an outcome by 1 to 2 ms: the AMQP engine counts whole milliseconds.
pub(crate) const OUTCOME_DELAY: Duration = Duration::from_millis(2);

/// Returns whether the peer identifies as this library.
pub(crate) fn loses_early_outcomes(open: &Open) -> bool {
    let property = |key: &str| {
        let value = open.properties.as_ref().and_then(|properties| properties.get(key));
        value.and_then(Value::as_str).unwrap_or_default()
    };
    property("framework").starts_with(".NET")
        || property("user-agent").starts_with("azsdk-net-")
        || property("product").starts_with("Microsoft.Azure.")
}

#[cfg(test)]
mod tests {
    use peeklock_amqp::Fields;

    use super::*;

    fn is_known(properties: &[(&'static str, &'static str)]) -> bool {
        let fields = properties.iter().fold(Fields::new(), |fields, (key, value)| fields.with(*key, *value));
        loses_early_outcomes(&Open { properties: Some(fields), ..Open::new("peer") })
    }

    #[test]
    fn the_library_is_identified_by_its_open_properties() {
        // The first is of track 2, the second of track 1.
        let user_agent = "azsdk-net-Messaging.ServiceBus/7.21.0-beta.1 (.NET 8.0.11)";
        assert!(is_known(&[("product", "Messaging.ServiceBus"), ("user-agent", user_agent)]));
        assert!(is_known(&[
            ("product", "Microsoft.Azure.EventHubs"),
            ("framework", ".NETStandard,Version=v2.0")
        ]));
        assert!(is_known(&[("framework", ".NETFramework,Version=v4.8")]));
        assert!(!is_known(&[("product", "azsdk-python-servicebus"), ("framework", "Python/3.12")]));
        assert!(!is_known(&[("product", "MSJSClient"), ("user-agent", "azsdk-js-azureservicebus/7.9.5")]));
        assert!(!is_known(&[]) && !loses_early_outcomes(&Open::new("peer")));
    }
}
