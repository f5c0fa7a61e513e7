//! Parses tokens into a tree, with one function for each level of precedence.

use std::ops::Range;

use super::lexer::{Lexeme, Token, tokens};
use super::tree::{Comparison, Kind, Node, Operator, PatternSource, Property, Statement};
use crate::error::{Part, RuleError};
use crate::fold::same_name;
use crate::given::Given;
use crate::like::{Pattern, PatternError, escape_char};
use crate::limits;
use crate::rule::bare_name;
use crate::system::SystemProperty;
use crate::value::Value;

const RESERVED: [&str; 11] =
    ["AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "IS", "NULL", "EXISTS", "TRUE", "FALSE"];
const RESERVED_IN_ACTIONS: [&str; 2] = ["SET", "REMOVE"];
const A_VALUE: &str = "a property or a value";
const A_CONDITION: &str = "a condition, such as a comparison";
const I64_MIN_MAGNITUDE: u64 = i64::MIN.unsigned_abs();

pub(super) struct Parser<'a> {
    part: Part,
    source: &'a str,
    parameters: &'a [(String, Given)],
    lexemes: Vec<Lexeme>,
    at: usize,
    depth: usize,
}

type Parsed<T> = Result<T, RuleError>;

impl<'a> Parser<'a> {
    pub(super) fn new(part: Part, source: &'a str, parameters: &'a [(String, Given)]) -> Self {
        Self { part, source, parameters, lexemes: tokens(source), at: 0, depth: 0 }
    }

    pub(super) fn filter(mut self) -> Parsed<Node> {
        let node = self.or()?;
        self.needs_condition(&node)?;
        if *self.token() == Token::End {
            return Ok(node);
        }
        Err(self.unexpected("AND, OR or the end"))
    }

    pub(super) fn action(mut self) -> Parsed<Vec<Statement>> {
        let mut statements = Vec::new();
        while *self.token() != Token::End || statements.is_empty() {
            if statements.len() == limits::STATEMENT_COUNT_MAX {
                return Err(RuleError::TooManyStatements {
                    part: self.part,
                    column: self.column(self.start()),
                });
            }
            statements.push(self.statement()?);
            // The separator is optional, and may also end the last statement.
            let is_separated = self.takes(";") || self.takes(",");
            let goes_on = is_separated || self.is_keyword("SET") || self.is_keyword("REMOVE");
            if !goes_on && *self.token() != Token::End {
                return Err(self.unexpected("an operator, ';' or the end"));
            }
        }
        Ok(statements)
    }

    pub(super) fn value(mut self) -> Parsed<Node> {
        // Parses a full condition, so that the error for a comparison names it instead of unexpected input.
        let node = self.or()?;
        self.needs_value(&node)?;
        if *self.token() == Token::End {
            return Ok(node);
        }
        Err(self.unexpected("an operator or the end"))
    }

    fn statement(&mut self) -> Parsed<Statement> {
        if self.takes_keyword("SET") {
            let start = self.start();
            let target = self.property()?;
            if let Property::System(property) = &target
                && !property.is_settable()
            {
                return Err(self.refused(
                    start,
                    format!("{property}, which only the broker sets"),
                    "another property",
                ));
            }
            self.needs("=", "'='")?;
            let value = self.sum()?;
            self.needs_value(&value)?;
            return Ok(Statement::Set { target, value });
        }
        if self.takes_keyword("REMOVE") {
            let start = self.start();
            return match self.property()? {
                Property::System(property) => Err(self.refused(
                    start,
                    format!("{property}"),
                    "a user property, as system properties stay",
                )),
                target @ Property::User { .. } => Ok(Statement::Remove { target }),
            };
        }
        Err(self.unexpected("SET or REMOVE"))
    }

    fn or(&mut self) -> Parsed<Node> {
        self.chain("OR", Self::and, Kind::Or)
    }

    fn and(&mut self) -> Parsed<Node> {
        self.chain("AND", Self::not, Kind::And)
    }

    fn chain(
        &mut self,
        keyword: &str,
        next: fn(&mut Self) -> Parsed<Node>,
        kind: fn(Vec<Node>) -> Kind,
    ) -> Parsed<Node> {
        let start = self.start();
        let first = next(self)?;
        if !self.is_keyword(keyword) {
            return Ok(first);
        }
        self.needs_condition(&first)?;
        let mut list = vec![first];
        while self.takes_keyword(keyword) {
            let node = next(self)?;
            self.needs_condition(&node)?;
            list.push(node);
        }
        Ok(self.node(start, kind(list)))
    }

