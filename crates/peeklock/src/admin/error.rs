//! Maps the errors of management requests to the errors of the SDK.

use peeklock_client::{AdminError, ConnectError};

use crate::error::{Error, Kind};

/// Statuses with which a broker that is busy or stops answers.
const BUSY: [u16; 2] = [429, 503];

/// Returns whether a repetition of the request may succeed.
pub(super) fn is_transient(error: &AdminError) -> bool {
    match error {
        AdminError::Connect(error) => is_connect_transient(error),
        AdminError::ConnectionLost { .. } | AdminError::NoAnswer { .. } => true,
        AdminError::Refused { status, .. } => BUSY.contains(status),
        _ => false,
    }
}

/// Returns whether the broker may have carried out the request.
pub(super) fn was_sent(error: &AdminError) -> bool {
    matches!(error, AdminError::ConnectionLost { .. } | AdminError::NoAnswer { .. })
}

fn is_connect_transient(error: &ConnectError) -> bool {
    !matches!(
        error,
        ConnectError::Target(_)
            | ConnectError::Credentials { .. }
            | ConnectError::Certificates { .. }
            | ConnectError::Tls { .. }
    )
}

impl From<AdminError> for Error {
    fn from(error: AdminError) -> Self {
        let is_transient = is_transient(&error);
        let (kind, code) = match &error {
            AdminError::Connect(_) => {
                let AdminError::Connect(error) = error else { unreachable!("it was matched above") };
                return error.into();
            }
            AdminError::ConnectionLost { .. } | AdminError::NoAnswer { .. } => {
                (Kind::Connection, "E-CONN-02")
            }
            AdminError::Request { .. } => (Kind::Target, "E-CONN-04"),
            AdminError::Malformed { .. } => (Kind::Malformed, "E-DATA-01"),
            AdminError::NotFound { .. } | AdminError::Missing { .. } => (Kind::NotFound, "E-ENT-04"),
            AdminError::Exists { .. } => (Kind::Exists, "E-ENT-01"),
            AdminError::Changed { .. } => (Kind::Changed, "E-ENT-02"),
            AdminError::Unauthorized { .. } => (Kind::Unauthorized, "E-AUTH-03"),
            AdminError::Refused { status, .. } if BUSY.contains(status) => (Kind::Busy, "E-BUSY-01"),
            AdminError::Refused { status: 400, .. } => (Kind::Invalid, "E-ADMIN-01"),
            AdminError::Refused { .. } => (Kind::Rejected, "E-REJ-03"),
        };
        let mapped = Error::new(kind, code, error.to_string());
        let mapped = if is_transient { mapped.transient(None) } else { mapped };
        mapped.caused_by(error)
    }
}
