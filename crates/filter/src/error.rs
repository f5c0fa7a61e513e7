//! The errors of rules. Each message names the defect, its place, and the correct form.

use std::fmt;

use crate::limits;

/// The text of a rule that an error refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Filter,
    Action,
    /// A value outside of a rule.
    Expression,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Filter => "SQL filter",
            Part::Action => "SQL action",
            Part::Expression => "expression",
        })
    }
}

/// The reason why a rule is rejected. Columns count characters from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("the {part} does not parse: at column {column} found {found}, expected {expected}")]
    Syntax { part: Part, column: usize, found: String, expected: String },
    #[error("the {part} has {count} characters; at most {} are allowed", limits::EXPRESSION_CHARS_MAX)]
    TooLong { part: Part, count: usize },
    #[error(
        "the {part} nests deeper than {} levels at column {column}; use fewer parentheses and signs",
        limits::EXPRESSION_DEPTH_MAX
    )]
    TooDeep { part: Part, column: usize },
    #[error(
        "the {part} has more than {} statements, the first too many at column {column}",
        limits::STATEMENT_COUNT_MAX
    )]
    TooManyStatements { part: Part, column: usize },
    #[error("the {part} has {count} parameters; at most {} are allowed", limits::PARAMETER_COUNT_MAX)]
    TooManyParameters { part: Part, count: usize },
    #[error("the {part} has the parameter '{name}' twice; names differ in more than case")]
    RepeatedParameter { part: Part, name: String },
    #[error(
        "the correlation filter has no condition; give at least one property, or use a true filter to match every message"
    )]
    NoCondition,
    #[error(
        "the correlation filter has {count} properties; at most {} are allowed",
        limits::CORRELATION_PROPERTY_COUNT_MAX
    )]
    TooManyProperties { count: usize },
    #[error("the correlation filter has the property '{name}' twice; names differ in more than case")]
    RepeatedProperty { name: String },
    #[error(
        "the correlation filter compares '{name}' with {found}, which no value is equal to; give another value"
    )]
    NeverEqual { name: String, found: &'static str },
    #[error(
        "a property or parameter name has {count} characters; use 1 to {}",
        limits::PROPERTY_NAME_CHARS_MAX
    )]
    NameLength { count: usize },
    #[error(
        "the value of '{name}' has {size} bytes; at most {} are allowed",
        limits::RULE_VALUE_SIZE_BYTES_MAX
    )]
    ValueTooLarge { name: String, size: usize },
}

impl RuleError {
    /// Returns the place in the text of the filter or action, counted in characters from 1.
    pub fn column(&self) -> Option<usize> {
        match self {
            RuleError::Syntax { column, .. }
            | RuleError::TooDeep { column, .. }
            | RuleError::TooManyStatements { column, .. } => Some(*column),
            _ => None,
        }
    }
}
