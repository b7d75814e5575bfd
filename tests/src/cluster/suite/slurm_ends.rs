//! How allocations of Slurm end, and what is done to them before.

use std::time::Duration;

use super::open_mpi::{ANSWER, END};
use super::slurm::{Batch, PROCESSES, each_run_time, nothing_left, script, script_then};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::slurm::{OTHER, Site, Slurm, USER};
use crate::cluster::until;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "slurm-suspended",
        about: "Slurm: a job is suspended for longer than members may be silent, and goes on where it was",
        run: suspended,
    },
    Case {
        name: "slurm-cancelled",
        about: "Slurm: a job is cancelled; no process of it is left on any node, and it is not requeued",
        run: cancelled,
    },
    Case {
        name: "slurm-killed",
        about: "Slurm: ckptd slurm run alone is killed while its allocation lasts; job, agents and coordinator end",
        run: killed,
    },
    Case {
        name: "slurm-time-limit",
        about: "Slurm: a job comes near its time limit, is kept, requeued by Slurm's own signal, and goes on",
        run: time_limit,
    },
    Case {
        name: "slurm-preempted",
        about: "Slurm: a job of higher priority takes the nodes; what they were taken from goes on after it",
        run: preempted,
    },
    Case {
        name: "slurm-gang",
        about: "Slurm: a job of higher priority has a job suspended by gang scheduling for longer than members may be silent",
        run: gang,
    },
    Case {
        name: "slurm-spare",
        about: "Slurm: the last node waits with copies until another fails, and takes its ranks; begun by -n, without mpirun",
        run: spare,
    },
    Case {
        name: "slurm-script",
        about: "Slurm: a script calls mpirun of Open MPI 4 and 5, MPICH 5 and Intel MPI; none starts its daemons by srun",
        run: a_script,
    },
    Case {
        name: "slurm-two-users",
        about: "Slurm: jobs of two users on the same nodes, one by sbatch, one by salloc; a node is drained meanwhile",
        run: two_users,
    },
];

/// Longer than a member may be silent.
const SILENCE: Duration = Duration::from_secs(20);

fn suspended(stage: &Stage) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    let job = Batch::submit(&slurm, &script(stage, &slurm)?)?;
    job.wait_for_checkpoints()?;
    job.order("suspend")?;
    std::thread::sleep(SILENCE);
    job.order("resume")?;
    job.wait_for_checkpoints()?;
    job.finish()?;
    let told = job.file("err");
    check(!told.contains("is gone"), || job.explain(&Failure("a node was lost".into())).0)?;
    nothing_left(&slurm, 1..=3)
}

fn cancelled(stage: &Stage) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    let job = Batch::submit(&slurm, &kept(stage, &slurm, "")?)?;
    job.wait_for_checkpoints()?;
    let cancel = slurm.run(0, &["scancel", &job.number])?;
    check(cancel.status == 0, || cancel.stderr.clone())?;
    for number in 1..=3 {
        let ended = until("no process of it is left", JOB_LIMIT, || {
            let left = slurm.run(number, &["sh", "-c", PROCESSES])?;
            Ok(left.stdout.is_empty().then_some(()))
        });
        ended.map_err(|failure| job.explain(&failure))?;
    }
    // Agents are killed by Slurm: what they had on their disks, the epilog removes.
    for number in 1..=3 {
        let ended = until("nothing is left in /tmp", JOB_LIMIT, || {
            let find = ["find", "/tmp", "-maxdepth", "1", "-name", "ckptd-slurm-*"];
            Ok(slurm.run(number, &find)?.stdout.is_empty().then_some(()))
        });
        ended.map_err(|failure| job.explain(&failure))?;
    }
    // Whoever cancels a job does not want it to be put into the queue again.
    job.wait_for_state(&["JobState=CANCELLED", "Restarts=0"])
}

fn killed(stage: &Stage) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    let script = script_then(stage, &slurm, "sleep 600\n")?;
    let job = Batch::submit(&slurm, &script)?;
    job.wait_for_checkpoints()?;
    let kill = ["pkill", "-KILL", "-f", "^[^ ]*ckptd slurm run"];
    check(slurm.run(1, &kill)?.status == 0, || "there is nothing to kill".to_owned())?;
    job.wait_for("out", "status 137", LIMIT)?;
    let ended = until("nothing of it is left", JOB_LIMIT, || {
        Ok(nothing_left(&slurm, 1..=3).is_ok().then_some(()))
    });
    ended.map_err(|failure| job.explain(&failure))?;
    job.wait_for_state(&["JobState=RUNNING"])?;
    check(job.file("err").contains("was killed: its job ends"), || {
        job.explain(&Failure("nobody tells of it".to_owned())).0
    })
}

/// A script of a job that is kept and requeued, with these options for sbatch.
fn kept(stage: &Stage, slurm: &Slurm, options: &str) -> Result<String, Failure> {
    let queens = slurm.cluster().share(stage.program("nqueens")?)?;
    let text = format!(
        "#!/bin/bash
#SBATCH --nodes=3 --ntasks-per-node=2 --requeue --open-mode=append --output=out.%j --error=err.%j {options}
exec ckptd slurm run --store /mnt/shared/{USER} --requeue --name queens --interval 1 --keep 8 -v \\
    mpirun.openmpi -np 6 --mca mpi_yield_when_idle 1 {queens} 13 --ballast 16 --chat 40 --until {END}
"
    );
    slurm.cluster().share_script("kept.sh", &text)
}

