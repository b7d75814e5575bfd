//! One run: a job stands at its gate, a checkpoint is taken, the gate opens, a node is lost, and the job goes on to its
//! solution.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::machine::shares_of_remaining;
use super::{OWN, RANKS, name};
use crate::bench::host::{Ticks, now};
use crate::cluster::Spec;
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::job::ClusterJob;
use crate::cluster::status::Rollback;
use crate::cluster::suite::Stage;
use crate::job::Failure;

/// How long anything may take that is not the job.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a job may take.
const JOB_LIMIT: Duration = Duration::from_secs(300);
/// From one look at the output to the next.
const LOOK: Duration = Duration::from_millis(5);
/// From one look at the job's status to the next: each costs a process.
const STATUS_LOOK: Duration = Duration::from_millis(300);
/// How long the job computes before the loss.
const BEFORE: Duration = Duration::from_secs(1);
/// Seconds from a node's last word to its being declared gone.
pub(crate) const GRACE: u32 = 3;
/// How often a job may be begun that does not come to its gate and checkpoint, or is restarted otherwise than asked for.
const ATTEMPTS: u32 = 3;
/// The ranks stand until it is there.
const GATE: &str = "gate";

/// What a run took, in seconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// Its split's name.
    pub split: String,
    /// Ranks of each node after the restart.
    pub spread: BTreeMap<String, usize>,
    /// From the moment in which all ran again to the solution.
    pub computing: f64,
    /// The same by the job's own clock.
    pub own_clock: f64,
    /// From the loss to the solution.
    pub total: f64,
    /// From the loss to its being noticed.
    pub detected: f64,
    /// From there until all ran again.
    pub restarted: f64,
    /// The part of its quota that each remaining node really had meanwhile: less than 1 is the disturbance by others.
    pub had: [f64; 2],
    /// CPU time that a round cost on the node that waited least, in seconds: where it differs from run to run, caches and cores
    /// were shared with others.
    pub cost: f64,
    /// The part of the machine's time that its hypervisor gave to others.
    pub stolen: f64,
    /// What the coordinator held of the nodes just before the loss, as `ckptd nodes --json` tells it.
    pub nodes: serde_json::Value,
    /// When it ended.
    pub date: String,
}

impl Run {
    /// A line about it.
    #[must_use]
    pub fn text(&self, scenario: &str) -> String {
        let spread: Vec<String> = self.spread.values().map(usize::to_string).collect();
        format!(
            "{scenario} {:<12} {:<5} computing {:6.2} s, in all {:6.2} s (noticed {:.2}, restart {:.2}); \
             nodes had {:.0} and {:.0} % of their quota, a round cost {:.3} s of CPU time, stolen {:.1} %",
            self.split,
            spread.join("+"),
            self.computing,
            self.total,
            self.detected,
            self.restarted,
            self.had[0] * 100.0,
            self.had[1] * 100.0,
            self.cost,
            self.stolen * 100.0
        )
    }
}

/// The line that a right program writes; None for a board whose answer is not known here.
#[must_use]
pub fn answer(queens: &str) -> Option<String> {
    // A000170 of the On-Line Encyclopedia of Integer Sequences.
    let solutions = match queens {
        "12" => 14_200,
        "13" => 73_712,
        "14" => 365_596,
        "15" => 2_279_184,
        "16" => 14_772_512,
        _ => return None,
    };
    Some(format!("N={queens}: {solutions} solutions"))
}

/// Rounds and seconds that a finished job tells, if its answer is exact.
pub(crate) fn told(output: &str, queens: &str) -> Option<(f64, f64)> {
    let right = answer(queens)?;
    output.lines().find(|line| *line == right)?;
    let line = output.lines().find(|line| line.contains(" rounds, "))?;
    let mut words = line.split_ascii_whitespace();
    let rounds = words.next()?.parse().ok()?;
    Some((rounds, words.nth(1)?.parse().ok()?))
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> Result<u64, Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.map_err(|error| Failure(error.to_string()))?;
    u64::try_from(since.as_millis()).map_err(|error| Failure(error.to_string()))
}

