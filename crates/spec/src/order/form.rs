//! The document form of an order.

use std::borrow::Cow;
use std::time::Duration;

use peeklock_types::{
    ClassName, ClassRule, ClassSettings, OrderPolicy, OrderSettings, Rate, Target, TenantClass,
    TenantSettings, limits,
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use super::{OrderSpec, text};
use crate::named::{Name, Named};
use crate::written::{Form, written};

/// The order in which a queue hands out its messages. It is set as a whole: parts that are left out have their default.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct OrderForm {
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Form<OrderPolicy>>,
    #[serde(skip_serializing_if = "is_empty")]
    classes: Named<ClassName, ClassBody>,
    /// The class of messages that match no class.
    #[serde(skip_serializing_if = "Option::is_none")]
    default_class: Option<Form<ClassName>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rules: Vec<RuleForm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenants: Option<TenantsForm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<Form<Rate>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    send_rate: Option<Form<Rate>>,
    /// The maximum number of unsettled messages of one receiver, or the number that it settles in 100 ms if that is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = limits::OUTSTANDING_MAX))]
    max_outstanding: Option<u32>,
}

/// A class without its name, which is the key.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "ClassForm", into = "ClassForm")]
struct ClassBody(ClassSettings);

impl JsonSchema for ClassBody {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("OrderClass")
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = ClassForm::json_schema(generator);
        schema.insert("required".to_owned(), serde_json::json!(["priorities"]));
        schema
    }
}

/// A class of messages.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ClassForm {
    /// The lowest and the highest priority. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    priorities: Option<Form<Priorities>>,
    /// The time within which its messages should start.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Form<Duration>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    objective: Option<Form<Objective>>,
    /// For the policy `aged`: how much later other messages may arrive and still go first.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<Form<Duration>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<Form<Weight>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<Form<Rate>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    send_rate: Option<Form<Rate>>,
}

/// Puts messages into a class; the first rule with a true condition decides.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OrderRule")]
struct RuleForm {
    /// A condition of the filter language, such as `tier = 'paying'`.
    when: String,
    class: Form<ClassName>,
}

/// The tenants that share the receivers' time.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "OrderTenants")]
struct TenantsForm {
    /// A property, or an expression: its value names the tenant.
    key: String,
    #[serde(default, skip_serializing_if = "is_empty")]
    classes: Named<ClassName, TenantClassForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default_class: Option<Form<ClassName>>,
}

/// A class of tenants; classes are tried in the order of the document.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "OrderTenantClass")]
struct TenantClassForm {
    /// A condition of the filter language, such as `tier = 'paying'`.
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<Form<TenantWeight>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_share: Option<Form<Share>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hard: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<Form<Rate>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    send_rate: Option<Form<Rate>>,
}

fn is_empty<K, T>(named: &Named<K, T>) -> bool {
    named.0.is_empty()
}

impl From<OrderForm> for OrderSpec {
    fn from(form: OrderForm) -> Self {
        let class = |(name, ClassBody(class)): (ClassName, ClassBody)| ClassSettings { name, ..class };
        let rule = |RuleForm { when, class }: RuleForm| ClassRule { when, class: class.0 };
        let mut order = OrderSettings {
            policy: form.policy.map(plain).unwrap_or_default(),
            classes: form.classes.0.into_iter().map(class).collect(),
            default_class: form.default_class.map(plain),
            rules: form.rules.into_iter().map(rule).collect(),
            tenants: form.tenants.map(Into::into),
            rate: form.rate.map(plain),
            send_rate: form.send_rate.map(plain),
            max_outstanding: form.max_outstanding.unwrap_or(OrderSettings::MAX_OUTSTANDING),
        };
        // The order of classes follows from their ranges, not from their place in the document.
        order.sort();
        OrderSpec(Box::new(order))
    }
}

impl From<OrderSpec> for OrderForm {
    fn from(OrderSpec(order): OrderSpec) -> Self {
        let class = |class: ClassSettings| (class.name.clone(), ClassBody(class));
        let rule = |ClassRule { when, class }: ClassRule| RuleForm { when, class: Form(class) };
        OrderForm {
            policy: Some(Form(order.policy)),
            classes: Named(order.classes.into_iter().map(class).collect()),
            default_class: order.default_class.map(Form),
            rules: order.rules.into_iter().map(rule).collect(),
            tenants: order.tenants.map(Into::into),
            rate: order.rate.map(Form),
            send_rate: order.send_rate.map(Form),
            max_outstanding: Some(order.max_outstanding),
        }
    }
}

/// The default objective of a target, in millionths.
const OBJECTIVE_PPM: u32 = 990_000;

impl TryFrom<ClassForm> for ClassBody {
    type Error = &'static str;

