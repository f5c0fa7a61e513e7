//! For each link or session that the broker ends, the log has one line with the peer, the link and the reason. For one that a client ends, it
//! has none.

use peeklock_amqp::{Detach, Performative, Transfer};

use crate::log;
use crate::support::start;
use crate::wire::Wire;

#[tokio::test]
async fn each_link_and_session_that_the_broker_ends_has_one_line_in_the_log() {
    let rig = start().await;
    let mut wire = Wire::root(&rig).await;
    let from = wire.stream.local_addr().unwrap();

    wire.put_sender(71, "never-made");
    wire.flush().await;
    wire.refusal().await;
    wire.put_sender(72, "orders");
    wire.flush().await;
    wire.granted().await.unwrap();
    wire.put(&Detach { handle: 72, closed: true, error: None });
    wire.flush().await;
    wire.until(|frame| matches!(frame, Performative::Detach(_)).then_some(())).await.unwrap();
    wire.put_sender(73, "orders");
    wire.flush().await;
    wire.granted().await.unwrap();
    wire.put_message(&Transfer { handle: 99, ..Transfer::default() }, b"");
    wire.flush().await;
    wire.refusal().await;
    // The log line is written after the frame.
    rig.still_works().await;

    let of_peer = log::lines(&format!("{from} (hostile): "));
    let [refused, ended] = &of_peer[..] else { panic!("{of_peer:?}") };
    assert!(refused.contains("refused link 's71' of 'never-made': amqp:not-found: "), "{refused}");
    let expected = "ended a session with link 's73' of 'orders': amqp:session:unattached-handle: ";
    assert!(ended.contains(expected), "{ended}");
    log::assert_clean();
}
