//! The flags of the order, and the changes that they make to an existing order.

mod class;
mod explain;
mod show;

use anyhow::{Result, bail};
use peeklock::low_level::{ClassName, ClassRule, OrderPolicy, OrderSettings, Rate, TenantSettings};
use peeklock_spec::{Maybe, OrderSpec, any_text, or_none, parse_order_policy, parse_rate};

use class::{ClassFlag, TenantClassFlag, parse_rule};

pub(crate) use explain::explain;
pub(crate) use show::{show, summary};

/// In which order messages are handed out.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Order")]
pub(crate) struct OrderFlags {
    /// A class of messages: NAME=FROM-TO with the priorities that belong to it, and what else holds for it, such as
    /// high=7-9,target=10s,objective=0.99,offset=0s,weight=4,rate=200/s,send-rate=50/s; may be repeated. Without priorities (high,weight=4)
    /// it changes a class that is there
    #[arg(long = "class", value_name = "CLASS", value_parser = ClassFlag::parse)]
    classes: Vec<ClassFlag>,
    /// Remove a class; its messages go to the default class; may be repeated
    #[arg(long = "no-class", value_name = "NAME", value_parser = ClassName::parse)]
    no_classes: Vec<ClassName>,
    /// Which class goes first: fifo (as they came), strict (the most urgent, always), aged (by age and the offset of the class) or
    /// weighted (classes share by weight) [default: aged]
    #[arg(long = "order", value_name = "POLICY", value_parser = parse_order_policy)]
    policy: Option<OrderPolicy>,
    /// The class of messages that say nothing, or something that fits no class; or 'none' [default: that of priority 4, else the least
    /// urgent]
    #[arg(long, value_name = "NAME", value_parser = or_none(ClassName::parse))]
    default_class: Option<Maybe<ClassName>>,
    /// Puts messages into a class by a condition: "high: tier = 'paying'"; may be repeated, the first that is true decides. Replaces the
    /// rules that are there; 'none' removes them
    #[arg(long = "class-rule", value_name = "RULE", value_parser = or_none(parse_rule))]
    rules: Vec<Maybe<ClassRule>>,
    /// Whose message it is: a property, or an expression of the filter language; or 'none'. Tenants share the workers' time
    #[arg(long, value_name = "EXPRESSION", value_parser = or_none(any_text))]
    tenant_key: Option<Maybe<String>>,
    /// A class of tenants: "paying,weight=4,max-share=0.3,hard,rate=5/s,when=tier = 'paying'", the condition last; may be repeated,
    /// asked in this order
    #[arg(long = "tenant-class", value_name = "CLASS", value_parser = TenantClassFlag::parse)]
    tenant_classes: Vec<TenantClassFlag>,
    /// Remove a class of tenants; may be repeated
    #[arg(long = "no-tenant-class", value_name = "NAME", value_parser = ClassName::parse)]
    no_tenant_classes: Vec<ClassName>,
    /// The class of tenants that no condition fits, or 'none' [default: the last]
    #[arg(long, value_name = "NAME", value_parser = or_none(ClassName::parse))]
    default_tenant_class: Option<Maybe<ClassName>>,
    /// How many messages are handed out at most: 5/s, 300/m or '5/s burst 10'; or 'none' [default: none]
    #[arg(long, value_name = "RATE", value_parser = or_none(parse_rate))]
    rate: Option<Maybe<Rate>>,
    /// How many messages are taken from senders at most, or 'none' [default: none]
    #[arg(long, value_name = "RATE", value_parser = or_none(parse_rate))]
    send_rate: Option<Maybe<Rate>>,
    /// How many messages one receiver may hold unsettled, or what it settles in 100 ms if that is more [default: 16]
    #[arg(long, value_name = "COUNT")]
    max_outstanding: Option<u32>,
    /// Remove the order: messages are handed out as they came
    #[arg(long)]
    no_order: bool,
}

impl OrderFlags {
    /// Returns whether no flag is given.
    pub(crate) fn is_silent(&self) -> bool {
        // The struct is destructured, so that a new flag cannot be forgotten here.
        let OrderFlags {
            classes,
            no_classes,
            policy,
            default_class,
            rules,
            tenant_key,
            tenant_classes,
            no_tenant_classes,
            default_tenant_class,
            rate,
            send_rate,
            max_outstanding,
            no_order,
        } = self;
        let lists =
            [classes.len(), no_classes.len(), rules.len(), tenant_classes.len(), no_tenant_classes.len()];
        let values = [
            policy.is_some(),
            default_class.is_some(),
            tenant_key.is_some(),
            default_tenant_class.is_some(),
            rate.is_some(),
            send_rate.is_some(),
            max_outstanding.is_some(),
            *no_order,
        ];
        lists == [0; 5] && !values.contains(&true)
    }

    /// Returns whether the result depends on the existing order.
    pub(crate) fn changes_order(&self) -> bool {
        !self.is_silent() && !self.no_order
    }

