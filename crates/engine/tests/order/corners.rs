//! Edge cases of orders with sessions, rates and changes.

use peeklock_engine::{ReceiveMode, SessionWish, Settlement};
use peeklock_types::{OrderPolicy, OrderSettings, Placement, Rate, SessionId, Target, Timestamp};

use crate::world::{Job, World, class, class_name, classes, fair, millis, secs, settings};

fn named(n: u32) -> SessionWish {
    SessionWish::Named(SessionId::parse(&format!("s{n}")).unwrap())
}

#[test]
fn sessions_share_a_rate() {
    let order =
        OrderSettings { rate: Some(Rate { per_second_milli: 1000, burst: 1 }), ..OrderSettings::default() };
    let mut s = settings(Some(order));
    s.requires_session = true;
    let mut world = World::with(s);
    for n in 0..40 {
        world.send(Job { session: Some(n % 2), ..Job::default() });
    }
    let a = world.attach_with(ReceiveMode::PeekLock, named(0), 100);
    let b = world.attach_with(ReceiveMode::PeekLock, named(1), 100);
    let mut counts = [0, 0];
    for _ in 0..15 {
        for h in world.deliver() {
            counts[usize::from(h.receiver == b)] += 1;
            world.complete(&h);
        }
        world.deliver();
        world.wait(secs(1));
    }
    let _ = a;
    assert!(counts[1] > 3, "{counts:?}");
}

#[test]
fn a_drain_in_a_session_held_up_by_a_rate_ends() {
    let order =
        OrderSettings { rate: Some(Rate { per_second_milli: 1, burst: 1 }), ..OrderSettings::default() };
    let mut s = settings(Some(order));
    s.requires_session = true;
    let mut world = World::with(s);
    for _ in 0..3 {
        world.send(Job { session: Some(0), ..Job::default() });
    }
    let a = world.attach_with(ReceiveMode::PeekLock, named(0), 10);
    assert_eq!(world.deliver().len(), 1);
    world.engine.drain(a);
    world.deliver();
    assert_eq!(world.out.drained.len(), 1);
}

#[test]
fn the_backlog_of_a_removed_class_is_not_starved() {
    let mut order = classes(OrderPolicy::Strict, 2);
    order.tenants = fair(&[1]).tenants;
    order.default_class = Some(class_name("c0"));
    let mut world = World::new(order.clone());
    // c1 has been busy for a long time.
    for _ in 0..200 {
        world.send(Job { priority: Some(1), ..Job::by(1, 0) });
        let h = world.take(ReceiveMode::PeekLock, 1);
        world.wait(secs(1));
        world.complete(&h[0]);
    }
    world.send(Job { priority: Some(1), ..Job::by(1, 0) });
    world.set_order(Some(OrderSettings { classes: vec![class(0)], ..order }));
    world.send_many(50, |_| Job { priority: Some(0), ..Job::by(2, 0) });
    let mut place = None;
    for n in 0..51 {
        let h = world.take(ReceiveMode::PeekLock, 1);
        world.wait(secs(1));
        world.complete(&h[0]);
        if world.jobs[&h[0].id].tenant == Some(1) {
            place = Some(n);
            break;
        }
    }
    assert!(place.unwrap() < 5, "{place:?}");
}

#[test]
fn a_weighted_backlog_moved_to_an_idle_class_gets_only_its_share() {
    let mut order = classes(OrderPolicy::Weighted, 3);
    order.default_class = Some(class_name("c0"));
    let mut world = World::new(order.clone());
    for _ in 0..300 {
        world.send(Job::of(1));
        world.send(Job::of(2));
        world.take(ReceiveMode::ReceiveAndDelete, 2);
    }
    world.send_many(100, |_| Job::of(1));
    world.send_many(100, |_| Job::of(2));
    let without: Vec<_> = order.classes.iter().filter(|c| c.name.as_str() != "c1").cloned().collect();
    world.set_order(Some(OrderSettings { classes: without, ..order }));
    let first = world.take(ReceiveMode::ReceiveAndDelete, 50);
    let high = first.iter().filter(|h| world.jobs[&h.id].priority == Some(2)).count();
    assert!((20..=30).contains(&high), "{high} of 50");
}

/// Messages that a rate or a share held back give no credit when the limit is removed: no catch-up starves the others.
#[test]
fn a_removed_limit_leaves_nothing_to_catch_up() {
    let slow = Some(Rate { per_second_milli: 1000, burst: 1 });
    let mut order = classes(OrderPolicy::Weighted, 2);
    order.classes[1].rate = slow;
    assert_level(held_back_then_freed(order, |class| Job::of(u8::try_from(class).unwrap())));

    let mut order = fair(&[1, 1]);
    order.tenants.as_mut().unwrap().classes[0].rate = slow;
    assert_level(held_back_then_freed(order, |tenant| Job::by(tenant, tenant)));
}

