//! Turns a panic into an error.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use super::failure::HandlerError;

/// Runs a future. A panic in it becomes an error of kind [`Kind::Panic`](crate::Kind::Panic).
pub(crate) async fn catch_panic<T>(
    future: impl Future<Output = Result<T, HandlerError>>,
) -> Result<T, HandlerError> {
    // After a panic, the future is dropped and nothing that it has borrowed is used again.
    match AssertUnwindSafe(future).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => Err(HandlerError::of_panic(&*panic)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[tokio::test]
    async fn a_panic_becomes_an_error() {
        let result: Result<(), _> = catch_panic(async { panic!("no more {}", "paper") }).await;
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (Kind::Panic, "no more paper"));
        assert!(catch_panic(async { Ok(7) }).await.is_ok_and(|value| value == 7));
    }
}
