//! The simulated network: listeners, connections and their faults.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::mpsc;

use crate::log::{Event, Log};
use crate::pipe::{Endpoint, Wire};
use crate::scenario::{NetworkFaults, Weather};

/// A cheap handle to the one network.
#[derive(Clone)]
pub(crate) struct Network {
    log: Log,
    state: Arc<Mutex<State>>,
}

struct State {
    rng: Rng,
    faults: NetworkFaults,
    weather: Weather,
    listener: Option<Listener>,
    wires: Vec<(u32, Arc<Wire>)>,
    connection_count: u32,
}

struct Listener {
    run: u32,
    accepted: mpsc::UnboundedSender<Endpoint>,
}

/// A new connection, and the number of the run that accepted it.
pub(crate) struct Dialled {
    pub(crate) endpoint: Endpoint,
    pub(crate) wire: Arc<Wire>,
    pub(crate) run: u32,
    pub(crate) connection: u32,
}

impl Network {
    pub(crate) fn new(log: Log, faults: NetworkFaults, weather: Weather, rng: Rng) -> Self {
        let state = State { rng, faults, weather, listener: None, wires: Vec::new(), connection_count: 0 };
        Network { log, state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn listen(&self, run: u32) -> mpsc::UnboundedReceiver<Endpoint> {
        let (accepted, incoming) = mpsc::unbounded_channel();
        self.state().listener = Some(Listener { run, accepted });
        incoming
    }

    /// The run accepts no more connections.
    pub(crate) fn unlisten(&self) {
        self.state().listener = None;
    }

    /// Cuts all connections of a run whose process is gone, as its machine does.
    pub(crate) fn cut(&self, run: u32) {
        self.take_wires(run).iter().for_each(|wire| wire.cut());
    }

    /// Silences all connections of a run whose machine is gone. When the machine is back, they are unknown to it, and
    /// are cut.
    pub(crate) fn silence(&self, run: u32, until_back: Duration) {
        let wires = self.take_wires(run);
        for wire in &wires {
            wire.silence(0);
            wire.silence(1);
        }
        tokio::spawn(async move {
            tokio::time::sleep(until_back).await;
            wires.iter().for_each(|wire| wire.cut());
        });
    }

    fn take_wires(&self, run: u32) -> Vec<Arc<Wire>> {
        let mut state = self.state();
        let (gone, left) = std::mem::take(&mut state.wires).into_iter().partition(|(of, _)| *of == run);
        state.wires = left;
        let gone: Vec<(u32, Arc<Wire>)> = gone;
        gone.into_iter().map(|(_, wire)| wire).collect()
    }

    pub(crate) fn set_faults(&self, faults: NetworkFaults, weather: Weather) {
        let mut state = self.state();
        state.faults = faults;
        state.weather = weather;
    }

    /// Ends every fault, and every connection that may have been affected by one.
    pub(crate) fn calm(&self) {
        let mut state = self.state();
        state.faults = NetworkFaults::default();
        state.weather = Weather::CALM;
        for (_, wire) in state.wires.drain(..) {
            wire.calm();
            wire.cut();
        }
    }

    /// Connects. Returns `None` when there is no listener.
    pub(crate) fn dial(&self) -> Option<Dialled> {
        let mut state = self.state();
        let run = state.listener.as_ref()?.run;
        let (seed, weather) = (state.rng.u64(..), state.weather);
        let (wire, near, far) = Wire::new(weather, Rng::with_seed(seed));
        state.wires.push((run, Arc::clone(&wire)));
        state.connection_count += 1;
        let connection = state.connection_count;
        state.plan_fate(&wire, connection, self.log.clone());
        state.listener.as_ref()?.accepted.send(far).ok()?;
        Some(Dialled { endpoint: near, wire, run, connection })
    }
}

impl State {
    /// Decides when and how the connection will fail, if it will.
    fn plan_fate(&mut self, wire: &Arc<Wire>, connection: u32, log: Log) {
        let faults = self.faults;
        let Some(after_ms_max) = faults.fails_within_ms else { return };
        let after = Duration::from_millis(self.rng.u64(0..=after_ms_max));
        let silent_sides = if faults.falls_silent && self.rng.bool() { self.rng.usize(1..=3) } else { 0 };
        let wire = Arc::clone(wire);
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            log.add(&"network".into(), Event::Broken { connection });
            match silent_sides {
                0 => wire.cut(),
                1 => wire.silence(0),
                2 => wire.silence(1),
                _ => {
                    wire.silence(0);
                    wire.silence(1);
                }
            }
        });
    }
}
