//! The settings of queues, topics and subscriptions as builders. Each method sets one field of the spec of `peeklock_spec`, which owns the
//! settings and their defaults.

use std::time::Duration;

use peeklock_spec::{MessageSize, OrderSpec, QueueSpec, Size, SubscriptionSpec, TopicSpec};
use peeklock_types::{
    EntityKind, EntityName, OrderPolicy, PoisonSession, QueueSettings, QueueStatus, Rate, RetryPolicy,
};

use super::order::{Class, Order, Tenants};
use super::{Rule, invalid};
use crate::error::Error;

/// Declares a builder around a spec.
macro_rules! builder {
    ($(#[$doc:meta])* $name:ident, $spec:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty),* $(,)? }) => {
        $(#[$doc])*
        ///
        /// A setting that is not set has its default in a new entity, and keeps its value in an update.
        #[derive(Clone, Debug, Default)]
        #[must_use = "pass it to a method of Admin"]
        pub struct $name {
            spec: $spec,
            $($(#[$field_doc])* $field: $kind,)*
        }

        impl $name {
            /// Returns settings without any value.
            pub fn new() -> Self {
                Self::default()
            }

            fn check(&self) -> Result<(), Error> {
                let settings: QueueSettings = self.spec.settings();
                let checked = settings.check().and_then(|()| settings.check_kind(EntityKind::$name));
                checked.map_err(|error| invalid(error.to_string()))
            }
        }

        impl From<$spec> for $name {
            fn from(spec: $spec) -> Self {
                $name { spec, $($field: Default::default()),* }
            }
        }
    };
}

builder! {
    /// The settings of a queue.
    ///
    /// ```
    /// use std::time::Duration;
    /// use peeklock::admin::{Class, Queue, Rate, RetryPolicy};
    ///
    /// let plain = Queue::new().lock_duration(Duration::from_secs(30)).max_delivery_count(5);
    /// let urgent_first = Queue::new()
    ///     .class(Class::new("high").target(Duration::from_secs(10)))
    ///     .class("normal")
    ///     .class(Class::new("low").rate(Rate::per_second(5)))
    ///     .retry(RetryPolicy::Fixed { delay: Duration::from_secs(5) });
    /// # let _ = (plain, urgent_first);
    /// ```
    Queue, QueueSpec {
        order: Order,
        /// The first setting that could not be parsed.
        wrong: Option<Error>,
    }
}

builder! {
    /// The settings of a topic.
    Topic, TopicSpec {}
}

builder! {
    /// The settings of a subscription, and the rules of a new one.
    Subscription, SubscriptionSpec {
        order: Order,
        /// The first setting that could not be parsed.
        wrong: Option<Error>,
    }
}

/// Adds the settings of entities that deliver messages.
macro_rules! delivering {
    ($($name:ident),*) => { $(
        impl $name {
            /// Requires that every message belongs to a session. Cannot be changed later.
            pub fn sessions(mut self, required: bool) -> Self {
                self.spec.requires_session = Some(required);
                self
            }

            /// Sets the time for which a received message or session stays locked. The default is 60 s, the maximum 5 min.
            pub fn lock_duration(mut self, duration: Duration) -> Self {
                self.spec.lock_duration = Some(duration);
                self
            }

            /// Sets the number of failed deliveries after which a message goes to the dead-letter queue. The default is 10.
            pub fn max_delivery_count(mut self, count: u32) -> Self {
                self.spec.max_delivery_count = Some(count);
                self
            }

            /// Moves expired messages to the dead-letter queue instead of removing them.
            pub fn dead_letter_expired(mut self, enabled: bool) -> Self {
                self.spec.dead_letter_on_expiration = Some(enabled);
                self
            }

            /// Forwards every message to a queue or topic, or to none.
            pub fn forward_to<'a>(mut self, entity: impl Into<Option<&'a str>>) -> Self {
                let target = self.keep(target(entity.into()));
                self.spec.forward_to = target;
                self
            }

            /// Forwards dead-lettered messages to a queue or topic, or to none.
            pub fn forward_dead_letters_to<'a>(mut self, entity: impl Into<Option<&'a str>>) -> Self {
                let target = self.keep(target(entity.into()));
                self.spec.forward_dead_letters_to = target;
                self
            }

            /// Sets the delay of a message after a failed delivery. The default is none.
            pub fn retry(mut self, policy: RetryPolicy) -> Self {
                self.spec.retry = Some(policy);
                self
            }

            /// Sets the handling of a session with a message that failed too often.
            pub fn poison_session(mut self, handling: PoisonSession) -> Self {
                self.spec.poison_session = Some(handling);
                self
            }

            /// Adds a class of messages. The most urgent class is the first.
            ///
            /// A [`Class`] is a name with or without more settings. If no class has priorities, the classes share the priorities 0 to 9
            /// evenly. An update sets the order as a whole: all classes, tenants and rates.
            pub fn class(mut self, class: impl Into<Class>) -> Self {
                self.order.class(class.into());
                self
            }

            /// Adds classes of messages, as [`class`](Self::class) does.
            pub fn classes<C: Into<Class>>(mut self, classes: impl IntoIterator<Item = C>) -> Self {
                classes.into_iter().for_each(|class| self.order.class(class.into()));
                self
            }

            /// Sets the policy that selects the class of the next message. The default for classes is [`OrderPolicy::Aged`].
            pub fn order(mut self, policy: OrderPolicy) -> Self {
                self.order.settings().policy = policy;
                self
            }

            /// Sets the class of messages that specify none. The default is the class of the priority 4.
            pub fn default_class(mut self, name: &str) -> Self {
                self.order.default_class(name);
                self
            }

            /// Puts messages for which a condition of the filter language is true, such as `tier = 'paying'`, into a class. The first
            /// condition that is true decides.
            pub fn class_rule(mut self, when: &str, class: &str) -> Self {
                self.order.class_rule(when, class);
                self
            }

            /// Shares the workers' time between tenants.
            pub fn tenants(mut self, tenants: Tenants) -> Self {
                self.order.tenants(tenants);
                self
            }

            /// Limits the deliveries of all classes together.
            pub fn rate(mut self, rate: Rate) -> Self {
                self.order.settings().rate = Some(rate);
                self
            }

            /// Limits the number of unsettled messages that one receiver may hold. The default for a queue with an order is 16.
            pub fn max_outstanding(mut self, count: u32) -> Self {
                self.order.settings().max_outstanding = count;
                self
            }

            /// Removes the classes, tenants and rates: messages are delivered as they arrived.
            pub fn no_order(mut self) -> Self {
                self.order = Order::default();
                self.spec.order = Some(None);
                self
            }

            fn keep<T>(&mut self, parsed: Result<T, Error>) -> Option<T> {
                parsed.map_err(|error| self.wrong.get_or_insert(error)).ok()
            }

            /// Moves the order into the spec, and validates the spec.
            fn finish(&mut self) -> Result<(), Error> {
                if let Some(error) = self.wrong.take() {
                    return Err(error);
                }
                if let Some(order) = std::mem::take(&mut self.order).finish()? {
                    self.spec.order = Some(Some(OrderSpec(Box::new(order))));
                }
                self.check()?;
                self.spec.order.as_ref().and_then(Option::as_ref).map_or(Ok(()), check_order)
            }
        }
    )* };
}

/// Adds the settings of all entities.
macro_rules! general {
    ($($name:ident),*) => { $(
        impl $name {
            /// Sets the time after which a message expires. A message may specify less.
            pub fn time_to_live(mut self, span: impl Into<Option<Duration>>) -> Self {
                self.spec.default_time_to_live = Some(span.into());
                self
            }

            /// Deletes the entity when it has not been used for this time.
            pub fn auto_delete_on_idle(mut self, span: impl Into<Option<Duration>>) -> Self {
                self.spec.auto_delete_on_idle = Some(span.into());
                self
            }

            /// Opens or closes the entity for senders and receivers.
            pub fn status(mut self, status: QueueStatus) -> Self {
                self.spec.status = Some(status);
                self
            }

            /// Stores a note with the entity.
            pub fn user_metadata<'a>(mut self, text: impl Into<Option<&'a str>>) -> Self {
                self.spec.user_metadata = Some(text.into().map(str::to_owned));
                self
            }
        }
    )* };
}

/// Adds the settings of entities that take messages from senders.
macro_rules! taking {
    ($($name:ident),*) => { $(
        impl $name {
            /// Drops a message whose id was seen within this time. An entity has duplicate detection from its creation or never.
            pub fn duplicate_window(mut self, span: impl Into<Option<Duration>>) -> Self {
                self.spec.duplicate_window = Some(span.into());
                self
            }

            /// Rejects messages when the entity holds this number of bytes.
            pub fn max_size_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
                self.spec.max_size = Some(bytes.into().map(Size));
                self
            }

            /// Sets the limit of one message. The default is 1 MiB, the maximum 100 MiB.
            pub fn max_message_size_bytes(mut self, bytes: u32) -> Self {
                self.spec.max_message_size = Some(MessageSize(bytes));
                self
            }
        }
    )* };
}

