//! What the loss of a node costs: from its last word to progress, and the pause of a checkpoint across
//! nodes beside the pause of the same job on one.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::figure::{Figure, Sense, Series};
use super::timeline::Loss;
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::job::ClusterJob;
use crate::cluster::status::Rollback;
use crate::cluster::suite::Stage;
use crate::job::Failure;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Between two looks at the job's output.
const LOOK: Duration = Duration::from_millis(2);
/// From the declared departure to progress, ms.
const GOAL: f64 = 2000.0;
/// The pause across nodes, in pauses on one.
const PAUSE_GOAL: f64 = 3.0;
/// What every job of this benchmark does.
const PROGRAM: [&str; 11] = [
    "mpirun.openmpi",
    "-np",
    "6",
    "--mca",
    "mpi_yield_when_idle",
    "1",
    "nqueens",
    "12",
    "--ballast",
    "64",
    "--progress",
];
/// The line that rank 0 prints when a round begins: all ranks have finished the one before.
const ROUND: &str = "progress: 0 of";

/// What was measured.
pub struct Measured {
    /// The table's lines.
    pub figures: Vec<Figure>,
    /// The phases of each loss.
    pub losses: Vec<Loss>,
}

/// Measures with so many losses.
///
/// # Errors
/// Where a job fails.
pub fn measure(stage: &Stage, rounds: usize) -> Result<Measured, Failure> {
    let mut losses = Vec::new();
    let mut pauses = Vec::new();
    for round in 1..=rounds {
        eprintln!("loss {round} of {rounds}");
        let (loss, seen) = lose_a_node(stage)?;
        losses.push(loss);
        pauses.extend(seen);
    }
    eprintln!("the same job on one node");
    let alone = pauses_on_one_node(stage, rounds * 4)?;
    let progress: Vec<f64> = losses.iter().map(|loss| loss.progress).collect();
    let progress = Series::new("declared departure to progress", "ms", progress);
    let score = progress.median;
    let progress = Figure::new(
        "progress",
        "a node lost: declared gone to progress (ms)",
        progress,
        None,
        score,
        (Sense::AtMost, GOAL),
    );
    let pause = Series::new("pause", "ms", pauses);
    let alone = Series::new("on one node", "ms", alone);
    let ratio = pause.median / alone.median;
    let pause = Figure::new(
        "pause-cluster",
        "pause, 6 ranks on 3 nodes",
        pause,
        Some(alone),
        ratio,
        (Sense::AtMost, PAUSE_GOAL),
    );
    Ok(Measured { figures: vec![progress, pause], losses })
}

fn start<'a>(ckptd: &'a Ckptd, checkpoints: u64) -> Result<ClusterJob<'a>, Failure> {
    let command = [&PROGRAM[..], &["--least", "60"]].concat();
    let mut job = ckptd.run(1, "bench", &["--interval", "2", "--keep", "100"], &command)?;
    job.wait_for_output(ROUND, LIMIT)?;
    job.wait_for_checkpoint(checkpoints, LIMIT)?;
    Ok(job)
}

/// The phases of one loss, and the pauses before it.
fn lose_a_node(stage: &Stage) -> Result<(Loss, Vec<f64>), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, 3)?;
    let pauses = job.status()?.pauses();
    let before = job.output().len();
    ckptd.kill_node(3)?;
    let mut written = vec![(now_ms()?, before)];
    let began = Instant::now();
    let mut rollback: Option<Rollback> = None;
    let progress = loop {
        if began.elapsed() > LIMIT {
            return Err(Failure("the job made no progress after the loss".into()));
        }
        std::thread::sleep(LOOK);
        let length = job.output().len();
        if written.last().is_some_and(|(_, last)| *last != length) {
            written.push((now_ms()?, length));
        }
        if rollback.is_none() && began.elapsed() > Duration::from_secs(3) {
            let done = job.status()?.rollbacks()?.into_iter().next();
            rollback = done.filter(|rollback| rollback.running_ms.is_some());
        }
        let Some(running) = rollback.as_ref().and_then(|rollback| rollback.running_ms) else {
            continue;
        };
        if let Some(at) = round_after(&job.output(), &written, running) {
            break at;
        }
    };
    job.launcher().kill();
    let rollback = rollback.ok_or(Failure("no rollback".into()))?;
    Ok((Loss::new(&rollback, progress), pauses))
}

/// When the second round since `running` began: then every rank has computed and been heard.
fn round_after(output: &str, written: &[(u64, usize)], running: u64) -> Option<u64> {
    let length_at = |time: u64| {
        written.iter().rev().find(|(at, _)| *at <= time).map_or(0, |(_, length)| *length)
    };
    let after = output.get(length_at(running)..)?;
    let (second, _) = after.match_indices(ROUND).nth(1)?;
    let position = length_at(running) + second;
    written.iter().find(|(_, length)| *length > position).map(|(at, _)| *at)
}

fn pauses_on_one_node(stage: &Stage, count: usize) -> Result<Vec<f64>, Failure> {
    let setup = Setup { slots: 6, ..Setup::new(1) };
    let ckptd = stage.cluster_of(setup)?;
    let mut job = start(&ckptd, count as u64)?;
    let pauses = job.status()?.pauses();
    job.launcher().kill();
    Ok(pauses)
}

fn now_ms() -> Result<u64, Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.map_err(|error| Failure(error.to_string()))?;
    u64::try_from(since.as_millis()).map_err(|error| Failure(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_round_counts() {
        let output = "progress: 0 of 9\nprogress: 0 of 9\nprogress: 0 of 9\n";
        let written = [(10, 17), (20, 34), (30, 51)];
        assert_eq!(round_after(output, &written, 12), Some(30));
        assert_eq!(round_after(output, &written, 25), None);
    }
}
