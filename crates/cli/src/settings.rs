//! The settings of queues and subscriptions on the command line: the flags that [`peeklock_spec`] declares, and those of the order.

use anyhow::{Result, anyhow, bail};
use clap::Parser;
use peeklock::admin::Admin;
use peeklock::low_level::{EntityName, OrderSettings, QueueSettings, QueueSpec, SubscriptionSpec};
use peeklock::{Error, Kind};
use peeklock_spec::{Maybe, OrderSpec, setting_rows, show_duration};

use crate::order::{self, OrderFlags};

/// The number of attempts of an update that conflicts with other changes.
const ATTEMPT_COUNT_MAX: usize = 5;

/// The flags of an entity that has an order.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Settings<S: clap::Args> {
    #[command(flatten)]
    spec: S,
    #[command(flatten)]
    order: OrderFlags,
}

/// A spec with an order in it.
pub(crate) trait OrderedSpec: clap::Args + Clone + Default + PartialEq {
    fn set_order(&mut self, order: Option<Maybe<OrderSpec>>);
}

impl OrderedSpec for QueueSpec {
    fn set_order(&mut self, order: Option<Maybe<OrderSpec>>) {
        self.order = order;
    }
}

impl OrderedSpec for SubscriptionSpec {
    fn set_order(&mut self, order: Option<Maybe<OrderSpec>>) {
        self.order = order;
    }
}

/// An entity with an order. A change of the order starts from the current one.
pub(crate) trait Ordered {
    type Spec: OrderedSpec;

    /// Returns the revision of the entity and its settings.
    async fn current(&self, admin: &Admin) -> Result<(u64, QueueSettings), Error>;

    /// Changes the entity. With a revision, the change fails if the entity has another one. Returns the new settings.
    async fn change(
        &self,
        admin: &Admin,
        revision: Option<u64>,
        changes: &Self::Spec,
    ) -> Result<QueueSettings, Error>;
}

impl<S: OrderedSpec> Settings<S> {
    /// Returns the changes of the flags. Flags of the order change `current`.
    pub(crate) fn spec(&self, current: Option<&OrderSettings>) -> Result<S> {
        let mut spec = self.spec.clone();
        spec.set_order(self.order.clone().spec(current)?);
        Ok(spec)
    }

    /// Changes an entity and returns its summary. Repeats the update if it conflicts with another change.
    pub(crate) async fn update(&self, admin: &Admin, entity: &impl Ordered<Spec = S>) -> Result<String> {
        if !self.order.changes_order() {
            let changes = self.spec(None)?;
            if changes == S::default() {
                bail!("nothing to change; name a setting, such as --lock-duration 30s (see --help)");
            }
            return Ok(in_short(&entity.change(admin, None, &changes).await?));
        }
        let mut attempt_count = 0;
        loop {
            let (revision, current) = entity.current(admin).await?;
            let changes = self.spec(current.order.as_deref())?;
            attempt_count += 1;
            match entity.change(admin, Some(revision), &changes).await {
                Err(error) if error.kind() == Kind::Changed && attempt_count < ATTEMPT_COUNT_MAX => {}
                changed => return Ok(in_short(&changed?)),
            }
        }
    }
}

/// A queue in the form `NAME[,SETTING[=VALUE]]…`, with the settings of `queue create`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeclaredQueue {
    pub(crate) name: EntityName,
    /// The settings that the text contains.
    pub(crate) spec: QueueSpec,
}

#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Declared {
    #[command(flatten)]
    settings: Settings<QueueSpec>,
}

impl DeclaredQueue {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut parts = text.split(',');
        let name = EntityName::parse(parts.next().unwrap_or_default())?;
        let flags = parts.map(|part| format!("--{part}"));
        let declared = Declared::try_parse_from(flags).map_err(|error| anyhow!(first_line(&error)))?;
        let spec = declared.settings.spec(None)?;
        spec.settings().check()?;
        Ok(DeclaredQueue { name, spec })
    }
}

/// Returns the first line of an error, without the usage of the internal command.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    format!(
        "{}; the settings are the flags of `peeklock queue create`, without the dashes",
        line.trim_start_matches("error: ").replace("'--", "'")
    )
}

