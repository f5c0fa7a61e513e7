//! The order of a queue in documents: classes, rules, tenants and rates.

mod check;
mod form;
mod text;

use std::borrow::Cow;

use peeklock_types::OrderSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::written::{Setting, as_serde_has_it};
use form::OrderForm;

pub use text::{
    ORDER_POLICIES, parse_objective, parse_order_policy, parse_priorities, parse_rate, parse_share,
    parse_tenant_weight, parse_weight, show_millionths, show_order_policy, show_priorities, show_thousandths,
};

/// The order in which a queue hands out its messages. It is set as a whole: parts that are left out have their default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "OrderForm", into = "OrderForm")]
pub struct OrderSpec(pub Box<OrderSettings>);

as_serde_has_it!(OrderSpec);

impl JsonSchema for OrderSpec {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Order")
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        OrderForm::json_schema(generator)
    }
}

impl Setting for OrderSpec {
    type Value = Box<OrderSettings>;

    fn of(settings: &Box<OrderSettings>) -> Self {
        OrderSpec(settings.clone())
    }

    fn value(&self) -> Box<OrderSettings> {
        self.0.clone()
    }
}
