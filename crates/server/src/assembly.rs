//! The parts of a running broker: its shards, its gateway and its routes, and the tasks of connections and listeners.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail};
use futures_util::future::select_all;
use hyper::http::uri::Scheme;
use peeklock_gateway_azure::Gateway;
use peeklock_http::HttpState;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::listen::{self, Bound, Door, Edge, Protocol, Routes, Visit};
use crate::namespace::{Opened, Shards};
use crate::storage::Accounts;
use crate::tls::Source;
use crate::{AmqpLimits, DRAIN_TIME_MAX, HttpLimits, ListenLimits, WebPages};

/// The limits of connections and requests, and the web pages that may send some.
#[derive(Default)]
pub(crate) struct Limits {
    pub(crate) listen: ListenLimits,
    pub(crate) amqp: AmqpLimits,
    pub(crate) http: HttpLimits,
    pub(crate) web_pages: WebPages,
}

/// A running broker. It serves the listeners and the byte streams that it is given.
///
/// When it is dropped, its tasks end, and its journals are closed after a last write. [`Assembly::stop`] also lets connections finish.
pub(crate) struct Assembly {
    // The tasks are dropped before the shards, whose journals end with them.
    tasks: Mutex<JoinSet<()>>,
    edge: Arc<Edge>,
    shards: Vec<Shards>,
    stop: watch::Sender<bool>,
}

impl Assembly {
    /// Puts the parts together. The first namespace serves the clients that name none.
    pub(crate) fn new(
        first: Opened,
        others: Vec<Opened>,
        accounts: &Accounts,
        limits: Limits,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        let Limits { listen, amqp, http, web_pages } = limits;
        let spaces = || std::iter::once(&first).chain(&others);
        let (blobs, queues) = accounts.routes(spaces(), http);
        let state = HttpState::new(spaces().map(Opened::for_http).collect(), http);
        let routes = Routes { management: peeklock_http::router(state), blobs, queues };
        let (first, first_shards) = first.split();
        let (others, mut shards): (Vec<_>, Vec<_>) = others.into_iter().map(Opened::split).unzip();
        shards.push(first_shards);
        let gateway = Gateway::with_namespaces(first, others).with_limits(amqp);
        let edge = Edge::new(gateway, routes, tls, listen, web_pages);
        Assembly { tasks: Mutex::default(), edge, shards, stop: watch::channel(false).0 }
    }

    /// Serves these listeners until the broker stops.
    pub(crate) fn add_listeners(&self, bound: Bound) {
        let mut tasks = self.tasks();
        for (listener, door) in bound.listeners {
            tasks.spawn(listen::serve(listener, door, Arc::clone(&self.edge), self.stop.subscribe()));
        }
    }

    /// Replaces the certificate when it is due, until the broker stops.
    pub(crate) fn watch_certificate(&self, source: Arc<Source>) {
        self.tasks().spawn(source.watch(self.stop.subscribe()));
    }

    /// Serves one connection of a client in this process.
    pub(crate) fn add_stream<S>(&self, stream: S, protocol: Protocol)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let visit = Visit { door: Door::Any, is_loopback: true, from, has_seat: true };
        let served = listen::speak(
            protocol,
            Scheme::HTTP,
            stream,
            visit,
            Arc::clone(&self.edge),
            self.stop.subscribe(),
        );
        let mut tasks = self.tasks();
        // Connections that have ended are forgotten here, so that their number stays small.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            if let Err(error) = served.await {
                tracing::debug!("connection in the process ended: {error}");
            }
        });
    }

    /// Returns whether all shards run.
    pub(crate) fn is_running(&self) -> bool {
        self.shards.iter().all(Shards::are_running)
    }

    /// Waits until a part of the broker fails, and returns the reason.
    pub(crate) async fn failed(&mut self) -> String {
        let (ended, ..) = select_all(self.shards.iter_mut().map(|shards| Box::pin(shards.stopped()))).await;
        match ended {
            Ok(()) => "every part of the broker has stopped".to_owned(),
            Err(reason) => reason,
        }
    }

    /// Stops accepting connections, closes the open ones, and returns when every accepted message is durable.
    pub(crate) async fn stop(self) -> Result<()> {
        let Assembly { tasks, edge, mut shards, stop } = self;
        let mut tasks = tasks.into_inner().unwrap_or_else(PoisonError::into_inner);
        let _ = stop.send(true);
        let drained = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIME_MAX, drained).await.is_err() {
            tasks.abort_all();
            while tasks.join_next().await.is_some() {}
        }
        // The shards stop when nobody can send them a batch.
        drop(edge);
        for shards in &mut shards {
            if let Err(reason) = shards.stopped().await {
                bail!(reason);
            }
        }
        Ok(())
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
