//! The frames of the SASL layer.

use bytes::Bytes;

use crate::codec::composite;
use crate::text::{Symbol, Text};

composite! {
    /// The mechanisms that a server offers, always written as an array.
    pub struct SaslMechanisms: 0x40 {
        pub mechanisms: Vec<Symbol>,
    }
}

composite! {
    pub struct SaslInit: 0x41 {
        pub mechanism: Symbol,
        pub initial_response: Option<Bytes>,
        pub hostname: Option<Text>,
    }
}

composite! {
    pub struct SaslChallenge: 0x42 {
        pub challenge: Bytes,
    }
}

composite! {
    pub struct SaslResponse: 0x43 {
        pub response: Bytes,
    }
}

composite! {
    pub struct SaslOutcome: 0x44 {
        pub code: SaslCode,
        pub additional_data: Option<Bytes>,
    }
}

/// The result of a SASL exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaslCode {
    Ok,
    /// The credentials are wrong.
    Auth,
    /// The server failed.
    Sys,
    /// The server failed and will fail again.
    SysPerm,
    /// The server failed; a retry may succeed.
    SysTemp,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SaslFrame {
    Mechanisms(SaslMechanisms),
    Init(SaslInit),
    Challenge(SaslChallenge),
    Response(SaslResponse),
    Outcome(SaslOutcome),
}
