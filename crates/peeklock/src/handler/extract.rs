//! Extractors: the arguments of handlers.

use serde::de::DeserializeOwned;

use super::context::Context;
use super::failure::HandlerError;
use super::job::{Job, States};
use crate::ReceivedMessage;
use crate::error::{Error, Kind};

/// An argument of a handler.
pub trait FromDelivery: Sized + Send {
    /// Extracts the argument. After an error of kind [`Kind::Malformed`] the message is dead-lettered at once.
    fn from_delivery(job: &Job) -> Result<Self, HandlerError>;

    /// Checks at the start of the processor that the argument can be extracted at all.
    #[doc(hidden)]
    fn check(_states: &Registered<'_>) -> Result<(), Error> {
        Ok(())
    }
}

/// The states that a processor has at its start.
#[doc(hidden)]
pub struct Registered<'a>(pub(crate) &'a States);

/// The body, decoded from JSON. A message whose body does not decode is dead-lettered with reason `DeserializeFailed`.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned + Send> FromDelivery for Json<T> {
    fn from_delivery(job: &Job) -> Result<Self, HandlerError> {
        let body = body(job)?;
        serde_json::from_slice(&body).map(Json).map_err(HandlerError::deserialize)
    }
}

/// The body as text.
#[derive(Clone, Debug)]
pub struct Text(pub String);

impl FromDelivery for Text {
    fn from_delivery(job: &Job) -> Result<Self, HandlerError> {
        if let peeklock_amqp::Body::Value(peeklock_amqp::Value::String(text)) = &job.message().message.body {
            return Ok(Text(text.as_str().to_owned()));
        }
        String::from_utf8(body(job)?.to_vec()).map(Text).map_err(HandlerError::deserialize)
    }
}

/// The bytes of the body.
#[derive(Clone, Debug)]
pub struct Bytes(pub bytes::Bytes);

impl FromDelivery for Bytes {
    fn from_delivery(job: &Job) -> Result<Self, HandlerError> {
        body(job).map(Bytes)
    }
}

fn body(job: &Job) -> Result<bytes::Bytes, HandlerError> {
    use peeklock_amqp::Body;
    match &job.message().message.body {
        Body::Data(parts) => match parts.as_slice() {
            [single] => Ok(single.clone()),
            parts => Ok(parts.concat().into()),
        },
        Body::None => Ok(bytes::Bytes::new()),
        _ => Err(HandlerError::deserialize("the body is an AMQP value, not bytes")),
    }
}

impl FromDelivery for ReceivedMessage {
    fn from_delivery(job: &Job) -> Result<Self, HandlerError> {
        Ok(job.message().clone())
    }
}

impl FromDelivery for Context {
    fn from_delivery(job: &Job) -> Result<Self, HandlerError> {
        Ok(job.context().clone())
    }
}

/// A state of the processor, from [`ProcessorBuilder::state`](crate::processor::ProcessorBuilder::state).
#[derive(Clone, Copy, Debug)]
pub struct State<S>(pub S);

impl<S: Clone + Send + Sync + 'static> FromDelivery for State<S> {
    fn from_delivery(job: &Job) -> Result<Self, HandlerError> {
        let missing = || HandlerError::fatal(no_state::<S>());
        job.state::<S>().cloned().map(State).ok_or_else(missing)
    }

    fn check(states: &Registered<'_>) -> Result<(), Error> {
        states.0.get::<S>().map(|_| ()).ok_or_else(no_state::<S>)
    }
}

fn no_state<S>() -> Error {
    let name = std::any::type_name::<S>();
    let text = format!(
        "The handler has an argument State<{name}>, but the processor has no such state. Add it with .state(value)."
    );
    Error::new(Kind::Invalid, "E-PROC-02", text)
}

/// A name of an application property, for the extractor [`Property`].
pub trait PropertyName: Send {
    /// The name.
    const NAME: &'static str;
}

/// The application property with the name `N`, as text; `None` if the message lacks it or it is no text.
///
/// ```
/// use peeklock::handler::{Property, PropertyName};
///
/// struct Region;
/// impl PropertyName for Region {
///     const NAME: &'static str = "region";
/// }
///
/// async fn handle(region: Property<Region>) {
///     println!("from {}", region.text.as_deref().unwrap_or("anywhere"));
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Property<N> {
    /// The value.
    pub text: Option<String>,
    name: std::marker::PhantomData<N>,
}

impl<N: PropertyName> FromDelivery for Property<N> {
    fn from_delivery(job: &Job) -> Result<Self, HandlerError> {
        let value = job.message().message.property(N::NAME);
        let text = value.and_then(peeklock_amqp::Value::as_str).map(str::to_owned);
        Ok(Property { text, name: std::marker::PhantomData })
    }
}
