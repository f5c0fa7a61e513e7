//! The start and the end of a connection: protocol headers, SASL, open, close.

use bytes::{Buf, Bytes, BytesMut};

use super::error::Fault;
use super::{Connection, Error, Event, wire};
use crate::{
    AmqpError, Close, FRAME_SIZE_BYTES_MIN, Frame, FrameWriter, Open, Protocol, ProtocolHeader, SaslCode,
    SaslFrame, SaslInit, SaslMechanisms, SaslOutcome, condition, decode_frame,
};

/// The progress of the connection. A phase is named after the input that the peer has to send next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The SASL header (client), or either header (server).
    FirstHeader,
    SaslFrames,
    /// No input: the driver has to answer `SaslInit`.
    SaslDecision,
    /// The AMQP header, with or without SASL before it.
    AmqpHeader,
    Open,
    Running,
    /// Our close is sent; only the peer's close matters.
    Closing,
    Closed,
}

impl Connection {
    pub(super) fn put_header(&mut self, protocol: Protocol) {
        let header = ProtocolHeader { protocol }.to_bytes();
        self.handshake_out().extend_from_slice(&header);
    }

    /// Returns the output for handshake frames. Until SASL is complete, a client's frames wait in `out` and only SASL
    /// frames may leave.
    fn handshake_out(&mut self) -> &mut BytesMut {
        if self.is_held { &mut self.sasl_out } else { &mut self.out }
    }

    fn put_sasl(&mut self, frame: &SaslFrame) {
        FrameWriter::sasl(self.handshake_out(), frame).finish();
    }

