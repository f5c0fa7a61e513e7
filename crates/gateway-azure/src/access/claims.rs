//! The claims of the peer, the links that depend on them, and the end of those links when a claim ends.
//!
//! Every link and every management call is checked against the claims that are valid at that moment. A link depends on
//! them for its whole life: when the token expires without a replacement, or its key is removed or replaced, the link
//! is detached.

use std::time::Duration;

use peeklock_access::{Claim, Right, Scope};
use peeklock_amqp::condition;
use peeklock_amqp::connection::Millis;
use peeklock_types::Timestamp;
use tokio::sync::watch;

use crate::access::Access;
use crate::connection::context::Context;
use crate::connection::conversation::Replies;
use crate::connection::link::{LinkKind, LinkNumber};
use crate::error::Refusal;
use crate::namespace::Namespace;
use crate::transaction::Transactions;

/// A right that a link requires.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    pub(crate) right: Right,
    pub(crate) scope: Scope,
}

/// The claims of one connection.
pub(crate) struct Claims {
    held: Vec<Claim>,
    /// The earliest end of a claim.
    next_end: Option<End>,
    /// The time since which there is no claim, and the input since then.
    bare: Option<Bare>,
}

struct Bare {
    since: Millis,
    input_bytes: usize,
}

/// The end of a claim, by the clock of its issuer and by that of the connection. The second is computed once: both
/// clocks are truncated to milliseconds, and a deadline that moves back and forth by one would reset the timer each
/// time.
#[derive(Clone, Copy)]
struct End {
    at_s: u64,
    deadline: Millis,
}

/// One moment by both clocks.
#[derive(Clone, Copy)]
struct Moment {
    wall: Timestamp,
    millis: Millis,
}

impl End {
    fn new(at_s: u64, now: Moment) -> Self {
        let left_ms = at_s.saturating_mul(1000).saturating_sub(now.wall.as_millis());
        // One millisecond more, because of the truncation: a timer that fires before the end would have no effect.
        let deadline = now.millis.after(Duration::from_millis(left_ms.saturating_add(1)));
        End { at_s, deadline }
    }
}

/// The reason why a claim is no longer valid.
#[derive(Clone, Copy)]
enum Loss {
    Expired,
    KeyGone,
    Replaced,
}

impl Claims {
    pub(crate) fn new(now: Millis) -> Self {
        Claims { held: Vec::new(), next_end: None, bare: Some(Bare { since: now, input_bytes: 0 }) }
    }

    fn allow(&self, need: &Need, now_s: u64) -> bool {
        self.held.iter().any(|claim| claim.allows(need.right, &need.scope, now_s))
    }

    fn add(&mut self, claim: Claim, now: Moment) {
        if let Some(at_s) =
            claim.expires_at_s().filter(|at_s| self.next_end.is_none_or(|end| *at_s < end.at_s))
        {
            self.next_end = Some(End::new(at_s, now));
        }
        self.held.push(claim);
        self.bare = None;
    }

    /// Removes and returns the claims that are lost.
    fn take_lost(&mut self, now: Moment, is_lost: impl Fn(&Claim) -> Option<Loss>) -> Vec<(Claim, Loss)> {
        let mut lost = Vec::new();
        self.held.retain(|claim| match is_lost(claim) {
            Some(loss) => {
                lost.push((claim.clone(), loss));
                false
            }
            None => true,
        });
        if !lost.is_empty() {
            self.set_next_end(now);
        }
        if self.held.is_empty() && self.bare.is_none() {
            self.bare = Some(Bare { since: now.millis, input_bytes: 0 });
        }
        lost
    }
}

impl Claims {
    fn set_next_end(&mut self, now: Moment) {
        let at_s = self.held.iter().filter_map(Claim::expires_at_s).min();
        self.next_end = at_s.map(|at_s| End::new(at_s, now));
    }
}

impl Access {
    pub(crate) fn check_right(
        &self,
        context: &Context<'_>,
        right: Right,
        scope: &Scope,
    ) -> Result<(), Refusal> {
        if self.claims.allow(&Need { right, scope: scope.clone() }, context.now_s()) {
            return Ok(());
        }
        let text = if self.claims.held.is_empty() {
            format!("no valid token was put for {scope}; send one to $cbs, or use SASL PLAIN")
        } else {
            format!("the key does not have the right {right} on {scope}; use a key that has it")
        };
        Err(Refusal::unauthorized(text))
    }

