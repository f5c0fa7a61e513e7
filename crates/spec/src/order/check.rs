//! Validates an order, with the place of an invalid part.

use peeklock_filter::{Expression, Filter, Rule, RuleError, RuleName, SqlFilter};
use peeklock_types::{ClassName, OrderError, OrderSettings};

use super::OrderSpec;
use crate::namespace::Misfit;

impl OrderSpec {
    /// Checks the order and parses all its texts. The path of an error starts inside the order.
    pub fn check(&self) -> Result<(), Misfit> {
        let order = &*self.0;
        order.check().map_err(|error| Misfit { path: place(&error, order), message: error.to_string() })?;
        for (number, rule) in (1..).zip(&order.rules) {
            check_condition(&rule.when, || path(&["rules", &format!("[{number}]"), "when"]))?;
        }
        let Some(tenants) = &order.tenants else { return Ok(()) };
        Expression::parse(&tenants.key)
            .map_err(|error| Misfit { path: path(&["tenants", "key"]), message: of_key(&error) })?;
        for class in &tenants.classes {
            let Some(when) = &class.when else { continue };
            check_condition(when, || path(&["tenants", "classes", class.name.as_str(), "when"]))?;
        }
        Ok(())
    }
}

fn check_condition(text: &str, place: impl FnOnce() -> Vec<String>) -> Result<(), Misfit> {
    let filter = Filter::Sql(SqlFilter { expression: text.to_owned(), parameters: Vec::new() });
    let rule = Rule { name: RuleName::default_rule(), filter, action: None };
    rule.check().map_err(|error| Misfit {
        path: place(),
        message: format!("{error}; a condition is written like tier = 'paying'"),
    })
}

fn of_key(error: &RuleError) -> String {
    format!(
        "{error}; a key is the name of a property, such as tenant, or an expression, such as region + '/' + tier"
    )
}

fn path(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

/// Returns the path of an error.
fn place(error: &OrderError, order: &OrderSettings) -> Vec<String> {
    let class = |name: &ClassName, key: &str| path(&["classes", name.as_str(), key]);
    let tenant_class = |name: &ClassName, key: &str| path(&["tenants", "classes", name.as_str(), key]);
    match error {
        OrderError::EmptyRange { name, .. } | OrderError::Overlap { other: name, .. } => {
            class(name, "priorities")
        }
        OrderError::StrictWithWeights { name } => class(name, "weight"),
        OrderError::Span { what, name, .. } => class(name, what),
        OrderError::Objective { name, .. } => class(name, "objective"),
        OrderError::Share { name, .. } => tenant_class(name, "maxShare"),
        OrderError::Weight { name, .. } => {
            let is_message_class = order.classes.iter().any(|class| class.name == *name);
            if is_message_class { class(name, "weight") } else { tenant_class(name, "weight") }
        }
        OrderError::Outstanding { .. } => path(&["maxOutstanding"]),
        OrderError::NoSuchClass { .. } => user_of_missing(order),
        OrderError::TooMany { what, .. } => match *what {
            "tenant classes" => path(&["tenants", "classes"]),
            what => path(&[what]),
        },
        OrderError::NamedTwice { .. } | OrderError::Rate { .. } | OrderError::Expression { .. } => Vec::new(),
    }
}

/// Returns the path of a reference to a missing class.
fn user_of_missing(order: &OrderSettings) -> Vec<String> {
    let is_missing = |name: &ClassName| order.class_index(name.as_str()).is_none();
    if order.default_class.as_ref().is_some_and(is_missing) {
        return path(&["defaultClass"]);
    }
    match order.rules.iter().position(|rule| is_missing(&rule.class)) {
        Some(at) => path(&["rules", &format!("[{}]", at + 1), "class"]),
        None => path(&["tenants", "defaultClass"]),
    }
}
