//! How often to take a checkpoint: the time of a whole job over intervals, with and without a loss in the middle.
//!
//! Both jobs of an interval run at the same time, each on a cluster of its own, so that each has had the same company. The loss comes
//! half an interval after a checkpoint: what is lost on average.

use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::figure::{Figure, Sense, Series, median};
use super::host::{Origin, Ticks, now};
use super::kept::Kept;
use super::splits::{
    GRACE, HEAD, answer, calibrate, open_gate, shares, solution, start, told, unix_ms,
};
use super::svg::{Anchor, Picture, Tone, step};
use crate::cluster::ckptd::Setup;
use crate::cluster::suite::Stage;
use crate::cluster::{Share, Spec};
use crate::job::Failure;

/// Name of the only part.
pub const NAME: &str = "sweep";
/// Seconds between checkpoints; 0: none.
const INTERVALS: [&str; 7] = ["0", "2", "5", "10", "30", "60", "auto"];
const QUICK_INTERVALS: [&str; 4] = ["0", "2", "5", "auto"];
/// What the job takes without a checkpoint, in seconds, and in the short form: longer than `auto` waits with its first checkpoint, 30 s.
const WHOLE: (f64, f64) = (100.0, 45.0);
/// Runs of an entry, and in the short form: where there are fewer, it is not shown.
const RUNS: (usize, usize) = (5, 1);
/// Cores of each node: two clusters of three leave room on two cores.
const CORES: f64 = 0.28;
/// Ranks of a job.
const RANKS: u32 = 6;
/// MiB that each rank holds beside its program.
const BALLAST: &str = "16";
const QUEENS: &str = "13";
/// `auto` against the best interval, with a loss.
const AUTO_GOAL: f64 = 1.1;
const LIMIT: Duration = Duration::from_secs(90);

/// What was measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Measured {
    /// How often the board is solved.
    pub rounds: u64,
    /// Rounds a second of one cluster, beside the other.
    pub speed: f64,
    /// Runs that an entry has to have.
    #[serde(default)]
    pub least: usize,
    /// All runs.
    pub runs: Vec<Run>,
}

/// One run, times in seconds since the ranks began.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Run {
    /// What `--interval` was given.
    pub interval: String,
    /// When a node was lost.
    pub lost_at: Option<f64>,
    /// When the solution came.
    pub total: f64,
    /// Number of the last checkpoint that was seen.
    pub checkpoints: u64,
    /// The part of the machine's time that its hypervisor gave to others.
    pub stolen: f64,
    /// When it ended.
    pub date: String,
}

impl Measured {
    fn total(&self, interval: &str, lost: bool) -> Option<f64> {
        let wanted = |run: &&Run| run.interval == interval && run.lost_at.is_some() == lost;
        let totals: Vec<f64> = self.runs.iter().filter(wanted).map(|run| run.total).collect();
        (totals.len() >= self.least.max(1)).then(|| median(&totals))
    }

    /// The intervals for which there is anything, in the order of their measurement.
    fn intervals(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for run in &self.runs {
            if run.interval != "0" && !all.contains(&run.interval.as_str()) {
                all.push(&run.interval);
            }
        }
        all
    }

    /// How `auto` compares with the best of the others where a node is lost.
    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        let fixed = self.intervals().into_iter().filter(|interval| *interval != "auto");
        let best = fixed
            .filter_map(|interval| Some((interval, self.total(interval, true)?)))
            .min_by(|one, other| one.1.total_cmp(&other.1));
        let (Some((interval, best)), Some(auto)) = (best, self.total("auto", true)) else {
            return Vec::new();
        };
        vec![Figure::new(
            "auto",
            "--interval auto, a node lost: total time",
            Series::new("auto", "s", vec![auto]),
            Some(Series::new(format!("every {interval} s, the best"), "s", vec![best])),
            auto / best,
            (Sense::AtMost, AUTO_GOAL),
        )]
    }

    /// All of it, line by line.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "    {:<9} {:>10} {:>10} {:>12} {:>14}\n",
            "interval", "no loss", "overhead", "checkpoints", "a node lost"
        );
        let base = self.total("0", false);
        for interval in std::iter::once("0").chain(self.intervals()) {
            let told = |total: Option<f64>| total.map_or("-".to_owned(), |t| format!("{t:.1} s"));
            let free = self.total(interval, false);
            let over = free.zip(base).map(|(free, base)| (free / base - 1.0) * 100.0);
            let taken =
                self.runs.iter().find(|run| run.interval == interval && run.lost_at.is_none());
            text += &format!(
                "    {:<9} {:>10} {:>10} {:>12} {:>14}\n",
                if interval == "0" { "none" } else { interval },
                told(free),
                over.map_or("-".to_owned(), |over| format!("{over:.1} %")),
                taken.map_or(0, |run| run.checkpoints),
                told(self.total(interval, true)),
            );
        }
        text
    }
}