    /// Checks a request that requires any one of several rights and may contain its own token. An invalid token is
    /// rejected, even if the connection's claims permit the request without it.
    // SDK quirk: .NET puts no token for the links to `$management`; it sends one with each request.
    pub(crate) fn check_any_right(
        &mut self,
        context: &mut Context<'_>,
        rights: &[Right],
        scope: &Scope,
        token: Option<&str>,
    ) -> Result<(), Refusal> {
        if let Some(token) = token
            && self.check_shown_token(context, rights, scope, token)?
        {
            return Ok(());
        }
        let mut checked = Err(Refusal::unauthorized(format!("nobody has a right to this on {scope}")));
        for right in rights {
            checked = self.check_right(context, *right, scope);
            if checked.is_ok() {
                break;
            }
        }
        checked
    }

    /// Returns whether the token in a request permits it.
    fn check_shown_token(
        &mut self,
        context: &mut Context<'_>,
        rights: &[Right],
        scope: &Scope,
        token: &str,
    ) -> Result<bool, Refusal> {
        self.choose(context, None, peeklock_access::key_name(token).as_deref());
        let now_s = context.now_s();
        let claim = context.namespace.access.check_token(token, scope.as_path(), now_s);
        let claim = claim.map_err(|error| Refusal::unauthorized(error.to_string()))?;
        // A peer with a valid token is authenticated, even if the token is not stored.
        self.claims.bare = None;
        Ok(rights.iter().any(|right| claim.allows(*right, scope, now_s)))
    }

    /// Handles a name and a secret in plain text.
    pub(crate) fn sign_in(
        &mut self,
        context: &mut Context<'_>,
        host: Option<&str>,
        name: &str,
        secret: &[u8],
    ) -> bool {
        self.choose(context, host, Some(name));
        let claim = context.namespace.access.check_secret(name, secret);
        let is_known = claim.is_some();
        if let Some(claim) = claim {
            self.is_at_home = true;
            self.claims.add(claim, self.moment(context));
        }
        is_known
    }

    /// Stores a token. It replaces the previous token for the same scope.
    pub(crate) fn take_token(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        token: &str,
        audience: &str,
    ) -> Result<(), String> {
        self.choose(context, None, peeklock_access::key_name(token).as_deref());
        let claim = context.namespace.access.check_token(token, audience, context.now_s());
        let claim = claim.map_err(|error| error.to_string())?;
        let scope = claim.scope().clone();
        let replaced = self
            .claims
            .take_lost(self.moment(context), |old| (*old.scope() == scope).then_some(Loss::Replaced));
        if self.claims.held.len() >= context.gateway.limits.tokens_per_connection_max {
            let count = self.claims.held.len();
            return Err(format!(
                "this connection holds {count} tokens, the most that are allowed; open another one"
            ));
        }
        self.is_at_home = true;
        self.claims.add(claim, self.moment(context));
        self.review_links(context, transactions, &replaced);
        Ok(())
    }

    /// Selects the peer's namespace, as long as the peer has not used one.
    pub(crate) fn choose(&mut self, context: &mut Context<'_>, host: Option<&str>, key_name: Option<&str>) {
        if self.is_at_home || context.gateway.namespaces.others.is_empty() {
            return;
        }
        let namespaces = &context.gateway.namespaces;
        if let Some(namespace) = host.and_then(|host| namespaces.by_host(host)) {
            self.is_at_home = true;
            return self.move_to(context, namespace);
        }
        if let Some(namespace) = key_name.and_then(|name| namespaces.by_key_name(name)) {
            self.move_to(context, namespace);
        }
    }

