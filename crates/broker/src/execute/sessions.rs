//! Sessions: their locks, states and lists.

use peeklock_journal::{Log, Space};
use peeklock_types::Timestamp;

use crate::batch::PeerId;
use crate::reply::Error;
use crate::request::sessions::{ListSessions, RenewSession, SessionRequest, SetState, ShowState};
use crate::shard::Shard;

impl<L: Log> Shard<L> {
    pub(super) fn execute_session(&mut self, now: Timestamp, peer: PeerId, request: SessionRequest) {
        match request {
            SessionRequest::RenewSession(asked) => {
                self.answer(peer, asked, |shard, RenewSession { entity, hold }| {
                    Ok(shard.state.engine.renew_session(now, entity, &hold.session, hold.receiver)?)
                });
            }
            SessionRequest::ShowState(asked) => {
                self.answer(peer, asked, |shard, ShowState { entity, hold }| {
                    Ok(shard.state.engine.session_state(now, entity, &hold.session, hold.receiver)?)
                });
            }
            SessionRequest::SetState(asked) => {
                self.answer(peer, asked, |shard, SetState { entity, hold, state }| {
                    // A state can be as large as many messages. Clearing a state is always permitted.
                    if state.is_some() && shard.log.space() > Space::Behind {
                        return Err(Error::DiskFull);
                    }
                    let (engine, out) = (&mut shard.state.engine, &mut shard.output);
                    Ok(engine.set_session_state(now, entity, &hold.session, hold.receiver, state, out)?)
                });
            }
            SessionRequest::ListSessions(asked) => {
                self.answer(peer, asked, |shard, ListSessions { entity, updated_since, skip, top }| {
                    Ok(shard.state.engine.list_sessions(now, entity, updated_since, skip, top)?)
                });
            }
        }
    }
}
