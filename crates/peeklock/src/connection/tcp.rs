//! Dials brokers over TCP.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use peeklock_client::{Admin, Client, ConnectError, Options, Target, TargetError};

use super::{Dial, DialError};

/// Dials equal brokers in turn. It starts with the one that answered last.
pub(crate) struct Tcp {
    /// It is never empty.
    targets: Vec<Target>,
    last: AtomicUsize,
    options: Options,
}

impl Tcp {
    pub(crate) fn new(target: &str, options: Options) -> Result<Self, TargetError> {
        let targets = Target::parse_all(target)?;
        Ok(Tcp { targets, last: AtomicUsize::new(0), options })
    }

    fn current(&self) -> &Target {
        &self.targets[self.last.load(Ordering::Relaxed) % self.targets.len()]
    }

    async fn dial_in_turn(&self) -> Result<Client, DialError> {
        let first = self.last.load(Ordering::Relaxed);
        let mut failure = None;
        for number in (first..first + self.targets.len()).map(|number| number % self.targets.len()) {
            match Client::connect_with(&self.targets[number], &self.options).await {
                Ok(client) => {
                    self.last.store(number, Ordering::Relaxed);
                    return Ok(client);
                }
                // All brokers have the same keys.
                Err(error @ ConnectError::Credentials { .. }) => return Err(error),
                // An error that may pass is more important than one that stays.
                Err(error) => {
                    if failure.is_none() || !is_permanent(&error) {
                        failure = Some(error);
                    }
                }
            }
        }
        Err(failure.unwrap_or(ConnectError::Target(TargetError::Form)))
    }
}

/// Returns whether another attempt to connect would fail in the same way.
pub(crate) fn is_permanent(error: &ConnectError) -> bool {
    matches!(
        error,
        ConnectError::Target(_)
            | ConnectError::Credentials { .. }
            | ConnectError::Certificates { .. }
            | ConnectError::Tls { .. }
    )
}

impl Dial for Tcp {
    fn dial(&self) -> BoxFuture<'_, Result<Client, DialError>> {
        Box::pin(self.dial_in_turn())
    }

    fn admin(&self) -> Admin {
        Admin::new(self.current(), &self.options)
    }

    fn address(&self) -> String {
        let scheme = if self.current().uses_tls() { "amqps" } else { "amqp" };
        let addresses: Vec<_> = self.targets.iter().map(Target::address).collect();
        format!("{scheme}://{}", addresses.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_brokers_are_dialled_before_the_error() {
        // Nothing listens at these ports.
        let tcp = Tcp::new("amqp://u:s@127.0.0.1:1,127.0.0.1:2", Options::default()).unwrap();
        assert_eq!(tcp.address(), "amqp://127.0.0.1:1,127.0.0.1:2");
        let error = tcp.dial().await.err().unwrap();
        assert!(matches!(&error, ConnectError::Refused { address } if address == "127.0.0.1:2"), "{error}");
    }

    #[test]
    fn errors_of_credentials_and_certificates_stay() {
        let (address, reason) = ("h:1".to_owned(), "unknown issuer".to_owned());
        assert!(is_permanent(&ConnectError::Tls { address: address.clone(), reason }));
        assert!(is_permanent(&ConnectError::Credentials {
            address: address.clone(),
            name: "app".to_owned()
        }));
        assert!(!is_permanent(&ConnectError::Refused { address }));
    }
}
