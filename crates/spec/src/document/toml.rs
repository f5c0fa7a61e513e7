//! TOML, by the `toml` crate.

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};

use super::problem::Fault;
use super::{DOCUMENT_DEPTH_MAX, Key, Node, Value};

pub(crate) fn parse(text: &str) -> Result<Node, Fault> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        Fault::new(at, error.message().trim().replace('\n', "; "))
    })?;
    Ok(Node { at: 0, value: table_of(table.get_ref(), 0)? })
}

fn node(from: &Spanned<DeValue<'_>>, depth: usize) -> Result<Node, Fault> {
    let at = from.span().start;
    let value = match from.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(value) => Value::Boolean(*value),
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
            .map(Value::Integer)
            .map_err(|_| Fault::new(at, format!("{} is too large a number", integer.as_str())))?,
        DeValue::Float(float) => {
            let parsed = float.as_str().parse::<f64>().ok().filter(|float| float.is_finite());
            Value::Float(parsed.ok_or_else(|| Fault::new(at, "a number that is not finite"))?)
        }
        // No option is a date, so the option rejects the text with its own error.
        DeValue::Datetime(date) => Value::Text(date.to_string()),
        DeValue::Array(list) => {
            let depth = deeper(depth, at)?;
            Value::List(list.iter().map(|item| node(item, depth)).collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => table_of(table, deeper(depth, at)?)?,
    };
    Ok(Node { at, value })
}

fn table_of(table: &DeTable<'_>, depth: usize) -> Result<Value, Fault> {
    let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let key_text: &std::borrow::Cow<'_, str> = key.get_ref();
        Ok((Key { at: key.span().start, text: key_text.to_string() }, node(value, depth)?))
    };
    table.iter().map(entry).collect::<Result<_, Fault>>().map(Value::Table)
}

fn deeper(depth: usize, at: usize) -> Result<usize, Fault> {
    if depth == DOCUMENT_DEPTH_MAX {
        return Err(Fault::new(at, format!("the document nests deeper than {DOCUMENT_DEPTH_MAX} levels")));
    }
    Ok(depth + 1)
}