    /// Applies the flags to the existing order. Returns `None` if no flag is given.
    pub(crate) fn spec(self, current: Option<&OrderSettings>) -> Result<Option<Option<OrderSpec>>> {
        if self.is_silent() {
            return Ok(None);
        }
        if self.no_order {
            let rest = OrderFlags { no_order: false, ..self };
            if !rest.is_silent() {
                bail!("--no-order removes the order, and another flag sets it; leave one of them out");
            }
            return Ok(Some(None));
        }
        let mut order = current.cloned().unwrap_or_default();
        self.apply(&mut order)?;
        order.sort();
        let spec = OrderSpec(Box::new(order));
        spec.check().map_err(|misfit| anyhow::anyhow!(misfit.message))?;
        Ok(Some(Some(spec)))
    }

    fn apply(self, order: &mut OrderSettings) -> Result<()> {
        for name in &self.no_classes {
            let Some(at) = order.class_index(name.as_str()) else {
                bail!(
                    "there is no class '{name}' to remove; there are {}",
                    names(order.classes.iter().map(|class| &class.name))
                );
            };
            order.classes.remove(at);
        }
        check_once(self.classes.iter().map(|class| &class.name))?;
        self.classes.into_iter().try_for_each(|class| class.apply(order))?;
        order.policy = self.policy.unwrap_or(order.policy);
        if let Some(name) = self.default_class {
            order.default_class = name;
        }
        if !self.rules.is_empty() {
            order.rules = self.rules.into_iter().flatten().collect();
        }
        if let Some(rate) = self.rate {
            order.rate = rate;
        }
        if let Some(rate) = self.send_rate {
            order.send_rate = rate;
        }
        order.max_outstanding = self.max_outstanding.unwrap_or(order.max_outstanding);
        let tenants = TenantFlags {
            key: self.tenant_key,
            classes: self.tenant_classes,
            no_classes: self.no_tenant_classes,
            default_class: self.default_tenant_class,
        };
        tenants.apply(&mut order.tenants)
    }
}

struct TenantFlags {
    key: Option<Maybe<String>>,
    classes: Vec<TenantClassFlag>,
    no_classes: Vec<ClassName>,
    default_class: Option<Maybe<ClassName>>,
}

impl TenantFlags {
    fn apply(self, tenants: &mut Option<TenantSettings>) -> Result<()> {
        match self.key {
            Some(None) => *tenants = None,
            Some(Some(key)) => match tenants {
                Some(tenants) => tenants.key = key,
                None => *tenants = Some(TenantSettings { key, classes: Vec::new(), default_class: None }),
            },
            None => {}
        }
        if self.classes.is_empty() && self.no_classes.is_empty() && self.default_class.is_none() {
            return Ok(());
        }
        let Some(tenants) = tenants else {
            bail!(
                "classes of tenants need to know whose a message is; say --tenant-key with the property that names the tenant"
            );
        };
        for name in &self.no_classes {
            let Some(at) = tenants.class_index(name.as_str()) else {
                let known = names(tenants.classes.iter().map(|class| &class.name));
                bail!("there is no class of tenants '{name}' to remove; there are {known}");
            };
            tenants.classes.remove(at);
        }
        check_once(self.classes.iter().map(|TenantClassFlag(class)| &class.name))?;
        for TenantClassFlag(class) in self.classes {
            match tenants.classes.iter_mut().find(|known| known.name == class.name) {
                Some(known) => *known = class,
                None => tenants.classes.push(class),
            }
        }
        if let Some(name) = self.default_class {
            tenants.default_class = name;
        }
        Ok(())
    }
}

fn check_once<'n>(given: impl Iterator<Item = &'n ClassName> + Clone) -> Result<()> {
    for (at, name) in given.clone().enumerate() {
        if given.clone().skip(at + 1).any(|other| other == name) {
            bail!("the class '{name}' is given twice; say all of it at once");
        }
    }
    Ok(())
}

