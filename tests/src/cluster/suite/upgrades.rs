//! Another executable takes the place of all daemons of a cluster, one after the other, while a job runs.
//!
//! `CKPTD_BEFORE` names the executable with which the cluster begins: that of an earlier release. Without it both are the one
//! under test, in two files.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use super::open_mpi::{finish, start};
use super::stage::{LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::job::ClusterJob;
use crate::cluster::{failure, until};
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[Case {
    name: "upgrade",
    about: "coordinator and agents are replaced one by one by another executable: the job runs on, and moves where they leave",
    run: one_by_one,
}];

/// What the later executable is called.
const NEXT: &str = "ckptd-next";

fn one_by_one(stage: &Stage) -> Result<(), Failure> {
    let folder = tempfile::tempdir().map_err(failure("make a folder"))?;
    let earlier =
        std::env::var_os("CKPTD_BEFORE").map_or_else(|| stage.ckptd.clone(), PathBuf::from);
    let ckptd = stage.cluster_with(&named(&earlier, folder.path(), "ckptd")?, Setup::new(3))?;
    let next = ckptd.cluster().share(&named(&stage.ckptd, folder.path(), NEXT)?)?;
    let mut job = start(&ckptd, &[], "nqueens")?;

    ckptd.install(0, &next);
    ckptd.kill_coordinator()?;
    ckptd.start_coordinator()?;
    goes_on(&ckptd, &mut job)?;

    // As a package does it, whose unit is restarted: the next agent takes over what the one before has left.
    let status = ckptd.end_agent_by(1, Signal::SIGUSR1, LIMIT)?;
    check(status == 0, || format!("the agent ended with {status}"))?;
    begin(&ckptd, 1, &next)?;
    goes_on(&ckptd, &mut job)?;
    let rollbacks = job.status()?.rollbacks()?;
    check(rollbacks.is_empty(), || format!("the job was rolled back: {rollbacks:?}"))?;

    // As an administrator does it who wants to be sure: its jobs move away before.
    for number in [2, 3] {
        leave(&ckptd, number)?;
        begin(&ckptd, number, &next)?;
        goes_on(&ckptd, &mut job)?;
    }
    let rollbacks = job.status()?.rollbacks()?;
    check(rollbacks.iter().all(|one| one.reason != "lost"), || {
        format!("a node was lost: {rollbacks:?}")
    })?;
    finish(&ckptd, &mut job)
}

/// A copy of an executable, by that name.
fn named(executable: &Path, folder: &Path, name: &str) -> Result<PathBuf, Failure> {
    let copy = folder.join(name);
    std::fs::copy(executable, &copy).map_err(failure(&format!("copy {}", executable.display())))?;
    Ok(copy)
}

/// A node leaves, and its agent ends.
fn leave(ckptd: &Ckptd, number: usize) -> Result<(), Failure> {
    let node = ckptd.node(number).name();
    let left = ckptd.ckptd(0, &["leave", &node])?;
    check(left.status == 0, || format!("leave: {}", left.stderr))?;
    let ended = || Ok((!ckptd.agent_runs(number)?).then_some(()));
    until(&format!("the agent of {node} has ended"), LIMIT, ended)
        .map_err(|why| ckptd.explain(&why))
}

/// The agent of a node begins as another executable.
fn begin(ckptd: &Ckptd, number: usize, executable: &str) -> Result<(), Failure> {
    ckptd.install(number, executable);
    ckptd.start_agent(number)?;
    ckptd.wait_for_members(&[number])?;
    let running = "for one in /proc/[0-9]*; do readlink $one/exe; done";
    let running = ckptd.node(number).must_run(&["sh", "-c", running])?;
    check(running.lines().any(|line| line.ends_with(NEXT)), || {
        format!("node{number} does not run {NEXT}:\n{running}")
    })
}

/// All are there, and a checkpoint can be had.
fn goes_on(ckptd: &Ckptd, job: &mut ClusterJob<'_>) -> Result<(), Failure> {
    ckptd.wait_for_members(&[1, 2, 3])?;
    // Its processes may be on their way to the newcomer.
    until("a checkpoint", LIMIT, || Ok(job.checkpoint().ok()))
        .map(drop)
        .map_err(|why| job.explain(&why))
}
