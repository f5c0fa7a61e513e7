//! Classes and rules in the form of one flag.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use peeklock::low_level::{
    ClassName, ClassRule, ClassSettings, ClassTarget as Target, OrderSettings, Rate, TenantClass,
};
use peeklock_spec::{
    nearest, or_none, parse_duration, parse_objective, parse_priorities, parse_rate, parse_share,
    parse_tenant_weight, parse_weight,
};

/// The default objective of a target.
const OBJECTIVE_PPM: u32 = 990_000;

/// A class in the form `NAME=FROM-TO[,KEY=VALUE]…`, or `NAME,KEY=VALUE…` for an existing one.
#[derive(Clone, Debug)]
pub(crate) struct ClassFlag {
    pub(super) name: ClassName,
    priorities: Option<(u8, u8)>,
    attributes: Vec<Attribute>,
}

#[derive(Clone, Copy, Debug)]
enum Attribute {
    Target(Option<Duration>),
    Objective(u32),
    Offset(Option<Duration>),
    Weight(Option<u32>),
    Rate(Option<Rate>),
    SendRate(Option<Rate>),
}

const CLASS_KEYS: [&str; 6] = ["target", "objective", "offset", "weight", "rate", "send-rate"];
const TENANT_KEYS: [&str; 6] = ["weight", "max-share", "hard", "rate", "send-rate", "when"];

impl ClassFlag {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut pieces = pieces(text).into_iter();
        let first = pieces.next().unwrap_or_default();
        let (name, priorities) = match first.split_once('=') {
            Some((name, range)) => (name, Some(parse_priorities(range)?)),
            None => (first.as_str(), None),
        };
        let name = ClassName::parse(name)?;
        let attributes = pieces.map(|piece| Attribute::parse(&piece)).collect::<Result<Vec<_>>>()?;
        if priorities.is_none() && attributes.is_empty() {
            bail!("the class '{name}' says nothing; give it its priorities, as in {name}=7-9");
        }
        Ok(ClassFlag { name, priorities, attributes })
    }

    /// Replaces or adds the class if the flag has priorities; else changes the existing one.
    pub(super) fn apply(self, order: &mut OrderSettings) -> Result<()> {
        let found = order.class_index(self.name.as_str());
        let mut class = match (self.priorities, found) {
            (Some(priorities), _) => ClassSettings::new(self.name, priorities),
            (None, Some(at)) => order.classes.remove(at),
            (None, None) => {
                let name = &self.name;
                let known = super::names(order.classes.iter().map(|class| &class.name));
                bail!(
                    "there is no class '{name}' to change, there are {known}; to add it, say its priorities, as in \
                     --class {name}=7-9,target=10s"
                );
            }
        };
        // The objective changes the target, so it is applied last, wherever the flag has it.
        let (objectives, others): (Vec<_>, Vec<_>) =
            self.attributes.into_iter().partition(|attribute| matches!(attribute, Attribute::Objective(_)));
        others.into_iter().chain(objectives).try_for_each(|attribute| attribute.apply(&mut class))?;
        order.classes.retain(|known| known.name != class.name);
        order.classes.push(class);
        Ok(())
    }
}

impl Attribute {
    fn parse(piece: &str) -> Result<Self> {
        let Some((key, value)) = piece.split_once('=') else { return Err(unknown(piece, &CLASS_KEYS)) };
        Ok(match key {
            "target" => Attribute::Target(or_none(parse_duration)(value)?),
            "objective" => Attribute::Objective(parse_objective(value)?),
            "offset" => Attribute::Offset(or_none(parse_duration)(value)?),
            "weight" => Attribute::Weight(or_none(parse_weight)(value)?),
            "rate" => Attribute::Rate(or_none(parse_rate)(value)?),
            "send-rate" => Attribute::SendRate(or_none(parse_rate)(value)?),
            _ => return Err(unknown(key, &CLASS_KEYS)),
        })
    }

    fn apply(self, class: &mut ClassSettings) -> Result<()> {
        match self {
            Attribute::Target(within) => {
                let before = class.target.map_or(OBJECTIVE_PPM, |target| target.objective_ppm);
                class.target = within.map(|within| Target { within, objective_ppm: before });
            }
            Attribute::Objective(objective_ppm) => match &mut class.target {
                Some(target) => target.objective_ppm = objective_ppm,
                None => bail!(
                    "the class '{}' has an objective and no target that so many make; give it a target, as in target=10s",
                    class.name
                ),
            },
            Attribute::Offset(offset) => class.offset = offset,
            Attribute::Weight(weight) => class.weight = weight,
            Attribute::Rate(rate) => class.rate = rate,
            Attribute::SendRate(rate) => class.send_rate = rate,
        }
        Ok(())
    }
}

/// A class of tenants in the form `NAME[,KEY=VALUE]…[,when=CONDITION]`.
#[derive(Clone, Debug)]
pub(crate) struct TenantClassFlag(pub(super) TenantClass);

