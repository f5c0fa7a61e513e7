//! The composite types of AMQP 1.0: their codes, their fields in order, and the types of fields that recordings write
//! without a type.

/// The name, the code, and the fields with the types of plain words; `*` if the value always has its own type.
type Composite = (&'static str, u64, &'static [(&'static str, &'static str)]);

const COMPOSITES: &[Composite] = &[
    (
        "open",
        0x10,
        &[
            ("container-id", "*"),
            ("hostname", "*"),
            ("max-frame-size", "uint"),
            ("channel-max", "ushort"),
            ("idle-time-out", "uint"),
            ("outgoing-locales", "*"),
            ("incoming-locales", "*"),
            ("offered-capabilities", "*"),
            ("desired-capabilities", "*"),
            ("properties", "*"),
        ],
    ),
    (
        "begin",
        0x11,
        &[
            ("remote-channel", "ushort"),
            ("next-outgoing-id", "uint"),
            ("incoming-window", "uint"),
            ("outgoing-window", "uint"),
            ("handle-max", "uint"),
            ("offered-capabilities", "*"),
            ("desired-capabilities", "*"),
            ("properties", "*"),
        ],
    ),
    (
        "attach",
        0x12,
        &[
            ("name", "*"),
            ("handle", "uint"),
            ("role", "role"),
            ("snd-settle-mode", "ubyte"),
            ("rcv-settle-mode", "ubyte"),
            ("source", "*"),
            ("target", "*"),
            ("unsettled", "*"),
            ("incomplete-unsettled", "*"),
            ("initial-delivery-count", "uint"),
            ("max-message-size", "ulong"),
            ("offered-capabilities", "*"),
            ("desired-capabilities", "*"),
            ("properties", "*"),
        ],
    ),
    (
        "flow",
        0x13,
        &[
            ("next-incoming-id", "uint"),
            ("incoming-window", "uint"),
            ("next-outgoing-id", "uint"),
            ("outgoing-window", "uint"),
            ("handle", "uint"),
            ("delivery-count", "uint"),
            ("link-credit", "uint"),
            ("available", "uint"),
            ("drain", "*"),
            ("echo", "*"),
            ("properties", "*"),
        ],
    ),
    (
        "transfer",
        0x14,
        &[
            ("handle", "uint"),
            ("delivery-id", "uint"),
            ("delivery-tag", "*"),
            ("message-format", "uint"),
            ("settled", "*"),
            ("more", "*"),
            ("rcv-settle-mode", "ubyte"),
            ("state", "*"),
            ("resume", "*"),
            ("aborted", "*"),
            ("batchable", "*"),
        ],
    ),
    (
        "disposition",
        0x15,
        &[
            ("role", "role"),
            ("first", "uint"),
            ("last", "uint"),
            ("settled", "*"),
            ("state", "*"),
            ("batchable", "*"),
        ],
    ),
    ("detach", 0x16, &[("handle", "uint"), ("closed", "*"), ("error", "*")]),
    ("end", 0x17, &[("error", "*")]),
    ("close", 0x18, &[("error", "*")]),
    ("error", 0x1d, &[("condition", "*"), ("description", "*"), ("info", "*")]),
    ("accepted", 0x24, &[]),
    ("rejected", 0x25, &[("error", "*")]),
    ("released", 0x26, &[]),
    (
        "modified",
        0x27,
        &[("delivery-failed", "*"), ("undeliverable-here", "*"), ("message-annotations", "*")],
    ),
    (
        "source",
        0x28,
        &[
            ("address", "*"),
            ("durable", "uint"),
            ("expiry-policy", "*"),
            ("timeout", "uint"),
            ("dynamic", "*"),
            ("dynamic-node-properties", "*"),
            ("distribution-mode", "*"),
            ("filter", "*"),
            ("default-outcome", "*"),
            ("outcomes", "*"),
            ("capabilities", "*"),
        ],
    ),
    (
        "target",
        0x29,
        &[
            ("address", "*"),
            ("durable", "uint"),
            ("expiry-policy", "*"),
            ("timeout", "uint"),
            ("dynamic", "*"),
            ("dynamic-node-properties", "*"),
            ("capabilities", "*"),
        ],
    ),
    ("coordinator", 0x30, &[("capabilities", "*")]),
    ("declare", 0x31, &[("global-id", "*")]),
    ("discharge", 0x32, &[("txn-id", "*"), ("fail", "*")]),
    ("declared", 0x33, &[("txn-id", "*")]),
    ("transactional-state", 0x34, &[("txn-id", "*"), ("outcome", "*")]),
    ("sasl-mechanisms", 0x40, &[("sasl-server-mechanisms", "*")]),
    ("sasl-init", 0x41, &[("mechanism", "*"), ("initial-response", "*"), ("hostname", "*")]),
    ("sasl-outcome", 0x44, &[("code", "ubyte"), ("additional-data", "*")]),
    (
        "header",
        0x70,
        &[
            ("durable", "*"),
            ("priority", "ubyte"),
            ("ttl", "uint"),
            ("first-acquirer", "*"),
            ("delivery-count", "uint"),
        ],
    ),
    (
        "properties",
        0x73,
        &[
            ("message-id", "*"),
            ("user-id", "*"),
            ("to", "*"),
            ("subject", "*"),
            ("reply-to", "*"),
            ("correlation-id", "*"),
            ("content-type", "*"),
            ("content-encoding", "*"),
            ("absolute-expiry-time", "timestamp"),
            ("creation-time", "timestamp"),
            ("group-id", "*"),
            ("group-sequence", "uint"),
            ("reply-to-group-id", "*"),
        ],
    ),
];

/// The other sections of a message.
const SECTIONS: &[(&str, u64)] = &[
    ("delivery-annotations", 0x71),
    ("message-annotations", 0x72),
    ("application-properties", 0x74),
    ("data", 0x75),
    ("amqp-value", 0x77),
];

/// Returns the code and the fields of a composite.
pub(super) fn composite(name: &str) -> (u64, &'static [(&'static str, &'static str)]) {
    let found = COMPOSITES.iter().find(|(found, ..)| *found == name);
    found.map(|(_, code, fields)| (*code, *fields)).unwrap_or_else(|| panic!("not a type of AMQP: {name}"))
}

pub(super) fn section_code(name: &str) -> u64 {
    let found = SECTIONS.iter().find(|(found, _)| *found == name);
    found.map(|(_, code)| *code).unwrap_or_else(|| panic!("not a section: {name}"))
}

/// Returns the name of a descriptor's code.
pub(super) fn name_of(code: u64) -> &'static str {
    let composites = COMPOSITES.iter().map(|(name, code, _)| (*name, *code));
    composites.chain(SECTIONS.iter().copied()).find(|(_, found)| *found == code).map_or("?", |(name, _)| name)
}