    fn try_from(form: ClassForm) -> Result<Self, Self::Error> {
        let Some(Form(Priorities(priorities))) = form.priorities else {
            return Err(
                "a class has a range of priorities, and this one says none; give it priorities, such as 7-9",
            );
        };
        let target = match (form.target, form.objective) {
            (Some(Form(within)), objective) => {
                let objective_ppm = objective.map_or(OBJECTIVE_PPM, |Form(Objective(ppm))| ppm);
                Some(Target { within, objective_ppm })
            }
            (None, None) => None,
            (None, Some(_)) => {
                return Err(
                    "an objective says how many make the target, and the class has none; give it a target, such as 10s",
                );
            }
        };
        let name = ClassName::only();
        let weight = form.weight.map(|Form(Weight(weight))| weight);
        Ok(ClassBody(ClassSettings {
            name,
            priorities,
            offset: form.offset.map(plain),
            weight,
            target,
            rate: form.rate.map(plain),
            send_rate: form.send_rate.map(plain),
        }))
    }
}

impl From<ClassBody> for ClassForm {
    fn from(ClassBody(class): ClassBody) -> Self {
        ClassForm {
            priorities: Some(Form(Priorities(class.priorities))),
            target: class.target.map(|target| Form(target.within)),
            objective: class.target.map(|target| Form(Objective(target.objective_ppm))),
            offset: class.offset.map(Form),
            weight: class.weight.map(|weight| Form(Weight(weight))),
            rate: class.rate.map(Form),
            send_rate: class.send_rate.map(Form),
        }
    }
}

impl From<TenantsForm> for TenantSettings {
    fn from(form: TenantsForm) -> Self {
        let class = |(name, form): (ClassName, TenantClassForm)| {
            let usual = TenantClass::new(name);
            TenantClass {
                when: form.when,
                weight_milli: form.weight.map_or(usual.weight_milli, |Form(TenantWeight(weight))| weight),
                max_share_milli: form.max_share.map(|Form(Share(share))| share),
                is_share_hard: form.hard.unwrap_or(usual.is_share_hard),
                rate: form.rate.map(plain),
                send_rate: form.send_rate.map(plain),
                name: usual.name,
            }
        };
        let classes = form.classes.0.into_iter().map(class).collect();
        TenantSettings { key: form.key, classes, default_class: form.default_class.map(plain) }
    }
}

impl From<TenantSettings> for TenantsForm {
    fn from(tenants: TenantSettings) -> Self {
        let class = |class: TenantClass| {
            let form = TenantClassForm {
                when: class.when,
                weight: Some(Form(TenantWeight(class.weight_milli))),
                max_share: class.max_share_milli.map(|share| Form(Share(share))),
                hard: class.is_share_hard.then_some(true),
                rate: class.rate.map(Form),
                send_rate: class.send_rate.map(Form),
            };
            (class.name, form)
        };
        let classes = Named(tenants.classes.into_iter().map(class).collect());
        TenantsForm { key: tenants.key, classes, default_class: tenants.default_class.map(Form) }
    }
}

impl Name for ClassName {
    fn parse_name(text: &str) -> Result<Self, String> {
        ClassName::parse(text).map_err(|error| error.to_string())
    }

    fn as_text(&self) -> &str {
        self.as_str()
    }
}

struct Priorities((u8, u8));
struct Objective(u32);
struct Weight(u32);
struct TenantWeight(u32);
struct Share(u32);

written!(
    OrderPolicy,
    "a policy: fifo, strict, aged or weighted",
    Text(text::parse_order_policy),
    |policy, to| to.serialize_str(text::show_order_policy(*policy)),
    { "enum": text::ORDER_POLICIES.map(|(word, _)| word) }
);
written!(ClassName, "the name of a class", Text(ClassName::parse), |name, to| to
    .serialize_str(name.as_str()));
written!(Rate, "a rate such as 5/s, 300/m or '5/s burst 10'", Text(text::parse_rate), |rate, to| {
    to.collect_str(rate)
});
written!(
    Priorities,
    "a range of priorities such as 7-9",
    Number(|text| text::parse_priorities(text).map(Priorities)),
    |range, to| to.serialize_str(&text::show_priorities(range.0))
);
written!(
    Weight,
    "a weight, a whole number from 1",
    Number(|text| text::parse_weight(text).map(Weight)),
    |weight, to| to.serialize_u32(weight.0),
    { "minimum": 1, "maximum": limits::WEIGHT_MAX }
);
written!(
    TenantWeight,
    "a weight, a number above 0",
    Number(|text| text::parse_tenant_weight(text).map(TenantWeight)),
    |weight, to| part(weight.0, 1000, to),
    { "exclusiveMinimum": 0, "maximum": limits::WEIGHT_MAX }
);
written!(
    Share,
    "a share, a number above 0 and up to 1",
    Number(|text| text::parse_share(text).map(Share)),
    |share, to| part(share.0, 1000, to),
    { "exclusiveMinimum": 0, "maximum": 1 }
);
written!(
    Objective,
    "an objective, a number above 0 and below 1",
    Number(|text| text::parse_objective(text).map(Objective)),
    |objective, to| part(objective.0, 1_000_000, to),
    { "exclusiveMinimum": 0, "exclusiveMaximum": 1 }
);

/// Writes a fraction as a number.
fn part<S: Serializer>(number: u32, whole: u32, serializer: S) -> Result<S::Ok, S::Error> {
    if number.is_multiple_of(whole) {
        return serializer.serialize_u32(number / whole);
    }
    // The nearest float is printed with the original digits.
    serializer.serialize_f64(f64::from(number) / f64::from(whole))
}

fn plain<T>(form: Form<T>) -> T {
    form.0
}
