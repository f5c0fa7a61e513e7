//! Answers of shards, by subject: each is passed to the part of the connection that has sent the request.

use peeklock_broker::request::entities::EntityAnswer;
use peeklock_broker::request::events::EventAnswer;
use peeklock_broker::request::hubs::HubAnswer;
use peeklock_broker::request::receiving::ReceivingAnswer;
use peeklock_broker::request::rules::RuleAnswer;
use peeklock_broker::request::sending::SendingAnswer;
use peeklock_broker::request::sessions::SessionAnswer;
use peeklock_broker::request::settling::SettlingAnswer;
use peeklock_broker::request::transactions::TransactionAnswer;
use peeklock_broker::{Answered, Ask};

use crate::connection::attach::{on_link_attached, on_link_found};
use crate::connection::conversation::Conversation;
use crate::connection::request::{FindWaiter, HubWaiter, LockWaiter, SendWaiter, Waiter, number_of};
use crate::hub::attach::{on_link_hub, on_link_producer, on_link_reader};
use crate::hub::publish::{on_looked, on_published};
use crate::hub::{describe_checkpoints, describe_claim, describe_ownerships, describe_set_checkpoint};
use crate::management::{Content, Form};
use crate::transaction::TransactionNumber;

impl Conversation<'_> {
    /// Passes an answer to the management request that waits for it.
    fn on_managed<R: Ask>(
        &mut self,
        Answered { ticket, result }: Answered<R>,
        describe: impl FnOnce(Form, R::Answer) -> Content,
    ) {
        self.management.on_management_answer(
            &mut self.context,
            &mut self.transactions,
            number_of(ticket),
            result,
            describe,
        );
    }

    /// Does the same for a request whose response has no content.
    fn on_managed_done<R: Ask<Answer = ()>>(&mut self, answered: Answered<R>) {
        self.on_managed(answered, |_, ()| Content::done());
    }

    pub(crate) fn on_sending_answer(&mut self, answer: SendingAnswer) {
        match answer {
            SendingAnswer::ScheduleMessages(answered) => {
                self.on_managed(answered, |_, numbers| Content::scheduled(&numbers));
            }
            SendingAnswer::CancelScheduled(answered) => self.on_managed_done(answered),
            // The broker sends this request itself.
            SendingAnswer::GiveUpBodies(_) => {}
        }
    }

    pub(crate) fn on_settling_answer(&mut self, answer: SettlingAnswer) {
        match answer {
            SettlingAnswer::SettleAll(answered) => {
                let number = number_of(answered.ticket);
                if self.management.is_queue_group_request(number) {
                    return self.management.on_queue_group_lock(
                        &mut self.context,
                        &mut self.queue_groups,
                        &mut self.transactions,
                        number,
                        answered.result.map(|()| None),
                    );
                }
                self.on_managed_done(answered);
            }
            SettlingAnswer::RenewLocks(answered) => {
                let number = number_of(answered.ticket);
                if self.management.is_queue_group_request(number) {
                    let until = answered.result.map(|times| times.first().copied());
                    return self.management.on_queue_group_lock(
                        &mut self.context,
                        &mut self.queue_groups,
                        &mut self.transactions,
                        number,
                        until,
                    );
                }
                self.on_managed(answered, |_, times| Content::expirations(&times));
            }
            SettlingAnswer::Purge(answered) => self.on_managed(answered, Content::deleted),
            SettlingAnswer::PurgeSession(answered) => self.on_managed(answered, Content::deleted),
        }
    }

    pub(crate) fn on_receiving_answer(&mut self, answer: ReceivingAnswer) {
        match answer {
            ReceivingAnswer::Attach(Answered { ticket, result }) => {
                on_link_attached(&mut self.context, &mut self.queue_groups, Waiter::of(ticket), result);
            }
            // The link is gone already.
            ReceivingAnswer::Detach(_) => {}
            ReceivingAnswer::Peek(answered) => {
                let number = number_of(answered.ticket);
                if self.management.is_queue_group_request(number) {
                    return self.management.on_queue_group_peeked(
                        &mut self.context,
                        &mut self.transactions,
                        number,
                        answered.result,
                    );
                }
                self.on_managed(answered, Content::peeked);
            }
            ReceivingAnswer::ReceiveDeferred(answered) => {
                self.on_managed(answered, |_, found| Content::received(found));
            }
        }
    }

    pub(crate) fn on_session_answer(&mut self, answer: SessionAnswer) {
        match answer {
            SessionAnswer::RenewSession(answered) => {
                self.on_managed(answered, |_, until| Content::session_expiration(until));
            }
            SessionAnswer::ShowState(answered) => self.on_managed(answered, |_, state| Content::state(state)),
            SessionAnswer::SetState(answered) => self.on_managed_done(answered),
            SessionAnswer::ListSessions(answered) => {
                self.on_managed(answered, |form, sessions| Content::sessions(form, &sessions));
            }
        }
    }

    pub(crate) fn on_transaction_answer(&mut self, answer: TransactionAnswer) {
        match answer {
            TransactionAnswer::CheckLock(answered) => match LockWaiter::of(answered.ticket) {
                LockWaiter::Settlement(number) => self.transactions.on_checked(
                    &mut self.context,
                    &mut self.queue_groups,
                    number,
                    answered.result,
                ),
                LockWaiter::Management(number) => {
                    self.management.on_management_answer(
                        &mut self.context,
                        &mut self.transactions,
                        number,
                        answered.result,
                        |_, ()| Content::done(),
                    );
                }
            },
            TransactionAnswer::CheckScheduled(answered) => self.on_managed_done(answered),
            TransactionAnswer::CheckState(answered) => self.on_managed_done(answered),
            TransactionAnswer::ReserveNumbers(Answered { ticket, result }) => {
                self.management.on_reserved(
                    &mut self.context,
                    &mut self.transactions,
                    number_of(ticket),
                    result,
                );
            }
            TransactionAnswer::Commit(Answered { ticket, result }) => {
                self.transactions.on_committed(
                    &mut self.context,
                    &mut self.queue_groups,
                    TransactionNumber(number_of(ticket)),
                    result,
                );
            }
        }
    }

    pub(crate) fn on_entity_answer(&mut self, answer: EntityAnswer) {
        match answer {
            EntityAnswer::Find(Answered { ticket, result }) => match FindWaiter::of(ticket) {
                FindWaiter::Link(link) => {
                    on_link_found(&mut self.context, &mut self.queue_groups, link, result)
                }
                FindWaiter::Management(number) => self.management.on_management_found(
                    &mut self.context,
                    &mut self.transactions,
                    number,
                    result,
                ),
                FindWaiter::Token(number) => self.access.on_token_answer(&mut self.context, number, result),
            },
            // Entities are managed over HTTP.
            EntityAnswer::Create(_)
            | EntityAnswer::Update(_)
            | EntityAnswer::Delete(_)
            | EntityAnswer::Show(_)
            | EntityAnswer::List(_)
            | EntityAnswer::Names(_)
            | EntityAnswer::ShowOrder(_)
            | EntityAnswer::ExplainMessage(_)
            | EntityAnswer::MeasureEntities(_) => {}
        }
    }

    pub(crate) fn on_rule_answer(&mut self, answer: RuleAnswer) {
        match answer {
            RuleAnswer::AddRule(answered) => self.on_managed_done(answered),
            RuleAnswer::RemoveRule(answered) => self.on_managed_done(answered),
            RuleAnswer::ListRules(answered) => self.on_managed(answered, |_, rules| Content::rules(&rules)),
            // Over HTTP only.
            RuleAnswer::ReplaceRule(_) | RuleAnswer::ShowRule(_) | RuleAnswer::Explain(_) => {}
        }
    }

    pub(crate) fn on_event_answer(&mut self, answer: EventAnswer) {
        match answer {
            EventAnswer::Append(Answered { ticket, result }) => {
                on_published(&mut self.context, SendWaiter::of(ticket), result);
            }
            EventAnswer::AttachReader(Answered { ticket, result }) => {
                on_link_reader(&mut self.context, Waiter::of(ticket), result);
            }
        }
    }

    pub(crate) fn on_hub_answer(&mut self, answer: HubAnswer) {
        match answer {
            HubAnswer::ShowHub(Answered { ticket, result }) => match HubWaiter::of(ticket) {
                HubWaiter::Link(link) => on_link_hub(&mut self.context, link, result),
                HubWaiter::Management(number) => self.hubs.on_hub_shown(&mut self.context, number, result),
                HubWaiter::Publisher(link) => on_looked(&mut self.context, link, result),
            },
            HubAnswer::ShowProducer(Answered { ticket, result }) => {
                on_link_producer(&mut self.context, Waiter::of(ticket), result);
            }
            HubAnswer::ShowPartition(Answered { ticket, result }) => {
                self.hubs.on_partition_shown(&mut self.context, number_of(ticket), result);
            }
            HubAnswer::Claim(Answered { ticket, result }) => {
                self.hubs.on_hub_told(&mut self.context, number_of(ticket), result, |ownership| {
                    describe_claim(&ownership)
                });
            }
            HubAnswer::ListOwnerships(Answered { ticket, result }) => {
                self.hubs.on_hub_told(&mut self.context, number_of(ticket), result, |all| {
                    describe_ownerships(&all)
                });
            }
            HubAnswer::SetCheckpoint(Answered { ticket, result }) => {
                self.hubs.on_hub_told(&mut self.context, number_of(ticket), result, |set| {
                    describe_set_checkpoint(set.as_ref())
                });
            }
            HubAnswer::ListCheckpoints(Answered { ticket, result }) => {
                self.hubs.on_hub_told(&mut self.context, number_of(ticket), result, |all| {
                    describe_checkpoints(&all)
                });
            }
            // Hubs are managed over HTTP.
            HubAnswer::CreateHub(_)
            | HubAnswer::UpdateHub(_)
            | HubAnswer::DeleteHub(_)
            | HubAnswer::ListHubs(_)
            | HubAnswer::CreateConsumerGroup(_)
            | HubAnswer::UpdateConsumerGroup(_)
            | HubAnswer::DeleteConsumerGroup(_)
            | HubAnswer::OpenStreams(_)
            | HubAnswer::DeleteStreams(_)
            | HubAnswer::ShowPartitions(_)
            | HubAnswer::ListPartitions(_)
            | HubAnswer::EndConsumerGroup(_) => {}
        }
    }
}
