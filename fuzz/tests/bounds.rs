//! Tests the fuzzer's own measurements and mutations: a check that cannot fail would find nothing.

use peeklock_fuzz::bounds::{Counting, peak_bytes_of};
use peeklock_fuzz::{INPUT_LEN_MAX, Target, mutate};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_peak_includes_memory_that_was_freed() {
    let peak = peak_bytes_of(|| drop(std::hint::black_box(vec![1_u8; 3 << 20])));
    assert!((3 << 20..4 << 20).contains(&peak), "{peak}");
    assert!(peak_bytes_of(|| ()) < 1024);
}

#[test]
fn a_seed_repeats_its_inputs() {
    let corpus = vec![b"\x00\x00\x00\x00\x00\x00\x00\x00AMQP\x00\x01\x00\x00".to_vec(), vec![0x45; 40]];
    let inputs = |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..200).map(|_| mutate::mutate(&mut random, Target::Connection, &corpus)).collect::<Vec<_>>()
    };
    assert_eq!(inputs(7), inputs(7));
    assert_ne!(inputs(7), inputs(8));
    assert!(inputs(7).iter().all(|input| input.len() <= INPUT_LEN_MAX));
}
