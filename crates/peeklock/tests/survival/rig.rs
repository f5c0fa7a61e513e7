//! A broker in memory, and a dialler whose connections can be cut.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;
use peeklock::{Backoff, Client, Dial, DialError, Timestamp};
use peeklock_access::{Access, Policy, Right};
use peeklock_broker::{Broker, Clock, Running};
use peeklock_client::{Admin, Options, Target};
use peeklock_gateway_azure::Gateway;
use peeklock_journal::MemoryJournal;
use peeklock_types::{EntityName, QueueSettings};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::watch;

use crate::stranger::Stranger;

pub(crate) struct Rig {
    pub(crate) broker: Broker,
    pub(crate) network: Arc<Network>,
    clock: Clock,
    _running: Running,
}

/// Opens connections to the broker, or refuses them.
pub(crate) struct Network {
    gateway: Gateway,
    target: Target,
    stop: watch::Sender<bool>,
    is_down: AtomicBool,
    is_stranger: AtomicBool,
    dial_count: AtomicU32,
    wires: Mutex<Vec<Arc<Wire>>>,
    /// Draws the number of bytes after which a connection is cut.
    lengths: Mutex<Option<fastrand::Rng>>,
}

/// One connection, which breaks after a number of bytes in both directions together.
pub(crate) struct Wire {
    state: Mutex<WireState>,
}

struct WireState {
    bytes_left: usize,
    /// Whether nothing arrives at the client any more.
    is_mute: bool,
    wakers: Vec<Waker>,
}

impl Wire {
    fn cut(&self) {
        let mut state = self.state.lock().unwrap();
        state.bytes_left = 0;
        state.wakers.drain(..).for_each(Waker::wake);
    }

    /// Returns how many of `count` bytes still pass.
    fn pass(&self, count: usize, cx: &Context<'_>) -> io::Result<usize> {
        let mut state = self.state.lock().unwrap();
        if state.bytes_left == 0 {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        Ok(count.min(state.bytes_left))
    }

    fn is_mute(&self) -> bool {
        self.state.lock().unwrap().is_mute
    }

    fn spend(&self, count: usize) {
        let mut state = self.state.lock().unwrap();
        state.bytes_left = state.bytes_left.saturating_sub(count);
        if state.bytes_left == 0 {
            state.wakers.drain(..).for_each(Waker::wake);
        }
    }
}

impl Rig {
    pub(crate) async fn start() -> Self {
        let (journal, clock) = (MemoryJournal::new(), Clock::start());
        let describe = peeklock_message::describe;
        let (broker, running, _) = Broker::open_at(&journal, clock.clone(), describe).await.unwrap();
        let policies = vec![Policy::with_one_key("all", "secret", &[Right::Manage])];
        let access = Access::open(None, policies).unwrap();
        let network = Arc::new(Network {
            gateway: Gateway::new(broker.clone(), access),
            target: Target::parse("amqp://all:secret@memory").unwrap(),
            stop: watch::channel(false).0,
            is_down: AtomicBool::new(false),
            is_stranger: AtomicBool::new(false),
            dial_count: AtomicU32::new(0),
            wires: Mutex::default(),
            lengths: Mutex::default(),
        });
        Rig { broker, network, clock, _running: running }
    }

    pub(crate) async fn with_queue(name: &str, settings: QueueSettings) -> Self {
        let rig = Self::start().await;
        rig.queue(name, settings).await;
        rig
    }

    pub(crate) async fn queue(&self, name: &str, settings: QueueSettings) {
        self.broker.create_queue(EntityName::parse(name).unwrap(), settings).await.unwrap();
    }

    /// Returns the broker's time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) async fn client(&self) -> Client {
        self.client_with(Backoff::default()).await
    }

    pub(crate) async fn client_with(&self, backoff: Backoff) -> Client {
        let dialler = Dialler(Arc::clone(&self.network));
        Client::over(Arc::new(dialler)).retry(backoff).connect().await.unwrap()
    }
}

