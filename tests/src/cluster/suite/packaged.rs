//! Run times of the Python package index, each in an environment of its own: Open MPI 5, MPICH 5 and Intel MPI.

use std::path::Path;

use super::leaving::announce;
use super::open_mpi::{END, end};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::PATH;
use crate::cluster::ckptd::Ckptd;
use crate::cluster::job::ClusterJob;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "openmpi5-kill",
        about: "Open MPI 5: mpirun finds the nodes, one is killed, its ranks go to different survivors",
        run: |stage| kill(stage, "openmpi", 2),
    },
    Case {
        name: "mpich5-kill",
        about: "MPICH 5: mpirun finds the nodes, one is killed, its ranks go to different survivors",
        run: |stage| kill(stage, "mpich", 2),
    },
    Case {
        name: "intelmpi-kill",
        about: "Intel MPI: mpirun finds the nodes, one is killed, its ranks share memory and go to one survivor",
        run: |stage| kill(stage, "impi-rt", 1),
    },
    Case {
        name: "openmpi5-leave",
        about: "Open MPI 5: a machine announces its departure, its ranks move to different others",
        run: |stage| leave(stage, "openmpi", 2),
    },
    Case {
        name: "mpich5-leave",
        about: "MPICH 5: a machine announces its departure, its ranks move to different others",
        run: |stage| leave(stage, "mpich", 2),
    },
    Case {
        name: "intelmpi-leave",
        about: "Intel MPI: a machine announces its departure, its ranks move together",
        run: |stage| leave(stage, "impi-rt", 1),
    },
];

/// Where tests/install puts them.
const FOLDER: &str = "/var/cache/ckptd-tests/mpi";

/// All of them, as the index calls them.
pub(super) const PACKAGES: [&str; 3] = ["openmpi", "mpich", "impi-rt"];

/// What PATH is after its `activate`; `None`: it is not installed.
pub(super) fn path(package: &str) -> Option<String> {
    let programs = Path::new(FOLDER).join(package).join("bin");
    if programs.join("mpirun").exists() {
        return Some(format!("{}:{PATH}", programs.display()));
    }
    eprintln!("    skipped: no {package}; tests/install installs it");
    None
}

/// Starts six ranks, two on each of three nodes, and lets them come to a checkpoint. `None`: it is not installed.
fn start<'a>(
    stage: &Stage,
    ckptd: &'a Ckptd,
    package: &str,
) -> Result<Option<ClusterJob<'a>>, Failure> {
    let Some(path) = path(package) else { return Ok(None) };
    let script = ckptd.cluster().share(&stage.script("allreduce.py"))?;
    let command = ["mpirun", "-n", "6", "python", &script, END];
    let options = ["--interval", "1"];
    let mut job = ckptd.run_in(1, "allreduce", &[("PATH", &path)], &options, &command)?;
    job.wait_for_output("rank 5 of 6 on node3", LIMIT)?;
    let newest = job.status()?.newest_checkpoint().unwrap_or(0);
    job.wait_for_checkpoint(newest + 2, LIMIT)?;
    Ok(Some(job))
}

/// Kills a node; its ranks go to so many others.
fn kill(stage: &Stage, package: &str, machines: usize) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let Some(mut job) = start(stage, &ckptd, package)? else { return Ok(()) };
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    finish(&ckptd, &mut job, machines)
}

/// A node leaves; its ranks go to so many others.
fn leave(stage: &Stage, package: &str, machines: usize) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let Some(mut job) = start(stage, &ckptd, package)? else { return Ok(()) };
    announce(&ckptd, &mut job)?;
    ckptd.kill_node(3)?;
    finish(&ckptd, &mut job, machines)
}

/// The ranks of node3 are on so many others, and the job comes to its right end.
fn finish(ckptd: &Ckptd, job: &mut ClusterJob<'_>, machines: usize) -> Result<(), Failure> {
    let status = job.status()?;
    let found = status.machines_of("node3", "python");
    check(found.len() == machines && !found.contains("node3"), || {
        format!("its ranks are on {found:?}\n{}", status.text())
    })?;
    end(ckptd)?;
    job.must_end_with("allreduce: right", JOB_LIMIT)
}
