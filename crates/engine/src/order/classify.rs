//! Determines the class and the tenant of a message.

use std::sync::Arc;

use peeklock_filter::{
    Entries, Expression, Filter, Outcome, Rule, RuleError, RuleName, RuleSet, SqlFilter, SystemProperty,
    Value, ValueRef, ViewProperty, same_name,
};
use peeklock_types::{OrderSettings, TenantSettings, limits};

use crate::error::Error;

/// The application property that specifies a class or a priority.
const PRIORITY: &str = "Priority";

/// The compiled conditions of an order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classifier {
    rules: Vec<(RuleSet<()>, u8)>,
    tenant_key: Option<Expression>,
    tenant_rules: Vec<(RuleSet<()>, u8)>,
}

/// The classification of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Classified {
    pub(crate) class: u8,
    pub(crate) tenant_class: u8,
    pub(crate) tenant: Option<Arc<str>>,
    /// Whether the message specified an unknown class or priority.
    pub(crate) is_misfit: bool,
}

impl Classifier {
    pub(crate) fn new(order: &OrderSettings) -> Result<Classifier, Error> {
        let mut classifier = Classifier::default();
        for rule in &order.rules {
            let class = order.class_index(rule.class.as_str()).unwrap_or_default();
            let what = || format!("the rule of the class '{}'", rule.class);
            classifier.rules.push((condition(&rule.when, what)?, small(class)));
        }
        let Some(tenants) = &order.tenants else { return Ok(classifier) };
        let unreadable = |reason| Error::OrderExpression { what: "the tenant key".to_owned(), reason };
        classifier.tenant_key = Some(Expression::parse(&tenants.key).map_err(unreadable)?);
        for (place, class) in tenants.classes.iter().enumerate() {
            let Some(when) = &class.when else { continue };
            let what = || format!("the condition of the tenant class '{}'", class.name);
            classifier.tenant_rules.push((condition(when, what)?, small(place)));
        }
        Ok(classifier)
    }

    /// Classifies a message by its properties in `view`.
    pub(crate) fn classify(&self, order: &OrderSettings, view: &[u8], seed: u64) -> Classified {
        let default = small(order.default_class_index());
        let (class, is_misfit) = match first(&self.rules, view, seed) {
            Some(class) => (class, false),
            None if order.classes.is_empty() => (default, false),
            None => match said(order, view) {
                Said::Nothing => (default, false),
                Said::Class(class) => (small(class), false),
                Said::Unknown => (default, true),
            },
        };
        let (tenant_class, tenant) = self.tenant(order.tenants.as_ref(), view, seed);
        Classified { class, tenant_class, tenant, is_misfit }
    }

    fn tenant(&self, tenants: Option<&TenantSettings>, view: &[u8], seed: u64) -> (u8, Option<Arc<str>>) {
        let (Some(tenants), Some(key)) = (tenants, &self.tenant_key) else { return (0, None) };
        let class = first(&self.tenant_rules, view, seed);
        let class = class.unwrap_or_else(|| small(tenants.default_class_index()));
        (class, key.evaluate(view, seed).ok().and_then(name_of))
    }
}

fn condition(text: &str, what: impl Fn() -> String) -> Result<RuleSet<()>, Error> {
    let refuse = |reason: RuleError| Error::OrderExpression { what: what(), reason };
    let filter = Filter::Sql(SqlFilter { expression: text.to_owned(), parameters: Vec::new() });
    let rule = Rule { name: RuleName::default_rule(), filter, action: None };
    rule.check().map_err(refuse)?;
    let mut set = RuleSet::new();
    set.insert((), &rule).map_err(refuse)?;
    Ok(set)
}

/// Returns the value of the first condition that is true. A condition that cannot be evaluated is not true.
fn first(conditions: &[(RuleSet<()>, u8)], view: &[u8], seed: u64) -> Option<u8> {
    let mut verdicts = Vec::new();
    let found = conditions.iter().find(|(rules, _)| {
        verdicts.clear();
        rules.evaluate(view, seed, &mut verdicts);
        verdicts.iter().any(|verdict| matches!(verdict.outcome, Outcome::Copies { plain: true, .. }))
    });
    found.map(|(_, class)| *class)
}

enum Said {
    Nothing,
    Class(usize),
    Unknown,
}

/// Returns the class that the message itself specifies: the property has precedence over the header.
fn said(order: &OrderSettings, view: &[u8]) -> Said {
    let mut header = Said::Nothing;
    for entry in Entries::of(view) {
        match entry {
            Ok(ViewProperty::User(name, value)) if same_name(name, PRIORITY) && !value.is_null() => {
                return class_of(order, &value);
            }
            Ok(ViewProperty::System(SystemProperty::Priority, value)) => header = class_of(order, &value),
            _ => {}
        }
    }
    header
}

fn class_of(order: &OrderSettings, value: &ValueRef<'_>) -> Said {
    let number = match value {
        ValueRef::Long(number) => Some(*number),
        ValueRef::Text(text) => match order.class_index(text.trim()) {
            Some(class) => return Said::Class(class),
            None => text.trim().parse().ok(),
        },
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the comparison after the cast rejects values that do not fit"
        )]
        ValueRef::Double(number) => {
            Some(*number as i64).filter(|whole| (*whole as f64 - number).abs() < f64::EPSILON)
        }
        _ => None,
    };
    let priority = number.and_then(|number| u8::try_from(number).ok());
    priority.and_then(|priority| order.class_of(priority)).map_or(Said::Unknown, Said::Class)
}

/// Returns the name of a tenant whose key has this value.
fn name_of(value: Value) -> Option<Arc<str>> {
    let name: Arc<str> = match value {
        Value::Null => return None,
        Value::Text(text) => text,
        Value::Bool(value) => value.to_string().into(),
        Value::Long(number) => number.to_string().into(),
        Value::Double(number) => number.to_string().into(),
        other => format!("{other:?}").into(),
    };
    match name.len() {
        0 => None,
        1..=limits::TENANT_BYTES_MAX => Some(name),
        _ => name.get(..name.floor_char_boundary(limits::TENANT_BYTES_MAX)).map(Arc::from),
    }
}

/// Converts the place of a class. The limits keep the number of classes far below 256.
fn small(place: usize) -> u8 {
    u8::try_from(place).unwrap_or(u8::MAX)
}
