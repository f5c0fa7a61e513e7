//! Limits on the size of rules and on the cost of one evaluation.

/// Characters in a rule's name.
pub const RULE_NAME_CHARS_MAX: usize = 50;
/// Characters in the text of a filter or of an action. It also limits the number of values in an `IN` list.
pub const EXPRESSION_CHARS_MAX: usize = 1024;
/// Nesting of parentheses, functions, `NOT` and signs. Chains of `AND`, `OR` or `+` are not nested.
pub const EXPRESSION_DEPTH_MAX: usize = 64;
/// Statements in an action.
pub const STATEMENT_COUNT_MAX: usize = 32;
/// Parameters of a filter or of an action.
pub const PARAMETER_COUNT_MAX: usize = 64;
/// Properties that a correlation filter compares.
pub const CORRELATION_PROPERTY_COUNT_MAX: usize = 64;
/// Characters in the name of a property or parameter in a rule.
pub const PROPERTY_NAME_CHARS_MAX: usize = 1024;
/// Bytes in a value in a rule: a parameter, or the value that a correlation filter compares with.
pub const RULE_VALUE_SIZE_BYTES_MAX: usize = 4096;
/// Bytes of one text that is created while a rule runs.
pub const MADE_TEXT_SIZE_BYTES_MAX: usize = 64 << 10;
/// Bytes of all encoded changes by the action of one rule. It leaves room for further changes within the 64 KiB of a message, such as the
/// dead-letter reason.
pub const CHANGES_SIZE_BYTES_MAX: usize = 48 << 10;
/// The default cost limit of one rule for one message. A step is approximately the comparison of two characters.
pub const RULE_STEPS_MAX: u64 = 1_000_000;
/// The default cost limit of all rules of a topic together for one message.
pub const MESSAGE_STEPS_MAX: u64 = 20_000_000;
/// Characters of an identifier that an action sets: message id, session id and reply-to session id.
pub const IDENTIFIER_CHARS_MAX: usize = 128;
