//! Rules of subscriptions.

use peeklock_journal::Log;
use peeklock_types::Timestamp;

use crate::batch::PeerId;
use crate::reply::RuleInfo;
use crate::request::rules::{AddRule, Explain, ListRules, RemoveRule, ReplaceRule, RuleRequest, ShowRule};
use crate::shard::Shard;

impl<L: Log> Shard<L> {
    pub(super) fn execute_rule(&mut self, now: Timestamp, peer: PeerId, request: RuleRequest) {
        match request {
            RuleRequest::AddRule(asked) => self.answer(peer, asked, |shard, AddRule { name, rule }| {
                Ok(shard.state.engine.add_rule(now, &name, *rule, &mut shard.output)?)
            }),
            RuleRequest::ReplaceRule(asked) => {
                self.answer(peer, asked, |shard, ReplaceRule { name, rule }| {
                    Ok(shard.state.engine.replace_rule(now, &name, *rule, &mut shard.output)?)
                });
            }
            RuleRequest::RemoveRule(asked) => self.answer(peer, asked, |shard, RemoveRule { name, rule }| {
                Ok(shard.state.engine.remove_rule(now, &name, &rule, &mut shard.output)?)
            }),
            RuleRequest::ShowRule(asked) => self.answer(peer, asked, |shard, ShowRule { name, rule }| {
                let found =
                    shard.state.engine.rules(&name)?.find(|found| found.rule.name == rule).map(rule_info);
                Ok(found.ok_or(peeklock_engine::Error::NoSuchRule { name, rule })?)
            }),
            RuleRequest::ListRules(asked) => {
                self.answer(peer, asked, |shard, ListRules { name, skip, top }| {
                    Ok(shard.state.engine.rules(&name)?.skip(skip).take(top).map(rule_info).collect())
                });
            }
            RuleRequest::Explain(asked) => self.answer(peer, asked, |shard, Explain { name, view }| {
                Ok(shard.state.engine.explain(&name, &view)?)
            }),
        }
    }
}

fn rule_info(rule: peeklock_engine::RuleView<'_>) -> RuleInfo {
    RuleInfo { rule: rule.rule.clone(), created_at: rule.created_at }
}
