//! Links of groups as they come, and members as they come and go.

use std::sync::Arc;
use std::time::Duration;

use peeklock_access::{Right, Scope};
use peeklock_amqp::connection::{LinkId, SessionId};
use peeklock_amqp::{Attach, Role, condition};
use peeklock_broker::engine::{self, CloseReason, HeldSession};
use peeklock_broker::request::entities::Find;
use peeklock_broker::request::receiving::{self, Window};
use peeklock_broker::{Error, Named, SessionAsk};
use peeklock_types::{EntityKind, EntityPath, QueueGroupSettings, SubQueue};

use super::{Arbiter, HeldLocks, JoiningLink, MemberOf, Membership, QueueGroupLink};
use crate::access::claims::Need;
use crate::connection::attach::{DELIVERY_SIZE_BYTES_MAX, RECEIVER_WINDOW_BYTES, mode_of, reply};
use crate::connection::conversation::Conversation;
use crate::connection::link::{EntityRef, Link, LinkKind, LinkNumber, ReceiverLink};
use crate::connection::request::FindWaiter;
use crate::error::{Refusal, close_refusal, refusal};
use crate::hub::is_hub;
use crate::receiving::sessions::SessionFilter;

/// How often a member that is not there is looked for.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(2);
const NOT_FOUND: i32 = 404;

