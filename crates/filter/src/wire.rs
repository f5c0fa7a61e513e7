//! Rules as bytes; the forms are those of [`peeklock_types::wire`].

use bytes::Bytes;
pub use peeklock_types::wire::DecodeError;
pub(crate) use peeklock_types::wire::Decoder;
use peeklock_types::wire::tags::{correlation, expression, filter, rule};
use peeklock_types::wire::{Wire, put_number};
use peeklock_types::{tagged_fields, texts};

use crate::given::Given;
use crate::rule::{Action, CorrelationFilter, Filter, Rule, RuleName, SqlFilter};

pub(crate) use peeklock_types::wire::put_bytes;

pub(crate) fn put_text(text: &str, out: &mut Vec<u8>) {
    put_bytes(text.as_bytes(), out);
}

/// Copies the bytes, so that a stored value does not keep a whole frame in memory.
pub(crate) fn keep(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

texts! {
    RuleName: RuleName::parse;
}

tagged_fields! { Rule in rule {
    NAME: name,
    FILTER: filter,
    ACTION: action,
}}

tagged_fields! { SqlFilter in expression {
    TEXT: expression,
    PARAMETERS: parameters,
}}

tagged_fields! { Action in expression {
    TEXT: expression,
    PARAMETERS: parameters,
}}

tagged_fields! { CorrelationFilter in correlation {
    CORRELATION_ID: correlation_id,
    MESSAGE_ID: message_id,
    TO: to,
    REPLY_TO: reply_to,
    LABEL: label,
    SESSION_ID: session_id,
    REPLY_TO_SESSION_ID: reply_to_session_id,
    CONTENT_TYPE: content_type,
    PROPERTIES: properties,
}}

/// The stored form is the number of the kind, followed by the fields of that kind.
impl Wire for Filter {
    const IS_OPEN: bool = true;

    fn put_value(&self, out: &mut Vec<u8>) {
        match self {
            Filter::True => put_number(filter::TRUE, out),
            Filter::False => put_number(filter::FALSE, out),
            Filter::Sql(sql) => {
                put_number(filter::SQL, out);
                sql.put_value(out);
            }
            Filter::Correlation(conditions) => {
                put_number(filter::CORRELATION, out);
                conditions.put_value(out);
            }
        }
    }

    fn take_value(input: &mut Decoder<'_>, what: &'static str) -> Result<Self, DecodeError> {
        match input.number(what)? {
            filter::TRUE => Ok(Filter::True),
            filter::FALSE => Ok(Filter::False),
            filter::SQL => SqlFilter::take_value(input, what).map(Filter::Sql),
            filter::CORRELATION => CorrelationFilter::take_value(input, what).map(Filter::Correlation),
            kind => Err(DecodeError::Unknown { of: filter::LIST, tag: kind }),
        }
    }
}

impl Wire for Given {
    const IS_OPEN: bool = false;

    fn put_value(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }

    fn take_value(input: &mut Decoder<'_>, _: &'static str) -> Result<Self, DecodeError> {
        Given::decode(input)
    }
}

impl Rule {
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.put(out);
    }

    /// Decodes one rule and advances `bytes` past it. It does not validate the rule; [`Rule::check`] does.
    pub fn decode(bytes: &mut &[u8]) -> Result<Rule, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let rule = decoder.take("a rule")?;
        *bytes = decoder.rest;
        Ok(rule)
    }
}
