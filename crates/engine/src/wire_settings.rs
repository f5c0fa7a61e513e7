//! A queue's settings as bytes.

use std::time::Duration;

use peeklock_types::{EntityName, PoisonSession, QueueSettings, QueueStatus, RetryPolicy, limits};

use crate::wire::{DecodeError, Decoder, put_bytes, put_number, put_optional, put_optional_number};
use crate::wire_order::put_order;

pub(crate) fn put_settings(settings: &QueueSettings, out: &mut Vec<u8>) {
    put_duration(settings.lock_duration, out);
    put_number(settings.max_delivery_count.into(), out);
    out.push(settings.requires_session.into());
    put_optional_duration(settings.default_time_to_live, out);
    out.push(settings.dead_letter_on_expiration.into());
    put_optional_duration(settings.auto_delete_on_idle, out);
    put_optional_duration(settings.duplicate_window, out);
    put_optional_duration(settings.unused_duplicate_window, out);
    put_optional_number(settings.max_size_bytes, out);
    put_number(settings.max_message_size_bytes.into(), out);
    out.push(match settings.status {
        QueueStatus::Active => 0,
        QueueStatus::SendDisabled => 1,
        QueueStatus::ReceiveDisabled => 2,
        QueueStatus::Disabled => 3,
    });
    put_target(settings.forward_to.as_ref(), out);
    put_target(settings.forward_dead_letters_to.as_ref(), out);
    put_retry(settings.retry, out);
    out.push(match settings.poison_session {
        PoisonSession::DeadLetter => 0,
        PoisonSession::Block => 1,
        PoisonSession::SetAside => 2,
    });
    out.push(settings.dead_letter_on_filter_error.into());
    out.push(settings.batched_operations.into());
    out.push(settings.support_ordering.into());
    out.push(settings.express.into());
    out.push(settings.partitioning.into());
    put_optional(settings.user_metadata.as_deref().map(str::as_bytes), out);
    put_order(settings.order.as_deref(), out);
}

/// Just what a record says of the settings: times in whole milliseconds. After a restart a queue must not know more or less than before.
pub(crate) fn kept(settings: &QueueSettings) -> QueueSettings {
    let mut bytes = Vec::new();
    put_settings(settings, &mut bytes);
    let mut kept = Decoder::new(&bytes).settings().expect("what was just written can be read");
    if let Some(order) = &mut kept.order {
        order.sort();
    }
    kept
}

fn millis(span: Duration) -> u64 {
    // The limits of the settings keep this far below 2^64.
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn put_duration(span: Duration, out: &mut Vec<u8>) {
    put_number(millis(span), out);
}

fn put_optional_duration(span: Option<Duration>, out: &mut Vec<u8>) {
    put_optional_number(span.map(millis), out);
}

fn put_target(target: Option<&EntityName>, out: &mut Vec<u8>) {
    out.push(target.is_some().into());
    if let Some(target) = target {
        put_bytes(target.as_str().as_bytes(), out);
    }
}

fn put_retry(retry: RetryPolicy, out: &mut Vec<u8>) {
    let (kind, first, cap, jitter) = match retry {
        RetryPolicy::Immediate => (0, Duration::ZERO, Duration::ZERO, false),
        RetryPolicy::Fixed { delay } => (1, delay, delay, false),
        RetryPolicy::Linear { step, cap } => (2, step, cap, false),
        RetryPolicy::Exponential { base, cap, jitter } => (3, base, cap, jitter),
    };
    out.push(kind);
    put_duration(first, out);
    put_duration(cap, out);
    out.push(jitter.into());
}

impl Decoder<'_> {
    pub(crate) fn settings(&mut self) -> Result<QueueSettings, DecodeError> {
        Ok(QueueSettings {
            lock_duration: self.duration("a lock duration")?,
            max_delivery_count: self.number32("a max delivery count")?,
            requires_session: self.flag("a setting")?,
            default_time_to_live: self.optional_duration("a time to live")?,
            dead_letter_on_expiration: self.flag("a setting")?,
            auto_delete_on_idle: self.optional_duration("a setting")?,
            duplicate_window: self.optional_duration("a setting")?,
            unused_duplicate_window: self.optional_duration("a setting")?,
            max_size_bytes: self.optional_number("a max size")?,
            max_message_size_bytes: self.number32("a max message size")?,
            status: self.status()?,
            forward_to: self.target()?,
            forward_dead_letters_to: self.target()?,
            retry: self.retry()?,
            poison_session: self.poison_session()?,
            dead_letter_on_filter_error: self.flag("a setting")?,
            batched_operations: self.flag("a setting")?,
            support_ordering: self.flag("a setting")?,
            express: self.flag("a setting")?,
            partitioning: self.flag("a setting")?,
            user_metadata: self.user_metadata()?,
            order: self.order()?,
        })
    }

    fn user_metadata(&mut self) -> Result<Option<String>, DecodeError> {
        let what = "the user metadata";
        let text =
            |decoder: &mut Self| decoder.text(limits::USER_METADATA_CHARS_MAX * 4, what).map(str::to_owned);
        self.flag(what)?.then(|| text(self)).transpose()
    }

    fn duration(&mut self, what: &'static str) -> Result<Duration, DecodeError> {
        self.number(what).map(Duration::from_millis)
    }

    pub(crate) fn optional_duration(&mut self, what: &'static str) -> Result<Option<Duration>, DecodeError> {
        Ok(self.optional_number(what)?.map(Duration::from_millis))
    }

    fn status(&mut self) -> Result<QueueStatus, DecodeError> {
        match self.byte("a queue's status")? {
            0 => Ok(QueueStatus::Active),
            1 => Ok(QueueStatus::SendDisabled),
            2 => Ok(QueueStatus::ReceiveDisabled),
            3 => Ok(QueueStatus::Disabled),
            _ => Err(DecodeError::Value("a queue's status")),
        }
    }

    fn target(&mut self) -> Result<Option<EntityName>, DecodeError> {
        self.flag("a target")?.then(|| self.name()).transpose()
    }

    fn retry(&mut self) -> Result<RetryPolicy, DecodeError> {
        let what = "a retry policy";
        let kind = self.byte(what)?;
        let (first, cap, jitter) = (self.duration(what)?, self.duration(what)?, self.flag(what)?);
        match kind {
            0 => Ok(RetryPolicy::Immediate),
            1 => Ok(RetryPolicy::Fixed { delay: first }),
            2 => Ok(RetryPolicy::Linear { step: first, cap }),
            3 => Ok(RetryPolicy::Exponential { base: first, cap, jitter }),
            _ => Err(DecodeError::Value(what)),
        }
    }

    fn poison_session(&mut self) -> Result<PoisonSession, DecodeError> {
        match self.byte("a setting")? {
            0 => Ok(PoisonSession::DeadLetter),
            1 => Ok(PoisonSession::Block),
            2 => Ok(PoisonSession::SetAside),
            _ => Err(DecodeError::Value("a setting")),
        }
    }
}
