//! Ranks that are not alike: of twelve ranks on three nodes those of the third have weights 1, 1, 2 and 4, all others 1, and that node is
//! lost once ckptd has seen who waits for whom. (With as much to do for each node nobody would wait, and nothing could be seen.) What the job does in a second from then on, beside what the two remaining nodes
//! can do. Their parts are equal if the heavy rank comes alone to one of them, and the three others to the other one.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::figure::{Figure, Sense, Series, median};
use super::host::{Origin, Ticks, now};
use super::kept::Kept;
use super::splits::{GRACE, RANKS, answer, calibrate, open_gate, shares, start, told};
use super::svg::{Anchor, Picture, Tone};
use crate::cluster::ckptd::Setup;
use crate::cluster::job::ClusterJob;
use crate::cluster::suite::Stage;
use crate::cluster::{SHARED, Spec};
use crate::job::Failure;

/// By which it is chosen.
pub const NAME: &str = "weights";
/// The time of a round, in times of the ideal: the best split may take 1.05 of it, and ckptd's plan 1.03 of that.
const GOAL: f64 = 1.08;
/// With 6 + 6 ranks and the two heavy ones together: 10 parts of the work on one node, of 16 on both.
const ALIKE: f64 = 10.0 / 8.0;
/// Runs, and in the short form.
const ROUNDS: (usize, usize) = (3, 1);
/// For how long the job is watched after the loss, in seconds, and in the short form.
const WATCHED: (f64, f64) = (25.0, 12.0);
const CORES: [f64; 3] = [0.45, 0.45, 0.45];
const QUEENS: &str = "14";
const WEIGHTS: &str = "1,1,1,1,1,1,1,1,1,1,2,4";
/// The ranks meet after so many rounds: about once a second.
const MEET: u64 = 2;
const LIMIT: Duration = Duration::from_secs(60);
/// How long it may take until the heavy rank is found.
const LEARN: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(5);
const STATUS_LOOK: Duration = Duration::from_millis(500);

/// What was measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Rounds that the two remaining nodes do in a second, by plain mpirun, each time it was looked.
    pub speeds: Vec<[f64; 2]>,
    /// All runs.
    pub runs: Vec<Run>,
}

/// One run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Run {
    /// Seconds for a round after the loss.
    pub round: f64,
    /// How many rounds were watched.
    pub rounds: u64,
    /// How long it took until the heavy rank was found, from the beginning, in seconds.
    pub found: f64,
    /// What the ranks of the lost node had to do, as it was learned, and where they came to be, in the order of ranks.
    pub ranks: Vec<(f64, String)>,
    /// The part of the machine's time that its hypervisor gave to others.
    pub stolen: f64,
    /// When it ended.
    pub date: String,
}

impl Measured {
    /// The time of a round if no part of the two nodes is wasted.
    #[must_use]
    pub fn ideal(&self) -> f64 {
        1.0 / median(&self.speeds.iter().map(|[one, other]| one + other).collect::<Vec<_>>())
    }

    /// What is to be reached, and whether it is.
    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        let round = Series::new("a round", "s", self.runs.iter().map(|run| run.round).collect());
        let ideal = Series::new("the ideal", "s", vec![self.ideal()]);
        let score = round.median / ideal.median;
        let title = "ranks of weights 1, 1, 2, 4: ckptd's plan against the ideal";
        let goal = (Sense::AtMost, GOAL);
        let mut figure = Figure::new("weights", title, round, Some(ideal), score, goal);
        figure.notes = self.runs.iter().map(Run::text).collect();
        vec![figure]
    }
}

impl Run {
    fn text(&self) -> String {
        let ranks = self.ranks.iter().map(|(work, node)| format!("{work:.2} to {node}"));
        format!(
            "{:.3} s a round over {} of them; found after {:.1} s: {}; stolen {:.1} %",
            self.round,
            self.rounds,
            self.found,
            ranks.collect::<Vec<_>>().join(", "),
            self.stolen * 100.0
        )
    }
}

