//! The scripts of packaging/slurm, as they are there, with a program of hydrodynamics.

use super::open_mpi::END;
use super::slurm::Batch;
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::slurm::{Slurm, USER};
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "slurm-packaged-job",
        about: "Slurm: packaging/slurm/job.sh: a blast wave in gas on three nodes loses one, and ends with the exact answer",
        run: job,
    },
    Case {
        name: "slurm-packaged-requeue",
        about: "Slurm: packaging/slurm/requeue.sh: a blast wave in gas loses a node, is kept and requeued on fewer nodes, and \
                ends with the exact answer",
        run: requeue,
    },
];

const JOB: &str = include_str!("../../../../packaging/slurm/job.sh");
const REQUEUE: &str = include_str!("../../../../packaging/slurm/requeue.sh");
/// Cells along each axis, and steps.
const SIZE: &str = "30 80";
/// The six ranks share two processors here, which a site's do not.
const ENVIRONMENT: [&str; 1] = ["OMPI_MCA_mpi_yield_when_idle=1"];
/// What a user changes for a site of eight processors a node; files as [`Batch`] expects them.
const OPTIONS: [&str; 3] = ["--ntasks-per-node=2", "--output=out.%j", "--error=err.%j"];

/// Submits one of the scripts, whose program is there under the name that it has in it. Gives the job, and what its answer is.
fn submit<'s>(
    stage: &Stage,
    slurm: &'s Slurm,
    script: &str,
    nodes: &str,
) -> Result<(Batch<'s>, String), Failure> {
    let blast = slurm.cluster().share(stage.program("blast")?)?;
    let simulate = format!("#!/bin/sh\nexec {blast} {SIZE} {END}\n");
    slurm.cluster().share_script(&format!("{USER}/simulate"), &simulate)?;
    // Without ckptd, by one process.
    let alone = slurm.run(0, &["sh", "-c", &format!("{blast} {SIZE}")])?;
    let answer = alone.stdout.lines().find(|line| line.starts_with("blast: ")).map(str::to_owned);
    let answer = answer.ok_or_else(|| Failure(format!("no answer: {}", alone.stderr)))?;
    let script = slurm.cluster().share_script("packaged.sh", script)?;
    let words = [&[nodes], &OPTIONS[..], &[&script]].concat();
    Ok((Batch::submit_with(slurm, &ENVIRONMENT, &words)?, answer))
}

/// Waits until the ranks work on all nodes, takes a checkpoint, and kills the last node.
fn lose_a_node(slurm: &Slurm, job: &Batch<'_>) -> Result<(), Failure> {
    job.wait_for("out", "rank 5 of 6 on node3", JOB_LIMIT)?;
    let mut taken = job.ask("checkpoint latest")?;
    check(taken.wait(LIMIT)? == 0, || taken.explain(&Failure("no checkpoint".to_owned())).0)?;
    slurm.cluster().node(3).kill()?;
    job.wait_for("err", "node3 is gone; moved", JOB_LIMIT)
}

fn right(job: &Batch<'_>, answer: &str, parts: &[&str]) -> Result<(), Failure> {
    job.end_ranks()?;
    job.wait_for_state(&[&["JobState=COMPLETED", "ExitCode=0:0"], parts].concat())?;
    check(job.file("out").lines().any(|line| line == answer), || {
        job.explain(&Failure(format!("the answer is not {answer}"))).0
    })
}

fn job(stage: &Stage) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    let (job, answer) = submit(stage, &slurm, JOB, "--nodes=3")?;
    lose_a_node(&slurm, &job)?;
    right(&job, &answer, &["Restarts=0"])
}

fn requeue(stage: &Stage) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    let (job, answer) = submit(stage, &slurm, REQUEUE, "--nodes=2-3")?;
    lose_a_node(&slurm, &job)?;
    job.tell_that_time_is_over()?;
    job.requeue_on_two_nodes()?;
    job.wait_for("err", "the job goes on from checkpoint", JOB_LIMIT)?;
    right(&job, &answer, &["Restarts=1", "NodeList=node[1-2]"])
}