    fn not(&mut self) -> Parsed<Node> {
        let start = self.start();
        if !self.takes_keyword("NOT") {
            return self.test();
        }
        let inner = self.deeper(Self::not)?;
        self.needs_condition(&inner)?;
        Ok(self.node(start, Kind::Not(Box::new(inner))))
    }

    fn test(&mut self) -> Parsed<Node> {
        let start = self.start();
        if self.is_keyword("EXISTS") {
            return self.exists();
        }
        let left = self.sum()?;
        let comparison = self.comparison();
        if comparison.is_none() && !["IS", "NOT", "IN", "LIKE"].iter().any(|word| self.is_keyword(word)) {
            return Ok(left);
        }
        self.needs_value(&left)?;
        let left = Box::new(left);
        if let Some(comparison) = comparison {
            let right = Box::new(self.operand()?);
            return Ok(self.node(start, Kind::Compare { left, comparison, right }));
        }
        if self.takes_keyword("IS") {
            let is_negated = self.takes_keyword("NOT");
            if !self.takes_keyword("NULL") {
                return Err(self.unexpected(if is_negated { "NULL" } else { "NULL or NOT NULL" }));
            }
            return Ok(self.node(start, Kind::IsNull { is_negated, value: left }));
        }
        let is_negated = self.takes_keyword("NOT");
        if self.takes_keyword("IN") {
            let list = self.list()?;
            return Ok(self.node(start, Kind::In { is_negated, value: left, list }));
        }
        if self.takes_keyword("LIKE") {
            let pattern = self.pattern()?;
            return Ok(self.node(start, Kind::Like { is_negated, text: left, pattern }));
        }
        Err(self.unexpected("IN or LIKE"))
    }

    fn comparison(&mut self) -> Option<Comparison> {
        const SYMBOLS: [(&str, Comparison); 7] = [
            ("=", Comparison::Equal),
            ("<>", Comparison::NotEqual),
            ("!=", Comparison::NotEqual),
            ("<", Comparison::Less),
            ("<=", Comparison::LessOrEqual),
            (">", Comparison::Greater),
            (">=", Comparison::GreaterOrEqual),
        ];
        SYMBOLS.into_iter().find(|(symbol, _)| self.takes(symbol)).map(|(_, comparison)| comparison)
    }

    fn exists(&mut self) -> Parsed<Node> {
        let start = self.start();
        self.advance();
        self.needs("(", "'(' behind EXISTS")?;
        let property = self.property()?;
        self.needs(")", "')'")?;
        Ok(self.node(start, Kind::Exists(property)))
    }

    fn list(&mut self) -> Parsed<Vec<Node>> {
        self.needs("(", "'(' before the list")?;
        let mut list = vec![self.deeper(Self::operand)?];
        while self.takes(",") {
            list.push(self.deeper(Self::operand)?);
        }
        self.needs(")", "',' or ')'")?;
        Ok(list)
    }

    fn pattern(&mut self) -> Parsed<PatternSource> {
        let pattern = self.operand()?;
        let escape = if self.takes_keyword("ESCAPE") { Some(self.operand()?) } else { None };
        let escape_text = match &escape {
            None => Some(None),
            Some(Node { kind: Kind::Literal(Value::Text(text)), span }) => {
                Some(Some(escape_char(text).map_err(|error| self.bad_pattern(span, error))?))
            }
            Some(_) => None,
        };
        if let (Kind::Literal(Value::Text(text)), Some(escape)) = (&pattern.kind, escape_text) {
            let compiled = Pattern::compile(text, escape);
            return Ok(PatternSource::Fixed(
                compiled.map_err(|error| self.bad_pattern(&pattern.span, error))?,
            ));
        }
        Ok(PatternSource::Computed { pattern: Box::new(pattern), escape: escape.map(Box::new) })
    }

    fn bad_pattern(&self, span: &Range<usize>, error: PatternError) -> RuleError {
        let found = self.source.get(span.clone()).unwrap_or_default().to_owned();
        let expected = match error {
            PatternError::EscapeLength => "a text of one character behind ESCAPE",
            PatternError::EscapeAtEnd => "a character behind each escape character",
        };
        self.refused(span.start, found, expected)
    }

    /// Parses a value where a condition is not allowed.
    fn operand(&mut self) -> Parsed<Node> {
        let node = self.sum()?;
        self.needs_value(&node)?;
        Ok(node)
    }

    fn sum(&mut self) -> Parsed<Node> {
        self.arithmetic(Self::product, &[("+", Operator::Add), ("-", Operator::Subtract)])
    }