impl Conversation<'_> {
    /// The group that the path names, if it names one.
    pub(crate) fn queue_group_of(&self, path: &EntityPath) -> Option<Arc<QueueGroupSettings>> {
        self.namespace.broker.queue_groups().get(&path.name).map(Arc::clone)
    }

    pub(crate) fn start_queue_group(
        &mut self,
        session: SessionId,
        id: LinkId,
        attach: Box<Attach>,
        path: EntityPath,
        settings: Arc<QueueGroupSettings>,
    ) -> Result<(), Refusal> {
        let rests_on = self.queue_group_needs(&path, &settings)?;
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
        let number = self.insert(Link { id, session, kind, rests_on: rests_on.into() })?;
        for member in 0..settings.members.len() {
            match self.ask_member(number, member) {
                Ok(joining) => self.set_membership(number, member, Membership::Joining(joining)),
                Err(refusal) => {
                    self.forget_link(number);
                    return Err(refusal);
                }
            }
        }
        Ok(())
    }

    /// The right to listen to the group, or else to each of its members.
    pub(crate) fn queue_group_needs(
        &self,
        path: &EntityPath,
        settings: &QueueGroupSettings,
    ) -> Result<Vec<Need>, Refusal> {
        let right = Right::Listen;
        let scope = Scope::from(path);
        let Err(refusal) = self.check_right(right, &scope) else { return Ok(vec![Need { right, scope }]) };
        let scopes = || settings.members.iter().map(|member| Scope::from(&member.name));
        match scopes().all(|scope| self.check_right(right, &scope).is_ok()) {
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

    fn ask_member(&mut self, group: LinkNumber, member: usize) -> Result<LinkNumber, Refusal> {
        let gone = || Refusal::new(500, condition::INTERNAL_ERROR, "the group's link is gone");
        let link = self.links.get_mut(group).ok_or_else(gone)?;
        let LinkKind::QueueGroup(of) = &link.kind else { return Err(gone()) };
        let name = of.settings.members.get(member).map(|member| member.name.clone()).ok_or_else(gone)?;
        let number = match of.members.get(member).and_then(Membership::link) {
            Some(number) => number,
            None => {
                let path = EntityPath { name: name.clone(), sub_queue: SubQueue::Main };
                let (id, session) = (link.id, link.session);
                let kind = LinkKind::Joining(JoiningLink { group, member, path, entity: None });
                let number = self.links.insert_member(Link { id, session, kind, rests_on: Box::default() });
                number.ok_or_else(Refusal::too_many_links)?
            }
        };
        let shard = self.namespace.broker.place(&name);
        self.ask(shard, FindWaiter::Link(number), Find { name });
        Ok(number)
    }

    fn set_membership(&mut self, group: LinkNumber, member: usize, membership: Membership) {
        if let Some(LinkKind::QueueGroup(group)) = self.links.get_mut(group).map(|link| &mut link.kind) {
            match group.members.get_mut(member) {
                Some(place) => *place = membership,
                None => group.members.push(membership),
            }
        }
    }

    /// The shard of a member has looked for it.
    pub(crate) fn on_member_found(&mut self, number: LinkNumber, result: Result<Named, Error>) {
        let receiver = self.peer.id.receiver(number.0);
        let Some(LinkKind::Joining(joining)) = self.links.get_mut(number).map(|link| &mut link.kind) else {
            return;
        };
        let group = joining.group;
        match result {
            Ok(Named::Entity(found)) if found.kind == EntityKind::Topic => {
                let text = format!(
                    "its member '{0}' is a topic; name one of its subscriptions, '{0}/Subscriptions/…'",
                    joining.path.name
                );
                self.refuse_queue_group(group, Refusal::not_allowed(text));
            }
            Ok(Named::Entity(found)) => {
                let shard = self.namespace.broker.place(&joining.path.name);
                joining.entity = Some(EntityRef { shard, entity: found.entity });
                let Some(LinkKind::QueueGroup(of)) = self.links.get_mut(group).map(|link| &link.kind) else {
                    return;
                };
                let (mode, entity, sub_queue) = (of.mode, found.entity, SubQueue::Main);
                let session = SessionAsk::None;
                self.ask(shard, number, receiving::Attach { entity, sub_queue, receiver, mode, session });
                self.push(shard, Window { receiver, size_bytes: RECEIVER_WINDOW_BYTES });
            }
            Ok(Named::Hub(_)) => {
                let what = "which can be no member of a group; name queues and subscriptions";
                let refusal = is_hub(&joining.path.name, what);
                self.refuse_queue_group(group, refusal);
            }
            Err(error) => self.on_member_refused(number, &error),
        }
    }

    /// The shard of a member has attached the receiver, or has refused to.
    pub(crate) fn on_member_attached(
        &mut self,
        number: LinkNumber,
        result: Result<Option<HeldSession>, Error>,
    ) {
        let Some(LinkKind::Joining(joining)) = self.links.get(number).map(|link| &link.kind) else { return };
        let of = MemberOf { group: joining.group, member: joining.member };
        match result {
            Ok(_) => self.take_member(number, of),
            Err(error) => self.on_member_refused(number, &error),
        }
    }

    fn on_member_refused(&mut self, number: LinkNumber, error: &Error) {
        let Some(LinkKind::Joining(joining)) = self.links.get_mut(number).map(|link| &mut link.kind) else {
            return;
        };
        let (group, member) = (joining.group, joining.member);
        let refusal = refusal(error, Some(&joining.path));
        if is_passing(error) {
            // Nothing is under way with its number that could come late: it serves for the next question. A member may be away for
            // days, and a connection has not so many numbers.
            joining.entity = None;
            self.miss_member(MemberOf { group, member }, refusal, Some(number));
        } else {
            let text = format!("its member '{}': {}", joining.path.name, refusal.description);
            self.refuse_queue_group(group, Refusal { description: text, ..refusal });
        }
    }

    fn take_member(&mut self, number: LinkNumber, of: MemberOf) {
        let receiver = self.peer.id.receiver(number.0);
        let Some(LinkKind::QueueGroup(group)) = self.links.get_mut(of.group).map(|link| &mut link.kind)
        else {
            return;
        };
        let mode = group.mode;
        group.arbiter.join(of.member);
        let Some(link) = self.links.get_mut(number) else { return };
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
        self.set_membership(of.group, of.member, Membership::Here(number));
        self.open_queue_group(of.group);
    }

    /// A member is not there, or not any more. The others go on without it, and it is looked for.
    fn miss_member(&mut self, of: MemberOf, why: Refusal, link: Option<LinkNumber>) {
        let look_again_at = self.millis.after(LOOK_AGAIN_AFTER);
        self.wake_queue_groups_at(look_again_at);
        if let Some(LinkKind::QueueGroup(group)) = self.links.get_mut(of.group).map(|link| &mut link.kind) {
            group.arbiter.leave(of.member);
        }
        self.set_membership(of.group, of.member, Membership::Absent { why, look_again_at, link });
        self.open_queue_group(of.group);
    }

    /// Opens the link when every member was asked, if any is there; a link that is open goes on.
    fn open_queue_group(&mut self, number: LinkNumber) {
        let Some(link) = self.links.get_mut(number) else { return };
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
            // Who is there and does not serve is worth more words than who is not there.
            let Some(why) = whys.max_by_key(|why| why.status != NOT_FOUND) else { return };
            let text = format!("none of its members can be received from: {}", why.description);
            let refusal = Refusal { description: text, ..why.clone() };
            return self.refuse_queue_group(number, refusal);
        }
        if let Some(attach) = group.attach.take() {
            let id = link.id;
            self.connection.accept(id, reply(&attach, DELIVERY_SIZE_BYTES_MAX));
        }
        self.arbitrate(number);
    }

    /// Ends the link, or does not let it begin.
    fn refuse_queue_group(&mut self, number: LinkNumber, why: Refusal) {
        let Some(link) = self.forget_link(number) else { return };
        let LinkKind::QueueGroup(group) = link.kind else { return };
        let text = format!("the group '{}' cannot be received from: {}", group.path.name, why.description);
        let refusal = Refusal { description: text, ..why };
        match group.attach {
            Some(_) => self.connection.refuse(link.id, refusal.into()),
            None => self.connection.detach(link.id, Some(refusal.into())),
        }
    }

    /// A shard has detached the receiver at a member.
    pub(crate) fn on_member_closed(&mut self, number: LinkNumber, reason: CloseReason) {
        let Some(link) = self.links.get_mut(number) else { return };
        let (of, path) = match &link.kind {
            LinkKind::Receiver(ReceiverLink { member_of: Some(of), path, .. }) => (*of, path.clone()),
            LinkKind::Joining(JoiningLink { group, member, path, .. }) => {
                (MemberOf { group: *group, member: *member }, path.clone())
            }
            _ => return,
        };
        self.give_up_stream(number);
        self.links.remove(number);
        self.miss_member(of, close_refusal(reason, &path), None);
    }

    /// Looks for members that were absent, and lets links go on whose locks have run out. Says when to come again.
    pub(crate) fn tend_queue_groups(&mut self) {
        if self.queue_groups_wake_at.is_none_or(|at| at > self.millis) {
            return;
        }
        self.queue_groups_wake_at = None;
        let now = self.millis;
        let (mut absent, mut numbers) = (Vec::new(), Vec::new());
        let mut later = None;
        for (number, link) in self.links.iter() {
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
            match self.ask_member(number, member) {
                Ok(joining) => self.set_membership(number, member, Membership::Joining(joining)),
                Err(refusal) => self.refuse_queue_group(number, refusal),
            }
        }
        numbers.into_iter().for_each(|number| self.arbitrate(number));
    }

    pub(crate) fn wake_queue_groups_at(&mut self, at: peeklock_amqp::connection::Millis) {
        self.queue_groups_wake_at = [self.queue_groups_wake_at, Some(at)].into_iter().flatten().min();
    }
}

/// Whether a member may come (back) by itself.
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

/// The members, each with something behind its name.
fn names(settings: &QueueGroupSettings, suffix: &str) -> String {
    let names: Vec<_> = settings.members.iter().map(|member| format!("'{}{suffix}'", member.name)).collect();
    names.join(", ")
}
