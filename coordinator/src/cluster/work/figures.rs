//! Figures that have settled: what intervals told, put together, so that one odd interval changes little and chance nothing.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What an interval counts for once another one has told something.
const FADES: f64 = 0.75;
/// Intervals that must have told something of a process.
const LEAST: u32 = 2;
/// How much intervals differ at least, as far as is known, in parts of the figure.
const SPREAD: f64 = 0.15;
/// What is not further from the average than so many times the error is the average.
const SURE: f64 = 2.0;
/// Figures that differ by less than this factor are the same.
const ALIKE: f64 = 1.33;
/// Nobody has less to do than this part of the average: what it did nothing in was a phase.
const FLOOR: f64 = 0.125;

/// What is known of one process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Intervals that told something.
    told: u32,
    /// Sums over them, faded: of 1, of 1 squared, of the share, of its square.
    weight: f64,
    weight_squared: f64,
    sum: f64,
    squares: f64,
}

impl Figure {
    /// One more interval has told something.
    pub fn see(&mut self, share: f64) {
        self.told = self.told.saturating_add(1);
        self.weight = self.weight * FADES + 1.0;
        self.weight_squared = self.weight_squared * FADES * FADES + 1.0;
        self.sum = self.sum * FADES + share;
        self.squares = self.squares * FADES + share * share;
    }

    /// Intervals that have told something.
    #[must_use]
    pub fn told(&self) -> u32 {
        self.told
    }

    /// What it has to do, in what an average one has; None: that is not known yet.
    #[must_use]
    pub fn value(&self) -> Option<f64> {
        if self.told < LEAST {
            return None;
        }
        let mean = self.sum / self.weight;
        let chance = (self.squares / self.weight - mean * mean).max(0.0);
        let number = self.weight * self.weight / self.weight_squared;
        let error = ((chance + (SPREAD * mean).powi(2)) / number).sqrt();
        Some(if (mean - 1.0).abs() > SURE * error { mean.max(FLOOR) } else { 1.0 })
    }
}

/// Makes figures that hardly differ the same, and their average 1.
pub fn even_out<K: Ord + Copy>(figures: &BTreeMap<K, f64>) -> BTreeMap<K, f64> {
    let mut order: Vec<(K, f64)> = figures.iter().map(|(key, value)| (*key, *value)).collect();
    order.sort_by(|one, other| one.1.total_cmp(&other.1));
    let mut settled: BTreeMap<K, f64> = BTreeMap::new();
    let mut rest = &order[..];
    while let Some((_, least)) = rest.first() {
        let same = rest.partition_point(|(_, value)| *value <= least * ALIKE);
        let mean = rest[..same].iter().map(|(_, value)| value).sum::<f64>() / same as f64;
        settled.extend(rest[..same].iter().map(|(key, _)| (*key, mean)));
        rest = &rest[same..];
    }
    let average = settled.values().sum::<f64>() / settled.len().max(1) as f64;
    if average > 0.0 {
        // Equal ones stay equal to the last bit.
        settled.values_mut().for_each(|value| *value /= average);
    }
    settled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(shares: &[f64]) -> Figure {
        let mut figure = Figure::default();
        shares.iter().for_each(|share| figure.see(*share));
        figure
    }

    #[test]
    fn two_intervals_are_needed_and_one_that_is_odd_counts_little() {
        assert_eq!(figure(&[2.0]).value(), None);
        assert_eq!(figure(&[2.0, 2.0]).value(), Some(2.0));
        let odd = figure(&[2.0, 2.0, 2.0, 2.0, 0.9, 2.0, 2.0]).value().unwrap();
        assert!((1.6..2.0).contains(&odd), "{odd}");
        // A change of what the program does is followed.
        let mut changed = figure(&[2.0; 20]);
        (0..8).for_each(|_| changed.see(0.5));
        assert!(changed.value().unwrap() < 0.8);
    }

    #[test]
    fn chance_is_no_difference() {
        assert_eq!(figure(&[1.1, 0.95, 1.15]).value(), Some(1.0));
        assert_eq!(figure(&[0.3, 1.9, 0.2, 1.7]).value(), Some(1.0));
        assert_eq!(figure(&[0.0, 0.0]).value(), Some(FLOOR));
    }

    #[test]
    fn figures_that_hardly_differ_are_the_same() {
        let figures = BTreeMap::from([(1, 0.45), (2, 0.55), (3, 1.0), (4, 2.0)]);
        let settled = even_out(&figures);
        assert_eq!(settled[&1].to_bits(), settled[&2].to_bits());
        assert!((settled.values().sum::<f64>() - 4.0).abs() < 1e-9);
        assert!((settled[&4] / settled[&3] - 2.0).abs() < 1e-9);
        assert!(even_out(&BTreeMap::<i32, f64>::new()).is_empty());
    }
}