    /// Moves the peer to another namespace. No shard has received a request of this peer yet, so no state is left
    /// behind.
    fn move_to<'g>(&mut self, context: &mut Context<'g>, namespace: &'g Namespace) {
        if std::ptr::eq(context.namespace, namespace) {
            return;
        }
        let replies = context.enter(namespace);
        self.moved = Some((replies, namespace.access.revision()));
    }

    /// Returns the replies and the policies to listen to, if they have changed.
    pub(crate) fn take_moved(&mut self) -> Option<(Replies, watch::Receiver<u64>)> {
        self.moved.take()
    }

    /// Drops the claims that have ended, and detaches the links that no other claim permits.
    pub(crate) fn review_claims(&mut self, context: &mut Context<'_>, transactions: &mut Transactions) {
        context.now = context.namespace.broker.clock().now();
        let now_s = context.now_s();
        let access = &context.namespace.access;
        let lost = self.claims.take_lost(self.moment(context), |claim| {
            if claim.has_expired(now_s) {
                Some(Loss::Expired)
            } else if !access.is_current(claim) {
                Some(Loss::KeyGone)
            } else {
                None
            }
        });
        // The clock may have stepped, which brings the ends of the other claims nearer.
        self.claims.set_next_end(self.moment(context));
        self.review_links(context, transactions, &lost);
    }

    fn review_links(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        lost: &[(Claim, Loss)],
    ) {
        if lost.is_empty() {
            return;
        }
        let now_s = context.now_s();
        let unmet = context.links.iter().filter_map(|(number, link)| {
            let need = link.rests_on.iter().find(|need| !self.claims.allow(need, now_s))?;
            Some((number, ended(need, lost)))
        });
        let unmet: Vec<_> = unmet.collect();
        if unmet.is_empty() {
            return;
        }
        transactions.doom_all("a token that it rested on has ended");
        for (number, refusal) in unmet {
            self.withdraw(context, number, refusal);
        }
    }

    /// Ends a link at once, without waiting for its peer.
    fn withdraw(&mut self, context: &mut Context<'_>, number: LinkNumber, refusal: Refusal) {
        let Some(link) = context.remove_link(number) else { return };
        match link.kind {
            LinkKind::QueueGroup(group) if group.attach.is_some() => {
                context.connection.refuse(link.id, refusal.into());
            }
            LinkKind::Pending(_) | LinkKind::PendingHub(_) => {
                context.connection.refuse(link.id, refusal.into());
            }
            _ => context.connection.detach(link.id, Some(refusal.into())),
        }
    }

    /// Returns the time at which claims must be checked, or by which the peer must have a valid claim.
    pub(crate) fn claims_deadline(&self, context: &Context<'_>) -> Option<Millis> {
        let end = self.claims.next_end.map(|end| end.deadline);
        [end, self.bare_deadline(context)].into_iter().flatten().min()
    }

    fn moment(&self, context: &Context<'_>) -> Moment {
        Moment { wall: context.now, millis: context.millis }
    }

    fn bare_deadline(&self, context: &Context<'_>) -> Option<Millis> {
        let bare = self.claims.bare.as_ref().filter(|_| !context.is_closing())?;
        Some(bare.since.after(context.gateway.limits.unauthenticated_time_max))
    }

    /// Checks the claims after time has passed.
    pub(crate) fn watch_claims(&mut self, context: &mut Context<'_>, transactions: &mut Transactions) {
        if let Some(end) = self.claims.next_end.filter(|end| end.deadline <= context.millis) {
            // The claim may not have ended yet, if the two clocks were not read at exactly the same time.
            self.claims.next_end = Some(End::new(end.at_s, self.moment(context)));
            if end.at_s <= context.now_s() {
                self.review_claims(context, transactions);
            }
        }
        if self.bare_deadline(context).is_some_and(|deadline| deadline <= context.millis) {
            let text = format!(
                "unauthorized: no valid token was shown within {:?}; put one to $cbs after opening the connection",
                context.gateway.limits.unauthenticated_time_max
            );
            self.turn_away(context, text);
        }
    }

    /// Counts input bytes that were handled.
    pub(crate) fn count_input(&mut self, context: &mut Context<'_>, count: usize) {
        let bytes_max = context.gateway.limits.unauthenticated_bytes_max;
        let Some(bare) = &mut self.claims.bare else { return };
        bare.input_bytes = bare.input_bytes.saturating_add(count);
        if bare.input_bytes > bytes_max {
            let text = format!(
                "unauthorized: more than {bytes_max} bytes came before a valid token; put one to $cbs before anything else"
            );
            self.turn_away(context, text);
        }
    }

    fn turn_away(&mut self, context: &mut Context<'_>, text: String) {
        context.close(Refusal::new(401, condition::CONNECTION_FORCED, text));
    }
}

/// Returns the refusal for a link that depended on a lost claim.
fn ended(need: &Need, lost: &[(Claim, Loss)]) -> Refusal {
    let scope = &need.scope;
    let loss = lost.iter().find(|(claim, _)| claim.scope().covers(scope)).map(|(_, loss)| *loss);
    let text = match loss {
        Some(Loss::Expired) => {
            format!(
                "ExpiredToken: the token for {scope} has expired and was not renewed; put a new one and attach again"
            )
        }
        Some(Loss::KeyGone) => format!(
            "the key behind the token for {scope} was removed, replaced or lost a right; put a token of another key and attach again"
        ),
        Some(Loss::Replaced) | None => {
            let right = need.right;
            format!(
                "the newest token for {scope} does not give the right {right}; put one that does and attach again"
            )
        }
    };
    Refusal::unauthorized(text)
}
