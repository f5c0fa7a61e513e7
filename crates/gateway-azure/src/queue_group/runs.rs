//! Runs, which transfer messages of the members to the link of a queue group.

use std::time::Duration;

use peeklock_broker::PeerId;
use peeklock_broker::engine::{self, Head, ReceiveMode};
use peeklock_broker::request::receiving::{Take, Watch};
use peeklock_types::{EntityPath, LockToken, SubQueue};

use super::arbiter::{Grant, Turn};
use super::{LockEnd, MemberOf, Membership};
use crate::connection::context::Context;
use crate::connection::link::{EntityRef, LinkKind, LinkNumber};
use crate::queue_group::QueueGroups;

impl QueueGroups {
    /// Handles a change of the peer's credit, or a drain.
    pub(crate) fn on_queue_group_flow(&mut self, context: &mut Context<'_>, number: LinkNumber, drain: bool) {
        if let Some(LinkKind::QueueGroup(group)) = context.links.get_mut(number).map(|link| &mut link.kind) {
            if drain && !group.is_draining {
                // A message that was just sent must not be missed while its head report is still in flight.
                group.arbiter.doubt();
            }
            group.is_draining = drain;
            self.arbitrate(context, number);
        }
    }

    /// Performs the next step for the link, if there is one.
    pub(crate) fn arbitrate(&mut self, context: &mut Context<'_>, number: LinkNumber) {
        let now = context.namespace.broker.clock().now();
        let Some(link) = context.links.get_mut(number) else { return };
        let id = link.id;
        let LinkKind::QueueGroup(group) = &mut link.kind else { return };
        if group.attach.is_some() {
            return;
        }
        let sendable = context.connection.sendable(id);
        let room = match group.mode {
            ReceiveMode::PeekLock => group.held.room(now, group.settings.max_outstanding),
            // The link holds no locks, so no limit applies.
            ReceiveMode::ReceiveAndDelete => u32::MAX,
        };
        let waits_for_lock = group.held.next_end().filter(|_| sendable > 0 && room == 0);
        let credit = sendable.min(room);
        match group.arbiter.turn(credit) {
            Turn::Wait => {}
            Turn::Watch(members) => {
                let asked: Vec<_> =
                    members.into_iter().map(|(member, serial)| (member, Some(serial))).collect();
                watch_members(context, number, asked);
            }
            Turn::Runs(grants) => grants.into_iter().for_each(|grant| start_run(context, number, grant)),
            Turn::Nothing => {
                if std::mem::take(&mut group.is_draining) {
                    context.connection.drained(id);
                }
                let idle = if credit == 0 { group.arbiter.stop_watching() } else { Vec::new() };
                watch_members(context, number, idle.into_iter().map(|member| (member, None)).collect());
                if let Some(until) = waits_for_lock {
                    let at = context.millis.after(until.since(now));
                    self.wake_queue_groups_at(at);
                }
            }
        }
    }

    /// Follows a step of the broker's clock by `by`.
    pub(crate) fn follow_step(&mut self, context: &mut Context<'_>, by: Duration) {
        let now = context.namespace.broker.clock().now();
        for link in context.links.iter_mut() {
            if let LinkKind::QueueGroup(group) = &mut link.kind {
                group.held.follow_step(now, by);
            }
        }
    }

    /// Handles the end of a drain: that of the peer, or the end of a run.
    pub(crate) fn on_drained(&mut self, context: &mut Context<'_>, number: LinkNumber) {
        let Some(link) = context.links.get_mut(number) else { return };
        let LinkKind::Receiver(receiver) = &mut link.kind else { return };
        let Some(MemberOf { group, member }) = receiver.member_of else {
            return context.connection.drained(link.id);
        };
        let used_count = receiver.passed_count.saturating_sub(receiver.run_from);
        if let Some(LinkKind::QueueGroup(group)) = context.links.get_mut(group).map(|link| &mut link.kind) {
            group.arbiter.end_run(member, u32::try_from(used_count).unwrap_or(u32::MAX));
        }
        self.arbitrate(context, group);
    }

    /// Handles a member's report of its next message.
    pub(crate) fn on_head(
        &mut self,
        context: &mut Context<'_>,
        number: LinkNumber,
        serial: u32,
        head: Option<Head>,
    ) {
        let Some(LinkKind::Receiver(receiver)) = context.links.get_mut(number).map(|link| &link.kind) else {
            return;
        };
        let Some(MemberOf { group, member }) = receiver.member_of else { return };
        let Some(LinkKind::QueueGroup(of)) = context.links.get_mut(group).map(|link| &mut link.kind) else {
            return;
        };
        of.arbiter.hear(member, serial, head);
        self.arbitrate(context, group);
    }