/// Runs it, again where it was no measurement of that split.
pub(super) fn lose(
    stage: &Stage,
    cores: [f64; 3],
    split: Option<(u32, u32)>,
    queens: u32,
    rounds: u64,
) -> Result<Run, Failure> {
    let spec = Spec { shares: shares_of_remaining(&cores), ..Spec::new(3) };
    let setup = Setup { spec, grace: GRACE, slots: RANKS / 3, speed: None, ..Setup::new(3) };
    let work = (queens.to_string(), rounds.to_string());
    for attempt in 1.. {
        let ckptd = stage.cluster_of(setup.clone())?;
        match prepare(&ckptd, split, &work) {
            Ok(job) => match lose_third(&ckptd, job, cores, split, &work)? {
                Ok(run) => return Ok(run),
                // The job's answer was exact; but it is another plan that was measured.
                Err(failure) if attempt < ATTEMPTS => eprintln!("run again: {failure}"),
                Err(failure) => return Err(failure),
            },
            // Nothing has been measured yet.
            Err(failure) if attempt < ATTEMPTS => eprintln!("begun again: {failure}"),
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure("the job never came to its gate".into()))
}

/// A job that stands at its gate, with a checkpoint.
fn prepare<'a>(
    ckptd: &'a Ckptd,
    split: Option<(u32, u32)>,
    (queens, rounds): &(String, String),
) -> Result<ClusterJob<'a>, Failure> {
    let place = split.map(|(one, other)| format!("node1={one},node2={other}"));
    let pinned = place.as_ref().map(|place| ["--place", place]);
    let options = [&["--interval", "0"][..], pinned.as_ref().map_or(&[][..], |words| &words[..])];
    let program = ["nqueens", queens, "--rounds", rounds, "--meet", rounds];
    let job = start(ckptd, &options.concat(), RANKS, &program)?;
    job.checkpoint()?;
    Ok(job)
}

/// The loss, and what follows; within, whether the plan was carried out at once.
fn lose_third(
    ckptd: &Ckptd,
    mut job: ClusterJob<'_>,
    cores: [f64; 3],
    split: Option<(u32, u32)>,
    (queens, rounds): &(String, String),
) -> Result<Result<Run, Failure>, Failure> {
    open_gate(ckptd)?;
    sleep(BEFORE);
    let nodes = ckptd.coordinator_node().must_run(&["ckptd", "nodes", "--json"])?;
    let ticks = Ticks::now();
    ckptd.kill_node(3)?;
    let lost = unix_ms()?;
    let rollback = rolled_back(&mut job)?;
    let spread = job.status()?.spread_of("nqueens");
    let used = |number: usize| Ok(ckptd.node(number).processor_time()?.as_secs_f64());
    let (began, before) = (Instant::now(), [used(1)?, used(2)?]);
    let right = answer(queens).unwrap_or_default();
    let solved = solution(&mut job, &right)?;
    let (seconds, after) = (began.elapsed().as_secs_f64(), [used(1)?, used(2)?]);
    let (_, stolen) = ticks.since();
    job.must_end_with(&right, LIMIT)?;
    let (_, own_clock) = told(&job.output(), queens).ok_or_else(|| {
        job.explain(&Failure("the job does not tell how long it computed".into()))
    })?;
    let running = rollback.running_ms.unwrap_or(solved);
    let seconds_from = |from: u64, to: u64| (to as f64 - from as f64) / 1e3;
    let had = |index: usize| (after[index] - before[index]) / (cores[index] * seconds);
    let ranks = [on(&spread, 1), on(&spread, 2)].map(f64::from);
    let all: f64 = rounds.parse().unwrap_or(f64::NAN);
    let computing = seconds_from(running, solved);
    // What the job did before it was seen to run cost as much.
    let price = |index: usize| {
        let used = (after[index] - before[index]) / seconds * computing;
        used / (ranks[index] / f64::from(RANKS) * all)
    };
    let run = Run {
        split: split.as_ref().map_or_else(|| OWN.to_owned(), name),
        spread,
        computing,
        own_clock,
        total: seconds_from(lost, solved),
        detected: seconds_from(lost, rollback.declared_ms),
        restarted: seconds_from(rollback.declared_ms, running),
        had: [had(0), had(1)],
        cost: price(0).min(price(1)),
        stolen,
        nodes: serde_json::from_str(&nodes).unwrap_or_default(),
        date: now(),
    };
    let again =
        job.errors().lines().find(|line| line.contains("trying once more")).map(str::to_owned);
    Ok(match (followed(&run, split), again) {
        (Err(failure), _) => Err(job.explain(&failure)),
        (_, Some(line)) => Err(Failure(format!("the restart did not work at first: {line}"))),
        _ => Ok(run),
    })
}

