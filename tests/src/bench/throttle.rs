//! A node is throttled in the middle of a job, as phones are: its quota is halved. What the job takes then, beside the ideal
//! with the new speeds: from that moment on, all that remains over what the nodes now do together.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::figure::{Figure, Sense, Series, median};
use super::host::{Origin, Ticks, now};
use super::kept::Kept;
use super::splits::{GRACE, answer, calibrate, open_gate, shares, solution, start, told, unix_ms};
use super::svg::{Anchor, Picture, Tone, step};
use crate::cluster::Spec;
use crate::cluster::ckptd::Setup;
use crate::cluster::suite::Stage;
use crate::job::Failure;

/// By which it is chosen.
pub const NAME: &str = "throttled";
/// The total time, in times of the ideal.
const GOAL: f64 = 1.1;
/// Runs, and in the short form.
const ROUNDS: (usize, usize) = (3, 1);
/// Five on each node. Twelve could not follow a node that is half as fast: no plan of whole ranks would come closer to the ideal
/// than 4 %; six, three and six of fifteen have just the nodes' speeds.
const RANKS: u32 = 15;
/// The nodes' quotas, in cores: three nodes on two cores leave room for everything else.
const CORES: [f64; 3] = [0.45, 0.45, 0.45];
/// The node that is throttled, and what it has then.
const THROTTLED: (usize, f64) = (2, 0.225);
/// Board.
const QUEENS: &str = "13";
/// Rounds from one meeting of the ranks to the next, about a second and a half: a slow one holds the others back, as in most programs.
const MEET: u32 = 4 * RANKS;
const LIMIT: Duration = Duration::from_secs(60);

/// How long, in seconds.
struct Times {
    /// The job as a whole, if nothing happens.
    whole: f64,
    /// Until the node is throttled.
    before: f64,
    /// Between checkpoints.
    interval: &'static str,
}

/// Three minutes stand for the hours of a real job: what is lost until the move, and by it, is lost once. Checkpoints are as far apart as they are
/// where nobody says otherwise.
const FULL: Times = Times { whole: 180.0, before: 45.0, interval: "30" };
const QUICK: Times = Times { whole: 60.0, before: 15.0, interval: "10" };

/// What was measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Measured {
    /// The nodes' quotas, in cores.
    pub cores: Vec<f64>,
    /// What the second one has after it is throttled.
    pub throttled: f64,
    /// Seconds between checkpoints.
    pub interval: String,
    /// Rounds that each node does in a second, by plain mpirun, each time it was looked.
    pub speeds: Vec<[f64; 3]>,
    /// How often the board is solved.
    pub rounds: u64,
    /// All runs.
    pub runs: Vec<Run>,
}

/// One run, times in seconds since the ranks began.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Run {
    /// When the node was throttled.
    pub throttled_at: f64,
    /// When the job first went on with another plan.
    pub moved_at: Option<f64>,
    /// How often it was moved.
    pub moves: usize,
    /// Ranks of each node when it was done.
    pub spread: BTreeMap<String, usize>,
    /// When the solution came.
    pub total: f64,
    /// The part of the machine's time that its hypervisor gave to others.
    pub stolen: f64,
    /// When it ended.
    pub date: String,
}

impl Measured {
    fn speeds(&self) -> [f64; 3] {
        [0, 1, 2].map(|node| median(&self.speeds.iter().map(|all| all[node]).collect::<Vec<_>>()))
    }

    /// The shortest time for a job that is throttled then.
    #[must_use]
    pub fn ideal(&self, throttled_at: f64) -> f64 {
        let speeds = self.speeds();
        let before: f64 = speeds.iter().sum();
        let slower = speeds[THROTTLED.0 - 1] * (1.0 - THROTTLED.1 / CORES[THROTTLED.0 - 1]);
        throttled_at + (self.rounds as f64 - before * throttled_at) / (before - slower)
    }

    /// Without a move: every round takes as long as the slow node needs for its part.
    fn unmoved(&self, throttled_at: f64) -> f64 {
        let factor = CORES[THROTTLED.0 - 1] / THROTTLED.1;
        let before: f64 = self.speeds().iter().sum();
        throttled_at + (self.rounds as f64 / before - throttled_at) * factor
    }

