//! What a rule may ask for, and what one evaluation may cost.

/// Characters in a rule's name.
pub const RULE_NAME_CHARS_MAX: usize = 50;
/// Characters in the text of a filter or of an action. Bounds also the number of values in the list of an `IN`.
pub const EXPRESSION_CHARS_MAX: usize = 1024;
/// Parentheses, functions, `NOT` and signs inside one another. Chains of `AND`, `OR` or `+` are not nested.
pub const EXPRESSION_DEPTH_MAX: usize = 64;
/// Statements in an action.
pub const STATEMENT_COUNT_MAX: usize = 32;
/// Parameters of a filter or of an action.
pub const PARAMETER_COUNT_MAX: usize = 64;
/// Properties that a correlation filter compares.
pub const CORRELATION_PROPERTY_COUNT_MAX: usize = 64;
/// Characters in the name of a property or parameter that a rule speaks of.
pub const PROPERTY_NAME_CHARS_MAX: usize = 1024;
/// Bytes in a value that a rule holds: a parameter, or what a correlation filter compares with.
pub const RULE_VALUE_SIZE_BYTES_MAX: usize = 4096;
/// Bytes of one text made while a rule runs.
pub const MADE_TEXT_SIZE_BYTES_MAX: usize = 64 << 10;
/// Bytes of all changes that the action of one rule makes, encoded. Leaves room for more changes among the 64 KiB that a message may
/// carry: why it was dead-lettered, for one.
pub const CHANGES_SIZE_BYTES_MAX: usize = 48 << 10;
/// What one rule may cost for one message, unless the caller says otherwise. A step is about a comparison of two characters.
pub const RULE_STEPS_MAX: u64 = 1_000_000;
/// What all rules of a topic may cost together for one message, unless the caller says otherwise.
pub const MESSAGE_STEPS_MAX: u64 = 20_000_000;
/// Characters of an identifier that an action sets: message, session and reply-to session.
pub const IDENTIFIER_CHARS_MAX: usize = 128;
