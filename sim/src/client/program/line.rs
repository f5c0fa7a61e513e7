//! The simulated network as the transport of one program.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use peeklock::{Backoff, Client, Dial, DialError};
use peeklock_client::{Admin, Connecting, Connector, Target};

use crate::client::{Party, World, broker_address};
use crate::network::Dialled;
use crate::pipe::{Endpoint, Wire};

/// A connection opens with approximately this many bytes, so some are cut before they are open.
const CUT_BYTES_MIN: usize = 200;

pub(super) struct Line {
    world: Arc<World>,
    target: Target,
    container: String,
    state: Mutex<State>,
}

struct State {
    rng: Rng,
    wires: Vec<Arc<Wire>>,
    is_dead: bool,
}

impl Line {
    pub(super) fn new(party: &mut Party) -> Arc<Self> {
        party.connection_count += 1;
        let container = format!("{}-{}", party.name, party.connection_count);
        let state = State { rng: party.rng.fork(), wires: Vec::new(), is_dead: false };
        let (world, target) = (Arc::clone(&party.world), broker_address());
        Arc::new(Line { world, target, container, state: Mutex::new(state) })
    }

    /// Connects a client of the SDK. Returns `None` if the broker could not be reached.
    pub(super) async fn connect(self: &Arc<Self>, backoff: Backoff) -> Option<Client> {
        let dial: Arc<dyn Dial> = Arc::<Line>::clone(self);
        Client::over(dial).retry(backoff).connect().await.ok()
    }

    /// Cuts the program off, as if its process had died.
    pub(super) fn kill(&self) {
        let mut state = self.state();
        state.is_dead = true;
        state.wires.drain(..).for_each(|wire| wire.cut());
    }

    fn open(&self) -> Result<Endpoint, DialError> {
        let refused = || DialError::Refused { address: self.address() };
        let mut state = self.state();
        if state.is_dead {
            return Err(refused());
        }
        let Dialled { endpoint, wire, .. } = self.world.network.dial().ok_or_else(refused)?;
        let cut = self.world.scenario.programs.as_ref().and_then(|programs| programs.cut_within_bytes);
        if let Some(bytes_max) = cut.filter(|_| !self.world.is_over()) {
            wire.cut_after(state.rng.usize(CUT_BYTES_MIN..=bytes_max));
        }
        state.wires.push(wire);
        Ok(endpoint)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dial for Line {
    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<peeklock_client::Client, DialError>> + Send + '_>> {
        Box::pin(async move {
            let endpoint = self.open()?;
            peeklock_client::Client::connect_over(endpoint, &self.target, &self.container).await
        })
    }

    fn admin(&self) -> Admin {
        Admin::over(&self.target, Arc::new(NoHttp))
    }

    fn address(&self) -> String {
        self.target.address()
    }
}

/// The world has no HTTP, so the SDK works without the administration.
struct NoHttp;

impl Connector for NoHttp {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async { Err(DialError::Refused { address: "http".to_owned() }) })
    }
}
