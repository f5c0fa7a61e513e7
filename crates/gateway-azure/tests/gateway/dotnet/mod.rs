//! Replays recordings of Microsoft's .NET SDKs (`tests/dotnet`) to the gateway: sends each frame as it was recorded,
//! and compares each answer.

mod build;
mod compare;
mod notation;
mod outside;
mod runner;
mod schema;
mod script;
mod shorthand;
mod wire;

macro_rules! recordings {
    ($($name:ident),* $(,)?) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                runner::replay(&file_name(stringify!($name))).await;
            }
        )*

        /// The recordings. Each is a separate test.
        const RECORDINGS: &[&str] = &[$(stringify!($name)),*];
    };
}

recordings! {
    eh_consumer,
    eh_errors,
    eh_idempotent,
    eh_processor,
    eh_producer,
    eh_properties,
    eh_stolen,
    sb_batch_delete,
    sb_connect_send,
    sb_errors,
    sb_lock_lost,
    sb_peek,
    sb_prefetch_close,
    sb_processor,
    sb_receive_and_delete,
    sb_receive_empty,
    sb_receive_settle,
    sb_renew_deferred,
    sb_rule_manager,
    sb_rule_types,
    sb_schedule_cancel,
    sb_session,
    sb_session_processor,
    sb_session_refused,
    sb_topic,
    sb_tx_commit,
    sb_tx_cross_entity,
    sb_tx_management,
    sb_tx_rollback,
    t1_connect_send,
    t1_eventhubs,
    t1_pump,
    t1_receive_settle,
    t1_schedule_rules,
    t1_session,
    t1_tx,
}

fn file_name(test: &str) -> String {
    test.replace('_', "-")
}

#[test]
fn every_recording_is_replayed() {
    let mut found = shorthand::names();
    let mut played: Vec<_> = RECORDINGS.iter().map(|name| file_name(name)).collect();
    found.sort();
    played.sort();
    assert_eq!(found, played);
}