    /// What is to be reached, and whether it is.
    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        let totals: Vec<f64> = self.runs.iter().map(|run| run.total).collect();
        let ideals: Vec<f64> = self.runs.iter().map(|run| self.ideal(run.throttled_at)).collect();
        let ratios: Vec<f64> = totals.iter().zip(&ideals).map(|(one, other)| one / other).collect();
        let mut figure = Figure::new(
            "throttled",
            "a node throttled to half: total time",
            Series::new("total", "s", totals),
            Some(Series::new("ideal with the new speeds", "s", ideals)),
            median(&ratios),
            (Sense::AtMost, GOAL),
        );
        figure.notes = self.runs.iter().map(Run::text).collect();
        vec![figure]
    }
}

impl Run {
    fn text(&self) -> String {
        let spread: Vec<String> = self.spread.values().map(usize::to_string).collect();
        let moved = match self.moved_at {
            Some(at) => {
                format!("{} moves, the first after {:.1} s", self.moves, at - self.throttled_at)
            }
            None => "not moved".to_owned(),
        };
        format!(
            "{:.1} s in all, throttled after {:.1} s, {moved}, in the end {}, stolen {:.1} %",
            self.total,
            self.throttled_at,
            spread.join("+"),
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
    let times = if quick { &QUICK } else { &FULL };
    for round in 0..(if quick { ROUNDS.1 } else { ROUNDS.0 }) {
        if kept.part(NAME, origin).speeds.len() <= round {
            let queens = QUEENS.parse().unwrap_or_default();
            let speeds = calibrate(stage, shares(&CORES), queens)?;
            let part = kept.part(NAME, origin);
            if round == 0 {
                let turns = times.whole * speeds.iter().sum::<f64>() / f64::from(MEET);
                part.rounds = turns.round().max(1.0) as u64 * u64::from(MEET);
                (part.cores, part.throttled) = (CORES.to_vec(), THROTTLED.1);
                part.interval = times.interval.to_owned();
            }
            part.speeds.push(speeds);
            kept.save()?;
        }
        if kept.part(NAME, origin).runs.len() > round {
            continue;
        }
        let run = throttle(stage, times, kept.part(NAME, origin).rounds)?;
        eprintln!("{NAME}: {}", run.text());
        kept.part(NAME, origin).runs.push(run);
        kept.save()?;
    }
    kept.finish(NAME)
}

fn throttle(stage: &Stage, times: &Times, rounds: u64) -> Result<Run, Failure> {
    let spec = Spec { shares: shares(&CORES), ..Spec::new(3) };
    let setup = Setup { spec, grace: GRACE, slots: RANKS / 3, speed: None, ..Setup::new(3) };
    let ckptd = stage.cluster_of(setup)?;
    let (rounds, meet) = (rounds.to_string(), MEET.to_string());
    let program = ["nqueens", QUEENS, "--rounds", &rounds, "--meet", &meet];
    let mut job = start(&ckptd, &["--interval", times.interval], RANKS, &program)?;
    let ticks = Ticks::now();
    open_gate(&ckptd)?;
    let began = unix_ms()?;
    sleep(Duration::from_secs_f64(times.before));
    let (number, cores) = THROTTLED;
    ckptd.node(number).set_cores(cores)?;
    let throttled = unix_ms()?;
    let right = answer(QUEENS).unwrap_or_default();
    let mut spread = BTreeMap::new();
    let mut moves = Vec::new();
    // Looked at now and then: at its end nobody is anywhere any more.
    while job.launcher().ended()?.is_none() && !job.output().contains(&right) {
        if let Ok(status) = job.status() {
            let seen = status.spread_of("nqueens");
            if seen.values().sum::<usize>() == RANKS as usize {
                spread = seen;
            }
            moves = status.rollbacks()?;
        }
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
    let since = |at: u64| (at as f64 - began as f64) / 1e3;
    Ok(Run {
        throttled_at: since(throttled),
        moved_at: moves.iter().find_map(|one| one.running_ms).map(since),
        moves: moves.len(),
        spread,
        total: since(solved),
        stolen,
        date: now(),
    })
}

/// Each run beside what was possible.
#[must_use]
pub fn draw(measured: &Measured, origin: &Origin) -> String {
    const WIDTH: f64 = 960.0;
    const LEFT: f64 = 190.0;
    const ROW: f64 = 36.0;
    const TOP: f64 = 112.0;
    let what = format!(
        "{RANKS} ranks of N-Queens (N = {QUEENS}) on three nodes of {} cores each, one of which has {} from the mark on; a checkpoint every {} s",
        CORES[0], THROTTLED.1, measured.interval
    );
    let place = format!("{}; {}; {}", origin.machine, origin.date, origin.command);
    let at = median(&measured.runs.iter().map(|run| run.throttled_at).collect::<Vec<_>>());
    let mut rows = vec![
        ("ideal, new speeds".to_owned(), measured.ideal(at), None, Tone::Limit),
        ("nobody moved (computed)".to_owned(), measured.unmoved(at), None, Tone::Pale),
    ];
    for (index, run) in measured.runs.iter().enumerate() {
        let spread: Vec<String> = run.spread.values().map(usize::to_string).collect();
        let name = format!("run {}: to {}", index + 1, spread.join("+"));
        rows.push((name, run.total, run.moved_at, Tone::Own));
    }
    let height = TOP + ROW * rows.len() as f64 + 36.0;
    let title = "A node is throttled to half its speed in the middle";
    let mut picture = Picture::new(WIDTH, height, title, &[&what, &place]);
    let x = picture.key(16.0, 92.0, Tone::Own, "ckptd, until the solution");
    let x = picture.key(x, 92.0, Tone::Faint, "throttled");
    picture.key(x, 92.0, Tone::Ink, "goes on with a new plan");
    let most = rows.iter().map(|row| row.1).filter(|total| total.is_finite()).fold(1.0, f64::max);
    let scale = (WIDTH - LEFT - 80.0) / most;
    let bottom = height - 30.0;
    let grid = step(most, 8.0);
    let mut line = 0.0;
    while line <= most {
        let x = LEFT + line * scale;
        picture.line((x, TOP - 6.0), (x, bottom), Tone::Grid, 1.0, false);
        picture.text(x, bottom + 16.0, Anchor::Middle, Tone::Faint, &format!("{line} s"));
        line += grid;
    }
    for (index, (name, total, moved, tone)) in rows.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        picture.text(LEFT - 10.0, y + 17.0, Anchor::End, Tone::Ink, name);
        if !total.is_finite() {
            continue;
        }
        picture.bar(LEFT, y, total * scale, ROW - 12.0, *tone);
        let told = format!("{total:.1} s");
        picture.text(LEFT + total * scale + 8.0, y + 17.0, Anchor::Start, Tone::Ink, &told);
        if let Some(moved) = moved {
            picture.bar(LEFT + moved * scale - 1.5, y - 3.0, 3.0, ROW - 6.0, Tone::Ink);
        }
    }
    if at.is_finite() {
        let x = LEFT + at * scale;
        picture.line((x, TOP - 6.0), (x, bottom), Tone::Faint, 2.0, true);
    }
    picture.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ideal_follows_the_new_speeds() {
        let measured = Measured {
            speeds: vec![[4.0, 4.0, 4.0]],
            rounds: 120,
            runs: vec![Run { throttled_at: 5.0, total: 11.5, ..Run::default() }],
            ..Measured::default()
        };
        // 60 rounds in 5 s, 60 at 10 a second.
        assert!((measured.ideal(5.0) - 11.0).abs() < 1e-9);
        assert!((measured.unmoved(5.0) - 15.0).abs() < 1e-9);
        assert!(measured.figures()[0].reached);
        let origin =
            Origin { machine: "m".into(), date: "d".into(), command: "c".into(), quick: true };
        let svg = draw(&measured, &origin);
        assert!(svg.contains("11.5 s") && svg.contains("11.0 s") && !svg.contains("NaN"));
        assert!(!Measured::default().figures()[0].reached);
    }
}
