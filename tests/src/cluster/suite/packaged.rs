//! Run times of the Python package index, each in an environment of its own: Open MPI 5, MPICH 4.3 and 5, and Intel MPI.

use super::leaving::announce;
use super::open_mpi::{END, end};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::SHARED;
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::job::ClusterJob;
use crate::job::Failure;
use crate::run_times;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "openmpi5-kill",
        about: "Open MPI 5: mpirun finds the nodes, one is killed, its ranks go to different survivors",
        run: |stage| kill(stage, &OPEN_MPI_5),
    },
    Case {
        name: "mpich4.3-kill",
        about: "MPICH 4.3: mpirun finds the nodes, one is killed, its ranks go to different survivors",
        run: |stage| kill(stage, &MPICH_4_3),
    },
    Case {
        name: "mpich5-kill",
        about: "MPICH 5: mpirun finds the nodes, one is killed, its ranks go to different survivors",
        run: |stage| kill(stage, &MPICH_5),
    },
    Case {
        name: "intelmpi-kill",
        about: "Intel MPI: mpirun finds the nodes, one is killed, its ranks share memory and go to one survivor",
        run: |stage| kill(stage, &INTEL_MPI),
    },
    Case {
        name: "openmpi5-leave",
        about: "Open MPI 5: a machine announces its departure, its ranks move to different others",
        run: |stage| leave(stage, &OPEN_MPI_5),
    },
    Case {
        name: "mpich4.3-leave",
        about: "MPICH 4.3: a machine announces its departure, its ranks move to different others",
        run: |stage| leave(stage, &MPICH_4_3),
    },
    Case {
        name: "mpich5-leave",
        about: "MPICH 5: a machine announces its departure, its ranks move to different others",
        run: |stage| leave(stage, &MPICH_5),
    },
    Case {
        name: "intelmpi-leave",
        about: "Intel MPI: a machine announces its departure, its ranks move together",
        run: |stage| leave(stage, &INTEL_MPI),
    },
    Case {
        name: "openmpi5-join",
        about: "Open MPI 5: a node leaves, a new one joins and takes over ranks of the others",
        run: |stage| join(stage, &OPEN_MPI_5),
    },
    Case {
        name: "mpich4.3-join",
        about: "MPICH 4.3: a node leaves, a new one joins and takes over ranks of the others",
        run: |stage| join(stage, &MPICH_4_3),
    },
    Case {
        name: "mpich5-join",
        about: "MPICH 5: a node leaves, a new one joins and takes over ranks of the others",
        run: |stage| join(stage, &MPICH_5),
    },
    Case {
        name: "intelmpi-join",
        about: "Intel MPI: a node leaves, a new one joins and takes over the ranks that shared memory there",
        run: |stage| join(stage, &INTEL_MPI),
    },
    Case {
        name: "openmpi5-spawn",
        about: "Open MPI 5: ranks start others before and after a checkpoint and a loss, and all speak to all",
        run: |stage| spawn(stage, &OPEN_MPI_5),
    },
    Case {
        name: "mpich4.3-spawn",
        about: "MPICH 4.3: ranks start others before and after a checkpoint and a loss, and all speak to all",
        run: |stage| spawn(stage, &MPICH_4_3),
    },
    Case {
        name: "mpich5-spawn",
        about: "MPICH 5: ranks start others before and after a checkpoint and a loss, and all speak to all",
        run: |stage| spawn(stage, &MPICH_5),
    },
    Case {
        name: "intelmpi-spawn",
        about: "Intel MPI: ranks start others before and after a checkpoint and a loss, and all speak to all",
        run: |stage| spawn(stage, &INTEL_MPI),
    },
];

/// A run time, and how its launcher is called.
pub(super) struct RunTime {
    /// The environment of its mpi4py, as the index calls the run time.
    package: &'static str,
    launcher: &'static str,
    /// Where its ranks are that start others: one on each node, if they can start others there.
    spawning: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    /// On how many machines the ranks of a lost node are afterwards.
    spread: usize,
}

pub(super) const OPEN_MPI_5: RunTime = RunTime {
    package: "openmpi",
    launcher: "mpirun",
    // Over several nodes MPI_Comm_spawn fails, with and without ckptd.
    spawning: &["--host", "localhost:16"],
    environment: &[],
    spread: 2,
};

pub(super) const MPICH_5: RunTime = RunTime {
    package: "mpich",
    launcher: "mpirun",
    spawning: &["-ppn", "1"],
    environment: &[],
    spread: 2,
};

const MPICH_4_3: RunTime = RunTime { package: "mpich4.3", ..MPICH_5 };

pub(super) const INTEL_MPI: RunTime = RunTime {
    package: "impi-rt",
    launcher: "mpirun",
    spawning: &["-ppn", "1"],
    // Without it MPI_Comm_spawn crashes, with and without ckptd.
    environment: &[
        ("I_MPI_SPAWN", "on"),
        ("I_MPI_THREAD_YIELD", "3"),
        ("I_MPI_THREAD_SLEEP", "10"),
    ],
    spread: 1,
};

/// All of them, as the index calls them.
pub(super) const PACKAGES: [&str; 3] = ["openmpi", "mpich", "impi-rt"];

/// What PATH is after its `activate`; `None`: it is not installed.
pub(super) fn path(package: &str) -> Option<String> {
    let path = run_times::path(package);
    if path.is_none() {
        println!("    skipped: no {package}; tests/install installs it");
    }
    path
}

