//! Chance that a seed repeats: that of the command tree's simulation, and what this one asks besides.

#[path = "../../../protocol/tree/tests/simulation/random.rs"]
mod numbers;

pub use numbers::Random;

impl Random {
    /// True so many times in a thousand.
    pub fn chance(&mut self, thousandths: u64) -> bool {
        self.below(1000) < thousandths
    }

    /// From and up to this, in milliseconds, as nanoseconds.
    pub fn millis(&mut self, from: u64, to: u64) -> u64 {
        (from + self.below(to - from + 1)) * 1_000_000
    }
}