/// Measures what is lacking yet.
///
/// # Errors
/// When a run fails, or its answer is not exact.
pub fn measure(stage: &Stage, quick: bool, kept: &mut Kept<Measured>) -> Result<(), Failure> {
    let origin = || Origin::of("intervals", quick);
    let whole = if quick { WHOLE.1 } else { WHOLE.0 };
    if kept.part(NAME, origin).rounds == 0 {
        let queens = QUEENS.parse().unwrap_or_default();
        let speeds: [f64; 6] = calibrate(stage, shares(&[CORES; 6]), queens)?;
        let part = kept.part(NAME, origin);
        part.speed = speeds.iter().sum::<f64>() / 2.0;
        let turns = whole * part.speed / f64::from(RANKS);
        part.least = if quick { RUNS.1 } else { RUNS.0 };
        part.rounds = turns.round().max(1.0) as u64 * u64::from(RANKS);
        kept.save()?;
    }
    let intervals = if quick { &QUICK_INTERVALS[..] } else { &INTERVALS[..] };
    // All of them once, then all again: what is slow for an hour is slow for each.
    let turns = (1..=kept.part(NAME, origin).least)
        .flat_map(|turn| intervals.iter().map(move |interval| (turn, interval)));
    for (turn, interval) in turns {
        let part = kept.part(NAME, origin);
        if part.runs.iter().filter(|run| run.interval == *interval).count() >= 2 * turn {
            continue;
        }
        let rounds = part.rounds;
        // Without a checkpoint nobody survives a loss: both run through.
        let loss = (*interval != "0").then(|| moment(interval, whole));
        let (free, lost) = scope(|threads| {
            let lost = threads.spawn(|| one(stage, interval, rounds, loss, 1));
            (one(stage, interval, rounds, None, 0), lost.join())
        });
        let lost = lost.map_err(|_| Failure("a run panicked".into()))?;
        for run in [free?, lost?] {
            eprintln!(
                "every {} s: {:.1} s{}, {} checkpoints",
                run.interval,
                run.total,
                run.lost_at.map_or(String::new(), |at| format!(", a node lost after {at:.1} s")),
                run.checkpoints
            );
            kept.part(NAME, origin).runs.push(run);
        }
        kept.save()?;
    }
    kept.finish(NAME)
}

/// When the node is lost: half an interval after a checkpoint, the first such moment after the middle of the job.
fn moment(interval: &str, whole: f64) -> f64 {
    let Ok(interval) = interval.parse::<f64>() else { return whole / 2.0 };
    let mut at = interval * 1.5;
    while at < whole / 2.0 {
        at += interval;
    }
    at
}

fn one(
    stage: &Stage,
    interval: &str,
    rounds: u64,
    loss: Option<f64>,
    cluster: usize,
) -> Result<Run, Failure> {
    let cores = super::host::cores().max(1);
    // The two clusters begin at different cores: each core has as many nodes.
    let share = |number: usize| {
        let core = (number - 1 + cluster) as u32 % cores;
        (number, Share { cores: CORES, core: Some(core), first: true })
    };
    let spec = Spec { shares: (1..=3).map(share).chain([(0, HEAD)]).collect(), ..Spec::new(3) };
    let setup = Setup { spec, grace: GRACE, slots: RANKS / 3, speed: None, ..Setup::new(3) };
    let ckptd = stage.cluster_of(setup)?;
    let (rounds, meet) = (rounds.to_string(), RANKS.to_string());
    let program = ["nqueens", QUEENS, "--rounds", &rounds, "--meet", &meet, "--ballast", BALLAST];
    let mut job = start(&ckptd, &["--interval", interval], RANKS, &program)?;
    let ticks = Ticks::now();
    open_gate(&ckptd)?;
    let (began, clock) = (unix_ms()?, Instant::now());
    let right = answer(QUEENS).unwrap_or_default();
    let since = |at: u64| (at as f64 - began as f64) / 1e3;
    let mut lost_at = None;
    if let Some(after) = loss {
        sleep(Duration::from_secs_f64(after).saturating_sub(clock.elapsed()));
        job.wait_for_checkpoint(1, LIMIT)?;
        ckptd.kill_node(3)?;
        lost_at = Some(since(unix_ms()?));
    }
    let mut checkpoints = 0;
    while !job.output().contains(&right) && job.launcher().ended()?.is_none() {
        checkpoints = job.status().ok().and_then(|s| s.newest_checkpoint()).unwrap_or(checkpoints);
        for _ in 0..200 {
            if job.output().contains(&right) {
                break;
            }
            sleep(Duration::from_millis(10));
        }
    }
    let solved = solution(&mut job, &right)?;
    let (_, stolen) = ticks.since();
    job.must_end_with(&right, LIMIT)?;
    told(&job.output(), QUEENS)
        .ok_or_else(|| job.explain(&Failure("the answer is not exact".into())))?;
    Ok(Run {
        interval: interval.to_owned(),
        lost_at,
        total: since(solved),
        checkpoints,
        stolen,
        date: now(),
    })
}