fn assert_level([one, other]: [u32; 2]) {
    assert!(one.abs_diff(other) <= 2, "{one} and {other}");
}

/// Keeps both sources busy. The first source has a limit for 200 jobs; the 40 jobs after that are counted.
fn held_back_then_freed(mut order: OrderSettings, job: impl Fn(u32) -> Job) -> [u32; 2] {
    order.max_outstanding = 1000;
    let mut world = World::new(order);
    world.send_many(600, |n| job(n % 2));
    let serve = |world: &mut World, count: u32| {
        let mut counts = [0, 0];
        for _ in 0..count {
            let handed = world.take(ReceiveMode::PeekLock, 1);
            let done = &world.jobs[&handed[0].id];
            counts[usize::from(done.tenant.or_else(|| done.priority.map(u32::from)) == Some(1))] += 1;
            world.wait(millis(10));
            world.complete(&handed[0]);
        }
        counts
    };
    let limited = serve(&mut world, 200);
    assert!(limited[0] <= 4, "{limited:?}");
    world.change_order(|order| {
        order.classes.iter_mut().for_each(|class| class.rate = None);
        order.tenants.iter_mut().flat_map(|tenants| &mut tenants.classes).for_each(|class| class.rate = None);
    });
    serve(&mut world, 40)
}

#[test]
fn a_long_job_earns_no_later_share() {
    let mut world = World::new(fair(&[1]));
    let mut order = fair(&[1]);
    order.max_outstanding = 1000;
    world.set_order(Some(order));
    world.send(Job::by(1, 0));
    let long = world.take(ReceiveMode::PeekLock, 1);
    // Meanwhile another tenant's jobs are processed.
    for _ in 0..200 {
        world.send(Job::by(2, 0));
        let h = world.take(ReceiveMode::PeekLock, 1);
        world.wait(secs(1));
        world.complete(&h[0]);
    }
    world.send_many(100, |_| Job::by(1, 0));
    world.send_many(100, |_| Job::by(2, 0));
    let mut counts = [0, 0];
    for _ in 0..40 {
        let h = world.take(ReceiveMode::PeekLock, 1);
        counts[usize::from(world.jobs[&h[0].id].tenant == Some(2))] += 1;
        world.wait(secs(1));
        world.complete(&h[0]);
    }
    let _ = long;
    assert!(counts[1] >= 15, "{counts:?}");
}

#[test]
fn a_late_message_counts_as_bad_once() {
    let mut order = classes(OrderPolicy::Aged, 1);
    order.classes[0].target = Some(Target { within: secs(1), objective_ppm: 990_000 });
    let mut world = World::new(order);
    world.send(Job::of(0));
    world.wait(secs(2));
    let h = world.take(ReceiveMode::PeekLock, 1);
    world.settle(h[0].token, Settlement::Abandon { patch: None, delay: None });
    assert_eq!(world.view().classes[0].target.as_ref().unwrap().bad_count, 1);
}

#[test]
fn two_rates_do_not_wake_every_millisecond() {
    let mut order = fair(&[1]);
    order.tenants.as_mut().unwrap().classes[0].rate = Some(Rate { per_second_milli: 1000, burst: 1 });
    order.rate = Some(Rate { per_second_milli: 10, burst: 2 });
    let mut world = World::new(order);
    world.send_many(3, |_| Job::by(1, 0));
    world.attach(ReceiveMode::PeekLock, 100);
    assert_eq!(world.deliver().len(), 1);
    world.send_many(2, |_| Job::by(2, 0));
    assert_eq!(world.deliver().len(), 1);
    let mut wakes = 0;
    let end = world.now + secs(5);
    while let Some(at) = world.engine.next_deadline().filter(|at| *at < end) {
        wakes += 1;
        world.now = world.now.max(at);
        world.deliver();
    }
    assert!(wakes < 20, "{wakes}");
}

#[test]
fn a_snapshot_of_locked_messages_of_a_new_order_is_the_same() {
    let mut world = World::with(settings(None));
    world.send(Job::of(0));
    world.take(ReceiveMode::PeekLock, 1);
    world.set_order(Some(classes(OrderPolicy::Aged, 1)));
    let bytes = world.engine.snapshot();
    let again = peeklock_engine::Engine::restore(&bytes, Placement::default()).unwrap().snapshot();
    assert!(bytes == again);
}

#[test]
fn the_oldest_message_of_a_held_session_is_reported() {
    let mut s = settings(Some(OrderSettings::default()));
    s.requires_session = true;
    let mut world = World::with(s);
    world.send(Job { session: Some(0), ..Job::default() });
    world.attach_with(ReceiveMode::PeekLock, named(0), 0);
    world.wait(millis(10));
    let view = world.view();
    assert_eq!(view.classes[0].waiting_count, 1);
    assert!(view.classes[0].oldest.is_some_and(|at| at < Timestamp::MAX));
}
