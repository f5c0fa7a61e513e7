//! New links to queue groups, and members that appear and disappear.

use std::sync::Arc;
use std::time::Duration;

use peeklock_access::{Right, Scope};
use peeklock_amqp::{Role, condition};
use peeklock_broker::engine::{self, CloseReason, HeldSession};
use peeklock_broker::request::entities::Find;
use peeklock_broker::request::receiving::{self, Window};
use peeklock_broker::{Error, Named, SessionAsk};
use peeklock_types::{EntityKind, EntityPath, QueueGroupSettings, SubQueue};

use super::{Arbiter, HeldLocks, JoiningLink, MemberOf, Membership, QueueGroupLink};
use crate::access::{Access, Need};
use crate::connection::attach::{
    DELIVERY_SIZE_BYTES_MAX, NewLink, RECEIVER_WINDOW_BYTES, fill_extensions, mode_of, reply,
};
use crate::connection::context::Context;
use crate::connection::link::{EntityRef, Link, LinkKind, LinkNumber, ReceiverLink};
use crate::connection::request::FindWaiter;
use crate::error::{Refusal, close_refusal, refusal};
use crate::hub::is_hub;
use crate::queue_group::QueueGroups;
use crate::receiving::sessions::SessionFilter;

/// The interval between lookups of an absent member.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(2);
const NOT_FOUND: i32 = 404;

impl QueueGroups {
    pub(crate) fn start_queue_group(
        &mut self,
        context: &mut Context<'_>,
        access: &Access,
        NewLink { session, id, attach }: NewLink,
        path: EntityPath,
        settings: Arc<QueueGroupSettings>,
    ) -> Result<(), Refusal> {
        let rests_on = queue_group_needs(context, access, &path, &settings)?;
        if attach.role == Role::Sender {
            return Err(takes_no_messages(&path, &settings));
        }
        check_sub_queue(&path, &settings)?;
        if SessionFilter::of(&attach)?.is_some() {
            let text = format!(
                "'{}' is a group, and groups have no sessions; accept the session from its queue",
                path.name
            );
            return Err(Refusal::not_allowed(text));
        }
        let group = QueueGroupLink {
            mode: mode_of(&attach),
            attach: Some(attach),
            members: Vec::new(),
            arbiter: Arbiter::new(&settings),
            held: HeldLocks::default(),
            is_draining: false,
            settings: Arc::clone(&settings),
            path,
        };
        let kind = LinkKind::QueueGroup(Box::new(group));
        let number = context.insert(Link { id, session, kind, rests_on: rests_on.into() })?;
        for member in 0..settings.members.len() {
            match self.ask_member(context, number, member) {
                Ok(joining) => set_membership(context, number, member, Membership::Joining(joining)),
                Err(refusal) => {
                    context.remove_link(number);
                    return Err(refusal);
                }
            }
        }
        Ok(())
    }

    fn ask_member(
        &mut self,
        context: &mut Context<'_>,
        group: LinkNumber,
        member: usize,
    ) -> Result<LinkNumber, Refusal> {
        let gone = || Refusal::new(500, condition::INTERNAL_ERROR, "the group's link is gone");
        let link = context.links.get_mut(group).ok_or_else(gone)?;
        let LinkKind::QueueGroup(of) = &link.kind else { return Err(gone()) };
        let name = of.settings.members.get(member).map(|member| member.name.clone()).ok_or_else(gone)?;
        let number = match of.members.get(member).and_then(Membership::link) {
            Some(number) => number,
            None => {
                let path = EntityPath { name: name.clone(), sub_queue: SubQueue::Main };
                let (id, session) = (link.id, link.session);
                let kind = LinkKind::Joining(JoiningLink { group, member, path, entity: None });
                let number =
                    context.links.insert_member(Link { id, session, kind, rests_on: Box::default() });
                number.ok_or_else(Refusal::too_many_links)?
            }
        };
        let shard = context.namespace.broker.place(&name);
        context.ask(shard, FindWaiter::Link(number), Find { name });
        Ok(number)
    }

