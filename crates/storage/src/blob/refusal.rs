//! Errors of the broker as the codes that SDKs expect.

use http::StatusCode;
use peeklock_broker::blob::limits::CONTENT_BYTES_MAX;
use peeklock_broker::blob::{Error as BlobError, LeaseError};
use peeklock_broker::{AdminError, Error};

use crate::problem::Problem;

pub(super) fn refused(error: AdminError) -> Problem {
    let AdminError::Refused(Error::Blob(blob)) = &error else { return error.into() };
    let text = error.to_string();
    match &**blob {
        BlobError::NoSuchContainer { .. } => Problem::not_found("ContainerNotFound", text),
        BlobError::NoSuchBlob { .. } => Problem::not_found("BlobNotFound", text),
        BlobError::ContainerExists { .. } => Problem::conflict("ContainerAlreadyExists", text),
        BlobError::BlobExists { .. } => Problem::conflict("BlobAlreadyExists", text),
        BlobError::ConditionNotMet { .. } => condition_not_met(text),
        BlobError::TooLarge { .. } => too_large(),
        BlobError::Header => Problem::bad("InvalidHeaderValue", text),
        // The status is not 409: SDKs interpret every 409 as an existing blob, and event processors as a partition with
        // another owner.
        BlobError::TooManyContainers | BlobError::TooManyBlobs | BlobError::Full => {
            Problem::new(StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorage", text)
        }
        BlobError::Lease(error) => of_lease(*error),
        BlobError::ContainerLease(error) => of_container_lease(*error),
        BlobError::NoSuchBlock => Problem::bad("InvalidBlockList", text),
        BlobError::BlockIdLength => Problem::bad("InvalidBlobOrBlock", text),
        BlobError::TooManyBlocks => Problem::bad("BlockListTooLong", text),
    }
}

pub(super) fn condition_not_met(text: impl Into<String>) -> Problem {
    Problem::new(StatusCode::PRECONDITION_FAILED, "ConditionNotMet", text)
}

pub(super) fn of_lease(error: LeaseError) -> Problem {
    let (status, code) = match error {
        LeaseError::AlreadyPresent => (StatusCode::CONFLICT, "LeaseAlreadyPresent"),
        LeaseError::IdMismatchWithLeaseOperation => {
            (StatusCode::CONFLICT, "LeaseIdMismatchWithLeaseOperation")
        }
        LeaseError::NotPresentWithLeaseOperation => {
            (StatusCode::CONFLICT, "LeaseNotPresentWithLeaseOperation")
        }
        LeaseError::BreakingAndCannotBeAcquired => {
            (StatusCode::CONFLICT, "LeaseIsBreakingAndCannotBeAcquired")
        }
        LeaseError::BreakingAndCannotBeChanged => (StatusCode::CONFLICT, "LeaseIsBreakingAndCannotBeChanged"),
        LeaseError::BrokenAndCannotBeRenewed => (StatusCode::CONFLICT, "LeaseIsBrokenAndCannotBeRenewed"),
        LeaseError::IdMissing => (StatusCode::PRECONDITION_FAILED, "LeaseIdMissing"),
        LeaseError::IdMismatch => (StatusCode::PRECONDITION_FAILED, "LeaseIdMismatchWithBlobOperation"),
        LeaseError::NotPresent => (StatusCode::PRECONDITION_FAILED, "LeaseNotPresentWithBlobOperation"),
        LeaseError::Lost => (StatusCode::PRECONDITION_FAILED, "LeaseLost"),
    };
    Problem::new(status, code, error.to_string())
}

/// Returns the error for a container's lease; the service uses other codes for some of these errors.
pub(super) fn of_container_lease(error: LeaseError) -> Problem {
    let problem = of_lease(error);
    let code = match error {
        LeaseError::IdMismatch => "LeaseIdMismatchWithContainerOperation",
        LeaseError::NotPresent => "LeaseNotPresentWithContainerOperation",
        _ => problem.code,
    };
    Problem { code, ..problem }
}

pub(super) fn too_large() -> Problem {
    let text =
        format!("a blob or block holds at most {CONTENT_BYTES_MAX} bytes here; keep larger ones elsewhere");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestBodyTooLarge", text)
}