    /// Removes the lock of a message that the peer settles, and requests another message. The settlement is sent first.
    pub(crate) fn release_lock(
        &mut self,
        context: &mut Context<'_>,
        number: LinkNumber,
        token: LockToken,
        end: LockEnd,
    ) {
        if let Some(LinkKind::QueueGroup(group)) = context.links.get_mut(number).map(|link| &mut link.kind)
            && let Some(lock) = group.held.remove(context.namespace.broker.clock().now(), token, end)
        {
            group.arbiter.revive(lock.member);
            self.arbitrate(context, number);
        }
    }
}

fn watch_members(context: &mut Context<'_>, number: LinkNumber, asked: Vec<(usize, Option<u32>)>) {
    for (member, serial) in asked {
        if let Some((shard, receiver)) = member_receiver(context, number, member) {
            context.push(shard, Watch { receiver, serial });
        }
    }
}

fn member_link(context: &mut Context<'_>, number: LinkNumber, member: usize) -> Option<LinkNumber> {
    match &context.links.get_mut(number)?.kind {
        LinkKind::QueueGroup(group) => group.members.get(member).and_then(Membership::link),
        _ => None,
    }
}

fn member_receiver(
    context: &mut Context<'_>,
    number: LinkNumber,
    member: usize,
) -> Option<(usize, peeklock_broker::engine::ReceiverId)> {
    let link = member_link(context, number, member)?;
    match &context.links.get_mut(link)?.kind {
        LinkKind::Receiver(receiver) => Some((receiver.entity.shard, receiver.receiver)),
        _ => None,
    }
}

fn start_run(context: &mut Context<'_>, number: LinkNumber, Grant { member, count, not_after }: Grant) {
    let Some(link) = member_link(context, number, member) else { return };
    let Some(LinkKind::Receiver(receiver)) = context.links.get_mut(link).map(|link| &mut link.kind) else {
        return;
    };
    receiver.run_from = receiver.passed_count;
    receiver.limit = receiver.passed_count + u64::from(count);
    let (shard, limit, receiver) = (receiver.entity.shard, receiver.limit, receiver.receiver);
    context.push(shard, Take { receiver, limit, not_after });
}

/// Stores the lock of a message that was sent on the link of a queue group.
pub(crate) fn hold_lock(context: &mut Context<'_>, delivery: &engine::Delivery) {
    let number = LinkNumber(PeerId::local(delivery.receiver));
    let Some(LinkKind::Receiver(receiver)) = context.links.get_mut(number).map(|link| &link.kind) else {
        return;
    };
    let (Some(MemberOf { group, member }), entity) = (receiver.member_of, receiver.entity) else {
        return;
    };
    let until = delivery.message.locked_until;
    if let Some(LinkKind::QueueGroup(group)) = context.links.get_mut(group).map(|link| &mut link.kind)
        && let Some(until) = until.filter(|_| group.mode == ReceiveMode::PeekLock)
    {
        group.held.insert(delivery.token, member, entity, until);
    }
}

/// Returns the entity that owns the message of a delivery on this link.
pub(crate) fn entity_of(context: &Context<'_>, number: LinkNumber, token: LockToken) -> Option<EntityRef> {
    match &context.links.get(number)?.kind {
        LinkKind::Receiver(receiver) => Some(receiver.entity),
        LinkKind::QueueGroup(group) => group.held.get(token).map(|lock| lock.entity),
        _ => None,
    }
}

/// Does the same, and also returns the name of the entity.
pub(crate) fn source_of(
    context: &Context<'_>,
    number: LinkNumber,
    token: LockToken,
) -> Option<(EntityPath, EntityRef)> {
    match &context.links.get(number)?.kind {
        LinkKind::Receiver(receiver) => Some((receiver.path.clone(), receiver.entity)),
        LinkKind::QueueGroup(group) => {
            let lock = group.held.get(token)?;
            let name = group.settings.members.get(lock.member)?.name.clone();
            Some((EntityPath { name, sub_queue: SubQueue::Main }, lock.entity))
        }
        _ => None,
    }
}
