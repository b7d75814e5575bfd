//! What it brings to spread a lost node's processes one by one: N-Queens on three nodes of four ranks each, one of which
//! is lost, and each way to place its four ranks on the two that remain.
//!
//! Each run is a real loss with the plan pinned (`--place`), or left to ckptd. What remains to be done is the same in all runs of a
//! scenario, to the last board: the ranks stand at a gate when the only checkpoint is taken, the work is dealt statically and
//! equally, and they meet once, at the end. So a rank that is done waits, spinning, on its own node's quota and core; the other
//! node's ranks lose nothing by it, and those of one node are all done together. That is why the ideal needs no
//! allowance for them: all the work that remains, over the sum of what the remaining nodes do in a second, measured
//! with plain mpirun under the same quotas, both nodes at work.

mod machine;
mod picture;
mod run;
mod table;

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::figure::{Figure, Sense, Series, median};
use super::host::Origin;
use super::kept::Kept;
use crate::cluster::suite::Stage;
use crate::job::Failure;

pub use machine::{HEAD, calibrate, shares, shares_of_remaining};
pub use picture::draw;
pub(crate) use run::{GRACE, open_gate, solution, start, told, unix_ms};
pub use run::{Run, answer};
pub use table::table;

/// Ranks of every job.
pub const RANKS: u32 = 12;
/// The ways to place the lost ranks: what the two remaining nodes have then.
pub const SPLITS: [(u32, u32); 5] = [(8, 4), (7, 5), (6, 6), (5, 7), (4, 8)];
/// ckptd's own plan, among the splits' names.
pub const OWN: &str = "ckptd's plan";
/// Runs of each.
const ROUNDS: usize = 3;
/// The least that equal nodes gain by the even split.
const GAIN_GOAL: f64 = 1.25;
/// How far ckptd's plan may be from the best split, and the best split from the ideal.
const OWN_GOAL: f64 = 1.03;
const IDEAL_GOAL: f64 = 1.05;

/// Three nodes, of which the third one is lost.
pub struct Scenario {
    /// By which it is chosen.
    pub name: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// The nodes' quotas, in cores.
    pub cores: [f64; 3],
    /// How long the best split is to take from the restart to the solution, in seconds, and in the short form.
    pub seconds: (f64, f64),
}

/// All of them. The nodes that remain have one core for both, of which a tenth is left for what is no node's.
pub const SCENARIOS: [Scenario; 3] = [
    Scenario {
        name: "equal",
        title: "three equal nodes, one is lost",
        cores: [0.45, 0.45, 0.45],
        seconds: (20.0, 5.0),
    },
    Scenario {
        name: "unequal",
        title: "the second node is twice as fast; a slow one is lost",
        cores: [0.3, 0.6, 0.3],
        seconds: (14.0, 3.5),
    },
    Scenario {
        name: "fast-lost",
        title: "the second node is half as fast as the others; a fast one is lost",
        cores: [0.6, 0.3, 0.6],
        seconds: (14.0, 3.5),
    },
];

/// What was measured of a scenario.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Measured {
    /// What it is about.
    pub title: String,
    /// The nodes' quotas, in cores.
    pub cores: [f64; 3],
    /// Board.
    pub queens: u32,
    /// How often it is solved, by all ranks together.
    pub rounds: u64,
    /// Rounds that the two remaining nodes do in a second, by plain mpirun, each time it was looked.
    pub speeds: Vec<[f64; 2]>,
    /// All runs.
    pub runs: Vec<Run>,
}

impl Measured {
    /// The time in which the remaining nodes do all the work, if none of it is wasted, in seconds.
    #[must_use]
    pub fn ideal(&self) -> f64 {
        let both: Vec<f64> = self.speeds.iter().map(|[one, other]| one + other).collect();
        self.rounds as f64 / median(&both)
    }

    /// Of the runs of a split, one quantity.
    #[must_use]
    pub fn of(&self, split: &str, quantity: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.runs.iter().filter(|run| run.split == split).map(quantity).collect()
    }

    /// The median computing time of a split if a round of the board had cost the same CPU time in all runs, as it does on a machine
    /// that is left alone.
    #[must_use]
    pub fn at_one_price(&self, split: &str) -> f64 {
        let price = median(&self.runs.iter().map(|run| run.cost).collect::<Vec<_>>());
        median(&self.of(split, |run| run.computing * price / run.cost))
    }

