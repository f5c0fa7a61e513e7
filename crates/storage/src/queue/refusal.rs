//! Errors of the broker as errors of the service.

use http::StatusCode;
use peeklock_broker::engine::Error as EngineError;
use peeklock_broker::{AdminError, Error};
use peeklock_web::shown;

use crate::problem::Problem;

pub(super) fn of(error: &AdminError) -> Problem {
    let text = error.to_string();
    match error {
        AdminError::Refused(Error::Engine(error)) => of_engine(error, text),
        AdminError::Refused(Error::NameOfQueueGroup { .. } | Error::NameTaken { .. }) => {
            Problem::conflict("QueueAlreadyExists", text)
        }
        AdminError::Refused(Error::TooLarge { .. }) => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestBodyTooLarge", text)
        }
        error => Problem::from(error),
    }
}

fn of_engine(error: &EngineError, text: String) -> Problem {
    match error {
        EngineError::NoSuchQueue { .. } | EngineError::NoSuchEntity { .. } => {
            Problem::not_found("QueueNotFound", text)
        }
        EngineError::AlreadyExists { .. } => Problem::conflict("QueueAlreadyExists", text),
        EngineError::NoSuchMessage { .. } => Problem::not_found("MessageNotFound", text),
        EngineError::ReceiptLost { .. } => Problem::bad("PopReceiptMismatch", text),
        EngineError::MessageTooLarge { .. } | EngineError::TooLargeToTake { .. } => {
            Problem::bad("MessageTooLarge", text)
        }
        EngineError::MetadataTooLarge { .. } => Problem::bad("MetadataTooLarge", text),
        EngineError::Disabled { .. } => Problem::conflict("QueueDisabled", text),
        EngineError::IsTopic { .. }
        | EngineError::IsSubscription { .. }
        | EngineError::SessionRequired { .. }
        | EngineError::Forwards { .. } => Problem::conflict("ResourceTypeMismatch", text),
        EngineError::QueueFull { .. } => {
            Problem::new(StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorage", text)
        }
        EngineError::StillSending { .. } => Problem::busy(text),
        EngineError::Throttled { retry_after, .. } => {
            Problem { retry_after: Some(*retry_after), ..Problem::busy(text) }
        }
        _ => Problem::bad("InvalidInput", text),
    }
}

/// Returns the rejection of a name that is not valid for an entity.
pub(super) fn bad_name(name: &str) -> Problem {
    Problem::bad(
        "InvalidResourceName",
        format!(
            "'{}' is no name of a queue; use 3 to 63 characters: a to z, 0 to 9, and single dashes between them",
            shown(name)
        ),
    )
}
