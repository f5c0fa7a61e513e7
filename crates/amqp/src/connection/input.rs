//! Splits bytes into frames and dispatches the frames to their handlers.

use bytes::{Buf, Bytes, BytesMut};

use super::error::Fault;
use super::handshake::Phase;
use super::session::State;
use super::{Connection, Error, SessionId};
use crate::{AmqpError, Frame, Performative, condition, decode_frame};

impl Connection {
    pub(super) fn consume(&mut self, input: &mut BytesMut) -> Result<(), Error> {
        loop {
            let has_progress = match self.phase {
                Phase::FirstHeader | Phase::AmqpHeader => self.take_header(input)?,
                Phase::SaslFrames => self.take_sasl_frame(input)?,
                Phase::SaslDecision => false,
                Phase::Open | Phase::Running | Phase::Closing => self.take_frame(input)?,
                Phase::Closed => {
                    input.clear();
                    false
                }
            };
            if !has_progress {
                return Ok(());
            }
        }
    }

    /// Reads a frame. Returns false when it is incomplete.
    fn take_frame(&mut self, input: &mut BytesMut) -> Result<bool, Error> {
        let (channel, performative, payload_len, len) =
            match decode_frame(input, self.config.max_frame_size_bytes) {
                Ok(None) => return Ok(false),
                Ok(Some((Frame::Amqp { channel, performative, payload }, len))) => {
                    (channel, performative, payload.len(), len)
                }
                Ok(Some((Frame::Empty, len))) => {
                    input.advance(len);
                    return Ok(true);
                }
                Ok(Some((Frame::Sasl(_), _))) => {
                    let error =
                        AmqpError::new(condition::FRAMING_ERROR, "a SASL frame after the SASL layer ended");
                    return Err(self.fail(error));
                }
                Err(error) => return Err(self.fail(AmqpError::new(error.condition(), error.to_string()))),
            };
        let payload = take_payload(input, len, payload_len);
        match self.dispatch(channel, performative, payload) {
            Ok(()) => Ok(true),
            Err(fault) => self.punish(fault).map(|()| true),
        }
    }

    fn dispatch(&mut self, channel: u16, performative: Performative, payload: Bytes) -> Result<(), Fault> {
        match (self.phase, performative) {
            (Phase::Open, Performative::Open(open)) => self.on_open(open),
            (Phase::Open, _) => {
                Err(Fault::connection(condition::ILLEGAL_STATE, "the first frame of a connection is open"))
            }
            (_, Performative::Close(close)) => {
                self.on_close(close);
                Ok(())
            }
            (Phase::Closing, _) => Ok(()),
            (_, Performative::Open(open)) => self.on_open(open),
            (_, Performative::Begin(begin)) => self.on_begin(channel, begin),
            (_, performative) => match self.session_of(channel) {
                Some((session, State::Mapped)) => self.dispatch_in(session, performative, payload),
                Some((session, _)) => {
                    self.finish_ended(session, performative);
                    Ok(())
                }
                None => ignore_farewell(channel, &performative),
            },
        }
    }

    fn dispatch_in(
        &mut self,
        session: SessionId,
        performative: Performative,
        payload: Bytes,
    ) -> Result<(), Fault> {
        match performative {
            Performative::Transfer(transfer) => self.on_transfer(session, transfer, payload),
            Performative::Disposition(disposition) => {
                self.on_disposition(session, disposition);
                Ok(())
            }
            Performative::Flow(flow) => self.on_flow(session, &flow),
            Performative::Attach(attach) => self.on_attach(session, attach),
            Performative::Detach(detach) => self.on_detach(session, detach),
            Performative::End(end) => {
                self.on_end(session, end);
                Ok(())
            }
            Performative::Open(_) | Performative::Begin(_) | Performative::Close(_) => Ok(()),
        }
    }

    /// Returns the session of a peer's channel.
    #[inline]
    fn session_of(&self, channel: u16) -> Option<(SessionId, State)> {
        let id = self.remote_channels.get(u32::from(channel))?;
        self.sessions.get(id).map(|session| (id, session.state))
    }

    /// Ignores the frames of a session that we ended, up to the peer's end.
    fn finish_ended(&mut self, session: SessionId, performative: Performative) {
        if let Performative::End(end) = performative {
            self.on_end(session, end);
        }
    }

    /// Ends the link, the session or the connection to which a fault belongs.
    pub(super) fn punish(&mut self, fault: Fault) -> Result<(), Error> {
        match fault {
            Fault::Connection(error) => return Err(self.fail(*error)),
            Fault::Session(session, error) => self.expel_session(session, *error),
            Fault::Link(link, error) => self.expel_link(link, *error),
        }
        Ok(())
    }
}

/// Ignores a frame for an unknown session, unless it requests something.
// SDK quirk: pyamqp, when it closes a client with several links, detaches some of them after it sent end.
fn ignore_farewell(channel: u16, performative: &Performative) -> Result<(), Fault> {
    match performative {
        Performative::Detach(_)
        | Performative::End(_)
        | Performative::Flow(_)
        | Performative::Disposition(_) => Ok(()),
        _ => {
            let text = format!("channel {channel} has no session: it was not begun, or has ended");
            Err(Fault::connection(condition::NOT_ALLOWED, text))
        }
    }
}

/// Cuts the first frame off the input and returns its last `payload_len` bytes, without copying them.
#[inline]
fn take_payload(input: &mut BytesMut, len: usize, payload_len: usize) -> Bytes {
    if payload_len == 0 {
        input.advance(len);
        return Bytes::new();
    }
    input.advance(len - payload_len);
    input.split_to(payload_len).freeze()
}
