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

    /// True so many times in a thousand.
    pub fn chance(&mut self, thousandths: u64) -> bool {
        self.below(1000) < thousandths
    }

    /// From and up to this, in milliseconds, as nanoseconds.
    pub fn millis(&mut self, from: u64, to: u64) -> u64 {
        (from + self.below(to - from + 1)) * 1_000_000
    }
}
