//! Connects clients to the broker in the same process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use peeklock_client::{Admin, ByteStream, Client, Connecting, Connector};

use super::shared::Shared;
use crate::connection::{Dial, DialError};

/// A stream after [`Wrap::wrap`].
pub(crate) type Wrapped = Box<dyn ByteStream>;

/// Changes the streams of AMQP connections, for tests with faults.
pub(crate) trait Wrap: Send + Sync + 'static {
    /// Returns the stream that the client uses, or the reason why there is none.
    fn wrap(&self, stream: Wrapped) -> std::io::Result<Wrapped>;
}

/// Opens connections to a broker in this process, and keeps it running.
pub(crate) struct EmbeddedDial {
    shared: Arc<Shared>,
    wrap: Option<Arc<dyn Wrap>>,
}

impl EmbeddedDial {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        EmbeddedDial { shared, wrap: None }
    }

    #[cfg(feature = "testing")]
    pub(crate) fn wrapped(self, wrap: Arc<dyn Wrap>) -> Self {
        EmbeddedDial { wrap: Some(wrap), ..self }
    }

    async fn connect(&self) -> Result<Client, DialError> {
        let (target, name) = (self.shared.target(), name());
        let stream = self.shared.amqp().await.map_err(|reason| self.unreachable(reason))?;
        let Some(wrap) = &self.wrap else {
            return Client::connect_over(stream, target, &name).await;
        };
        let stream = wrap.wrap(Box::new(stream)).map_err(|reason| self.unreachable(reason))?;
        Client::connect_over(stream, target, &name).await
    }

    fn unreachable(&self, source: std::io::Error) -> DialError {
        DialError::Unreachable { address: self.address(), source }
    }
}

impl Dial for EmbeddedDial {
    fn dial(&self) -> BoxFuture<'_, Result<Client, DialError>> {
        Box::pin(self.connect())
    }

    fn admin(&self) -> Admin {
        Admin::over(self.shared.target(), Arc::new(HttpPipes(Arc::clone(&self.shared))))
    }

    fn address(&self) -> String {
        self.shared.place().to_string()
    }
}

/// Opens streams for HTTP.
struct HttpPipes(Arc<Shared>);

impl Connector for HttpPipes {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let stream = self.0.http().await;
            let stream = stream
                .map_err(|source| DialError::Unreachable { address: self.0.place().to_string(), source })?;
            Ok(Box::new(stream) as Wrapped)
        })
    }
}

/// Returns a name that identifies a connection in the broker's log.
fn name() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(1);
    format!("embedded-{}", COUNTER.fetch_add(1, Ordering::Relaxed))
}
