//! The two ends of a link: the source and the target of its messages.

use crate::codec::composite;
use crate::state::DeliveryState;
use crate::text::{Symbol, Text};
use crate::value::Fields;

composite! {
    /// The source of the messages of a link.
    #[derive(Default)]
    pub struct Source: 0x28 {
        pub address: Option<Text>,
        /// Terminus durability: 0 none, 1 configuration, 2 unsettled state.
        pub durable: Option<u32>,
        pub expiry_policy: Option<Symbol>,
        /// Seconds.
        pub timeout: Option<u32>,
        pub dynamic: Option<bool>,
        pub dynamic_node_properties: Option<Fields>,
        pub distribution_mode: Option<Symbol>,
        pub filter: Option<Fields>,
        pub default_outcome: Option<DeliveryState>,
        pub outcomes: Vec<Symbol>,
        pub capabilities: Vec<Symbol>,
    }
}

composite! {
    /// A node that receives the messages of a link.
    #[derive(Default)]
    pub struct TargetNode: 0x29 {
        pub address: Option<Text>,
        pub durable: Option<u32>,
        pub expiry_policy: Option<Symbol>,
        /// Seconds.
        pub timeout: Option<u32>,
        pub dynamic: Option<bool>,
        pub dynamic_node_properties: Option<Fields>,
        pub capabilities: Vec<Symbol>,
    }
}

composite! {
    /// The target of a link that controls transactions.
    #[derive(Default)]
    pub struct Coordinator: 0x30 {
        pub capabilities: Vec<Symbol>,
    }
}

/// The target of the messages of a link.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    Node(TargetNode),
    Coordinator(Coordinator),
}

impl Source {
    pub fn with_address(address: impl Into<Text>) -> Self {
        Self { address: Some(address.into()), ..Self::default() }
    }
}

impl Target {
    pub fn with_address(address: impl Into<Text>) -> Self {
        Self::Node(TargetNode { address: Some(address.into()), ..TargetNode::default() })
    }

    pub fn address(&self) -> Option<&str> {
        match self {
            Self::Node(node) => node.address.as_ref().map(Text::as_str),
            Self::Coordinator(_) => None,
        }
    }
}
