//! Other ways for a machine to go: the one that runs mpirun, and one that says so before.

use super::open_mpi::{ANSWER, end, finish, spread, start};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::Ckptd;
use crate::cluster::job::ClusterJob;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "mpirun-lost",
        about: "the machine of mpirun and of the launcher is killed; another one attaches",
        run: mpirun_lost,
    },
    Case {
        name: "leave-announced",
        about: "a machine announces its departure: its ranks move, nothing is lost, it is free to go",
        run: leave_announced,
    },
];

fn mpirun_lost(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    ckptd.kill_node(1)?;
    // The command that started it has died with its machine.
    job.launcher().kill();
    end(&ckptd)?;
    let mut attached = ckptd.node(2).spawn(&["ckptd", "attach", "queens"], &[])?;
    let status = attached.wait(JOB_LIMIT).map_err(|failure| ckptd.explain(&failure))?;
    let output = attached.output().replace("\r\n", "\n");
    check(status == 0 && output.lines().any(|line| line == ANSWER), || {
        attached.explain(&Failure(format!("attach ended with {status}"))).0
    })
}

/// node3 announces its departure, and the job runs again without it.
pub(super) fn announce(ckptd: &Ckptd, job: &mut ClusterJob<'_>) -> Result<(), Failure> {
    let left = ckptd.ckptd(0, &["leave", "node3"])?;
    check(left.status == 0, || format!("leave: {}", left.stderr))?;
    // The node may go once nothing of the job is there; the job goes on a moment later.
    job.wait_for("the job runs again", LIMIT, |status| (status.state() == "running").then_some(()))
}

fn leave_announced(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    announce(&ckptd, &mut job)?;
    spread(&mut job, "node3", 2)?;
    let free = crate::cluster::until("the agent has ended", LIMIT, || {
        Ok((!ckptd.agent_runs(3)?).then_some(()))
    });
    free.map_err(|failure| job.explain(&failure))?;
    ckptd.kill_node(3)?;
    finish(&ckptd, &mut job)?;
    let rollbacks = job.status()?.rollbacks()?.len();
    check(rollbacks <= 1, || format!("{rollbacks} rollbacks"))
}
