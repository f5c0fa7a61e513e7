//! The state of a session as a typed value.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Kind};
use crate::handler::{FromDelivery, HandlerError, Job};
use crate::session::Session;

/// The state of the message's session as JSON, for handlers of a session processor.
pub struct SessionState<T> {
    session: Session,
    value: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> SessionState<T> {
    /// Returns the state of a session.
    pub fn of(session: &Session) -> Self {
        SessionState { session: session.clone(), value: PhantomData }
    }

    /// Reads the state. `None` if nothing was stored.
    pub async fn load(&self) -> Result<Option<T>, Error> {
        let Some(state) = self.session.state().await? else { return Ok(None) };
        serde_json::from_slice(&state).map(Some).map_err(|error| {
            let text = format!(
                "The state of session \"{}\" is not of the expected type: {error}. Remove it with clear(), or read it as another type.",
                self.session.id()
            );
            Error::new(Kind::Malformed, "E-SESS-06", text)
        })
    }

    /// Stores a value.
    pub async fn store(&self, value: &T) -> Result<(), Error> {
        let state = serde_json::to_vec(value).map_err(|error| {
            Error::new(Kind::Invalid, "E-DATA-02", format!("The session state has no JSON form: {error}."))
        })?;
        self.session.set_state(Some(state.into())).await
    }

    /// Removes the state.
    pub async fn clear(&self) -> Result<(), Error> {
        self.session.set_state(None).await
    }
}

impl<T: Serialize + DeserializeOwned> FromDelivery for SessionState<T> {
    fn from_delivery(job: &Job) -> Result<Self, HandlerError> {
        let missing = || {
            HandlerError::fatal(
                "the handler uses SessionState, but the processor has no sessions; use session_processor",
            )
        };
        job.context().session().map(SessionState::of).ok_or_else(missing)
    }
}
