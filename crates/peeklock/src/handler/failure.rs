//! The error of a handler, with its classification.

use std::any::Any;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

use tower::BoxError;

use crate::error::Kind;

/// The error of a handler. The constructor decides what happens to the message.
///
/// The operator `?` turns any error into [`HandlerError::retry`].
pub struct HandlerError {
    failure: Failure,
}

/// What happens to a message after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The retry policy decides.
    Retry,
    /// The message is delivered again after this delay, while attempts are left.
    RetryAfter(Duration),
    /// The message is dead-lettered at once.
    Poison,
    /// The message is released and the processor stops.
    Fatal,
}

/// The content of a [`HandlerError`], as a standard error that passes through layers of tower.
pub(crate) struct Failure {
    pub(crate) class: Class,
    pub(crate) kind: Kind,
    pub(crate) error: BoxError,
    pub(crate) type_name: &'static str,
    /// The place in the user's code that has made the error, where it is known.
    pub(crate) place: Option<&'static Location<'static>>,
}

impl HandlerError {
    /// Returns a transient error: the retry policy of the processor decides when the message is tried again.
    #[track_caller]
    pub fn retry<E: Into<BoxError>>(error: E) -> Self {
        Self::with::<E>(Class::Retry, Kind::Handler, error.into(), Location::caller())
    }

    /// Returns a closure for `map_err` that makes a transient error with its own delay before the next attempt.
    pub fn retry_after<E: Into<BoxError>>(delay: Duration) -> impl Fn(E) -> Self {
        move |error| {
            Self::with::<E>(Class::RetryAfter(delay), Kind::Handler, error.into(), Location::caller())
        }
    }

    /// Returns a permanent error of this message: it is dead-lettered at once, with reason `HandlerPoison`.
    #[track_caller]
    pub fn poison<E: Into<BoxError>>(error: E) -> Self {
        Self::with::<E>(Class::Poison, Kind::Handler, error.into(), Location::caller())
    }

    /// Returns an error of the program: the message is released, and the processor stops with state
    /// [`Failed`](crate::processor::State::Failed).
    #[track_caller]
    pub fn fatal<E: Into<BoxError>>(error: E) -> Self {
        Self::with::<E>(Class::Fatal, Kind::Handler, error.into(), Location::caller())
    }

    pub(crate) fn deserialize<E: Into<BoxError>>(error: E) -> Self {
        Self::plain::<E>(Class::Poison, Kind::Malformed, error.into())
    }

    pub(crate) fn timeout(limit: Duration) -> Self {
        let text = format!("the handler did not end within {limit:?}");
        Self::plain::<Timeout>(Class::Retry, Kind::Timeout, text.into())
    }

    pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
            (Some(text), _) => (*text).to_owned(),
            (_, Some(text)) => text.clone(),
            _ => "the panic has no text".to_owned(),
        };
        Self::plain::<Panic>(Class::Retry, Kind::Panic, text.into())
    }

    /// Returns the error of a service: its own error, or the error of a layer, which is transient.
    pub(crate) fn from_box(error: BoxError) -> Self {
        match error.downcast::<Failure>() {
            Ok(failure) => HandlerError { failure: *failure },
            Err(error) => Self::plain::<BoxError>(Class::Retry, Kind::Handler, error),
        }
    }

    fn with<E>(class: Class, kind: Kind, error: BoxError, place: &'static Location<'static>) -> Self {
        // A call through a function pointer has a place in the standard library, which says nothing.
        let place = (!place.file().starts_with("/rustc/")).then_some(place);
        let failure = Failure { place, ..Self::plain::<E>(class, kind, error).failure };
        HandlerError { failure }
    }

    fn plain<E>(class: Class, kind: Kind, error: BoxError) -> Self {
        let type_name = short_name(std::any::type_name::<E>());
        HandlerError { failure: Failure { class, kind, error, type_name, place: None } }
    }

    /// Returns the kind: [`Kind::Handler`], [`Kind::Panic`], [`Kind::Timeout`] or [`Kind::Malformed`].
    pub fn kind(&self) -> Kind {
        self.failure.kind
    }

    /// Returns the name of the error's type, without its path.
    pub fn type_name(&self) -> &'static str {
        self.failure.type_name
    }

    /// Returns errors of the same class and text, for the messages of a batch.
    pub(crate) fn copies(self, count: usize) -> Vec<HandlerError> {
        let text = self.to_string();
        let Failure { class, kind, type_name, place, .. } = self.failure;
        let copy = || HandlerError {
            failure: Failure { class, kind, error: text.clone().into(), type_name, place },
        };
        (0..count).map(|_| copy()).collect()
    }

    pub(crate) fn failure(&self) -> &Failure {
        &self.failure
    }

    pub(crate) fn into_failure(self) -> Failure {
        self.failure
    }
}

/// Names for [`HandlerError::type_name`].
struct Panic;
struct Timeout;

/// Removes the path and the type parameters from the name of a type.
fn short_name(name: &'static str) -> &'static str {
    let plain = name.split('<').next().unwrap_or(name);
    match plain.rsplit("::").next() {
        Some("Box" | "&str" | "str" | "String") => "Error",
        Some(short) => short,
        None => plain,
    }
}

impl<E> From<E> for HandlerError
where
    E: std::error::Error + Send + Sync + 'static,
{
    #[track_caller]
    fn from(error: E) -> Self {
        HandlerError::retry(error)
    }
}

impl From<HandlerError> for BoxError {
    fn from(error: HandlerError) -> Self {
        Box::new(error.failure)
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failure.fmt(f)
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HandlerError({:?})", self.failure)
    }
}

/// Shows the error with its chain of sources.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        let mut source = self.error.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}: {self}", self.class, self.type_name)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read() -> Result<(), HandlerError> {
        Err(std::io::Error::other("the disk is full"))?;
        Ok(())
    }

    #[test]
    fn the_constructor_classifies_the_error() {
        let error = read().unwrap_err();
        assert_eq!((error.failure().class, error.type_name()), (Class::Retry, "Error"));
        assert_eq!(HandlerError::poison("bad").failure().class, Class::Poison);
        let later = HandlerError::retry_after(Duration::from_secs(5))("busy");
        assert_eq!(later.failure().class, Class::RetryAfter(Duration::from_secs(5)));
        let fmt_error = HandlerError::fatal(fmt::Error);
        assert!(fmt_error.failure().place.is_some_and(|place| place.file().ends_with("failure.rs")));
    }

    #[test]
    fn an_error_keeps_its_class_through_layers() {
        let error: BoxError = HandlerError::poison("bad").into();
        assert_eq!(HandlerError::from_box(error).failure().class, Class::Poison);
        assert_eq!(HandlerError::from_box("of a layer".into()).failure().class, Class::Retry);
    }
}
