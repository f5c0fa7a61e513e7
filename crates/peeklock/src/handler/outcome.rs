//! Results of handlers.

use super::failure::HandlerError;
use crate::Outcome;

/// A result of a handler.
pub trait IntoOutcome {
    /// Returns the outcome of the message, or the error that the retry policy judges.
    fn into_outcome(self) -> Result<Outcome, HandlerError>;
}

/// Completes the message.
impl IntoOutcome for () {
    fn into_outcome(self) -> Result<Outcome, HandlerError> {
        Ok(Outcome::Complete)
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Result<Outcome, HandlerError> {
        Ok(self)
    }
}

impl<T: IntoOutcome, E: Into<HandlerError>> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Result<Outcome, HandlerError> {
        self.map_err(Into::into)?.into_outcome()
    }
}
