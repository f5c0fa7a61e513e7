//! Bodies of requests, read within limits.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};

/// A body that was not read completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error(
        "the body has more than {limit_bytes} bytes; send less, or raise the limit on bodies of requests"
    )]
    TooLarge { limit_bytes: usize },
    #[error("the body ended before it was complete")]
    Incomplete,
    #[error("the body did not come within {seconds} s; send the request again")]
    Slow { seconds: u64 },
}

/// Reads the whole body. Fails if it exceeds the size limit or the time limit.
pub async fn read_body(body: Body, limit_bytes: usize, time_max: Duration) -> Result<Bytes, BodyError> {
    let collected = tokio::time::timeout(time_max, Limited::new(body, limit_bytes).collect()).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if is_too_large(&*error) => Err(BodyError::TooLarge { limit_bytes }),
        Ok(Err(_)) => Err(BodyError::Incomplete),
        Err(_) => Err(BodyError::Slow { seconds: time_max.as_secs() }),
    }
}

fn is_too_large(error: &(dyn std::error::Error + 'static)) -> bool {
    error.is::<LengthLimitError>()
}
