//! The time to live of a message: the sender's request, and the values that a delivery states.

use peeklock_amqp::{DecodeError, Decoder, RawValue};

/// The time to live that applies to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    pub time_to_live_ms: u64,
    pub from_ms: i64,
    pub until_ms: i64,
}

impl Lifetime {
    /// Returns the value for the header, whose field is limited to 49.7 days.
    pub(crate) fn header_ttl_ms(&self) -> u32 {
        u32::try_from(self.time_to_live_ms).unwrap_or(u32::MAX)
    }
}

/// Returns the time to live that a sender requests.
///
/// SDK quirk: if a time to live does not fit the header, .NET writes the largest value that fits, and specifies the
/// actual one by two times.
pub fn time_to_live_ms(
    header_ttl_ms: Option<u32>,
    expiry: Option<i64>,
    creation: Option<i64>,
) -> Option<u64> {
    let ttl_ms = header_ttl_ms?;
    let true_ms = match (expiry, creation) {
        (Some(end), Some(start)) if ttl_ms == u32::MAX => {
            end.checked_sub(start).and_then(|span| u64::try_from(span).ok())
        }
        _ => None,
    };
    Some(true_ms.unwrap_or(0).max(ttl_ms.into()))
}

/// The number of fields before absolute-expiry-time in the properties; creation-time follows it.
pub(crate) const FIELDS_BEFORE_EXPIRY: u32 = 8;

/// Decodes absolute-expiry-time and creation-time from encoded properties.
pub(crate) fn times(properties: Option<RawValue<'_>>) -> Result<(Option<i64>, Option<i64>), DecodeError> {
    let Some(properties) = properties else { return Ok((None, None)) };
    let mut decoder = Decoder::new(properties.as_encoded());
    let count = decoder.enter_list("properties")?.count;
    if count <= FIELDS_BEFORE_EXPIRY + 1 {
        return Ok((None, None));
    }
    for _ in 0..FIELDS_BEFORE_EXPIRY {
        decoder.skip()?;
    }
    let expiry = RawValue::new(decoder.raw()?).as_timestamp();
    Ok((expiry, RawValue::new(decoder.raw()?).as_timestamp()))
}