/// Lists names: `high, low`, or `none`.
fn names<'n>(names: impl Iterator<Item = &'n ClassName>) -> String {
    let names: Vec<_> = names.map(ClassName::as_str).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        order: OrderFlags,
    }

    fn said(flags: &[&str], current: Option<&OrderSettings>) -> Result<Option<OrderSettings>> {
        let spec = Line::try_parse_from(flags)?.order.spec(current)?;
        Ok(spec.expect("a flag is given").map(|OrderSpec(order)| *order))
    }

    fn order(flags: &[&str]) -> OrderSettings {
        said(flags, None).unwrap().unwrap()
    }

    fn refused(flags: &[&str], current: Option<&OrderSettings>) -> String {
        said(flags, current).unwrap_err().to_string()
    }

    const THREE: [&str; 6] = ["--class", "low=0-3", "--class", "normal=4-6", "--class", "high=7-9"];

    fn class_names(order: &OrderSettings) -> String {
        names(order.classes.iter().map(|class| &class.name))
    }

    #[test]
    fn classes_are_sorted_and_the_policy_is_aged() {
        let order = order(&THREE);
        assert_eq!((class_names(&order).as_str(), order.policy), ("high, normal, low", OrderPolicy::Aged));
        assert!(Line::try_parse_from::<_, &str>([]).unwrap().order.is_silent());
        assert!(Line::try_parse_from::<_, &str>([]).unwrap().order.spec(None).unwrap().is_none());
    }

    #[test]
    fn an_update_changes_only_the_named_settings() {
        let before = order(&THREE);
        let change = |flags: &[&str]| said(flags, Some(&before)).unwrap();
        let weighted = change(&["--order", "weighted"]).unwrap();
        assert_eq!(weighted, OrderSettings { policy: OrderPolicy::Weighted, ..before.clone() });
        let more = change(&["--class", "high=7-8,weight=4", "--class", "urgent=9"]).unwrap();
        assert_eq!(class_names(&more), "urgent, high, normal, low");
        assert_eq!(more.classes[1].weight, Some(4));
        let less = change(&["--no-class", "LOW"]).unwrap();
        assert_eq!(class_names(&less), "high, normal");
        let target = change(&["--class", "high,target=10s"]).unwrap();
        assert_eq!((target.classes[0].priorities, target.classes[0].target.is_some()), ((7, 9), true));
        let tenants =
            ["--tenant-key", "tenant", "--tenant-class", "paying,weight=4", "--tenant-class", "free"];
        let tenants = change(&tenants).unwrap();
        let other =
            said(&["--tenant-class", "paying,weight=0.5", "--tenant-key", "customer"], Some(&tenants));
        let settings = other.unwrap().unwrap().tenants.unwrap();
        assert_eq!((settings.key.as_str(), settings.classes[0].weight_milli), ("customer", 500));
        assert_eq!(settings.classes.len(), 2);
        assert_eq!(said(&["--tenant-key", "none"], Some(&tenants)).unwrap().unwrap().tenants, None);
        let rules =
            change(&["--class-rule", "high: tier = 'paying'", "--class-rule", "low: bulk = TRUE"]).unwrap();
        assert_eq!(rules.rules[1].when, "bulk = TRUE");
        assert!(said(&["--class-rule", "none"], Some(&rules)).unwrap().unwrap().rules.is_empty());
        assert_eq!(change(&["--no-order"]), None);
        let rates =
            change(&["--rate", "5/s burst 10", "--send-rate", "300/m", "--max-outstanding", "4"]).unwrap();
        assert_eq!((rates.rate.unwrap().burst, rates.send_rate.unwrap().per_second_milli), (10, 5000));
        assert_eq!(rates.max_outstanding, 4);
        assert_eq!(said(&["--rate", "none"], Some(&rates)).unwrap().unwrap().rate, None);
    }

    #[test]
    fn invalid_orders_are_rejected() {
        let before = order(&THREE);
        let none = |flags: &[&str]| refused(flags, None);
        assert!(none(&["--class", "a=0-5", "--class", "b=5-9"]).contains("overlap at 5"));
        assert!(none(&["--class", "a=5-0"]).contains("'5-0' is not a range"));
        assert!(none(&["--class", "a="]).contains("'' is not a range"));
        assert!(none(&["--order", "lifo"]).contains("write fifo, strict, aged or weighted"));
        assert!(none(&["--class", "a=0-5,weight=0"]).contains("a whole number from 1 to 1000"));
        assert!(none(&["--class", "a=0-5,weight=-1"]).contains("a whole number from 1 to 1000"));
        assert!(none(&["--class", "a=0-5,wieght=1"]).contains("did you mean 'weight'?"));
        assert!(none(&["--class", "a=0-5,objective=0.9"]).contains("give it a target"));
        assert!(none(&["--class", "a=0-5", "--default-class", "b"]).contains("there is no class 'b'"));
        assert!(none(&["--class", "a=0-5", "--class-rule", "b: c = 1"]).contains("there is no class 'b'"));
        assert!(none(&["--class", "a=0-5", "--class-rule", "a: c ="]).contains("does not parse"));
        assert!(none(&["--class-rule", "c = 1"]).contains("CLASS: CONDITION"));
        assert!(none(&["--tenant-class", "free"]).contains("--tenant-key"));
        assert!(none(&["--tenant-key", "a >"]).contains("a key is the name of a property"));
        assert!(none(&["--tenant-key", "t", "--default-tenant-class", "x"]).contains("no class 'x'"));
        assert!(none(&["--tenant-key", "t", "--tenant-class", "a,weight=0"]).contains("above 0"));
        assert!(none(&["--rate", "0/s"]).contains("'0/s' is not a rate"));
        assert!(none(&["--max-outstanding", "0"]).contains("outside of 1"));
        assert!(none(&["--no-order", "--order", "aged"]).contains("leave one of them out"));
        let target = refused(&["--class", "urgent,target=10s"], Some(&before));
        assert!(
            target.contains("there is no class 'urgent'") && target.contains("urgent=7-9,target=10s"),
            "{target}"
        );
        assert!(refused(&["--no-class", "urgent"], Some(&before)).contains("there are high, normal, low"));
        let strict = refused(&["--order", "strict", "--class", "high=7-9,weight=4"], Some(&before));
        assert!(strict.contains("policy strict") && strict.contains("policy weighted"), "{strict}");
        assert!(none(&["--class", "a=1", "--class", "A=2"]).contains("given twice"));
    }
}
