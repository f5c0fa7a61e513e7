//! A delivery on its way through the layers to the handler.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use super::context::Context;
use crate::ReceivedMessage;

/// One delivery on its way through the layers to the handler. It is cheap to clone, so that a layer can call the handler again.
#[derive(Clone)]
pub struct Job {
    context: Context,
    states: States,
}

impl Job {
    pub(crate) fn new(context: Context, states: States) -> Self {
        Job { context, states }
    }

    /// Returns a job with a message that is not from a broker, to test a handler.
    pub fn detached(message: ReceivedMessage) -> Self {
        Job { context: Context::detached(message), states: States::default() }
    }

    /// Adds a state for the extractor [`State`](super::State).
    #[must_use]
    pub fn with_state<S: Send + Sync + 'static>(mut self, state: S) -> Self {
        self.states.insert(state);
        self
    }

    /// Returns the message.
    pub fn message(&self) -> &ReceivedMessage {
        self.context.message()
    }

    /// Returns the context of the delivery.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the state of this type.
    pub fn state<S: Send + Sync + 'static>(&self) -> Option<&S> {
        self.states.get()
    }
}

/// The states of a processor, one for each type.
#[derive(Clone, Default)]
pub(crate) struct States {
    by_type: Arc<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

impl States {
    pub(crate) fn insert<S: Send + Sync + 'static>(&mut self, state: S) {
        Arc::make_mut(&mut self.by_type).insert(TypeId::of::<S>(), Arc::new(state));
    }

    pub(crate) fn get<S: Send + Sync + 'static>(&self) -> Option<&S> {
        self.by_type.get(&TypeId::of::<S>())?.downcast_ref()
    }
}
