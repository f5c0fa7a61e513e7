//! A topic with filtered subscriptions, each worked on by a pool of its own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock::Message;
use peeklock::admin::{Correlation, Rule, Subscription, Topic};
use peeklock::handler::Text;

use crate::world::{World, until};

on_every_transport!(each_subscription_gets_the_messages_of_its_rules);

async fn each_subscription_gets_the_messages_of_its_rules(world: World) {
    let admin = world.client.admin();
    admin.create_topic("orders", Topic::new()).await.unwrap();
    let large = Subscription::new().rule("large", Rule::sql("amount > 1000"));
    admin.create_subscription("orders", "audit", large).await.unwrap();
    let gold = Subscription::new().rule("gold", Correlation::new().property("tier", "gold"));
    admin.create_subscription("orders", "lounge", gold).await.unwrap();
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let other = world.other_client().await;
    let mut pools = Vec::new();
    for (client, subscription) in [(&world.client, "audit"), (&other, "lounge")] {
        let seen = Arc::clone(&seen);
        let handle = move |Text(body): Text| {
            seen.lock().unwrap().push(format!("{subscription} {body}"));
            std::future::ready(())
        };
        let entity = format!("orders/subscriptions/{subscription}");
        pools.push(client.processor(&entity).handler(handle).max_concurrent(2).start().await.unwrap());
    }
    let sender = world.client.sender("orders").await.unwrap();
    for (text, amount, tier) in
        [("both", 5000_u64, "gold"), ("large", 2000, "tin"), ("small", 5, "tin"), ("golden", 5, "gold")]
    {
        let message = Message::text(text).property("amount", amount).property("tier", tier);
        sender.send(message).await.unwrap();
    }
    for pool in &pools {
        until(pool, |status| status.completed == 2).await;
        pool.stop(Duration::from_secs(30)).await.unwrap();
    }
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    assert_eq!(seen, ["audit both", "audit large", "lounge both", "lounge golden"]);
    for name in ["audit", "lounge"] {
        let counts = admin.subscription("orders", name).await.unwrap().counts;
        assert_eq!((counts.message_count, counts.locked_count), (0, 0));
    }
}