/// Runs a script of tests/real by so many ranks, with options of ckptd and of the launcher. `None`: the run time is not
/// installed.
pub(super) fn run<'a>(
    stage: &Stage,
    ckptd: &'a Ckptd,
    run_time: &RunTime,
    (settings, options): (&[&str], &[&str]),
    script: &[&str],
) -> Result<Option<ClusterJob<'a>>, Failure> {
    let Some(path) = path(run_time.package) else { return Ok(None) };
    let Some((name, arguments)) = script.split_first() else { return Ok(None) };
    let script = ckptd.cluster().share(&stage.script(name))?;
    let command = [&[run_time.launcher], options, &["python", &script], arguments].concat();
    let environment = [run_time.environment, &[("PATH", path.as_str())]].concat();
    let name = name.trim_end_matches(".py");
    // On the coordinator's machine, which stays.
    let settings = [&["--interval", "1"], settings].concat();
    ckptd.run_in(0, name, &environment, &settings, &command).map(Some)
}

/// Starts six ranks, two on each of three nodes, and lets them come to a checkpoint. `None`: it is not installed.
fn start<'a>(
    stage: &Stage,
    ckptd: &'a Ckptd,
    run_time: &RunTime,
) -> Result<Option<ClusterJob<'a>>, Failure> {
    let ranks = ["-n", "6"];
    let Some(mut job) = run(stage, ckptd, run_time, (&[], &ranks), &["allreduce.py", END])? else {
        return Ok(None);
    };
    job.wait_for_output("rank 5 of 6 on node3", LIMIT)?;
    job.wait_for_more_checkpoints(2, LIMIT)?;
    Ok(Some(job))
}

/// Kills a node; its ranks go to others.
fn kill(stage: &Stage, run_time: &RunTime) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let Some(mut job) = start(stage, &ckptd, run_time)? else { return Ok(()) };
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    spread(&job, run_time)?;
    finish(&ckptd, &mut job)
}

/// A node leaves; its ranks go to others.
fn leave(stage: &Stage, run_time: &RunTime) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let Some(mut job) = start(stage, &ckptd, run_time)? else { return Ok(()) };
    announce(&ckptd, &mut job)?;
    ckptd.kill_node(3)?;
    spread(&job, run_time)?;
    finish(&ckptd, &mut job)
}

/// A node leaves, another joins: two of the ranks that are four on a machine, or three on each, go there.
fn join(stage: &Stage, run_time: &RunTime) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { agents: 3, ..Setup::new(4) })?;
    let Some(mut job) = start(stage, &ckptd, run_time)? else { return Ok(()) };
    announce(&ckptd, &mut job)?;
    spread(&job, run_time)?;
    let token = ckptd.new_token(&["--uses", "1"])?;
    let agent = ckptd.join(4, &token, "node4")?;
    // After a move a job rests for ten times what that has cost.
    let moved = job.wait_for_rollback(2, JOB_LIMIT);
    moved.map_err(|failure| agent.explain(&failure))?;
    let status = job.status()?;
    let ranks = status.spread_of("python");
    check(ranks.len() == 3 && ranks.get("node4") == Some(&2), || {
        format!("the ranks are on {ranks:?}\n{}", status.text())
    })?;
    job.wait_for_more_checkpoints(2, LIMIT)?;
    finish(&ckptd, &mut job)
}

/// Ranks start two more each time that they are told to: before a checkpoint, after it, and after the loss of a node.
fn spawn(stage: &Stage, run_time: &RunTime) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { slots: 4, ..Setup::new(3) })?;
    let options = [&["-n", "3"], run_time.spawning].concat();
    let script = ["spawn.py", SHARED, "2"];
    let Some(mut job) = run(stage, &ckptd, run_time, (&[], &options), &script)? else {
        return Ok(());
    };
    job.wait_for_output("spawn: 3 ranks", LIMIT)?;
    for (go, reached) in [("go1", "spawn: 5 ranks"), ("go2", "spawn: 7 ranks")] {
        ckptd.cluster().share_script(go, "")?;
        job.wait_for_output(reached, LIMIT)?;
        job.wait_for_more_checkpoints(2, LIMIT)?;
    }
    let ranks = job.status()?.spread_of("python");
    let last =
        ranks.keys().next_back().and_then(|node| node.trim_start_matches("node").parse().ok());
    let last = last.ok_or_else(|| Failure(format!("the ranks are on {ranks:?}")))?;
    ckptd.kill_node(last)?;
    job.wait_for_rollback(1, LIMIT)?;
    ckptd.cluster().share_script("go3", "")?;
    job.wait_for_output("spawn: 9 ranks", LIMIT)?;
    job.wait_for_more_checkpoints(2, LIMIT)?;
    end(&ckptd)?;
    job.must_end_with("spawn: right", JOB_LIMIT)
}

/// The ranks of node3 are on as many others as the run time allows.
pub(super) fn spread(job: &ClusterJob<'_>, run_time: &RunTime) -> Result<(), Failure> {
    let status = job.status()?;
    let found = status.machines_of("node3", "python");
    check(found.len() == run_time.spread && !found.contains("node3"), || {
        format!("its ranks are on {found:?}\n{}", status.text())
    })
}

/// The job comes to its right end.
pub(super) fn finish(ckptd: &Ckptd, job: &mut ClusterJob<'_>) -> Result<(), Failure> {
    end(ckptd)?;
    job.must_end_with("allreduce: right", JOB_LIMIT)
}
