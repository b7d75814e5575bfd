//! The table of a scenario.

use super::{Measured, names};
use crate::bench::figure::median;

/// Least and largest of some samples.
pub(super) fn range(samples: &[f64]) -> (f64, f64) {
    let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
    (least, samples.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// All splits, with medians and the samples' range, and the disturbance beside them.
#[must_use]
pub fn table(name: &str, measured: &Measured) -> String {
    let ideal = measured.ideal();
    let mut text = format!(
        "{name}: {}; quotas {} cores; {} rounds of N = {}\n",
        measured.title,
        measured.cores.map(|cores| cores.to_string()).join(", "),
        measured.rounds,
        measured.queens
    );
    text += &format!(
        "    {:<13} {:>9} {:>15} {:>9} {:>9} {:>9} {:>8} {:>14} {:>11} {:>13}\n",
        "split",
        "computing",
        "from to",
        "of ideal",
        "in all",
        "noticed",
        "restart",
        "quota had",
        "CPU/round",
        "at one price"
    );
    for split in names() {
        let of = |quantity: fn(&super::Run) -> f64| median(&measured.of(&split, quantity));
        let samples = measured.of(&split, |run| run.computing);
        if samples.is_empty() {
            continue;
        }
        let (least, most) = range(&samples);
        let computing = median(&samples);
        text += &format!(
            "    {split:<13} {computing:>7.2} s {:>15} {:>9.3} {:>7.2} s {:>7.2} s {:>6.2} s {:>14} {:>9.3} s {:>11.2} s\n",
            format!("{least:.2} to {most:.2}"),
            computing / ideal,
            of(|run| run.total),
            of(|run| run.detected),
            of(|run| run.restarted),
            format!("{:.0} %, {:.0} %", of(|run| run.had[0]) * 100.0, of(|run| run.had[1]) * 100.0),
            of(|run| run.cost),
            measured.at_one_price(&split)
        );
    }
    text + &format!("    {:<13} {ideal:>7.2} s\n", "ideal")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_split_has_a_line() {
        let table = table("equal", &super::super::example());
        assert_eq!(table.lines().count(), 2 + 6 + 1);
        assert!(table.contains("20.10 to 20.30") && table.contains("1.042"), "{table}");
    }
}
