//! Reads that are tried again: a disk that has failed once may well answer the next time, and whoever waits should not hear of it.

use std::future::Future;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use peeklock_journal::{BodyReader, ReadError, StoredBody};

/// How long to wait after each failure; after the last of them there is one more try.
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

/// Only what the disk did not give is tried again: what is damaged or gone stays so.
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
