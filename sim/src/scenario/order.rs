//! Orders of queues, and the senders' settings for them. The simulator computes a message's class by itself, as it does
//! for rules, and compares.

use std::time::Duration;

use fastrand::Rng;
use peeklock_types::{
    ClassName, ClassRule, ClassSettings, OrderPolicy, OrderSettings, Rate, Target, TenantClass,
    TenantSettings,
};

use super::Queue;
use super::draw::{one_in, pick};
use crate::log::MessageNumber;

/// The property that names a class, or a priority.
pub(crate) const PRIORITY: &str = "Priority";
pub(crate) const TENANT: &str = "tenant";
pub(crate) const TIER: &str = "tier";
pub(crate) const PAYING: &str = "paying";
const TENANTS: u32 = 5;

/// The class names that senders use. No queue has classes of all of these names.
const NAMES: [&str; 7] = ["high", "normal", "low", "HIGH", "urgent", "slow", "nobody"];

/// Sets of classes with their priorities. Some leave gaps: a priority that fits no class belongs to the default class.
const CLASSES: [&[(&str, u8, u8)]; 5] = [
    &[("high", 7, 9), ("normal", 4, 6), ("low", 0, 3)],
    &[("high", 8, 9), ("normal", 4, 5), ("low", 0, 1)],
    &[("urgent", 5, 9), ("slow", 0, 4)],
    &[("top", 9, 9), ("high", 7, 8), ("normal", 5, 6), ("slow", 3, 4), ("low", 0, 2)],
    &[],
];

/// The sender's settings for the urgency of a message. They follow from the number of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) header: Option<u8>,
    pub(crate) property: Option<Said>,
    pub(crate) tenant: Option<u32>,
    pub(crate) is_paying: bool,
}

/// The value of the property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Name(&'static str),
    Number(u8),
    /// A number, written as text.
    Text(u8),
}

impl Wish {
    pub(crate) fn of(number: MessageNumber) -> Self {
        let mut rng = Rng::with_seed(u64::from(number) ^ 0x0bad_5eed);
        let rng = &mut rng;
        let priority = |rng: &mut Rng| rng.u8(0..=10);
        let said =
            [Said::Name(pick(rng, &NAMES, "high")), Said::Number(priority(rng)), Said::Text(priority(rng))];
        let property = one_in(rng, 3).then(|| pick(rng, &said, Said::Number(0)));
        Wish {
            property,
            header: (rng.u32(0..6) > 0).then(|| priority(rng)),
            tenant: (rng.u32(0..8) > 0).then(|| rng.u32(0..TENANTS)),
            is_paying: one_in(rng, 8),
        }
    }

    /// Returns the class in a queue with this order.
    pub(crate) fn class(&self, order: &OrderSettings) -> ClassName {
        let place = order.rules.iter().find(|rule| self.fits(&rule.when)).map(|rule| rule.class.clone());
        place.unwrap_or_else(|| self.own_class(order))
    }

    fn own_class(&self, order: &OrderSettings) -> ClassName {
        let place = match (self.property, self.header) {
            (Some(Said::Name(name)), _) => order.class_index(name),
            (Some(Said::Number(number) | Said::Text(number)), _) => order.class_of(number),
            (None, header) => header.and_then(|priority| order.class_of(priority)),
        };
        place
            .and_then(|place| order.classes.get(place))
            .map_or_else(|| default_class(order), |class| class.name.clone())
    }

    /// Evaluates the conditions that are drawn here.
    fn fits(&self, condition: &str) -> bool {
        match condition {
            "tier = 'paying'" => self.is_paying,
            "sys.Priority = 0" => self.header == Some(0),
            "tenant = 'tenant-4'" => self.tenant == Some(4),
            _ => false,
        }
    }
}

/// Returns the class of messages without other settings.
pub(crate) fn default_class(order: &OrderSettings) -> ClassName {
    order.classes.get(order.default_class_index()).map_or_else(ClassName::only, |class| class.name.clone())
}

pub(crate) fn tenant_name(tenant: u32) -> String {
    format!("tenant-{tenant}")
}

/// The scope of an order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    /// Whether the queue has sessions. Its rates are then high enough for an auditor that waits one second.
    has_sessions: bool,
    /// Whether clients send to the queue itself. No client sends to a subscription.
    has_senders: bool,
}

impl Scope {
    pub(crate) fn of(queue: &Queue) -> Self {
        Scope { has_sessions: queue.session_count > 0, has_senders: !queue.name.contains('/') }
    }
}

/// Draws an order that fits the times of a run.
pub(crate) fn order(rng: &mut Rng, scope: Scope) -> OrderSettings {
    let mut order = OrderSettings { classes: classes(rng), ..OrderSettings::default() };
    let some_class = |rng: &mut Rng, order: &OrderSettings| {
        let place = rng.usize(..order.classes.len().max(1));
        order.classes.get(place).map(|class| class.name.clone())
    };
    if one_in(rng, 3) {
        order.default_class = some_class(rng, &order);
    }
    for when in ["tier = 'paying'", "sys.Priority = 0", "tenant = 'tenant-4'"] {
        if one_in(rng, 4)
            && let Some(class) = some_class(rng, &order)
        {
            order.rules.push(ClassRule { when: when.to_owned(), class });
        }
    }
    if one_in(rng, 3) {
        order.tenants = Some(tenants(rng, scope));
    }
    tune(rng, &mut order, scope);
    order
}