fn on(spread: &BTreeMap<String, usize>, node: usize) -> u32 {
    spread.get(&format!("node{node}")).map_or(0, |ranks| *ranks as u32)
}

/// Was the loss noticed as one, and the plan carried out?
fn followed(run: &Run, split: Option<(u32, u32)>) -> Result<(), Failure> {
    let found = (on(&run.spread, 1), on(&run.spread, 2));
    if found.0 + found.1 != RANKS || split.is_some_and(|split| split != found) {
        return Err(Failure(format!("{} was asked for, but came {:?}", run.split, run.spread)));
    }
    Ok(())
}

/// Starts a job of N-Queens on node1; it stands at its gate.
pub(crate) fn start<'a>(
    ckptd: &'a Ckptd,
    options: &[&str],
    ranks: u32,
    program: &[&str],
) -> Result<ClusterJob<'a>, Failure> {
    let ranks = ranks.to_string();
    let gate = format!("{}/{GATE}", crate::cluster::SHARED);
    let mpi = ["mpirun.openmpi", "-np", &ranks, "--mca", "mpi_yield_when_idle", "1"];
    let command = [&mpi[..], program, &["--gate", &gate]].concat();
    let mut job = ckptd.run(1, "queens", options, &command)?;
    job.wait_for_output("at the gate", LIMIT)?;
    Ok(job)
}

/// Lets the ranks begin.
pub(crate) fn open_gate(ckptd: &Ckptd) -> Result<(), Failure> {
    ckptd.cluster().share_script(GATE, "").map(drop)
}

/// Waits until the job runs again.
fn rolled_back(job: &mut ClusterJob<'_>) -> Result<Rollback, Failure> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let done = job.status()?.rollbacks()?.into_iter().find(|one| one.running_ms.is_some());
        if let Some(rollback) = done {
            return Ok(rollback);
        }
        if Instant::now() > deadline || job.launcher().ended()?.is_some() {
            return Err(job.explain(&Failure("the job did not go on after the loss".into())));
        }
        sleep(STATUS_LOOK);
    }
}

/// Waits for the solution; when it came.
pub(crate) fn solution(job: &mut ClusterJob<'_>, right: &str) -> Result<u64, Failure> {
    let deadline = Instant::now() + JOB_LIMIT;
    loop {
        if job.output().contains(right) {
            return unix_ms();
        }
        let ended = job.launcher().ended()?.is_some() && !job.output().contains(right);
        if ended || Instant::now() > deadline {
            return Err(job.explain(&Failure(format!("the job never said \"{right}\""))));
        }
        sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_answers_count() {
        let output = "rank 0\nN=14: 365596 solutions\n24 rounds, 6.87 s\n";
        assert_eq!(told(output, "14"), Some((24.0, 6.87)));
        assert_eq!(told("N=14: 365597 solutions\n24 rounds, 6.87 s\n", "14"), None);
        assert_eq!(told(output, "13"), None);
    }

    #[test]
    fn another_plan_is_noticed() {
        let spread = [("node1".to_owned(), 7), ("node2".to_owned(), 5)].into();
        let run = Run { spread, ..Run::default() };
        assert!(followed(&run, Some((7, 5))).is_ok() && followed(&run, None).is_ok());
        assert!(followed(&run, Some((6, 6))).is_err());
    }
}
