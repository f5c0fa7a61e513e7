//! Checks at the start of a processor whether its settings fit the queue.

use std::time::Duration;

use crate::Client;
use crate::error::{Error, Kind};
use crate::retry::Retry;

/// How long the administration may take. It is only asked for better errors.
const ADMIN_TIME_MAX: Duration = Duration::from_secs(2);

/// The settings of a queue or subscription that limit a processor.
#[derive(Clone, Copy, Debug)]
struct Limits {
    max_delivery_count: Option<u32>,
    has_classes: bool,
}

/// Checks the settings of a processor, if the key of the client has the Manage right and the broker has the JSON API. Otherwise nothing is
/// checked.
pub(crate) async fn check(client: &Client, entity: &str, retry: Retry, prefetch: u32) -> Result<(), Error> {
    let asked = tokio::time::timeout(ADMIN_TIME_MAX, limits(client, entity)).await;
    match asked {
        Ok(Some(limits)) => limits.check(entity, retry, prefetch),
        Ok(None) | Err(_) => Ok(()),
    }
}

async fn limits(client: &Client, entity: &str) -> Option<Limits> {
    let admin = client.admin();
    if entity.contains('$') {
        return None;
    }
    let parts: Vec<_> = entity.split('/').collect();
    match parts.as_slice() {
        [topic, word, name] if word.eq_ignore_ascii_case("subscriptions") => {
            let found = admin.subscription(topic, name).await.ok()?;
            let has_classes = found.runtime.is_some();
            Some(Limits { max_delivery_count: found.spec.max_delivery_count, has_classes })
        }
        _ => {
            let found = admin.queue(entity).await.ok()?;
            let has_classes = found.runtime.is_some();
            Some(Limits { max_delivery_count: found.spec.max_delivery_count, has_classes })
        }
    }
}

impl Limits {
    fn check(self, entity: &str, retry: Retry, prefetch: u32) -> Result<(), Error> {
        let attempts = retry.attempts_max();
        if let Some(max) = self.max_delivery_count.filter(|max| attempts > *max) {
            let text = format!(
                "The retry policy has {attempts} attempts, but queue \"{entity}\" dead-letters a message after {max} deliveries. Use fewer delayed retries, or raise the limit with \"peeklock queue update {entity} --max-delivery {attempts}\"."
            );
            return Err(Error::new(Kind::Invalid, "E-RETRY-01", text));
        }
        if self.has_classes && prefetch > 0 { Err(refuse_prefetch(entity, prefetch)) } else { Ok(()) }
    }
}

pub(super) fn refuse_prefetch(entity: &str, prefetch: u32) -> Error {
    let text = format!(
        "Prefetch {prefetch} was refused for priority source \"{entity}\": buffered low messages would run before new high ones. Remove prefetch."
    );
    Error::new(Kind::Invalid, "E-PRIO-02", text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Delayed;

    #[test]
    fn a_ladder_that_does_not_fit_is_refused() {
        let limits = Limits { max_delivery_count: Some(10), has_classes: false };
        assert!(limits.check("q", Retry::default(), 5).is_ok());
        let long = Retry::never().then(Delayed::fixed(Duration::from_secs(1), 10));
        let error = limits.check("orders", long, 0).unwrap_err();
        assert_eq!(error.code(), "E-RETRY-01");
        assert!(
            error.to_string().contains("11 attempts") && error.to_string().contains("--max-delivery 11"),
            "{error}"
        );
    }

    #[test]
    fn prefetch_on_a_queue_with_classes_is_refused() {
        let limits = Limits { max_delivery_count: None, has_classes: true };
        assert!(limits.check("jobs", Retry::default(), 0).is_ok());
        let error = limits.check("jobs", Retry::default(), 20).unwrap_err();
        assert_eq!(
            error.to_string(),
            "E-PRIO-02 Prefetch 20 was refused for priority source \"jobs\": buffered low messages would run before new high ones. Remove prefetch."
        );
    }
}
