//! What an announced departure costs beside a silent loss, and whether a newcomer's share brings what was predicted.
//!
//! Time lost is measured by progress: how much less the job has done some seconds after the event than it would have
//! at its speed before.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::figure::{Figure, Sense, Series};
use super::timeline::Loss;
use crate::cluster::Spec;
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::job::ClusterJob;
use crate::cluster::suite::Stage;
use crate::job::Failure;

const LIMIT: Duration = Duration::from_secs(120);
/// How long a speed is measured where a node departs: one checkpoint and the time to the next.
const WINDOW: Duration = Duration::from_secs(10);
/// How long where a node joins: several checkpoints.
const JOIN_WINDOW: Duration = Duration::from_secs(6);
/// From one checkpoint to the next where a node departs, s: a third of what is usual.
const INTERVAL: &str = "10";
/// When it departs after a commit: on average work of half an interval is lost.
const MOMENT: Duration = Duration::from_secs(5);
/// Time lost to an announced departure, in times lost to a silent one.
const GOAL: f64 = 0.3;
/// How far a prediction may be from what is measured.
const PREDICTION_GOAL: f64 = 0.2;
/// Cores of each node where a newcomer is to be worth something: three nodes stay well below the machine.
const CORES: f64 = 0.3;

/// Measures both, so many times.
///
/// # Errors
/// Where a job fails.
pub fn measure(stage: &Stage, rounds: usize) -> Result<Vec<Figure>, Failure> {
    let (mut announced, mut silent) = (Vec::new(), Vec::new());
    let (mut predicted, mut measured, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        eprintln!("departure and newcomer {round} of {rounds}");
        let (expected, found) = join(stage)?;
        eprintln!("    faster: {expected:.2} expected, {found:.2} measured");
        announced.push(time_lost(stage, true)?);
        silent.push(time_lost(stage, false)?);
        eprintln!("    lost: {:.2?} s announced, {:.2?} s silent", announced.last(), silent.last());
        predicted.push(expected);
        measured.push(found);
        errors.push((expected / found - 1.0).abs());
    }
    let announced = Series::new("announced", "s", announced);
    let silent = Series::new("silent", "s", silent);
    let ratio = announced.median / silent.median;
    let leave = Figure::new(
        "leave",
        "announced departure: time lost (s)",
        announced,
        Some(silent),
        ratio,
        (Sense::AtMost, GOAL),
    );
    let predicted = Series::new("predicted", "x", predicted);
    let score = Series::new("error", "", errors).median;
    let join = Figure::new(
        "join",
        "a newcomer's share: times as fast",
        Series::new("measured", "x", measured),
        Some(predicted),
        score,
        (Sense::AtMost, PREDICTION_GOAL),
    );
    Ok(vec![leave, join])
}

fn start<'a>(ckptd: &'a Ckptd, ballast: &str, interval: &str) -> Result<ClusterJob<'a>, Failure> {
    let command = [
        "mpirun.openmpi",
        "-np",
        "6",
        "--oversubscribe",
        "--mca",
        "mpi_yield_when_idle",
        "1",
        "nqueens",
        "14",
        "--ballast",
        ballast,
        // So that all ranks are where the one is that tells.
        "--chat",
        "20",
        "--progress",
        "--least",
        "600",
    ];
    let mut job = ckptd.run(0, "bench", &["--interval", interval], &command)?;
    job.wait_for_output("progress: 0 of", LIMIT)?;
    job.wait_for_checkpoint(1, LIMIT)?;
    Ok(job)
}

/// Rounds that the job has done.
fn progress(output: &str) -> Option<f64> {
    let line = output.lines().rev().find(|line| line.starts_with("progress: "))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |index: usize| words.get(index)?.parse::<f64>().ok();
    Some(number(6)? + number(1)? / number(3)?)
}

/// Where the job is, and when.
fn look(job: &ClusterJob<'_>) -> Result<(Instant, f64), Failure> {
    // The newest line may be half written.
    let output = job.output();
    let whole = output.rfind('\n').map_or("", |end| &output[..end]);
    let done = progress(whole).ok_or_else(|| Failure("the job tells no progress".into()))?;
    Ok((Instant::now(), done))
}

/// Rounds in a second, over some seconds from now on.
fn speed(job: &ClusterJob<'_>, window: Duration) -> Result<f64, Failure> {
    let (began, before) = look(job)?;
    sleep(window);
    let (ended, after) = look(job)?;
    Ok((after - before) / (ended - began).as_secs_f64())
}

/// Seconds that the job loses when node3 leaves.
fn time_lost(stage: &Stage, announced: bool) -> Result<f64, Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, "64", INTERVAL)?;
    let speed = speed(&job, WINDOW)?;
    job.wait_for_more_checkpoints(1, LIMIT)?;
    sleep(MOMENT);
    let (began, before) = look(&job)?;
    if announced {
        ckptd.node(0).must_run(&["ckptd", "leave", "node3"])?;
    }
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    sleep(WINDOW);
    let (ended, after) = look(&job)?;
    if let Some(moved) = job.status()?.rollbacks()?.pop() {
        let loss = Loss::new(&moved, moved.running_ms.unwrap_or(moved.declared_ms));
        let phases = loss.phases.iter().map(|phase| format!("{} {:.0}", phase.name, phase.to));
        let phases: Vec<String> = phases.collect();
        eprintln!("    {}: ms since it was declared gone: {}", moved.reason, phases.join(", "));
    }
    job.launcher().kill();
    Ok((ended - began).as_secs_f64() - (after - before) / speed)
}

/// How much faster the job was to be with a third node, and is.
fn join(stage: &Stage) -> Result<(f64, f64), Failure> {
    let spec = Spec { cores: Some(CORES), ..Spec::new(3) };
    let ckptd = stage.cluster_of(Setup { spec, agents: 2, ..Setup::new(3) })?;
    let mut job = start(&ckptd, "4", "2")?;
    let before = speed(&job, JOIN_WINDOW)?;
    let token = ckptd.new_token(&["--uses", "1"])?;
    let _agent = ckptd.join(3, &token, "node3")?;
    job.wait_for_rollback(1, LIMIT)?;
    let moved = job.status()?.rollbacks()?.pop();
    let expected = moved
        .and_then(|moved| moved.expected)
        .ok_or_else(|| job.explain(&Failure("the job was not moved to the newcomer".into())))?;
    sleep(Duration::from_secs(1));
    let after = speed(&job, JOIN_WINDOW)?;
    job.launcher().kill();
    Ok((f64::from(expected.faster_permille) / 1e3, after / before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read() {
        let output =
            "rank 0\nprogress: 0 of 100 prefixes, round 3\nprogress: 50 of 100 prefixes, round 3\n";
        assert_eq!(progress(output), Some(3.5));
        assert_eq!(progress("nothing"), None);
    }
}
