//! The syntax tree of filters and actions.

use std::ops::Range;
use std::sync::Arc;

use crate::like::Pattern;
use crate::system::SystemProperty;
use crate::value::Value;

/// A part of an expression, and its byte range in the text.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) span: Range<usize>,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// A literal, or a parameter with its value.
    Literal(Value),
    Property(Property),
    NewId,
    /// `property(name)`
    Lookup(Box<Node>),
    Sign {
        is_minus: bool,
        value: Box<Node>,
    },
    /// A chain of operations, evaluated from left to right. It is one node, so that only parentheses nest.
    Arithmetic {
        first: Box<Node>,
        rest: Vec<(Operator, Node)>,
    },
    Compare {
        left: Box<Node>,
        comparison: Comparison,
        right: Box<Node>,
    },
    Like {
        is_negated: bool,
        text: Box<Node>,
        pattern: PatternSource,
    },
    In {
        is_negated: bool,
        value: Box<Node>,
        list: Vec<Node>,
    },
    IsNull {
        is_negated: bool,
        value: Box<Node>,
    },
    Exists(Property),
    Not(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
}

#[derive(Clone, Debug)]
pub(crate) enum PatternSource {
    /// A text literal, compiled once.
    Fixed(Pattern),
    Computed {
        pattern: Box<Node>,
        escape: Option<Box<Node>>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug)]
pub(crate) enum Property {
    System(SystemProperty),
    User {
        name: Arc<str>,
        /// The slot of its value during evaluation. The rule set assigns it.
        slot: usize,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum Statement {
    Set { target: Property, value: Node },
    Remove { target: Property },
}

impl Node {
    /// Returns whether the result is true, false or unknown, so that it cannot be used as a value.
    pub(crate) fn is_condition(&self) -> bool {
        matches!(
            self.kind,
            Kind::Compare { .. }
                | Kind::Like { .. }
                | Kind::In { .. }
                | Kind::IsNull { .. }
                | Kind::Exists(_)
                | Kind::Not(_)
                | Kind::And(_)
                | Kind::Or(_)
        )
    }

    /// Returns whether the result can be true, false or unknown. The kind of a property depends on the message.
    pub(crate) fn can_be_condition(&self) -> bool {
        self.is_condition()
            || matches!(
                self.kind,
                Kind::Property(_) | Kind::Lookup(_) | Kind::Literal(Value::Bool(_) | Value::Null)
            )
    }

    /// Returns whether the result is the same for every message.
    pub(crate) fn is_constant(&self) -> bool {
        match &self.kind {
            Kind::Literal(_) => true,
            Kind::Property(_) | Kind::Exists(_) | Kind::Lookup(_) | Kind::NewId => false,
            Kind::Sign { value, .. } | Kind::IsNull { value, .. } | Kind::Not(value) => value.is_constant(),
            Kind::Arithmetic { first, rest } => {
                first.is_constant() && rest.iter().all(|(_, node)| node.is_constant())
            }
            Kind::Compare { left, right, .. } => left.is_constant() && right.is_constant(),
            Kind::Like { text, pattern: PatternSource::Fixed(_), .. } => text.is_constant(),
            Kind::Like { .. } => false,
            Kind::In { value, list, .. } => value.is_constant() && list.iter().all(Node::is_constant),
            Kind::And(list) | Kind::Or(list) => list.iter().all(Node::is_constant),
        }
    }

    /// Visits every property in the expression.
    pub(crate) fn properties_mut(&mut self, visit: &mut dyn FnMut(&mut Property)) {
        match &mut self.kind {
            Kind::Property(property) | Kind::Exists(property) => visit(property),
            Kind::Literal(_) | Kind::NewId => (),
            Kind::Lookup(value)
            | Kind::Sign { value, .. }
            | Kind::IsNull { value, .. }
            | Kind::Not(value) => {
                value.properties_mut(visit);
            }
            Kind::Arithmetic { first, rest } => {
                first.properties_mut(visit);
                rest.iter_mut().for_each(|(_, node)| node.properties_mut(visit));
            }
            Kind::Compare { left, right, .. } => {
                left.properties_mut(visit);
                right.properties_mut(visit);
            }
            Kind::Like { text, pattern, .. } => {
                text.properties_mut(visit);
                if let PatternSource::Computed { pattern, escape } = pattern {
                    pattern.properties_mut(visit);
                    escape.iter_mut().for_each(|node| node.properties_mut(visit));
                }
            }
            Kind::In { value, list, .. } => {
                value.properties_mut(visit);
                list.iter_mut().for_each(|node| node.properties_mut(visit));
            }
            Kind::And(list) | Kind::Or(list) => list.iter_mut().for_each(|node| node.properties_mut(visit)),
        }
    }
}

impl Statement {
    pub(crate) fn properties_mut(&mut self, visit: &mut dyn FnMut(&mut Property)) {
        match self {
            Statement::Set { target, value } => {
                visit(target);
                value.properties_mut(visit);
            }
            Statement::Remove { target } => visit(target),
        }
    }
}
