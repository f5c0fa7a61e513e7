//! System properties, which filters write with `sys.`.

use std::fmt;

/// A property that the broker sets, or that has its own field in a message.
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
    /// The priority in the header of the message, if it is set.
    Priority,
}

/// The kind of value that an action may assign to a system property.
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

    /// Parses a name without regard to case. Newer SDKs call the label `Subject`.
    pub fn parse(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("Subject") {
            return Some(SystemProperty::Label);
        }
        Self::ALL.into_iter().find(|property| property.name().eq_ignore_ascii_case(name))
    }

    /// Returns the number in stored bytes: the index in [`Self::ALL`], to which properties are only appended.
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

    /// Returns whether an action may set the property.
    pub fn is_settable(self) -> bool {
        self.settable() != Settable::No
    }
}

impl fmt::Display for SystemProperty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sys.{}", self.name())
    }
}
