//! The language of SQL filters and actions: from text to a tree that is ready to run.
//!
//! ```text
//! condition  := condition OR condition | condition AND condition | NOT condition | ( condition ) | test
//! test       := value (= | <> | != | < | <= | > | >=) value | value IS [NOT] NULL | value [NOT] IN ( value, … )
//!             | value [NOT] LIKE value [ESCAPE value] | EXISTS ( property ) | a property or parameter that is true or false
//! value      := value (+ - * / %) value | (+ | -) value | ( value ) | property | constant | @parameter
//!             | newid() | property(value) | p(value)
//! property   := [sys. | user.] name             name := letters, digits, _ | [any text] | "any text"
//! action     := statement [;] statement …       statement := SET property = value | REMOVE property
//! ```

mod lexer;
mod parser;
mod tree;

use crate::error::{Part, RuleError};
use crate::given::Given;
use crate::limits;
use crate::rule::{Action, SqlFilter, check_parameters};
use parser::Parser;
pub(crate) use tree::{Comparison, Kind, Node, Operator, PatternSource, Property, Statement};

pub(crate) fn parse_filter(filter: &SqlFilter) -> Result<Node, RuleError> {
    check_text(Part::Filter, &filter.expression, &filter.parameters)?;
    Parser::new(Part::Filter, &filter.expression, &filter.parameters).filter()
}

pub(crate) fn parse_action(action: &Action) -> Result<Vec<Statement>, RuleError> {
    check_text(Part::Action, &action.expression, &action.parameters)?;
    Parser::new(Part::Action, &action.expression, &action.parameters).action()
}

pub(crate) fn parse_value(text: &str) -> Result<Node, RuleError> {
    check_text(Part::Expression, text, &[])?;
    Parser::new(Part::Expression, text, &[]).value()
}

fn check_text(part: Part, expression: &str, parameters: &[(String, Given)]) -> Result<(), RuleError> {
    let count = expression.chars().count();
    if count > limits::EXPRESSION_CHARS_MAX {
        return Err(RuleError::TooLong { part, count });
    }
    check_parameters(part, parameters)
}
