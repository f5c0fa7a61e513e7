//! What a filter can say after `sys.`.

use std::fmt;

/// A property that the broker knows by itself, or that has its own place in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SystemProperty {
    MessageId,
    CorrelationId,
    SessionId,
    ReplyToSessionId,
    To,
    ReplyTo,
    Label,
    ContentType,
    TimeToLive,
    EnqueuedTimeUtc,
    ScheduledEnqueueTimeUtc,
    ExpiresAtUtc,
    PartitionKey,
    ViaPartitionKey,
    SequenceNumber,
    DeliveryCount,
    Size,
    DeadLetterSource,
    EnqueuedSequenceNumber,
    State,
    /// What the header of the message says, if it says one.
    Priority,
}

/// What an action may give a system property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settable {
    Text { chars_max: Option<usize> },
    Span,
    Time,
    No,
}

impl SystemProperty {
    pub const ALL: [SystemProperty; 21] = [
        SystemProperty::MessageId,
        SystemProperty::CorrelationId,
        SystemProperty::SessionId,
        SystemProperty::ReplyToSessionId,
        SystemProperty::To,
        SystemProperty::ReplyTo,
        SystemProperty::Label,
        SystemProperty::ContentType,
        SystemProperty::TimeToLive,
        SystemProperty::EnqueuedTimeUtc,
        SystemProperty::ScheduledEnqueueTimeUtc,
        SystemProperty::ExpiresAtUtc,
        SystemProperty::PartitionKey,
        SystemProperty::ViaPartitionKey,
        SystemProperty::SequenceNumber,
        SystemProperty::DeliveryCount,
        SystemProperty::Size,
        SystemProperty::DeadLetterSource,
        SystemProperty::EnqueuedSequenceNumber,
        SystemProperty::State,
        SystemProperty::Priority,
    ];
    pub const COUNT: usize = Self::ALL.len();

    pub fn name(self) -> &'static str {
        match self {
            SystemProperty::MessageId => "MessageId",
            SystemProperty::CorrelationId => "CorrelationId",
            SystemProperty::SessionId => "SessionId",
            SystemProperty::ReplyToSessionId => "ReplyToSessionId",
            SystemProperty::To => "To",
            SystemProperty::ReplyTo => "ReplyTo",
            SystemProperty::Label => "Label",
            SystemProperty::ContentType => "ContentType",
            SystemProperty::TimeToLive => "TimeToLive",
            SystemProperty::EnqueuedTimeUtc => "EnqueuedTimeUtc",
            SystemProperty::ScheduledEnqueueTimeUtc => "ScheduledEnqueueTimeUtc",
            SystemProperty::ExpiresAtUtc => "ExpiresAtUtc",
            SystemProperty::PartitionKey => "PartitionKey",
            SystemProperty::ViaPartitionKey => "ViaPartitionKey",
            SystemProperty::SequenceNumber => "SequenceNumber",
            SystemProperty::DeliveryCount => "DeliveryCount",
            SystemProperty::Size => "Size",
            SystemProperty::DeadLetterSource => "DeadLetterSource",
            SystemProperty::EnqueuedSequenceNumber => "EnqueuedSequenceNumber",
            SystemProperty::State => "State",
            SystemProperty::Priority => "Priority",
        }
    }

    /// By its name without case. Newer SDKs call the label `Subject`.
    pub fn parse(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("Subject") {
            return Some(SystemProperty::Label);
        }
        Self::ALL.into_iter().find(|property| property.name().eq_ignore_ascii_case(name))
    }

    /// The number that stands for it in stored bytes: its place in [`Self::ALL`], which therefore only ever grows.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    pub(crate) fn settable(self) -> Settable {
        let identifier = Settable::Text { chars_max: Some(crate::limits::IDENTIFIER_CHARS_MAX) };
        match self {
            SystemProperty::MessageId | SystemProperty::SessionId | SystemProperty::ReplyToSessionId => {
                identifier
            }
            SystemProperty::CorrelationId
            | SystemProperty::To
            | SystemProperty::ReplyTo
            | SystemProperty::Label
            | SystemProperty::ContentType => Settable::Text { chars_max: None },
            SystemProperty::TimeToLive => Settable::Span,
            SystemProperty::ScheduledEnqueueTimeUtc => Settable::Time,
            _ => Settable::No,
        }
    }

    /// Whether an action may set it; the others say what happened to a message, and nobody can change that.
    pub fn is_settable(self) -> bool {
        self.settable() != Settable::No
    }
}

impl fmt::Display for SystemProperty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sys.{}", self.name())
    }
}
