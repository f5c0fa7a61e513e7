//! The rules of subscriptions: which messages they select, and which changes their actions make.
//!
//! The input is a [view](ViewBuilder) of a message's properties. A [`RuleSet`] contains the compiled rules of all subscriptions of one
//! topic and returns the subscriptions that get a copy. It is pure: it has no clock, no randomness, and depends neither on AMQP nor on
//! storage.
//!
//! ```
//! use peeklock_filter::{Filter, Outcome, Rule, RuleName, RuleSet, SqlFilter, Value, ViewBuilder};
//!
//! let filter = SqlFilter { expression: "Priority = 'High'".to_owned(), parameters: Vec::new() };
//! let rule = Rule { name: RuleName::parse("high").unwrap(), filter: Filter::Sql(filter), action: None };
//! let mut rules = RuleSet::new();
//! rules.insert(7, &rule).unwrap();
//!
//! let mut view = ViewBuilder::new();
//! view.user("Priority", &Value::text("High"));
//! let mut verdicts = Vec::new();
//! rules.evaluate(&view.finish(), 0, &mut verdicts);
//! assert_eq!(verdicts[0].key, 7);
//! assert_eq!(verdicts[0].outcome, Outcome::Copies { plain: true, changed: Vec::new() });
//! ```

mod action;
mod changes;
mod compare;
mod error;
mod explain;
mod expression;
mod fold;
mod given;
mod guard;
mod guid;
mod index;
mod like;
pub mod limits;
mod rule;
mod run;
mod set;
mod slots;
mod sql;
mod system;
mod time;
mod value;
mod view;
mod wire;

pub use changes::{Change, Changes};
pub use error::{Part, RuleError};
pub use explain::{Decision, Explained};
pub use expression::Expression;
pub use fold::same_name;
pub use given::{Given, Kind};
pub use rule::{Action, CorrelationFilter, Filter, Rule, RuleName, RuleNameError, SqlFilter};
pub use run::Cost;
pub use set::{Changed, Outcome, RuleSet, Verdict};
pub use system::SystemProperty;
pub use value::{Value, ValueRef};
pub use view::{Entries, UNREADABLE, ViewBuilder, ViewProperty};
pub use wire::DecodeError;
