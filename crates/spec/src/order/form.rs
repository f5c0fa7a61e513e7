//! The tables of an order, key by key.

use std::time::Duration;

use peeklock_types::{
    ClassName, ClassRule, ClassSettings, OrderPolicy, OrderSettings, Rate, Target, TenantClass,
    TenantSettings,
};
use serde::de::Deserializer;
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use super::{OrderSpec, text};
use crate::named::{Name, Named};
use crate::written::{Written, nullable, read_number, read_text};

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct OrderForm {
    #[serde(with = "nullable", skip_serializing_if = "Option::is_none")]
    policy: Option<OrderPolicy>,
    #[serde(skip_serializing_if = "is_empty")]
    classes: Named<ClassName, ClassBody>,
    #[serde(with = "nullable", skip_serializing_if = "Option::is_none")]
    default_class: Option<ClassName>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rules: Vec<RuleForm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenants: Option<TenantsForm>,
    #[serde(with = "nullable", skip_serializing_if = "Option::is_none")]
    rate: Option<Rate>,
    #[serde(with = "nullable", skip_serializing_if = "Option::is_none")]
    send_rate: Option<Rate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_outstanding: Option<u32>,
}

/// A class without its name, which is the key.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "ClassForm", into = "ClassForm")]
struct ClassBody(ClassSettings);

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ClassForm {
    #[serde(with = "nullable", skip_serializing_if = "Option::is_none")]
    priorities: Option<Priorities>,
    #[serde(with = "nullable", skip_serializing_if = "Option::is_none")]
    target: Option<Duration>,
    #[serde(with = "nullable", skip_serializing_if = "Option::is_none")]
    objective: Option<Objective>,
    #[serde(with = "nullable", skip_serializing_if = "Option::is_none")]
    offset: Option<Duration>,
    #[serde(with = "nullable", skip_serializing_if = "Option::is_none")]
    weight: Option<Weight>,
    #[serde(with = "nullable", skip_serializing_if = "Option::is_none")]
    rate: Option<Rate>,
    #[serde(with = "nullable", skip_serializing_if = "Option::is_none")]
    send_rate: Option<Rate>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleForm {
    when: String,
    #[serde(with = "plain")]
    class: ClassName,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TenantsForm {
    key: String,
    #[serde(default, skip_serializing_if = "is_empty")]
    classes: Named<ClassName, TenantClassForm>,
    #[serde(default, with = "nullable", skip_serializing_if = "Option::is_none")]
    default_class: Option<ClassName>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct TenantClassForm {
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<String>,
    #[serde(with = "nullable", skip_serializing_if = "Option::is_none")]
    weight: Option<TenantWeight>,
    #[serde(with = "nullable", skip_serializing_if = "Option::is_none")]
    max_share: Option<Share>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hard: Option<bool>,
    #[serde(with = "nullable", skip_serializing_if = "Option::is_none")]
    rate: Option<Rate>,
    #[serde(with = "nullable", skip_serializing_if = "Option::is_none")]
    send_rate: Option<Rate>,
}

fn is_empty<K, T>(named: &Named<K, T>) -> bool {
    named.0.is_empty()
}

impl From<OrderForm> for OrderSpec {
    fn from(form: OrderForm) -> Self {
        let class = |(name, ClassBody(class)): (ClassName, ClassBody)| ClassSettings { name, ..class };
        let rule = |RuleForm { when, class }: RuleForm| ClassRule { when, class };
        let mut order = OrderSettings {
            policy: form.policy.unwrap_or_default(),
            classes: form.classes.0.into_iter().map(class).collect(),
            default_class: form.default_class,
            rules: form.rules.into_iter().map(rule).collect(),
            tenants: form.tenants.map(Into::into),
            rate: form.rate,
            send_rate: form.send_rate,
            max_outstanding: form.max_outstanding.unwrap_or(OrderSettings::MAX_OUTSTANDING),
        };
        // The ranges say which is more urgent, not the place in the document.
        order.sort();
        OrderSpec(Box::new(order))
    }
}

impl From<OrderSpec> for OrderForm {
    fn from(OrderSpec(order): OrderSpec) -> Self {
        let class = |class: ClassSettings| (class.name.clone(), ClassBody(class));
        let rule = |ClassRule { when, class }: ClassRule| RuleForm { when, class };
        OrderForm {
            policy: Some(order.policy),
            classes: Named(order.classes.into_iter().map(class).collect()),
            default_class: order.default_class,
            rules: order.rules.into_iter().map(rule).collect(),
            tenants: order.tenants.map(Into::into),
            rate: order.rate,
            send_rate: order.send_rate,
            max_outstanding: Some(order.max_outstanding),
        }
    }
}

/// What of a million are to make a target that says nothing of it.
const OBJECTIVE_PPM: u32 = 990_000;

impl TryFrom<ClassForm> for ClassBody {
    type Error = &'static str;

    fn try_from(form: ClassForm) -> Result<Self, Self::Error> {
        let Some(Priorities(priorities)) = form.priorities else {
            return Err(
                "a class has a range of priorities, and this one says none; give it priorities, such as 7-9",
            );
        };
        let target = match (form.target, form.objective) {
            (Some(within), objective) => {
                let objective_ppm = objective.map_or(OBJECTIVE_PPM, |Objective(ppm)| ppm);
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
        let weight = form.weight.map(|Weight(weight)| weight);
        Ok(ClassBody(ClassSettings {
            name,
            priorities,
            offset: form.offset,
            weight,
            target,
            rate: form.rate,
            send_rate: form.send_rate,
        }))
    }
}

impl From<ClassBody> for ClassForm {
    fn from(ClassBody(class): ClassBody) -> Self {
        ClassForm {
            priorities: Some(Priorities(class.priorities)),
            target: class.target.map(|target| target.within),
            objective: class.target.map(|target| Objective(target.objective_ppm)),
            offset: class.offset,
            weight: class.weight.map(Weight),
            rate: class.rate,
            send_rate: class.send_rate,
        }
    }
}

impl From<TenantsForm> for TenantSettings {
    fn from(form: TenantsForm) -> Self {
        let class = |(name, form): (ClassName, TenantClassForm)| {
            let usual = TenantClass::new(name);
            TenantClass {
                when: form.when,
                weight_milli: form.weight.map_or(usual.weight_milli, |TenantWeight(weight)| weight),
                max_share_milli: form.max_share.map(|Share(share)| share),
                is_share_hard: form.hard.unwrap_or(usual.is_share_hard),
                rate: form.rate,
                send_rate: form.send_rate,
                name: usual.name,
            }
        };
        let classes = form.classes.0.into_iter().map(class).collect();
        TenantSettings { key: form.key, classes, default_class: form.default_class }
    }
}

impl From<TenantSettings> for TenantsForm {
    fn from(tenants: TenantSettings) -> Self {
        let class = |class: TenantClass| {
            let form = TenantClassForm {
                when: class.when,
                weight: Some(TenantWeight(class.weight_milli)),
                max_share: class.max_share_milli.map(Share),
                hard: class.is_share_hard.then_some(true),
                rate: class.rate,
                send_rate: class.send_rate,
            };
            (class.name, form)
        };
        let classes = Named(tenants.classes.into_iter().map(class).collect());
        TenantsForm { key: tenants.key, classes, default_class: tenants.default_class }
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

/// Declares how a value is read from text or a number, and written as text or as a number.
macro_rules! written {
    ($kind:ty, $what:literal, $read:ident($parse:expr), |$value:ident, $serializer:ident| $write:expr) => {
        impl Written for $kind {
            fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $read(deserializer, $what, |text| $parse(text).map_err(|error| error.to_string()))
            }

            fn write<S: Serializer>(&self, $serializer: S) -> Result<S::Ok, S::Error> {
                let $value = self;
                $write
            }
        }
    };
}

written!(
    OrderPolicy,
    "a policy: fifo, strict, aged or weighted",
    read_text(text::parse_order_policy),
    |policy, to| to.serialize_str(text::show_order_policy(*policy))
);
written!(ClassName, "the name of a class", read_text(ClassName::parse), |name, to| to
    .serialize_str(name.as_str()));
written!(Rate, "a rate such as 5/s, 300/m or '5/s burst 10'", read_text(text::parse_rate), |rate, to| {
    to.collect_str(rate)
});
written!(
    Priorities,
    "a range of priorities such as 7-9",
    read_number(|text| text::parse_priorities(text).map(Priorities)),
    |range, to| to.serialize_str(&text::show_priorities(range.0))
);
written!(
    Weight,
    "a weight, a whole number from 1",
    read_number(|text| text::parse_weight(text).map(Weight)),
    |weight, to| to.serialize_u32(weight.0)
);
written!(
    TenantWeight,
    "a weight, a number above 0",
    read_number(|text| text::parse_tenant_weight(text).map(TenantWeight)),
    |weight, to| part(weight.0, 1000, to)
);
written!(
    Share,
    "a share, a number above 0 and up to 1",
    read_number(|text| text::parse_share(text).map(Share)),
    |share, to| part(share.0, 1000, to)
);
written!(
    Objective,
    "an objective, a number above 0 and below 1",
    read_number(|text| text::parse_objective(text).map(Objective)),
    |objective, to| part(objective.0, 1_000_000, to)
);

/// So many parts of a whole, as a number.
fn part<S: Serializer>(number: u32, whole: u32, serializer: S) -> Result<S::Ok, S::Error> {
    if number.is_multiple_of(whole) {
        return serializer.serialize_u32(number / whole);
    }
    // The nearest float: shown with the digits that the number had.
    serializer.serialize_f64(f64::from(number) / f64::from(whole))
}

/// A value that must be there.
mod plain {
    use super::{Deserializer, Serializer, Written};

    pub(super) fn deserialize<'de, D: Deserializer<'de>, T: Written>(deserializer: D) -> Result<T, D::Error> {
        T::read(deserializer)
    }

    pub(super) fn serialize<S: Serializer, T: Written>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        value.write(serializer)
    }
}
