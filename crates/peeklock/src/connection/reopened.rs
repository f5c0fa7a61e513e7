//! A connection or link that is opened again when it was lost, once for all who wait for it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};

use crate::error::Error;

type Opening<T> = Shared<BoxFuture<'static, Result<T, Error>>>;

/// The current value, or the attempt to open it, which all callers await together.
pub(crate) struct Reopened<T: Clone> {
    state: Mutex<State<T>>,
}

struct State<T: Clone> {
    /// The number of the latest attempt.
    number: u64,
    value: Value<T>,
}

enum Value<T: Clone> {
    None,
    /// The reference is weak: when all callers stop waiting, the attempt ends.
    Opening(WeakShared<BoxFuture<'static, Result<T, Error>>>),
    Open(T),
}

impl<T: Clone + Send + 'static> Reopened<T> {
    pub(crate) fn new(value: T) -> Self {
        Reopened { state: Mutex::new(State { number: 0, value: Value::Open(value) }) }
    }

    pub(crate) fn empty() -> Self {
        Reopened { state: Mutex::new(State { number: 0, value: Value::None }) }
    }

    /// Returns the value if it is live, or opens another one.
    pub(crate) async fn get(
        &self,
        is_live: impl FnOnce(&T) -> bool,
        open: impl FnOnce() -> BoxFuture<'static, Result<T, Error>>,
    ) -> Result<T, Error> {
        let (number, opening) = match self.current(is_live, open) {
            Ok(value) => return Ok(value),
            Err(opening) => opening,
        };
        let result = opening.await;
        self.finish(number, &result);
        result
    }

    /// Removes the value and returns it if it is open.
    pub(crate) fn take(&self) -> Option<T> {
        match std::mem::replace(&mut self.lock().value, Value::None) {
            Value::Open(value) => Some(value),
            Value::None | Value::Opening(_) => None,
        }
    }

    fn current(
        &self,
        is_live: impl FnOnce(&T) -> bool,
        open: impl FnOnce() -> BoxFuture<'static, Result<T, Error>>,
    ) -> Result<T, (u64, Opening<T>)> {
        let mut state = self.lock();
        match &state.value {
            Value::Open(value) if is_live(value) => return Ok(value.clone()),
            Value::Opening(opening) => {
                if let Some(opening) = opening.upgrade() {
                    return Err((state.number, opening));
                }
            }
            Value::Open(_) | Value::None => {}
        }
        let opening = open().shared();
        state.number += 1;
        state.value = opening.downgrade().map_or(Value::None, Value::Opening);
        Err((state.number, opening))
    }

    /// Stores the result of an attempt, unless a caller has stored it already.
    fn finish(&self, number: u64, result: &Result<T, Error>) {
        let mut state = self.lock();
        if state.number == number && matches!(state.value, Value::Opening(_)) {
            state.value = result.as_ref().map_or(Value::None, |value| Value::Open(value.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    fn counted(count: &Arc<AtomicU32>) -> BoxFuture<'static, Result<u32, Error>> {
        let count = Arc::clone(count);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(count.fetch_add(1, Ordering::Relaxed) + 1)
        })
    }

    #[tokio::test(start_paused = true)]
    async fn all_waiting_callers_share_one_attempt() {
        let (count, value) = (Arc::<AtomicU32>::default(), Reopened::new(0));
        let is_live = |value: &u32| *value > 0;
        let (one, two) =
            tokio::join!(value.get(is_live, || counted(&count)), value.get(is_live, || counted(&count)));
        assert_eq!((one.unwrap(), two.unwrap()), (1, 1));
        assert_eq!(value.get(is_live, || counted(&count)).await.unwrap(), 1);
        assert_eq!(value.get(|value| *value > 1, || counted(&count)).await.unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_without_callers_is_started_again() {
        let (count, value) = (Arc::<AtomicU32>::default(), Reopened::new(0));
        let is_live = |value: &u32| *value > 0;
        let abandoned =
            tokio::time::timeout(Duration::from_millis(1), value.get(is_live, || counted(&count)));
        assert!(abandoned.await.is_err());
        assert_eq!(value.get(is_live, || counted(&count)).await.unwrap(), 1);
    }
}
