//! An unknown class or an excess tenant is never rejected: the message goes to the default class or to a shared lane,
//! and is counted.

use peeklock_engine::{ReceiveMode, Settlement};
use peeklock_filter::{SystemProperty, Value, ViewBuilder};
use peeklock_types::{ClassRule, OrderPolicy, OrderSettings, limits};

use crate::world::{Job, World, class_name, classes, fair};

#[test]
fn a_priority_without_a_class_goes_to_the_default_class_and_is_counted() {
    let mut order = classes(OrderPolicy::Strict, 3);
    order.default_class = Some(class_name("c1"));
    let mut world = World::new(order);
    for priority in [200, 0, 77, 2] {
        world.send(Job::of(priority));
    }
    world.send(Job::default());
    let view = world.view();
    assert_eq!(view.misfit_count, 2, "a message without a priority is no misfit");
    let waiting: Vec<_> =
        view.classes.iter().map(|class| (class.name.as_str().to_owned(), class.waiting_count)).collect();
    let expected = [("c2", 1), ("c1", 3), ("c0", 1)].map(|(name, count)| (name.to_owned(), count));
    assert_eq!(waiting, expected);
    let ids: Vec<_> = world.take(ReceiveMode::PeekLock, 5).iter().map(|handed| handed.id).collect();
    assert_eq!(ids, [4, 1, 3, 5, 2]);
}

#[test]
fn a_rule_has_precedence_over_the_property_and_the_property_over_the_header() {
    let mut order = classes(OrderPolicy::Strict, 3);
    order.rules = vec![
        ClassRule { when: "tier = 1".to_owned(), class: class_name("c2") },
        ClassRule { when: "tier = 1 OR tier = 2".to_owned(), class: class_name("c1") },
    ];
    let mut world = World::new(order);
    let class = |world: &mut World, said: &[(&str, Value)], header: Option<i64>| {
        let mut view = ViewBuilder::new();
        said.iter().for_each(|(name, value)| view.user(name, value));
        if let Some(header) = header {
            view.system(SystemProperty::Priority, &Value::Long(header));
        }
        world.send_view(view.finish());
        world.peek().last().unwrap().class.clone().unwrap().as_str().to_owned()
    };
    let (tier, long, text) = (
        |n| ("tier", Value::Long(n)),
        |n| ("Priority", Value::Long(n)),
        |t: &str| ("Priority", Value::text(t)),
    );
    assert_eq!(class(&mut world, &[tier(1), long(0)], Some(0)), "c2");
    assert_eq!(class(&mut world, &[tier(2), long(0)], Some(0)), "c1");
    assert_eq!(class(&mut world, &[tier(3), long(0)], Some(2)), "c0");
    assert_eq!(class(&mut world, &[text("C2")], Some(0)), "c2");
    assert_eq!(class(&mut world, &[text("2")], None), "c2");
    assert_eq!(class(&mut world, &[], Some(2)), "c2");
    assert_eq!(
        class(&mut world, &[], None),
        "c0",
        "no class has the usual priority, so the message goes to the least urgent class"
    );
    assert_eq!(world.view().misfit_count, 0);
}

#[test]
fn tenants_beyond_the_lane_limit_share_one_lane() {
    let extra = 50;
    let count = limits::LANES_MAX as u32 + extra;
    let mut world = World::new(fair(&[1]));
    world.send_many(count, |tenant| Job::by(tenant, 0));
    let view = world.view();
    assert!(view.lane_count <= limits::LANES_MAX + 1, "{}", view.lane_count);
    assert!(
        (u64::from(extra)..=u64::from(extra) + 1).contains(&view.crowded_count),
        "{}",
        view.crowded_count
    );
    let bytes = world.engine.snapshot();
    let mut again = world.continued_by(world.replay(None));
    assert!(again.engine.snapshot() == bytes);

    let order = |world: &mut World| {
        let mut ids = Vec::new();
        while world.message_count() > 0 {
            let handed = world.take(ReceiveMode::PeekLock, 1000);
            ids.extend(handed.iter().map(|handed| handed.id));
            handed.iter().for_each(|handed| world.settle(handed.token, Settlement::Complete));
        }
        ids
    };
    let first = order(&mut world);
    assert_eq!(first.len(), count as usize);
    assert!(order(&mut again) == first);
    // Lanes of tenants that are gone are free for others.
    world.send(Job::by(count + 1, 0));
    assert_eq!(world.view().crowded_count, view.crowded_count);
}

#[test]
fn lanes_stay_few_when_classes_are_merged() {
    let mut order = classes(OrderPolicy::Strict, 2);
    order.tenants = fair(&[1]).tenants;
    let without = OrderSettings { classes: vec![order.classes[1].clone()], ..order.clone() };
    let mut world = World::new(order.clone());
    let half = limits::LANES_MAX as u32 / 2;
    // In the second round all lanes are in use, though only half as many tenants have one.
    for round in 0..2 {
        for priority in [0, 1] {
            world.send_many(half, |n| Job { priority: Some(priority), ..Job::by(round * half + n, 0) });
        }
        world.set_order(Some(without.clone()));
        world.set_order(Some(order.clone()));
    }
    let view = world.view();
    assert!(view.lane_count <= limits::LANES_MAX + 2, "{}", view.lane_count);
    assert!(view.crowded_count >= u64::from(half), "{}", view.crowded_count);
    assert_eq!(world.take(ReceiveMode::ReceiveAndDelete, 4 * half).len(), 4 * half as usize);
}

#[test]
fn a_changed_policy_and_changed_weights_apply_from_now_on() {
    let mut world = World::new(classes(OrderPolicy::Fifo, 2));
    world.send_many(400, |n| Job::of((n % 2) as u8));
    let high_of = |world: &mut World, count: u32| {
        let handed = world.take(ReceiveMode::ReceiveAndDelete, count);
        handed.iter().filter(|handed| world.jobs[&handed.id] == Job::of(1)).count()
    };
    assert_eq!(high_of(&mut world, 20), 10);
    world.change_order(|order| order.policy = OrderPolicy::Strict);
    assert_eq!(high_of(&mut world, 20), 20);
    world.change_order(|order| {
        order.policy = OrderPolicy::Weighted;
        order.classes[0].weight = Some(3);
    });
    assert_eq!(high_of(&mut world, 40), 30);
    world.change_order(|order| order.classes[1].weight = Some(9));
    assert!((9..=11).contains(&high_of(&mut world, 40)));
    world.set_order(None);
    let left: Vec<_> =
        world.take(ReceiveMode::ReceiveAndDelete, 1000).iter().map(|handed| handed.id).collect();
    assert!(left.is_sorted(), "first in, first out");
    assert_eq!(left.len(), 400 - 120);
}