delivering!(Queue, Subscription);
general!(Queue, Topic, Subscription);
taking!(Queue, Topic);

impl Queue {
    /// Rejects messages when the queue holds this number of messages.
    pub fn max_count(mut self, count: impl Into<Option<u32>>) -> Self {
        self.spec.max_count = Some(count.into());
        self
    }

    /// Limits the messages that are sent to the queue, of all classes together.
    pub fn send_rate(mut self, rate: Rate) -> Self {
        self.order.settings().send_rate = Some(rate);
        self
    }

    /// Returns the spec, validated.
    pub(crate) fn checked(mut self) -> Result<QueueSpec, Error> {
        self.finish()?;
        Ok(self.spec)
    }
}

impl Topic {
    /// Returns the spec, validated.
    pub(crate) fn checked(self) -> Result<TopicSpec, Error> {
        self.check()?;
        Ok(self.spec)
    }
}

impl Subscription {
    /// Moves a message to the dead-letter queue if a filter cannot be evaluated on it. The default is yes; otherwise the filter does not
    /// match.
    pub fn dead_letter_on_filter_error(mut self, enabled: bool) -> Self {
        self.spec.dead_letter_on_filter_error = Some(enabled);
        self
    }

    /// Adds a rule. The subscription gets the messages that match any of its rules; without rules, every message.
    pub fn rule(mut self, name: &str, rule: impl Into<Rule>) -> Self {
        let parsed = rule.into().named(name);
        if let Some(pair) = self.keep(parsed) {
            self.spec.rules.get_or_insert_default().0.push(pair);
        }
        self
    }

    /// Returns the spec, validated.
    pub(crate) fn checked(mut self) -> Result<SubscriptionSpec, Error> {
        self.finish()?;
        Ok(self.spec)
    }
}

/// Parses the expressions of an order, which the check of the settings does not.
fn check_order(order: &OrderSpec) -> Result<(), Error> {
    order.check().map_err(|misfit| invalid(format!("order.{}: {}", misfit.path.join("."), misfit.message)))
}

fn target(name: Option<&str>) -> Result<Option<EntityName>, Error> {
    name.map(super::entity).transpose()
}
