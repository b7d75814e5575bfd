//! Chance that a seed repeats.

#[derive(Debug, Clone)]
pub struct Random(fastrand::Rng);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Below the limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.u64(..limit.max(1))
    }
}
