//! Blobs with several writers, like the checkpoint stores of the SDKs: a change with the current etag succeeds, unless
//! another client holds a lease.

use fastrand::Rng;

use super::draw::{one_in, pick};

pub(crate) const CONTAINER: &str = "claims";

#[derive(Clone, Debug)]
pub struct Blobs {
    pub count: u32,
    pub claimant_count: usize,
    pub pause_ms_max: u64,
    pub call_ms_max: u64,
    /// One answer in this many is lost; 0 for none.
    pub unheard_one_in: u32,
    /// One change in this many is about a lease; 0 for none.
    pub lease_one_in: u32,
}

impl Blobs {
    /// Draws the blobs, with a random generator of their own, so that the rest of the scenario is unchanged.
    pub(super) fn draw(seed: u64) -> Option<Blobs> {
        let rng = &mut Rng::with_seed(seed ^ CHANCE);
        one_in(rng, 3).then(|| Blobs {
            count: rng.u32(1..=3),
            claimant_count: rng.usize(2..=5),
            pause_ms_max: pick(rng, &[100, 300, 2_000], 300),
            call_ms_max: pick(rng, &[2, 20, 400], 20),
            unheard_one_in: pick(rng, &[0, 10, 4], 10),
            lease_one_in: pick(rng, &[0, 12, 4], 12),
        })
    }
}

const CHANCE: u64 = 0xb10b5;
