//! Retries of reads. A disk that has failed once may succeed the next time, so a caller should not see the first
//! failure.

use std::future::Future;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use peeklock_journal::{BodyReader, ReadError, StoredBody};

/// The pauses after each failure. One more attempt follows the last pause.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(250), Duration::from_millis(1000)];

pub(crate) async fn read<R: BodyReader>(reader: &R, bodies: &[StoredBody]) -> Result<Vec<Bytes>, ReadError> {
    patiently(|| reader.read(bodies.to_vec())).await
}

pub(crate) async fn read_range<R: BodyReader>(
    reader: &R,
    body: StoredBody,
    range: Range<u32>,
) -> Result<Bytes, ReadError> {
    patiently(|| reader.read_range(body, range.clone())).await
}

/// Retries only failures of the disk: a damaged body stays damaged, and a removed body stays removed.
async fn patiently<T, F>(mut read: impl FnMut() -> F) -> Result<T, ReadError>
where
    F: Future<Output = Result<T, ReadError>>,
{
    for pause in PAUSES {
        match read().await {
            Err(error @ ReadError::Io { .. }) => {
                tracing::warn!("{error}; trying again after {pause:?}");
                tokio::time::sleep(pause).await;
            }
            done => return done,
        }
    }
    read().await
}