    /// The pinned split with the shortest median of computing time, and that.
    #[must_use]
    pub fn best(&self) -> Option<(String, f64)> {
        let time = |name: &String| median(&self.of(name, |run| run.computing));
        let all = SPLITS.iter().map(name).map(|name| (name.clone(), time(&name)));
        all.filter(|(_, time)| time.is_finite()).min_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// What is to be reached, and whether it is.
    #[must_use]
    pub fn figures(&self, scenario: &str) -> Vec<Figure> {
        let series = |name: &str| Series::new(name, "s", self.of(name, |run| run.computing));
        let Some((best, _)) = self.best() else { return Vec::new() };
        let (best, own) = (series(&best), series(OWN));
        let ideal = Series::new("the ideal", "s", vec![self.ideal()]);
        let mut figures = Vec::new();
        if scenario == "equal" {
            let (whole, even) = (series("8+4"), series("6+6"));
            let score = whole.median / even.median;
            let title = format!("{scenario}: 8+4 against 6+6");
            figures.push(Figure::new(
                "gain",
                title,
                whole,
                Some(even),
                score,
                (Sense::AtLeast, GAIN_GOAL),
            ));
        }
        let score = own.median / best.median;
        let title = format!("{scenario}: ckptd's plan against the best split");
        let goal = (Sense::AtMost, OWN_GOAL);
        figures.push(Figure::new("own", title, own, Some(best.clone()), score, goal));
        let score = best.median / ideal.median;
        let title = format!("{scenario}: the best split against the ideal");
        let goal = (Sense::AtMost, IDEAL_GOAL);
        figures.push(Figure::new("ideal", title, best, Some(ideal), score, goal));
        figures
    }
}

/// A split's name: 8+4.
#[must_use]
pub fn name(split: &(u32, u32)) -> String {
    format!("{}+{}", split.0, split.1)
}

/// The splits and ckptd's plan, in the order of the picture.
#[must_use]
pub fn names() -> Vec<String> {
    SPLITS.iter().map(name).chain([OWN.to_owned()]).collect()
}

/// Measures what a scenario lacks yet; every finished run is kept.
///
/// # Errors
/// When a run fails, or its answer is not exact.
pub fn measure(
    stage: &Stage,
    scenario: &Scenario,
    quick: bool,
    kept: &mut Kept<Measured>,
) -> Result<(), Failure> {
    let origin = || Origin::of(&format!("nqueens --only {}", scenario.name), quick);
    let seconds = if quick { scenario.seconds.1 } else { scenario.seconds.0 };
    let rounds = if quick { 1 } else { ROUNDS };
    let queens = 14;
    // The short form looks at unequal nodes by the ends and the middle.
    let few = quick && scenario.name != "equal";
    let splits = SPLITS.iter().step_by(if few { 2 } else { 1 });
    let pinned = splits.map(|split| (name(split), Some(*split)));
    let all: Vec<_> = pinned.chain([(OWN.to_owned(), None)]).collect();
    for round in 0..rounds {
        if kept.part(scenario.name, origin).speeds.len() <= round {
            let speeds = calibrate::<2>(stage, shares_of_remaining(&scenario.cores[..2]), queens)?;
            let total: f64 = speeds.iter().sum();
            eprintln!("{}: {:.2} + {:.2} rounds a second", scenario.name, speeds[0], speeds[1]);
            let part = kept.part(scenario.name, origin);
            if round == 0 {
                // A multiple of the ranks: all have the same work.
                let turns = (seconds * total / f64::from(RANKS)).round().max(1.0);
                part.rounds = turns as u64 * u64::from(RANKS);
                part.title = scenario.title.to_owned();
                (part.cores, part.queens) = (scenario.cores, queens);
            }
            part.speeds.push(speeds);
            kept.save()?;
        }
        for (name, split) in &all {
            let part = kept.part(scenario.name, origin);
            if part.runs.iter().filter(|run| run.split == *name).count() > round {
                continue;
            }
            let (rounds, queens) = (part.rounds, part.queens);
            let run = run::lose(stage, scenario.cores, *split, queens, rounds)?;
            eprintln!("{}", run.text(scenario.name));
            kept.part(scenario.name, origin).runs.push(run);
            kept.save()?;
        }
    }
    kept.finish(scenario.name)
}

/// Writes the pictures of what there is; their paths.
///
/// # Errors
/// When a file can't be written.
pub fn write_pictures(kept: &Kept<Measured>, folder: &Path) -> Result<Vec<String>, Failure> {
    let mut written = Vec::new();
    for (name, part) in kept.parts() {
        let path = folder.join(format!("nqueens-{name}.svg"));
        std::fs::write(&path, draw(&part.data, &part.origin)).map_err(super::subject::failure)?;
        written.push(path.display().to_string());
    }
    Ok(written)
}

#[cfg(test)]
pub(super) fn example() -> Measured {
    let run = |split: &str, computing: f64| Run {
        split: split.to_owned(),
        computing,
        cost: 0.25,
        total: computing + 5.0,
        detected: 3.0,
        restarted: 1.5,
        ..Run::default()
    };
    let times = [("8+4", 26.0), ("7+5", 23.0), ("6+6", 20.0), ("5+7", 23.1), ("4+8", 26.2)];
    let mut runs: Vec<Run> = times.iter().map(|(split, time)| run(split, *time)).collect();
    runs.push(run(OWN, 20.1));
    runs.push(run(OWN, 20.3));
    Measured { rounds: 48, speeds: vec![[1.2, 1.3]], runs, ..Measured::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_split_and_the_ideal_are_found() {
        let measured = example();
        assert!((measured.ideal() - 19.2).abs() < 1e-9);
        assert_eq!(measured.best(), Some(("6+6".to_owned(), 20.0)));
        let figures = measured.figures("equal");
        let reached: Vec<bool> = figures.iter().map(|figure| figure.reached).collect();
        assert_eq!(reached, [true, true, true]);
        assert!((figures[0].score - 1.3).abs() < 1e-9);
        assert_eq!(measured.figures("unequal").len(), 2);
    }

    #[test]
    fn nothing_measured_is_nothing_reached() {
        assert!(Measured::default().figures("equal").is_empty());
        let mut half = example();
        half.runs.retain(|run| run.split != OWN);
        let figures = half.figures("unequal");
        assert!(!figures[0].reached, "without ckptd's plan");
    }
}