    /// Handles a shard's lookup of a member.
    pub(crate) fn on_member_found(
        &mut self,
        context: &mut Context<'_>,
        number: LinkNumber,
        result: Result<Named, Error>,
    ) {
        let receiver = context.peer.id.receiver(number.0);
        let Some(LinkKind::Joining(joining)) = context.links.get_mut(number).map(|link| &mut link.kind)
        else {
            return;
        };
        let group = joining.group;
        match result {
            Ok(Named::Entity(found)) if found.kind == EntityKind::Topic => {
                let text = format!(
                    "its member '{0}' is a topic; name one of its subscriptions, '{0}/Subscriptions/…'",
                    joining.path.name
                );
                self.refuse_queue_group(context, group, Refusal::not_allowed(text));
            }
            Ok(Named::Entity(found)) => {
                let shard = context.namespace.broker.place(&joining.path.name);
                joining.entity = Some(EntityRef { shard, entity: found.entity });
                let Some(LinkKind::QueueGroup(of)) = context.links.get_mut(group).map(|link| &link.kind)
                else {
                    return;
                };
                let (mode, entity, sub_queue) = (of.mode, found.entity, SubQueue::Main);
                let session = SessionAsk::None;
                context.ask(shard, number, receiving::Attach { entity, sub_queue, receiver, mode, session });
                context.push(shard, Window { receiver, size_bytes: RECEIVER_WINDOW_BYTES });
            }
            Ok(Named::Hub(_)) => {
                let what = "which can be no member of a group; name queues and subscriptions";
                let refusal = is_hub(&joining.path.name, what);
                self.refuse_queue_group(context, group, refusal);
            }
            Err(error) => self.on_member_refused(context, number, &error),
        }
    }

    /// Handles a shard's answer to the attach of a receiver at a member.
    pub(crate) fn on_member_attached(
        &mut self,
        context: &mut Context<'_>,
        number: LinkNumber,
        result: Result<Option<HeldSession>, Error>,
    ) {
        let Some(LinkKind::Joining(joining)) = context.links.get(number).map(|link| &link.kind) else {
            return;
        };
        let of = MemberOf { group: joining.group, member: joining.member };
        match result {
            Ok(_) => self.take_member(context, number, of),
            Err(error) => self.on_member_refused(context, number, &error),
        }
    }

    fn on_member_refused(&mut self, context: &mut Context<'_>, number: LinkNumber, error: &Error) {
        let Some(LinkKind::Joining(joining)) = context.links.get_mut(number).map(|link| &mut link.kind)
        else {
            return;
        };
        let (group, member) = (joining.group, joining.member);
        let refusal = refusal(error, Some(&joining.path));
        if is_passing(error) {
            // No request with this number is in flight, so no late answer can arrive: the number is reused for the next
            // lookup. A member may be absent for days, and the numbers of a connection are limited.
            joining.entity = None;
            self.miss_member(context, MemberOf { group, member }, refusal, Some(number));
        } else {
            let text = format!("its member '{}': {}", joining.path.name, refusal.description);
            self.refuse_queue_group(context, group, Refusal { description: text, ..refusal });
        }
    }

    fn take_member(&mut self, context: &mut Context<'_>, number: LinkNumber, of: MemberOf) {
        let receiver = context.peer.id.receiver(number.0);
        let Some(LinkKind::QueueGroup(group)) = context.links.get_mut(of.group).map(|link| &mut link.kind)
        else {
            return;
        };
        let mode = group.mode;
        group.arbiter.join(of.member);
        let Some(link) = context.links.get_mut(number) else { return };
        let LinkKind::Joining(joining) = &link.kind else { return };
        let Some(entity) = joining.entity else { return };
        link.kind = LinkKind::Receiver(ReceiverLink {
            name: Box::default(),
            entity,
            sub_queue: SubQueue::Main,
            path: joining.path.clone(),
            mode,
            receiver,
            session: None,
            passed_count: 0,
            limit: 0,
            passed_bytes: 0,
            member_of: Some(of),
            run_from: 0,
        });
        set_membership(context, of.group, of.member, Membership::Here(number));
        self.open_queue_group(context, of.group);
    }