    /// Reads a protocol header. Returns false when it is incomplete.
    pub(super) fn take_header(&mut self, input: &mut BytesMut) -> Result<bool, Error> {
        let header = match ProtocolHeader::decode(input) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(false),
            Err(not_amqp) => return Err(self.refuse_header(not_amqp.found)),
        };
        let found = header.to_bytes();
        input.advance(ProtocolHeader::LEN);
        match (self.phase, header.protocol) {
            (Phase::FirstHeader, Protocol::Sasl) if self.is_client => self.phase = Phase::SaslFrames,
            (Phase::FirstHeader, Protocol::Sasl) if !self.config.sasl_mechanisms.is_empty() => {
                self.offer_sasl()
            }
            (Phase::FirstHeader, Protocol::Amqp) if !self.is_client => self.answer_amqp_header(),
            (Phase::AmqpHeader, Protocol::Amqp) if self.is_client => self.phase = Phase::Open,
            (Phase::AmqpHeader, Protocol::Amqp) => self.answer_amqp_header(),
            _ => return Err(self.refuse_header(found)),
        }
        Ok(true)
    }

    /// Ends the connection after a wrong header. A server sends the header that it expects, and nothing else (AMQP 1.0
    /// §2.2).
    fn refuse_header(&mut self, found: [u8; 8]) -> Error {
        if !self.is_client {
            let wants_sasl = self.phase == Phase::FirstHeader && !self.config.sasl_mechanisms.is_empty();
            self.put_header(if wants_sasl { Protocol::Sasl } else { Protocol::Amqp });
        }
        self.shut();
        Error::Header { found }
    }

    fn offer_sasl(&mut self) {
        self.has_sasl = true;
        self.phase = Phase::SaslFrames;
        self.put_header(Protocol::Sasl);
        let mechanisms = self.config.sasl_mechanisms.clone();
        self.put_sasl(&SaslFrame::Mechanisms(SaslMechanisms { mechanisms }));
    }

    fn answer_amqp_header(&mut self) {
        self.put_header(Protocol::Amqp);
        self.phase = Phase::Open;
    }

    /// Reads a SASL frame. Returns false when it is incomplete.
    pub(super) fn take_sasl_frame(&mut self, input: &mut BytesMut) -> Result<bool, Error> {
        let (frame, len) = match decode_frame(input, self.config.max_frame_size_bytes) {
            Ok(None) => return Ok(false),
            Ok(Some((Frame::Sasl(frame), len))) => (frame, len),
            Ok(Some(_)) => return Err(self.fail_sasl("a frame of the SASL layer is expected")),
            Err(error) => return Err(self.fail_sasl(&error.to_string())),
        };
        input.advance(len);
        match frame {
            SaslFrame::Init(init) if !self.is_client => self.on_sasl_init(init)?,
            SaslFrame::Mechanisms(offer) if self.is_client => self.on_sasl_mechanisms(&offer)?,
            SaslFrame::Outcome(outcome) if self.is_client => self.on_sasl_outcome(outcome)?,
            _ => return Err(self.fail_sasl("this SASL frame is not expected now")),
        }
        Ok(true)
    }

    fn on_sasl_init(&mut self, init: SaslInit) -> Result<(), Error> {
        if !self.config.sasl_mechanisms.contains(&init.mechanism) {
            self.phase = Phase::SaslDecision;
            self.sasl_outcome(SaslCode::Auth, None);
            return Err(Error::Mechanism { wanted: init.mechanism.to_string() });
        }
        self.phase = Phase::SaslDecision;
        self.events.push_back(Event::SaslInit {
            mechanism: init.mechanism,
            initial_response: init.initial_response,
            hostname: init.hostname,
        });
        Ok(())
    }

    pub(super) fn answer_sasl(&mut self, code: SaslCode, additional_data: Option<Bytes>) {
        if self.phase != Phase::SaslDecision {
            return;
        }
        self.put_sasl(&SaslFrame::Outcome(SaslOutcome { code, additional_data }));
        if code == SaslCode::Ok {
            self.phase = Phase::AmqpHeader;
        } else {
            self.shut();
        }
    }

    fn on_sasl_mechanisms(&mut self, offer: &SaslMechanisms) -> Result<(), Error> {
        // A second offer of mechanisms is an error.
        let Some(sasl) = self.sasl_client.take() else {
            return Err(self.fail_sasl("mechanisms were offered twice"));
        };
        if !offer.mechanisms.contains(&sasl.mechanism) {
            self.shut();
            return Err(Error::Mechanism { wanted: sasl.mechanism.to_string() });
        }
        let init = SaslInit {
            mechanism: sasl.mechanism,
            initial_response: sasl.initial_response,
            hostname: self.config.hostname.clone(),
        };
        self.put_sasl(&SaslFrame::Init(init));
        Ok(())
    }

    fn on_sasl_outcome(&mut self, outcome: SaslOutcome) -> Result<(), Error> {
        let code = outcome.code;
        self.events.push_back(Event::SaslOutcome { code, additional_data: outcome.additional_data });
        if self.sasl_client.is_some() || code != SaslCode::Ok {
            self.shut();
            return Err(Error::Sasl { code });
        }
        self.phase = Phase::AmqpHeader;
        self.release_held();
        Ok(())
    }

    /// Releases the frames that waited for SASL to complete.
    fn release_held(&mut self) {
        self.is_held = false;
        let mut out = std::mem::take(&mut self.sasl_out);
        out.unsplit(std::mem::take(&mut self.out));
        self.out = out;
    }

    /// Ends the connection during SASL, which has no frame to report an error.
    fn fail_sasl(&mut self, description: &str) -> Error {
        self.shut();
        Error::Protocol(AmqpError::new(condition::FRAMING_ERROR, description.to_owned()))
    }

    pub(super) fn put_open(&mut self) {
        let config = &self.config;
        let idle_time_out =
            config.idle_timeout.map(|span| u32::try_from(span.as_millis()).unwrap_or(u32::MAX));
        let open = Open {
            hostname: config.hostname.clone(),
            max_frame_size: config.max_frame_size_bytes,
            channel_max: config.channel_max,
            idle_time_out,
            offered_capabilities: config.offered_capabilities.clone(),
            desired_capabilities: config.desired_capabilities.clone(),
            properties: config.properties.clone(),
            ..Open::new(config.container_id.clone())
        };
        wire::put_frame(&mut self.out, 0, &open);
        self.is_open_sent = true;
    }

    pub(super) fn on_open(&mut self, open: Box<Open>) -> Result<(), Fault> {
        if self.phase != Phase::Open {
            return Err(Fault::connection(condition::ILLEGAL_STATE, "the connection is open already"));
        }
        let frame_size = open.max_frame_size.max(FRAME_SIZE_BYTES_MIN).min(self.config.max_frame_size_bytes);
        self.frame_size_out_max = usize::try_from(frame_size).unwrap_or(usize::MAX);
        self.remote_channel_max = open.channel_max;
        self.timers.learn(self.now, open.idle_time_out);
        if !self.is_open_sent {
            self.put_open();
        }
        self.phase = Phase::Running;
        self.events.push_back(Event::Opened { open, sasl: self.has_sasl });
        Ok(())
    }

    pub(super) fn on_close(&mut self, close: Close) {
        if self.phase != Phase::Closing {
            self.flush();
            wire::put_frame(&mut self.out, 0, &Close::default());
        }
        self.events.push_back(Event::Closed { error: close.error });
        self.shut();
    }

    pub(super) fn close_with(&mut self, error: Option<AmqpError>) {
        match self.phase {
            Phase::Closing | Phase::Closed => {}
            Phase::Open | Phase::Running => {
                self.release_all();
                self.flush();
                self.note_close(error.as_ref());
                self.put_close(error);
                self.forget_all();
                self.phase = Phase::Closing;
            }
            _ => self.shut(),
        }
    }

    fn put_close(&mut self, error: Option<AmqpError>) {
        // A close is valid only after an open.
        if !self.is_open_sent {
            self.put_open();
        }
        wire::put_frame(&mut self.out, 0, &Close { error });
    }

    /// Closes the connection because the peer violated a rule.
    pub(super) fn fail(&mut self, error: AmqpError) -> Error {
        if matches!(self.phase, Phase::Open | Phase::Running) {
            self.flush();
            self.put_close(Some(error.clone()));
        }
        self.shut();
        Error::Protocol(error)
    }

    /// Ends all input and output, apart from bytes that are already in the output.
    pub(super) fn shut(&mut self) {
        if self.is_held {
            self.out.clear();
            self.release_held();
        }
        self.forget_all();
        self.phase = Phase::Closed;
    }
}
