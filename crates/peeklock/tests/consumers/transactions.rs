//! Transactions over two queues.

use peeklock::admin::Queue;
use peeklock::{Kind, Message};

use crate::world::{World, take, text};

on_every_transport!(a_transaction_takes_effect_whole, a_transaction_without_a_commit_has_no_effect);

async fn given(world: &World) {
    world.queue_with("orders", Queue::new(), &["coffee"]).await;
    world.queue("invoices", Queue::new()).await;
}

async fn a_transaction_takes_effect_whole(world: World) {
    given(&world).await;
    let invoices = world.client.sender("invoices").await.unwrap();
    let order = take(&mut world.receiver("orders").await).await;
    let work = world.client.transaction().await.unwrap();
    work.send_batch(&invoices, ["one", "two"].map(Message::text)).await.unwrap();
    work.complete(order).await.unwrap();
    assert_eq!(world.counts("invoices").await.message_count, 0, "nothing is visible before the commit");
    work.commit().await.unwrap();
    let counts = world.counts("orders").await;
    assert_eq!((counts.active_count, counts.locked_count), (0, 0));
    let mut receiver = world.receiver("invoices").await;
    for expected in ["one", "two"] {
        let invoice = take(&mut receiver).await;
        assert_eq!(text(&invoice), expected);
        invoice.complete().await.unwrap();
    }
}

async fn a_transaction_without_a_commit_has_no_effect(world: World) {
    given(&world).await;
    let invoices = world.client.sender("invoices").await.unwrap();
    let mut orders = world.receiver("orders").await;
    for attempt in 0..2 {
        let order = take(&mut orders).await;
        assert_eq!(order.message().delivery_count(), attempt);
        let work = world.client.transaction().await.unwrap();
        work.send(&invoices, Message::text("one")).await.unwrap();
        work.complete(order).await.unwrap();
        if attempt == 0 { work.roll_back().await.unwrap() } else { drop(work) }
    }
    // The order is delivered again, and a step that fails dooms the transaction.
    let order = take(&mut orders).await;
    world.queue("small", Queue::new().max_message_size_bytes(1024)).await;
    let small = world.client.sender("small").await.unwrap();
    let work = world.client.transaction().await.unwrap();
    work.send(&invoices, Message::text("one")).await.unwrap();
    work.complete(order).await.unwrap();
    let refused = work.send(&small, Message::new(vec![7; 2048])).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::TooLarge);
    let doomed = work.commit().await.unwrap_err();
    assert_eq!((doomed.kind(), doomed.is_transient()), (Kind::RolledBack, true));
    take(&mut orders).await.complete().await.unwrap();
    world.assert_empty("invoices").await;
    world.assert_empty("orders").await;
}