impl Network {
    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        self.wires.lock().unwrap().drain(..).for_each(|wire| wire.cut());
    }

    /// Cuts the open connections after so many bytes more.
    pub(crate) fn cut_after(&self, bytes: usize) {
        self.wires.lock().unwrap().iter().for_each(|wire| wire.state.lock().unwrap().bytes_left = bytes);
    }

    /// Offers none of Peeklock's capabilities on further connections.
    pub(crate) fn set_stranger(&self) {
        self.is_stranger.store(true, Ordering::Relaxed);
    }

    /// Lets nothing arrive at the clients any more, until the connections are cut.
    pub(crate) fn mute(&self) {
        self.wires.lock().unwrap().iter().for_each(|wire| wire.state.lock().unwrap().is_mute = true);
    }

    /// Refuses all further connections, or accepts them again.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }

    pub(crate) fn dial_count(&self) -> u32 {
        self.dial_count.load(Ordering::Relaxed)
    }

    /// Cuts each further connection after a random number of bytes.
    pub(crate) fn cut_at_random(&self, seed: u64) {
        *self.lengths.lock().unwrap() = Some(fastrand::Rng::with_seed(seed));
    }

    /// Stops to cut.
    pub(crate) fn calm(&self) {
        *self.lengths.lock().unwrap() = None;
    }

    fn connect(self: &Arc<Self>) -> Cable {
        let (near, far) = tokio::io::duplex(1 << 20);
        let (network, stopping) = (Arc::clone(self), self.stop.subscribe());
        tokio::spawn(async move { network.gateway.serve(far, None, stopping).await });
        let bytes_left = match &mut *self.lengths.lock().unwrap() {
            // A connection opens with about 700 bytes, so some are cut before that.
            Some(rng) => rng.usize(200..6_000),
            None => usize::MAX,
        };
        let wire = Arc::new(Wire {
            state: Mutex::new(WireState { bytes_left, is_mute: false, wakers: Vec::new() }),
        });
        self.wires.lock().unwrap().push(Arc::clone(&wire));
        Cable { stream: near, wire }
    }
}

/// The dialler of the tests.
struct Dialler(Arc<Network>);

impl Dial for Dialler {
    fn dial(&self) -> BoxFuture<'_, Result<peeklock_client::Client, DialError>> {
        self.0.dial_count.fetch_add(1, Ordering::Relaxed);
        if self.0.is_down.load(Ordering::Relaxed) {
            let refused = DialError::Refused { address: self.address() };
            return Box::pin(async move { Err(refused) });
        }
        let cable = self.0.connect();
        match self.0.is_stranger.load(Ordering::Relaxed) {
            true => Box::pin(peeklock_client::Client::connect_over(Stranger(cable), &self.0.target, "test")),
            false => Box::pin(peeklock_client::Client::connect_over(cable, &self.0.target, "test")),
        }
    }

    fn admin(&self) -> Admin {
        Admin::new(&self.0.target, &Options::default())
    }

    fn address(&self) -> String {
        "memory".to_owned()
    }
}

/// The client's end of a wire.
struct Cable {
    stream: DuplexStream,
    wire: Arc<Wire>,
}

impl AsyncRead for Cable {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let cable = self.get_mut();
        let room = cable.wire.pass(into.remaining(), cx)?;
        if cable.wire.is_mute() {
            return Poll::Pending;
        }
        let mut bytes = vec![0; room];
        let mut part = ReadBuf::new(&mut bytes);
        let read = Pin::new(&mut cable.stream).poll_read(cx, &mut part);
        cable.wire.spend(part.filled().len());
        into.put_slice(part.filled());
        read
    }
}

impl AsyncWrite for Cable {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let cable = self.get_mut();
        let room = cable.wire.pass(bytes.len(), cx)?;
        let written = Pin::new(&mut cable.stream).poll_write(cx, &bytes[..room]);
        if let Poll::Ready(Ok(count)) = &written {
            cable.wire.spend(*count);
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// Waits, so that tasks make progress on paused time.
pub(crate) async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}