/// Returns the settings that differ from the default, with the names of their flags.
pub(crate) fn unusual(settings: &QueueSettings) -> Vec<(&'static str, String)> {
    let usual = setting_rows(&QueueSettings::default());
    setting_rows(settings)
        .into_iter()
        .zip(usual)
        .filter(|(is, usual)| is != usual)
        .map(|(is, _)| is)
        .collect()
}

/// Summarizes the order and the other settings that differ from the default; empty for an entity without an order.
pub(crate) fn in_short(settings: &QueueSettings) -> String {
    let Some(order) = &settings.order else { return String::new() };
    let lock = format!("lock {}", show_duration(settings.lock_duration));
    let rest = unusual(settings).into_iter().filter(|(key, _)| *key != "lock-duration");
    let rest = rest.map(|(key, value)| format!("{key} {value}"));
    [order::summary(order), lock].into_iter().chain(rest).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use peeklock::low_level::RetryPolicy;

    use super::*;

    fn settings(text: &str) -> QueueSettings {
        DeclaredQueue::parse(&format!("orders{text}")).unwrap().spec.settings()
    }

    fn refused(text: &str) -> String {
        DeclaredQueue::parse(text).err().unwrap_or_else(|| panic!("{text} is taken")).to_string()
    }

    #[test]
    fn a_queue_may_have_settings() {
        assert_eq!(settings(""), QueueSettings::default());
        let set = settings(",lock=5s,max-delivery=3");
        assert_eq!((set.lock_duration, set.max_delivery_count), (Duration::from_secs(5), 3));
        let set = settings(
            ",sessions,ttl=1h,dead-letter-expired=false,max-size=1GiB,retry=exponential:1s..10m:jitter",
        );
        assert!(set.requires_session && !set.dead_letter_on_expiration);
        assert_eq!(set.default_time_to_live, Some(Duration::from_secs(3600)));
        assert_eq!(set.max_size_bytes, Some(1 << 30));
        let (base, cap) = (Duration::from_secs(1), Duration::from_secs(600));
        assert_eq!(set.retry, RetryPolicy::Exponential { base, cap, jitter: true });
    }

    #[test]
    fn an_error_names_the_invalid_setting() {
        assert!(refused("orders,color=red").contains("'color'"), "{}", refused("orders,color=red"));
        assert!(refused("orders,lock=5").contains("'5' is not a duration"), "{}", refused("orders,lock=5"));
        assert!(refused("orders,status=asleep").contains("write active, send-disabled"));
        assert!(refused("orders,lock=2h").contains("lock duration"));
        for wrong in ["", "a b", "orders,lock", "orders,max-delivery=0", "orders,,", "orders,retry=fixed"] {
            let told = refused(wrong);
            assert_eq!(told.lines().count(), 1, "{told}");
        }
    }

    #[test]
    fn every_setting_is_shown_in_the_form_of_its_flag() {
        let every = ",sessions=true,lock-duration=5s,max-delivery-count=3,ttl=90s,dead-letter-expired=true,auto-delete-idle=1d,\
                     duplicate-window=10m,max-size=3GiB,max-count=5,max-message-size=100MiB,status=send-disabled,forward-dead-letters-to=dead,\
                     retry=linear:5s..1m,poison-session=set-aside,user-metadata=mine";
        let unusual = unusual(&settings(every));
        let shown = unusual.iter().map(|(key, value)| format!(",{key}={value}")).collect::<String>();
        assert_eq!(settings(&shown), settings(every), "{shown}");
        assert_eq!(unusual.len(), 15, "forward-to is not valid with sessions");
        assert_eq!(settings(",forward-to=next").forward_to, EntityName::parse("next").ok());
    }

    #[test]
    fn none_removes_a_value_that_can_be_absent() {
        let flags = ["--ttl", "none", "--max-size", "none", "--forward-to", "none"];
        let said = Declared::try_parse_from(flags).unwrap().settings.spec(None).unwrap();
        let expected = QueueSpec {
            default_time_to_live: Some(None),
            max_size: Some(None),
            forward_to: Some(None),
            ..QueueSpec::default()
        };
        assert_eq!(said, expected);
        assert!(Declared::try_parse_from(["--lock-duration", "none"]).is_err());
    }
}
