//! What a consumer does with any SDK has the same result over every transport: each test is written once and runs on all of them.
//!
//! The tests wait for events. On the broker in memory time is virtual; elsewhere a lock that must end is a second long.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

/// Makes a test of each function for each transport. The functions take a [`world::World`].
macro_rules! on_every_transport {
    ($($test:ident),+ $(,)?) => {
        on_every_transport!(in_memory: $($test),+);
        on_every_transport!(in_a_directory: $($test),+);
        on_every_transport!(over_amqp: $($test),+);
    };
    ($transport:ident: $($test:ident),+) => {
        mod $transport {
            $(
                #[tokio::test]
                async fn $test() {
                    super::$test(crate::world::World::$transport().await).await;
                }
            )+
        }
    };
}

mod administration;
mod errors;
mod locks;
mod processors;
mod sending;
mod sessions;
mod settling;
mod topics;
mod transactions;
mod world;