/// Lets a job that goes on come to its end.
fn finish_kept(job: &Batch<'_>) -> Result<(), Failure> {
    job.wait_for("err", "the job goes on from checkpoint", JOB_LIMIT)?;
    job.complete(&["ExitCode=0:0", "Restarts=1"])
}

fn time_limit(stage: &Stage) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    // Slurm looks once in a while, up to a minute early.
    let script = kept(stage, &slurm, "--time=2 --signal=B:USR1@70")?;
    let job = Batch::submit(&slurm, &script)?;
    job.wait_for("err", "the job is kept in", JOB_LIMIT + LIMIT)?;
    finish_kept(&job)
}

/// A job of higher priority that has all nodes for so long.
fn urgent<'s>(slurm: &'s Slurm, seconds: u64) -> Result<Batch<'s>, Failure> {
    let text = format!(
        "#!/bin/bash
#SBATCH --partition=urgent --nodes=3 --ntasks-per-node=8 --output=out.%j --error=err.%j
srun -N 3 -n 3 hostname
echo \"status $?\"
sleep {seconds}
"
    );
    let script = slurm.cluster().share_script("urgent.sh", &text)?;
    Batch::submit(slurm, &script)
}

fn gang(stage: &Stage) -> Result<(), Failure> {
    let site = Site { preempts_by: "SUSPEND,GANG", shares: "FORCE:1", ..Site::default() };
    let Some(slurm) = Slurm::start_at(&site, &stage.ckptd, 3)? else { return Ok(()) };
    let job = Batch::submit(&slurm, &script(stage, &slurm)?)?;
    job.wait_for_checkpoints()?;
    let urgent = urgent(&slurm, SILENCE.as_secs())?;
    job.wait_for_state(&["JobState=SUSPENDED"])?;
    urgent.wait_for("out", "status 0", JOB_LIMIT)?;
    urgent.wait_for_state(&["JobState=COMPLETED"])?;
    job.wait_for_state(&["JobState=RUNNING"])?;
    job.wait_for_checkpoints()?;
    job.finish()?;
    let told = job.file("err");
    check(!told.contains("is gone"), || job.explain(&Failure("a node was lost".into())).0)?;
    nothing_left(&slurm, 1..=3)
}

fn preempted(stage: &Stage) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    let job = Batch::submit(&slurm, &kept(stage, &slurm, "")?)?;
    // Some that are older than what may have Slurm's signal in it.
    for _ in 0..3 {
        job.wait_for_checkpoints()?;
    }
    let urgent = urgent(&slurm, 0)?;
    urgent.wait_for("out", "status 0", JOB_LIMIT)?;
    finish_kept(&job)
}

fn spare(stage: &Stage) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 4)? else { return Ok(()) };
    let queens = slurm.cluster().share(stage.program("nqueens")?)?;
    let text = format!(
        "#!/bin/bash
#SBATCH --nodes=4 --ntasks-per-node=2 --no-kill --output=out.%j --error=err.%j
export OMPI_MCA_mpi_yield_when_idle=1
ckptd slurm run --spare 1 -n 6 --interval 1 -v {queens} 13 --ballast 16 --chat 40 --until {END}
echo \"status $?\"
"
    );
    let script = slurm.cluster().share_script("spare.sh", &text)?;
    let job = Batch::submit(&slurm, &script)?;
    job.wait_for_checkpoints()?;
    slurm.cluster().node(3).kill()?;
    job.wait_for("err", "node3 is gone", JOB_LIMIT)?;
    job.wait_for_checkpoints()?;
    let (out, err) = (job.file("out"), job.file("err"));
    let right = !out.contains("on node4")
        && err.contains("node3 is gone; moved")
        && err.contains("to node4\n");
    check(right, || job.explain(&Failure("the spare did not take the ranks".into())).0)?;
    job.finish()
}

fn a_script(stage: &Stage) -> Result<(), Failure> {
    each_run_time(stage, |mpirun| format!("bash -c '{mpirun}; exit $?'"))
}

fn two_users(stage: &Stage) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    let hers = Batch::submit(&slurm, &script(stage, &slurm)?)?;
    let queens = slurm.cluster().share(stage.program("nqueens")?)?;
    let allocated = ["salloc", "--nodes=3", "--ntasks-per-node=2"];
    let run = ["ckptd", "slurm", "run", "--interval", "1", "mpirun.openmpi", "-np", "6"];
    let what = [&queens, "13", "--chat", "40", "--least", "8"];
    let mut his = slurm.begin_as(OTHER, 0, &[&allocated[..], &run, &what].concat())?;
    hers.wait_for_checkpoints()?;
    let drain = ["scontrol", "update", "NodeName=node2", "State=DRAIN", "Reason=test"];
    check(slurm.run(0, &drain)?.status == 0, || "node2 can't be drained".to_owned())?;
    let status = his.wait(JOB_LIMIT)?;
    check(status == 0 && his.output().contains(ANSWER), || {
        his.explain(&Failure(format!("his job ended with {status}"))).0
    })?;
    hers.wait_for_checkpoints()?;
    hers.finish()?;
    nothing_left(&slurm, 0..=3)
}