    /// Marks a member as absent. The link continues with the others, and the lookup of the member is repeated.
    fn miss_member(
        &mut self,
        context: &mut Context<'_>,
        of: MemberOf,
        why: Refusal,
        link: Option<LinkNumber>,
    ) {
        let look_again_at = context.millis.after(LOOK_AGAIN_AFTER);
        self.wake_queue_groups_at(look_again_at);
        if let Some(LinkKind::QueueGroup(group)) = context.links.get_mut(of.group).map(|link| &mut link.kind)
        {
            group.arbiter.leave(of.member);
        }
        set_membership(context, of.group, of.member, Membership::Absent { why, look_again_at, link });
        self.open_queue_group(context, of.group);
    }

    /// Opens the link after the answers for all members, if at least one is present. A link that is already open
    /// continues.
    fn open_queue_group(&mut self, context: &mut Context<'_>, number: LinkNumber) {
        let Some(link) = context.links.get_mut(number) else { return };
        let LinkKind::QueueGroup(group) = &mut link.kind else { return };
        let is_complete = group.members.len() == group.settings.members.len();
        if !is_complete || group.members.iter().any(|member| matches!(member, Membership::Joining(_))) {
            return;
        }
        if !group.members.iter().any(|member| matches!(member, Membership::Here(_))) {
            let whys = group.members.iter().filter_map(|member| match member {
                Membership::Absent { why, .. } => Some(why),
                _ => None,
            });
            // An error of a member that exists is reported in preference to a missing member.
            let Some(why) = whys.max_by_key(|why| why.status != NOT_FOUND) else { return };
            let text = format!("none of its members can be received from: {}", why.description);
            let refusal = Refusal { description: text, ..why.clone() };
            return self.refuse_queue_group(context, number, refusal);
        }
        if let Some(attach) = group.attach.take() {
            let id = link.id;
            let mut reply = reply(&attach, DELIVERY_SIZE_BYTES_MAX);
            fill_extensions(&mut reply, &attach, context.now, None);
            context.connection.accept(id, reply);
        }
        self.arbitrate(context, number);
    }

    /// Detaches the link, or rejects its attach.
    fn refuse_queue_group(&mut self, context: &mut Context<'_>, number: LinkNumber, why: Refusal) {
        let Some(link) = context.remove_link(number) else { return };
        let LinkKind::QueueGroup(group) = link.kind else { return };
        let text = format!("the group '{}' cannot be received from: {}", group.path.name, why.description);
        let refusal = Refusal { description: text, ..why };
        match group.attach {
            Some(_) => context.connection.refuse(link.id, refusal.into()),
            None => context.connection.detach(link.id, Some(refusal.into())),
        }
    }

    /// Handles a receiver at a member that the shard has detached.
    pub(crate) fn on_member_closed(
        &mut self,
        context: &mut Context<'_>,
        number: LinkNumber,
        reason: CloseReason,
    ) {
        let Some(link) = context.links.get_mut(number) else { return };
        let (of, path) = match &link.kind {
            LinkKind::Receiver(ReceiverLink { member_of: Some(of), path, .. }) => (*of, path.clone()),
            LinkKind::Joining(JoiningLink { group, member, path, .. }) => {
                (MemberOf { group: *group, member: *member }, path.clone())
            }
            _ => return,
        };
        context.remove_detached(number);
        self.miss_member(context, of, close_refusal(reason, &path), None);
    }

