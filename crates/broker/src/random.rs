//! Random numbers that nobody can predict: lock tokens, receipts, and the ids of transactions, hubs and leases. A peer that has seen many of
//! them learns nothing about the next one.

use std::cell::RefCell;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};

thread_local! {
    static GENERATOR: RefCell<ChaCha12Rng> = RefCell::new(ChaCha12Rng::from_seed(system_seed()));
}

/// Returns 64 random bits.
pub fn u64() -> u64 {
    GENERATOR.with_borrow_mut(|generator| generator.next_u64())
}

/// Returns 128 random bits.
pub fn u128() -> u128 {
    u128::from(u64()) << 64 | u128::from(u64())
}

/// Makes the numbers of this thread repeatable, for a simulation.
#[cfg(feature = "test-random")]
pub fn repeat(seed: u64) {
    GENERATOR.with_borrow_mut(|generator| *generator = ChaCha12Rng::seed_from_u64(seed));
}

/// # Panics
/// If the system has no random bytes. Nothing that needs a secret can work then.
fn system_seed() -> [u8; 32] {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).expect("the system has random bytes");
    seed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_threads_differ() {
        let here = u128();
        let there = std::thread::spawn(u128).join().unwrap();
        assert_ne!(here, there);
        assert_ne!(u128(), here);
        assert_ne!(here >> 64, here & u128::from(u64::MAX));
    }
}
