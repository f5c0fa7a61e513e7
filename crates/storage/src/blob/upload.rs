//! Bodies that are being received. Large bodies share a budget, so that many concurrent uploads cannot exhaust the
//! memory.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_LENGTH;
use http_body_util::BodyExt;
use peeklock_broker::blob::limits::CONTENT_BYTES_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::refusal::too_large;
use crate::call::Call;
use crate::problem::Problem;

/// The maximum size of a body that is read without using the budget.
const SMALL_BYTES_MAX: usize = 64 * 1024;
const UPLOAD_KIB_MAX: u32 = 64 * 1024;
/// The number of bytes of an oversized body that are read and dropped, so that the client proceeds to read the
/// rejection.
const DROPPED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The budget for large bodies. Clones share it.
#[derive(Clone)]
pub(crate) struct Uploads(Arc<Semaphore>);

impl Default for Uploads {
    fn default() -> Self {
        Uploads(Arc::new(Semaphore::new(UPLOAD_KIB_MAX as usize)))
    }
}

/// A received content. Its share of the budget is released on drop.
pub(super) struct Upload {
    pub(super) content: Bytes,
    _room: Option<OwnedSemaphorePermit>,
}

/// Reads the content of a blob or block.
pub(super) async fn read(call: &Call<'_>, body: Body) -> Result<Upload, Problem> {
    let length = call.header(CONTENT_LENGTH).and_then(|text| text.trim().parse::<usize>().ok());
    if length.is_some_and(|length| length > CONTENT_BYTES_MAX) {
        drop_body(call, body).await;
        return Err(too_large());
    }
    let room = room(call, length.unwrap_or(CONTENT_BYTES_MAX)).await?;
    let content = call.read_body(body, CONTENT_BYTES_MAX).await.map_err(|problem| match problem.status {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(),
        _ => problem,
    })?;
    Ok(Upload { content, _room: room })
}

async fn room(call: &Call<'_>, size_bytes: usize) -> Result<Option<OwnedSemaphorePermit>, Problem> {
    if size_bytes <= SMALL_BYTES_MAX {
        return Ok(None);
    }
    let kib = u32::try_from(size_bytes.div_ceil(1024)).unwrap_or(UPLOAD_KIB_MAX);
    let room = Arc::clone(&call.uploads.0).acquire_many_owned(kib);
    match tokio::time::timeout(call.limits.body_time_max, room).await {
        Ok(Ok(room)) => Ok(Some(room)),
        _ => Err(Problem::busy("too many blobs are on their way in; try again later")),
    }
}

async fn drop_body(call: &Call<'_>, mut body: Body) {
    let dropping = async {
        let mut dropped = 0;
        while let Some(Ok(frame)) = body.frame().await {
            dropped += frame.data_ref().map_or(0, Bytes::len);
            if dropped > DROPPED_BYTES_MAX {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(call.limits.body_time_max, dropping).await;
}