/// Measures what is lacking yet.
///
/// # Errors
/// When a run fails, or its answer is not exact.
pub fn measure(stage: &Stage, quick: bool, kept: &mut Kept<Measured>) -> Result<(), Failure> {
    let origin = || Origin::of(&format!("nqueens --only {NAME}"), quick);
    let watched = if quick { WATCHED.1 } else { WATCHED.0 };
    for round in 0..(if quick { ROUNDS.1 } else { ROUNDS.0 }) {
        if kept.part(NAME, origin).speeds.len() <= round {
            let queens = QUEENS.parse().unwrap_or_default();
            let speeds = calibrate(stage, shares(&CORES[..2]), queens)?;
            kept.part(NAME, origin).speeds.push(speeds);
            kept.save()?;
        }
        if kept.part(NAME, origin).runs.len() > round {
            continue;
        }
        let run = lose(stage, watched)?;
        eprintln!("{NAME}: {}", run.text());
        kept.part(NAME, origin).runs.push(run);
        kept.save()?;
    }
    kept.finish(NAME)
}

fn lose(stage: &Stage, watched: f64) -> Result<Run, Failure> {
    let spec = Spec { shares: shares(&CORES), ..Spec::new(3) };
    let setup = Setup { spec, grace: GRACE, slots: RANKS / 3, speed: None, ..Setup::new(3) };
    let ckptd = stage.cluster_of(setup)?;
    let (end, meet) = (format!("{SHARED}/end"), MEET.to_string());
    let program =
        ["nqueens", QUEENS, "--weights", WEIGHTS, "--meet", &meet, "--progress", "--until", &end];
    let mut job = start(&ckptd, &["--interval", "3"], RANKS, &program)?;
    let ticks = Ticks::now();
    open_gate(&ckptd)?;
    let began = Instant::now();
    let figures = until_found(&mut job, began)?;
    let found = began.elapsed().as_secs_f64();
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    let (seconds, rounds) = watch(&mut job, watched)?;
    let (_, stolen) = ticks.since();
    let homes = lost_ranks(&job)?.into_iter().map(|(_, node)| node);
    let ranks = figures.into_iter().zip(homes).collect();
    ckptd.cluster().share_script("end", "")?;
    let right = answer(QUEENS).unwrap_or_default();
    job.must_end_with(&right, LIMIT)?;
    told(&job.output(), QUEENS)
        .ok_or_else(|| job.explain(&Failure("the answer is not exact".into())))?;
    let round = seconds / rounds as f64;
    Ok(Run { round, rounds, found, ranks, stolen, date: now() })
}

/// The ranks of the node that is lost, in their order: what they have to do, if that is known, and where they are.
fn lost_ranks(job: &ClusterJob<'_>) -> Result<Vec<(Option<f64>, String)>, Failure> {
    let places = job.status()?.places().into_iter();
    let own = places.filter(|at| at.logical_node == "node3" && at.process == "nqueens");
    let ranks: BTreeMap<i64, _> = own.map(|at| (at.pid, (at.work, at.node))).collect();
    Ok(ranks.into_values().collect())
}

/// Waits until the last rank is known to have the most to do; what all four have.
fn until_found(job: &mut ClusterJob<'_>, began: Instant) -> Result<Vec<f64>, Failure> {
    loop {
        let figures: Option<Vec<f64>> =
            lost_ranks(job)?.into_iter().map(|(work, _)| work).collect();
        if let Some([one, two, three, four]) = figures.as_deref() {
            if [one, two, three].iter().all(|other| *other < four) {
                return Ok(vec![*one, *two, *three, *four]);
            }
        }
        if began.elapsed() > LEARN || job.launcher().ended()?.is_some() {
            let failure = Failure(format!("the heavy rank was not found: {figures:?}"));
            return Err(job.explain(&failure));
        }
        sleep(STATUS_LOOK);
    }
}