/// Changes the settings that do not move messages to another class.
pub(crate) fn tune(rng: &mut Rng, order: &mut OrderSettings, scope: Scope) {
    let policies = [
        OrderPolicy::Fifo,
        OrderPolicy::Strict,
        OrderPolicy::Strict,
        OrderPolicy::Aged,
        OrderPolicy::Aged,
        OrderPolicy::Weighted,
        OrderPolicy::Weighted,
    ];
    order.policy = pick(rng, &policies, OrderPolicy::Aged);
    let policy = order.policy;
    for class in &mut order.classes {
        let seconds = |rng: &mut Rng, max_ms| Duration::from_millis(rng.u64(1..max_ms));
        class.offset = rng.bool().then(|| seconds(rng, 20_000));
        class.target =
            one_in(rng, 3).then(|| Target { within: seconds(rng, 10_000), objective_ppm: 990_000 });
        class.weight = (policy != OrderPolicy::Strict && rng.bool()).then(|| rng.u32(1..6));
        class.rate = one_in(rng, 6).then(|| rate(rng, scope));
        class.send_rate = (one_in(rng, 20) && scope.has_senders).then(|| send_rate(rng));
    }
    order.rate = one_in(rng, 8).then(|| rate(rng, scope));
    order.send_rate = (one_in(rng, 12) && scope.has_senders).then(|| send_rate(rng));
    order.max_outstanding = pick(rng, &[1, 2, 5, 16, 16], 16);
}

/// Draws another order for a queue whose order was `before`: mostly the same classes, sometimes others, sometimes none.
pub(crate) fn changed(rng: &mut Rng, before: Option<&OrderSettings>, scope: Scope) -> Option<OrderSettings> {
    match (rng.u32(0..8), before) {
        (0, Some(_)) => None,
        (0..=2, _) | (_, None) => Some(order(rng, scope)),
        (_, Some(before)) => {
            let mut order = before.clone();
            tune(rng, &mut order, scope);
            Some(order)
        }
    }
}

fn classes(rng: &mut Rng) -> Vec<ClassSettings> {
    let chosen = pick(rng, &[0, 0, 0, 1, 2, 3, 4], 0);
    let named = CLASSES.get(chosen).copied().unwrap_or_default().iter();
    named
        .filter_map(|(name, from, to)| Some(ClassSettings::new(ClassName::parse(name).ok()?, (*from, *to))))
        .collect()
}

/// Draws a rate at which a lane continues within two seconds; a longer pause would look like a standstill.
fn rate(rng: &mut Rng, scope: Scope) -> Rate {
    let per_second_milli = if scope.has_sessions { rng.u64(4_000..20_000) } else { rng.u64(500..20_000) };
    Rate { per_second_milli, burst: pick(rng, &[1, 1, 3, 10], 1) }
}

fn send_rate(rng: &mut Rng) -> Rate {
    Rate { per_second_milli: rng.u64(2_000..50_000), burst: pick(rng, &[1, 5, 20], 5) }
}

fn tenants(rng: &mut Rng, scope: Scope) -> TenantSettings {
    let class = |name: &str| ClassName::parse(name).map(TenantClass::new).ok();
    let mut classes = Vec::new();
    if rng.bool() {
        // Only the tenant's name decides, so a tenant is in one class.
        let paying = class(PAYING).map(|class| TenantClass {
            when: Some(format!("{TENANT} = '{}' OR {TENANT} = '{}'", tenant_name(0), tenant_name(1))),
            weight_milli: rng.u32(500..5000),
            ..class
        });
        let free = class("free").map(|class| TenantClass {
            max_share_milli: one_in(rng, 3).then(|| rng.u32(100..900)),
            is_share_hard: one_in(rng, 3),
            rate: one_in(rng, 3).then(|| rate(rng, scope)),
            send_rate: (one_in(rng, 10) && scope.has_senders).then(|| send_rate(rng)),
            ..class
        });
        classes.extend(paying.into_iter().chain(free));
    }
    TenantSettings { key: TENANT.to_owned(), classes, default_class: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_orders_are_valid_and_use_every_feature() {
        let rng = &mut Rng::with_seed(1);
        let orders: Vec<_> =
            (0..500).map(|_| order(rng, Scope { has_sessions: false, has_senders: true })).collect();
        assert!(orders.iter().all(|order| order.check().is_ok()));
        for policy in [OrderPolicy::Fifo, OrderPolicy::Strict, OrderPolicy::Aged, OrderPolicy::Weighted] {
            assert!(orders.iter().any(|order| order.policy == policy && order.tenants.is_some()));
        }
        let wishes: Vec<_> = (1..500).map(Wish::of).collect();
        for order in orders.iter().filter(|order| order.classes.len() > 1) {
            let mut sorted = order.clone();
            sorted.sort();
            assert_eq!(sorted, *order);
            let found = |class: &ClassSettings| wishes.iter().any(|wish| wish.class(order) == class.name);
            assert!(order.classes.iter().all(found), "{order:?}");
        }
    }

    #[test]
    fn a_rule_precedes_the_property_and_the_property_precedes_the_header() {
        let rng = &mut Rng::with_seed(1);
        let mut order = OrderSettings {
            classes: Vec::new(),
            ..order(rng, Scope { has_sessions: false, has_senders: true })
        };
        let named = |name: &str| ClassName::parse(name).unwrap();
        order.default_class = None;
        order.rules = vec![ClassRule { when: "tier = 'paying'".to_owned(), class: named("low") }];
        for (name, from, to) in CLASSES[1] {
            order.classes.push(ClassSettings::new(named(name), (*from, *to)));
        }
        let wish = Wish { header: Some(9), property: None, tenant: None, is_paying: false };
        let class = |wish: Wish| wish.class(&order).as_str().to_owned();
        assert_eq!(class(wish), "high");
        assert_eq!(class(Wish { property: Some(Said::Name("LOW")), ..wish }), "low");
        assert_eq!(class(Wish { property: Some(Said::Text(7)), ..wish }), "normal", "it matches no class");
        assert_eq!(class(Wish { is_paying: true, ..wish }), "low");
    }
}