    /// Looks up absent members, and resumes links whose locks have expired. Sets the time of the next check.
    pub(crate) fn tend_queue_groups(&mut self, context: &mut Context<'_>) {
        if self.wake_at.is_none_or(|at| at > context.millis) {
            return;
        }
        self.wake_at = None;
        let now = context.millis;
        let (mut absent, mut numbers) = (Vec::new(), Vec::new());
        let mut later = None;
        for (number, link) in context.links.iter() {
            let LinkKind::QueueGroup(group) = &link.kind else { continue };
            numbers.push(number);
            for (place, member) in group.members.iter().enumerate() {
                match member {
                    Membership::Absent { look_again_at, .. } if *look_again_at <= now => {
                        absent.push((number, place));
                    }
                    Membership::Absent { look_again_at, .. } => {
                        later = [later, Some(*look_again_at)].into_iter().flatten().min();
                    }
                    Membership::Joining(_) | Membership::Here(_) => {}
                }
            }
        }
        later.into_iter().for_each(|at| self.wake_queue_groups_at(at));
        for (number, member) in absent {
            match self.ask_member(context, number, member) {
                Ok(joining) => set_membership(context, number, member, Membership::Joining(joining)),
                Err(refusal) => self.refuse_queue_group(context, number, refusal),
            }
        }
        numbers.into_iter().for_each(|number| self.arbitrate(context, number));
    }

    pub(crate) fn wake_queue_groups_at(&mut self, at: peeklock_amqp::connection::Millis) {
        self.wake_at = [self.wake_at, Some(at)].into_iter().flatten().min();
    }
}

/// Returns the queue group at the path, if there is one.
pub(crate) fn queue_group_of(context: &Context<'_>, path: &EntityPath) -> Option<Arc<QueueGroupSettings>> {
    context.namespace.broker.queue_groups().get(&path.name).map(Arc::clone)
}

fn set_membership(context: &mut Context<'_>, group: LinkNumber, member: usize, membership: Membership) {
    if let Some(LinkKind::QueueGroup(group)) = context.links.get_mut(group).map(|link| &mut link.kind) {
        match group.members.get_mut(member) {
            Some(place) => *place = membership,
            None => group.members.push(membership),
        }
    }
}

/// Returns the required rights: Listen on the queue group, or else on each of its members.
pub(crate) fn queue_group_needs(
    context: &Context<'_>,
    access: &Access,
    path: &EntityPath,
    settings: &QueueGroupSettings,
) -> Result<Vec<Need>, Refusal> {
    let right = Right::Listen;
    let scope = Scope::from(path);
    let Err(refusal) = access.check_right(context, right, &scope) else {
        return Ok(vec![Need { right, scope }]);
    };
    let scopes = || settings.members.iter().map(|member| Scope::from(&member.name));
    match scopes().all(|scope| access.check_right(context, right, &scope).is_ok()) {
        true => Ok(scopes().map(|scope| Need { right, scope }).collect()),
        false => {
            let text = format!(
                "{}; a group needs the right on its own name, or on each of its members ({})",
                refusal.description,
                names(settings, "")
            );
            Err(Refusal { description: text, ..refusal })
        }
    }
}

/// Returns whether the member may become available by itself.
fn is_passing(error: &Error) -> bool {
    use engine::Error as E;
    let Error::Engine(error) = error else { return false };
    matches!(
        **error,
        E::NoSuchQueue { .. } | E::NoSuchTopic { .. } | E::NoSuchEntity { .. } | E::Disabled { .. }
    )
}

pub(crate) fn takes_no_messages(path: &EntityPath, settings: &QueueGroupSettings) -> Refusal {
    let text = format!(
        "'{}' is a group of queues for receivers and takes no messages; send to one of its members ({}), or to the topic of one",
        path.name,
        names(settings, "")
    );
    Refusal::not_allowed(text)
}

pub(crate) fn check_sub_queue(path: &EntityPath, settings: &QueueGroupSettings) -> Result<(), Refusal> {
    if path.sub_queue == SubQueue::Main {
        return Ok(());
    }
    let text = format!(
        "'{}' is a group, and messages are set aside at their own queues; receive from {}",
        path.name,
        names(settings, path.to_string().strip_prefix(path.name.as_str()).unwrap_or_default())
    );
    Err(Refusal::not_allowed(text))
}

/// Returns the names of the members, each with the suffix.
fn names(settings: &QueueGroupSettings, suffix: &str) -> String {
    let names: Vec<_> = settings.members.iter().map(|member| format!("'{}{suffix}'", member.name)).collect();
    names.join(", ")
}