impl TenantClassFlag {
    pub(super) fn parse(text: &str) -> Result<Self> {
        // A condition may contain any character, so it is last.
        let (head, when) = match text.split_once(",when=").or_else(|| text.split_once(" when=")) {
            Some((head, when)) => (head, Some(when.trim().to_owned())),
            None => (text, None),
        };
        let mut pieces = pieces(head).into_iter();
        let name = ClassName::parse(&pieces.next().unwrap_or_default())?;
        let mut class = TenantClass { when, ..TenantClass::new(name) };
        for piece in pieces {
            match piece.split_once('=') {
                Some(("weight", value)) => class.weight_milli = parse_tenant_weight(value)?,
                Some(("max-share", value)) => class.max_share_milli = Some(parse_share(value)?),
                Some(("hard", "true")) => class.is_share_hard = true,
                Some(("hard", "false")) => class.is_share_hard = false,
                Some(("hard", _)) => bail!("hard is true or false"),
                Some(("rate", value)) => class.rate = Some(parse_rate(value)?),
                Some(("send-rate", value)) => class.send_rate = Some(parse_rate(value)?),
                Some((key, _)) => return Err(unknown(key, &TENANT_KEYS)),
                None => return Err(unknown(&piece, &TENANT_KEYS)),
            }
        }
        Ok(TenantClassFlag(class))
    }
}

/// Parses a rule such as `high: tier = 'paying'`.
pub(super) fn parse_rule(text: &str) -> Result<ClassRule> {
    let (class, when) = text.split_once(':').ok_or_else(|| {
        anyhow!("'{text}' is not a rule; write CLASS: CONDITION, as in \"high: tier = 'paying'\"")
    })?;
    Ok(ClassRule { class: ClassName::parse(class.trim())?, when: when.trim().to_owned() })
}

/// Splits at commas, or at spaces where commas have another meaning. A piece without '=' belongs to the value before it: `rate=5/s burst
/// 10`.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for piece in text.split([',', ' ']).filter(|piece| !piece.is_empty()) {
        let begins = piece.contains('=') || piece == "hard";
        let piece = if piece == "hard" { "hard=true" } else { piece };
        match pieces.last_mut() {
            Some(last) if !begins && last.contains("rate=") => {
                last.push(' ');
                last.push_str(piece);
            }
            _ => pieces.push(piece.to_owned()),
        }
    }
    pieces
}

fn unknown(given: &str, known: &[&'static str]) -> anyhow::Error {
    match nearest(given, known.iter().copied()) {
        Some(near) => anyhow!("a class has no '{given}'; did you mean '{near}'?"),
        None => anyhow!("a class has no '{given}'; it may have {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(text: &str) -> ClassSettings {
        let mut order = OrderSettings::default();
        ClassFlag::parse(text).unwrap().apply(&mut order).unwrap();
        order.classes.remove(0)
    }

    #[test]
    fn a_class_is_defined_by_one_flag() {
        let full = class(
            "high=7-9,objective=0.999,target=10s,offset=0s,weight=4,rate=200/s burst 400,send-rate=50/s",
        );
        assert_eq!((full.name.as_str(), full.priorities, full.weight), ("high", (7, 9), Some(4)));
        let target = full.target.unwrap();
        assert_eq!((target.within.as_secs(), target.objective_ppm), (10, 999_000));
        assert_eq!((full.offset, full.rate.unwrap().burst), (Some(Duration::ZERO), 400));
        let spaced = class(
            "high=7-9 objective=0.999 target=10s offset=0s weight=4 rate=200/s burst 400 send-rate=50/s",
        );
        assert_eq!(spaced, full);
        for wrong in
            ["", "=1", "high", "high=", "high=1,", "high=1,x", "high=1,x=2", "9=1", "high=1,rate=none/s"]
        {
            let parsed = ClassFlag::parse(wrong);
            assert_eq!(parsed.is_err(), wrong != "high=1,", "{wrong}");
        }
    }

    #[test]
    fn the_condition_of_a_tenant_class_may_contain_any_character() {
        let TenantClassFlag(class) = TenantClassFlag::parse(
            "paying,weight=2.5,max-share=0.3,hard,rate=5/s burst 7,when=tier IN ('a,b', 'c=d')",
        )
        .unwrap();
        assert_eq!(class.when.as_deref(), Some("tier IN ('a,b', 'c=d')"));
        assert_eq!((class.weight_milli, class.max_share_milli, class.is_share_hard), (2500, Some(300), true));
        assert_eq!(class.rate.unwrap().burst, 7);
        for wrong in ["", "a,wait=1", "a,weight=0", "a,weight=nan", "a,max-share=1.5", "a,hard=maybe", "a b"]
        {
            assert!(TenantClassFlag::parse(wrong).is_err(), "{wrong}");
        }
    }
}
