//! Requests about the rules of subscriptions.

use bytes::Bytes;
use peeklock_engine::Explained;
use peeklock_filter::{Rule, RuleName};
use peeklock_types::EntityName;

use super::requests;
use crate::reply::RuleInfo;

requests! {
    RuleRequest, RuleAnswer;

    AddRule {
        name: EntityName,
        rule: Box<Rule>,
    } -> ();

    /// Replaces the rule with the same name.
    ReplaceRule {
        name: EntityName,
        rule: Box<Rule>,
    } -> ();

    RemoveRule {
        name: EntityName,
        rule: RuleName,
    } -> ();

    ShowRule {
        name: EntityName,
        rule: RuleName,
    } -> RuleInfo;

    ListRules {
        name: EntityName,
        skip: usize,
        top: usize,
    } -> Vec<RuleInfo>;

    /// Explains how a topic would route a message that has these properties.
    Explain {
        name: EntityName,
        view: Bytes,
    } -> Vec<Explained>;
}