/// From one meeting of the ranks to a later one: seconds and rounds.
fn watch(job: &mut ClusterJob<'_>, watched: f64) -> Result<(f64, u64), Failure> {
    let known = job.output().len();
    let mut first: Option<(Instant, u64)> = None;
    let mut last = None;
    let deadline = Instant::now() + LIMIT;
    loop {
        let output = job.output();
        let met = met(output.get(known..).unwrap_or_default());
        if let Some(round) = met.filter(|_| met != last) {
            // They meet just now.
            last = met;
            let (at, from) = *first.get_or_insert((Instant::now(), round));
            let seconds = at.elapsed().as_secs_f64();
            if seconds >= watched && round > from {
                return Ok((seconds, round - from));
            }
        }
        if Instant::now() > deadline || job.launcher().ended()?.is_some() {
            return Err(job.explain(&Failure("the job does not go on after the loss".into())));
        }
        sleep(LOOK);
    }
}

/// The last round before which the ranks have met.
fn met(output: &str) -> Option<u64> {
    let mut rounds = output.lines().filter_map(|line| {
        let rest = line.strip_prefix("progress: 0 of ")?;
        rest.rsplit_once(", round ")?.1.parse::<u64>().ok()
    });
    rounds.rfind(|round| round % MEET == 0)
}

/// The time of a round beside what was possible.
#[must_use]
pub fn draw(measured: &Measured, origin: &Origin) -> String {
    const WIDTH: f64 = 960.0;
    const LEFT: f64 = 260.0;
    const ROW: f64 = 36.0;
    const TOP: f64 = 90.0;
    let what = format!(
        "12 ranks of N-Queens (N = {QUEENS}), weights {WEIGHTS}, on three nodes of {} cores each; the third one is lost",
        CORES[0]
    );
    let place = format!("{}; {}; {}", origin.machine, origin.date, origin.command);
    let ideal = measured.ideal();
    let mut rows = vec![
        ("ideal".to_owned(), ideal, Tone::Limit),
        ("all taken for alike (computed)".to_owned(), ideal * ALIKE, Tone::Pale),
    ];
    for (index, run) in measured.runs.iter().enumerate() {
        rows.push((format!("ckptd, run {}", index + 1), run.round, Tone::Own));
    }
    let title = "Ranks that are not alike: the time of a round after the loss";
    let height = TOP + ROW * rows.len() as f64 + 16.0;
    let mut picture = Picture::new(WIDTH, height, title, &[&what, &place]);
    let most = rows.iter().map(|row| row.1).filter(|time| time.is_finite()).fold(1e-3, f64::max);
    for (index, (name, time, tone)) in rows.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        picture.text(LEFT - 10.0, y + 17.0, Anchor::End, Tone::Ink, name);
        if time.is_finite() {
            let width = time / most * (WIDTH - LEFT - 100.0);
            picture.bar(LEFT, y, width, ROW - 12.0, *tone);
            let told = format!("{time:.3} s");
            picture.text(LEFT + width + 8.0, y + 17.0, Anchor::Start, Tone::Ink, &told);
        }
    }
    picture.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meeting_is_the_beginning_of_an_even_round() {
        let line =
            |at: u64, round: u64| format!("progress: {at} of 1234 prefixes, round {round}\n");
        assert_eq!(met(&(line(0, 4) + &line(62, 4) + &line(0, 5) + &line(62, 5))), Some(4));
        assert_eq!(met(&line(62, 4)), None);
        assert_eq!(met(""), None);
    }

    #[test]
    fn the_time_of_a_round_is_compared_with_both_nodes_at_work() {
        let measured = Measured {
            speeds: vec![[1.0, 1.5]],
            runs: vec![Run { round: 0.42, rounds: 60, ..Run::default() }],
        };
        assert!((measured.ideal() - 0.4).abs() < 1e-9);
        assert!(measured.figures()[0].reached);
        let origin =
            Origin { machine: "m".into(), date: "d".into(), command: "c".into(), quick: true };
        let svg = draw(&measured, &origin);
        assert!(svg.contains("0.420 s") && svg.contains("0.500 s") && !svg.contains("NaN"));
        assert!(!Measured::default().figures()[0].reached);
    }
}
