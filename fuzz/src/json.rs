//! Reads bodies of the JSON API and the emulators' `Config.json`.

use peeklock_spec::{PolicySpec, QueueSpec, RuleSpec, SubscriptionSpec, TopicSpec, from_json_bytes};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub fn fuzz_json(input: &[u8]) {
    survives_writing::<QueueSpec>(input);
    survives_writing::<TopicSpec>(input);
    survives_writing::<SubscriptionSpec>(input);
    survives_writing::<RuleSpec>(input);
    survives_writing::<PolicySpec>(input);
    let _ = peeklock_http::check_sample(input);
    if let Ok(document) = std::str::from_utf8(input)
        .map_err(drop)
        .and_then(|text| peeklock_spec::Document::json(text).map_err(drop))
    {
        let _ = peeklock_spec::emulator::read(&document);
    }
}

/// Checks that a value survives encoding and decoding. Compares texts, because a NaN is not equal to itself.
fn survives_writing<T: DeserializeOwned + Serialize>(input: &[u8]) {
    let Ok(spec) = from_json_bytes::<T>(input) else { return };
    let written = serde_json::to_string(&spec).expect("a decoded value can be encoded");
    let again = from_json_bytes::<T>(written.as_bytes()).expect("an encoded value can be decoded");
    assert_eq!(
        serde_json::to_string(&again).expect("a decoded value can be encoded"),
        written,
        "encoding and decoding changed a value"
    );
}