    fn product(&mut self) -> Parsed<Node> {
        const OPERATORS: [(&str, Operator); 3] =
            [("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Remainder)];
        self.arithmetic(Self::sign, &OPERATORS)
    }

    fn arithmetic(
        &mut self,
        next: fn(&mut Self) -> Parsed<Node>,
        operators: &[(&'static str, Operator)],
    ) -> Parsed<Node> {
        let start = self.start();
        let first = next(self)?;
        let mut rest = Vec::new();
        while let Some((_, operator)) = operators.iter().find(|(symbol, _)| self.is_symbol(symbol)) {
            if rest.is_empty() {
                self.needs_value(&first)?;
            }
            self.advance();
            let node = next(self)?;
            self.needs_value(&node)?;
            rest.push((*operator, node));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        Ok(self.node(start, Kind::Arithmetic { first: Box::new(first), rest }))
    }

    fn sign(&mut self) -> Parsed<Node> {
        let start = self.start();
        let is_minus = self.is_symbol("-");
        if !is_minus && !self.is_symbol("+") {
            return self.primary();
        }
        self.advance();
        if let (true, Token::Integer(I64_MIN_MAGNITUDE)) = (is_minus, self.token()) {
            self.advance();
            return Ok(self.node(start, Kind::Literal(Value::Long(i64::MIN))));
        }
        let value = Box::new(self.deeper(Self::sign)?);
        self.needs_value(&value)?;
        Ok(self.node(start, Kind::Sign { is_minus, value }))
    }

    fn primary(&mut self) -> Parsed<Node> {
        let start = self.start();
        let kind = match self.token().clone() {
            Token::Symbol("(") => {
                self.advance();
                let inner = self.deeper(Self::or)?;
                self.needs(")", "an operator or ')'")?;
                return Ok(inner);
            }
            Token::Text(text) => self.literal(Value::text(text)),
            Token::Decimal(number) => self.literal(Value::Double(number)),
            Token::Integer(number) => match i64::try_from(number) {
                Ok(number) => self.literal(Value::Long(number)),
                Err(_) => return Err(self.unexpected("a number up to 9223372036854775807")),
            },
            Token::Parameter => self.parameter()?,
            Token::Quoted(_) => Kind::Property(self.property()?),
            Token::Word => return self.word(),
            _ => return Err(self.unexpected(A_VALUE)),
        };
        Ok(self.node(start, kind))
    }

    fn literal(&mut self, value: Value) -> Kind {
        self.advance();
        Kind::Literal(value)
    }

    fn parameter(&mut self) -> Parsed<Kind> {
        let name = bare_name(self.current());
        let value = self.parameters.iter().find(|(given, _)| same_name(bare_name(given), name));
        let Some((_, value)) = value else {
            return Err(self.unexpected("a parameter that the rule gives a value"));
        };
        Ok(self.literal(value.value().clone()))
    }

    fn word(&mut self) -> Parsed<Node> {
        let start = self.start();
        for (word, value) in
            [("TRUE", Value::Bool(true)), ("FALSE", Value::Bool(false)), ("NULL", Value::Null)]
        {
            if self.is_keyword(word) {
                let kind = self.literal(value);
                return Ok(self.node(start, kind));
            }
        }
        let is_call = self.lexemes.get(self.at + 1).is_some_and(|next| next.token == Token::Symbol("("));
        let kind =
            if is_call && !self.is_reserved() { self.call()? } else { Kind::Property(self.property()?) };
        Ok(self.node(start, kind))
    }

    fn call(&mut self) -> Parsed<Kind> {
        let is_lookup = self.is_keyword("property") || self.is_keyword("p");
        if !is_lookup && !self.is_keyword("newid") {
            return Err(self.unexpected("newid(), property(name) or p(name)"));
        }
        self.advance();
        self.advance();
        let kind = if is_lookup { lookup(self.deeper(Self::operand)?) } else { Kind::NewId };
        self.needs(")", "')'")?;
        Ok(kind)
    }

    fn property(&mut self) -> Parsed<Property> {
        let start = self.start();
        let scope = self.current().to_owned();
        let is_word = *self.token() == Token::Word;
        let name = self.name("the name of a property")?;
        if !self.takes(".") {
            return self.user(start, name);
        }
        if is_word && scope.eq_ignore_ascii_case("user") {
            let start = self.start();
            let name = self.name("the name of a property behind 'user.'")?;
            return self.user(start, name);
        }
        if is_word && scope.eq_ignore_ascii_case("sys") {
            return self.system();
        }
        let expected = "'sys.' or 'user.', or the whole name in brackets as in [a.b]";
        Err(self.refused(start, format!("'{scope}.'"), expected))
    }

    fn system(&mut self) -> Parsed<Property> {
        let start = self.start();
        let name = self.name("the name of a system property behind 'sys.'")?;
        SystemProperty::parse(&name).map(Property::System).ok_or_else(|| {
            let known = SystemProperty::ALL.map(SystemProperty::name).join(", ");
            self.refused(start, format!("'{name}'"), &format!("one of the system properties {known}"))
        })
    }

    fn user(&self, start: usize, name: String) -> Parsed<Property> {
        if name.is_empty() {
            return Err(self.refused(start, "an empty name".to_owned(), "the name of a property"));
        }
        Ok(Property::User { name: name.into(), slot: 0 })
    }

    fn name(&mut self, expected: &str) -> Parsed<String> {
        let name = match self.token() {
            Token::Quoted(name) => name.clone(),
            Token::Word if !self.is_reserved() => self.current().to_owned(),
            Token::Word => {
                let found = format!("the keyword {}", self.current().to_uppercase());
                let expected = format!("{expected}; a property of that name is written in brackets");
                return Err(self.refused(self.start(), found, &expected));
            }
            _ => return Err(self.unexpected(expected)),
        };
        self.advance();
        Ok(name)
    }

    fn is_reserved(&self) -> bool {
        let in_actions: &[&str] = if self.part == Part::Action { &RESERVED_IN_ACTIONS } else { &[] };
        RESERVED.iter().chain(in_actions).any(|word| self.is_keyword(word))
    }

    /// Parses one level of nesting deeper.
    fn deeper<T>(&mut self, parse: fn(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == limits::EXPRESSION_DEPTH_MAX {
            return Err(RuleError::TooDeep { part: self.part, column: self.column(self.start()) });
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn node(&self, start: usize, kind: Kind) -> Node {
        let end =
            self.at.checked_sub(1).and_then(|at| self.lexemes.get(at)).map_or(start, |last| last.span.end);
        Node { kind, span: start..end }
    }

    fn needs_condition(&self, node: &Node) -> Parsed<()> {
        if node.can_be_condition() { Ok(()) } else { Err(self.refused_node(node, A_CONDITION)) }
    }

    fn needs_value(&self, node: &Node) -> Parsed<()> {
        if node.is_condition() { Err(self.refused_node(node, "a value and not a condition")) } else { Ok(()) }
    }

    fn refused_node(&self, node: &Node, expected: &str) -> RuleError {
        let text = self.source.get(node.span.clone()).unwrap_or_default();
        self.refused(node.span.start, format!("'{text}'"), expected)
    }

    fn refused(&self, start: usize, found: String, expected: &str) -> RuleError {
        RuleError::Syntax {
            part: self.part,
            column: self.column(start),
            found,
            expected: expected.to_owned(),
        }
    }

    fn unexpected(&self, expected: &str) -> RuleError {
        match self.token() {
            Token::Bad { found, expected } => self.refused(self.start(), found.clone(), expected),
            Token::End => self.refused(self.start(), "the end".to_owned(), expected),
            _ => self.refused(self.start(), format!("'{}'", self.current()), expected),
        }
    }

    fn column(&self, byte: usize) -> usize {
        self.source.get(..byte).unwrap_or_default().chars().count() + 1
    }

    fn token(&self) -> &Token {
        self.lexemes.get(self.at).map_or(&Token::End, |lexeme| &lexeme.token)
    }

    fn start(&self) -> usize {
        self.lexemes.get(self.at).map_or(self.source.len(), |lexeme| lexeme.span.start)
    }

    /// Returns the text of the current token.
    fn current(&self) -> &'a str {
        self.lexemes.get(self.at).and_then(|lexeme| self.source.get(lexeme.span.clone())).unwrap_or_default()
    }

    /// Moves to the next token. The last token is never passed.
    fn advance(&mut self) {
        self.at = (self.at + 1).min(self.lexemes.len().saturating_sub(1));
    }

    fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.token(), Token::Symbol(found) if *found == symbol)
    }

    fn takes(&mut self, symbol: &str) -> bool {
        let is_there = self.is_symbol(symbol);
        if is_there {
            self.advance();
        }
        is_there
    }

    fn needs(&mut self, symbol: &str, expected: &str) -> Parsed<()> {
        if self.takes(symbol) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    fn is_keyword(&self, word: &str) -> bool {
        *self.token() == Token::Word && self.current().eq_ignore_ascii_case(word)
    }

    fn takes_keyword(&mut self, word: &str) -> bool {
        let is_there = self.is_keyword(word);
        if is_there {
            self.advance();
        }
        is_there
    }
}

/// Returns the node of `property(name)`. A name that is a text literal becomes a property at once.
fn lookup(name: Node) -> Kind {
    match &name.kind {
        Kind::Literal(Value::Text(text)) if !text.is_empty() => {
            Kind::Property(Property::User { name: text.clone(), slot: 0 })
        }
        _ => Kind::Lookup(Box::new(name)),
    }
}
