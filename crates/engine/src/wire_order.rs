//! The order of a queue as bytes.

use std::time::Duration;

use peeklock_types::{
    ClassName, ClassRule, ClassSettings, OrderPolicy, OrderSettings, Rate, Target, TenantClass,
    TenantSettings, limits,
};

use crate::wire::{DecodeError, Decoder, put_bytes, put_number, put_optional, put_optional_number};

pub(crate) fn put_order(order: Option<&OrderSettings>, out: &mut Vec<u8>) {
    out.push(order.is_some().into());
    let Some(order) = order else { return };
    out.push(match order.policy {
        OrderPolicy::Fifo => 0,
        OrderPolicy::Strict => 1,
        OrderPolicy::Aged => 2,
        OrderPolicy::Weighted => 3,
    });
    put_number(order.classes.len() as u64, out);
    order.classes.iter().for_each(|class| put_class(class, out));
    put_class_name(order.default_class.as_ref(), out);
    put_number(order.rules.len() as u64, out);
    for rule in &order.rules {
        put_bytes(rule.when.as_bytes(), out);
        put_bytes(rule.class.as_str().as_bytes(), out);
    }
    out.push(order.tenants.is_some().into());
    if let Some(tenants) = &order.tenants {
        put_tenants(tenants, out);
    }
    put_rate(order.rate, out);
    put_rate(order.send_rate, out);
    put_number(order.max_outstanding.into(), out);
}

fn put_class(class: &ClassSettings, out: &mut Vec<u8>) {
    put_bytes(class.name.as_str().as_bytes(), out);
    out.extend_from_slice(&[class.priorities.0, class.priorities.1]);
    put_optional_number(class.offset.map(millis), out);
    put_optional_number(class.weight.map(u64::from), out);
    out.push(class.target.is_some().into());
    if let Some(target) = class.target {
        put_number(millis(target.within), out);
        put_number(target.objective_ppm.into(), out);
    }
    put_rate(class.rate, out);
    put_rate(class.send_rate, out);
}

fn put_tenants(tenants: &TenantSettings, out: &mut Vec<u8>) {
    put_bytes(tenants.key.as_bytes(), out);
    put_number(tenants.classes.len() as u64, out);
    for class in &tenants.classes {
        put_bytes(class.name.as_str().as_bytes(), out);
        put_optional(class.when.as_deref().map(str::as_bytes), out);
        put_number(class.weight_milli.into(), out);
        put_optional_number(class.max_share_milli.map(u64::from), out);
        out.push(class.is_share_hard.into());
        put_rate(class.rate, out);
        put_rate(class.send_rate, out);
    }
    put_class_name(tenants.default_class.as_ref(), out);
}

fn put_class_name(name: Option<&ClassName>, out: &mut Vec<u8>) {
    put_optional(name.map(|name| name.as_str().as_bytes()), out);
}

fn put_rate(rate: Option<Rate>, out: &mut Vec<u8>) {
    out.push(rate.is_some().into());
    if let Some(rate) = rate {
        put_number(rate.per_second_milli, out);
        put_number(rate.burst.into(), out);
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

const WHAT: &str = "the order of a queue";
/// A character takes up to four bytes.
const EXPRESSION_BYTES_MAX: usize = limits::CLASS_EXPRESSION_CHARS_MAX * 4;

impl Decoder<'_> {
    pub(crate) fn order(&mut self) -> Result<Option<Box<OrderSettings>>, DecodeError> {
        if !self.flag(WHAT)? {
            return Ok(None);
        }
        let policy = match self.byte(WHAT)? {
            0 => OrderPolicy::Fifo,
            1 => OrderPolicy::Strict,
            2 => OrderPolicy::Aged,
            3 => OrderPolicy::Weighted,
            _ => return Err(DecodeError::Value(WHAT)),
        };
        let order = OrderSettings {
            policy,
            classes: self.list(limits::CLASSES_MAX, Self::class)?,
            default_class: self.optional_class_name()?,
            rules: self.list(limits::CLASS_RULES_MAX, |decoder| {
                Ok(ClassRule { when: decoder.expression()?, class: decoder.class_name()? })
            })?,
            tenants: self.flag(WHAT)?.then(|| self.tenants()).transpose()?,
            rate: self.rate()?,
            send_rate: self.rate()?,
            max_outstanding: self.number32(WHAT)?,
        };
        Ok(Some(Box::new(order)))
    }

    fn list<T>(
        &mut self,
        max: usize,
        mut one: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.number(WHAT)?;
        if count > max as u64 {
            return Err(DecodeError::Value(WHAT));
        }
        (0..count).map(|_| one(self)).collect()
    }

    fn class(&mut self) -> Result<ClassSettings, DecodeError> {
        Ok(ClassSettings {
            name: self.class_name()?,
            priorities: (self.byte(WHAT)?, self.byte(WHAT)?),
            offset: self.optional_duration(WHAT)?,
            weight: self.optional_number32()?,
            target: self.flag(WHAT)?.then(|| self.class_target()).transpose()?,
            rate: self.rate()?,
            send_rate: self.rate()?,
        })
    }

    fn class_target(&mut self) -> Result<Target, DecodeError> {
        Ok(Target { within: Duration::from_millis(self.number(WHAT)?), objective_ppm: self.number32(WHAT)? })
    }

    fn tenants(&mut self) -> Result<TenantSettings, DecodeError> {
        Ok(TenantSettings {
            key: self.expression()?,
            classes: self.list(limits::CLASSES_MAX, Self::tenant_class)?,
            default_class: self.optional_class_name()?,
        })
    }

    fn tenant_class(&mut self) -> Result<TenantClass, DecodeError> {
        Ok(TenantClass {
            name: self.class_name()?,
            when: self.flag(WHAT)?.then(|| self.expression()).transpose()?,
            weight_milli: self.number32(WHAT)?,
            max_share_milli: self.optional_number32()?,
            is_share_hard: self.flag(WHAT)?,
            rate: self.rate()?,
            send_rate: self.rate()?,
        })
    }

    pub(crate) fn class_name(&mut self) -> Result<ClassName, DecodeError> {
        let text = self.text(limits::CLASS_NAME_CHARS_MAX, WHAT)?;
        ClassName::parse(text).map_err(|_| DecodeError::Value(WHAT))
    }

    fn optional_class_name(&mut self) -> Result<Option<ClassName>, DecodeError> {
        self.flag(WHAT)?.then(|| self.class_name()).transpose()
    }

    fn expression(&mut self) -> Result<String, DecodeError> {
        self.text(EXPRESSION_BYTES_MAX, WHAT).map(str::to_owned)
    }

    fn rate(&mut self) -> Result<Option<Rate>, DecodeError> {
        let rate = |decoder: &mut Self| {
            Ok(Rate { per_second_milli: decoder.number(WHAT)?, burst: decoder.number32(WHAT)? })
        };
        self.flag(WHAT)?.then(|| rate(self)).transpose()
    }

    fn optional_number32(&mut self) -> Result<Option<u32>, DecodeError> {
        let number = self.optional_number(WHAT)?;
        number.map(|number| u32::try_from(number).map_err(|_| DecodeError::Value(WHAT))).transpose()
    }
}