/// Both lines over the intervals.
#[must_use]
pub fn draw(measured: &Measured, origin: &Origin) -> String {
    const WIDTH: f64 = 960.0;
    const HEIGHT: f64 = 420.0;
    const LEFT: f64 = 70.0;
    const TOP: f64 = 116.0;
    const BOTTOM: f64 = 64.0;
    let what = format!(
        "{RANKS} ranks of N-Queens with {BALLAST} MiB each on three nodes of {CORES} cores; grace {GRACE} s; the loss half an interval after a checkpoint"
    );
    let place = format!("{}; {}; {}", origin.machine, origin.date, origin.command);
    let title = "How often to take a checkpoint";
    let mut picture = Picture::new(WIDTH, HEIGHT, title, &[&what, &place]);
    let x = picture.key(16.0, 92.0, Tone::Main, "no loss");
    let x = picture.key(x, 92.0, Tone::Own, "one of three nodes lost in the middle");
    picture.line((x, 87.0), (x + 26.0, 87.0), Tone::Limit, 2.0, true);
    picture.text(x + 32.0, 92.0, Anchor::Start, Tone::Ink, "no loss, no checkpoints");
    let highest = measured.runs.iter().map(|run| run.total).fold(1.0, f64::max) * 1.08;
    let y = |seconds: f64| HEIGHT - BOTTOM - seconds / highest * (HEIGHT - TOP - BOTTOM);
    let grid = step(highest, 6.0);
    let mut at = 0.0;
    while at <= highest {
        picture.line((LEFT, y(at)), (WIDTH - 20.0, y(at)), Tone::Grid, 1.0, false);
        picture.text(LEFT - 8.0, y(at) + 4.0, Anchor::End, Tone::Faint, &format!("{at} s"));
        at += grid;
    }
    let base = measured.total("0", false);
    if let Some(base) = base {
        picture.line((LEFT, y(base)), (WIDTH - 20.0, y(base)), Tone::Limit, 2.0, true);
    }
    let intervals = measured.intervals();
    let column = (WIDTH - LEFT - 20.0) / intervals.len().max(1) as f64;
    let middle = |index: usize| LEFT + column * (index as f64 + 0.5);
    for (lost, tone) in [(false, Tone::Main), (true, Tone::Own)] {
        let mut points = Vec::new();
        for (index, interval) in intervals.iter().enumerate() {
            let Some(total) = measured.total(interval, lost) else { continue };
            // `auto` is no number on this axis: it stands by itself.
            if *interval == "auto" {
                picture.path(&[(middle(index), y(total))], tone);
            } else {
                points.push((middle(index), y(total)));
            }
            // Where both are near each other, each stands on its own side.
            let above = if lost { -10.0 } else { 20.0 };
            let told = format!("{total:.1} s");
            picture.text(middle(index), y(total) + above, Anchor::Middle, Tone::Ink, &told);
        }
        picture.path(&points, tone);
    }
    for (index, interval) in intervals.iter().enumerate() {
        let name = match *interval {
            "auto" => "auto".to_owned(),
            seconds => format!("every {seconds} s"),
        };
        picture.text(middle(index), HEIGHT - BOTTOM + 20.0, Anchor::Middle, Tone::Ink, &name);
        let over = measured.total(interval, false).zip(base);
        if let Some((free, base)) = over {
            let told = format!("{:+.1} % overhead", (free / base - 1.0) * 100.0);
            picture.text(middle(index), HEIGHT - BOTTOM + 38.0, Anchor::Middle, Tone::Faint, &told);
        }
    }
    picture.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_come_half_an_interval_after_a_checkpoint() {
        assert!((moment("2", 100.0) - 51.0).abs() < 1e-9);
        assert!((moment("30", 100.0) - 75.0).abs() < 1e-9);
        assert!((moment("60", 100.0) - 90.0).abs() < 1e-9);
        assert!((moment("auto", 100.0) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn auto_is_compared_with_the_best() {
        let run = |interval: &str, total: f64, lost_at: Option<f64>| Run {
            interval: interval.to_owned(),
            total,
            lost_at,
            ..Run::default()
        };
        let runs = vec![
            run("0", 100.0, None),
            run("0", 102.0, None),
            run("2", 120.0, None),
            run("2", 130.0, Some(51.0)),
            run("10", 104.0, None),
            run("10", 125.0, Some(55.0)),
        ];
        let mut measured = Measured { runs, least: 1, ..Measured::default() };
        assert!(measured.figures().is_empty(), "without auto there is nothing to compare");
        measured.runs.push(run("auto", 126.0, Some(50.0)));
        let figures = measured.figures();
        assert!(figures[0].reached && (figures[0].score - 1.008).abs() < 1e-9);
        assert!(measured.table().contains("18.8 %"), "{}", measured.table());
        let few = Measured { least: 5, ..measured.clone() };
        assert!(few.figures().is_empty() && !few.table().contains("18.8 %"));
        let origin =
            Origin { machine: "m".into(), date: "d".into(), command: "c".into(), quick: true };
        let svg = draw(&measured, &origin);
        assert!(svg.contains("+3.0 % overhead") && !svg.contains("NaN"));
    }
}
