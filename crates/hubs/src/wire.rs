//! The byte forms of hubs. The basic forms are in [`peeklock_types::wire`].

use std::time::Duration;

use peeklock_types::wire::tags::{checkpoint, owned, stream_spec};
pub(crate) use peeklock_types::wire::{DecodeError, Decoder, Wire};
use peeklock_types::wire::{put_fixed, put_number};
use peeklock_types::{HubSettings, tagged_fields};

use crate::checkpoint::{Checkpoint, Owned};
use crate::stream::{Producer, StreamId, StreamSpec};

tagged_fields! { StreamSpec in stream_spec {
    HUB: hub,
    NAME: name,
    PARTITION: partition,
    SETTINGS: settings,
}}

tagged_fields! { Owned in owned {
    OWNER: owner,
    EPOCH: epoch,
    ETAG: etag,
    MODIFIED_AT: modified_at,
}}

tagged_fields! { Checkpoint in checkpoint {
    SEQUENCE: sequence,
    AT: at,
}}

impl Wire for StreamId {
    const IS_OPEN: bool = false;

    fn put_value(&self, out: &mut Vec<u8>) {
        put_number(self.0.into(), out);
    }

    fn take_value(input: &mut Decoder<'_>, what: &'static str) -> Result<Self, DecodeError> {
        input.number32(what).map(StreamId)
    }
}

/// The id takes eight bytes, because producers choose their ids at random.
impl Wire for Producer {
    const IS_OPEN: bool = false;

    fn put_value(&self, out: &mut Vec<u8>) {
        put_fixed(self.id.cast_unsigned(), out);
        put_number(self.epoch.cast_unsigned().into(), out);
        put_number(self.sequence.cast_unsigned().into(), out);
    }

    fn take_value(input: &mut Decoder<'_>, what: &'static str) -> Result<Self, DecodeError> {
        let id = input.fixed(what)?.cast_signed();
        let epoch = input.take::<u16>(what)?.cast_signed();
        Ok(Producer { id, epoch, sequence: input.number32(what)?.cast_signed() })
    }
}

/// Returns the settings as a record stores them: times in whole milliseconds. After a restart a hub must have the same
/// settings.
pub(crate) fn kept(settings: HubSettings) -> HubSettings {
    let whole = |span: Duration| Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
    HubSettings { retention: settings.retention.map(whole), ..settings }
}
