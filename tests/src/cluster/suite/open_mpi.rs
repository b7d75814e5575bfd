//! N-Queens on Open MPI, two ranks on each of three nodes.

use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::Ckptd;
use crate::cluster::job::ClusterJob;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "openmpi-kill",
        about: "a node is killed in the middle: its ranks go to different survivors",
        run: kill_one,
    },
    Case { name: "openmpi-kill-two", about: "a node is killed, then a second one", run: kill_two },
    Case {
        name: "openmpi-three-generations",
        about: "a node is killed, comes back empty, and another is killed, three times",
        run: three_generations,
    },
    Case {
        name: "openmpi-cut",
        about: "a node's link is cut; it comes back after it was declared gone, and its old copy does nothing",
        run: cut,
    },
    Case {
        name: "openmpi-short-cut",
        about: "a link is cut for less than the grace: nothing is rolled back",
        run: short_cut,
    },
    Case {
        name: "openmpi-own-executable",
        about: "each node has its own copy of the program; one is lost with its node",
        run: own_executable,
    },
    Case {
        name: "openmpi-placement-node",
        about: "shared memory stays on, and a node's ranks move as one",
        run: placement_node,
    },
    Case {
        name: "openmpi-restart",
        about: "stopped with a checkpoint, restarted on the cluster",
        run: restart,
    },
];

pub(super) const ANSWER: &str = "N=13: 73712 solutions";
/// The ranks go on until it is there: no test depends on how fast the machine is.
pub(super) const END: &str = "/mnt/shared/end";
/// Messages every so many prefixes, 16 MiB verified at the end.
const ARGUMENTS: [&str; 5] = ["13", "--ballast", "16", "--chat", "40"];

/// Starts six ranks, called "queens", and lets them come to a checkpoint.
pub(super) fn start<'a>(
    ckptd: &'a Ckptd,
    options: &[&str],
    program: &str,
) -> Result<ClusterJob<'a>, Failure> {
    let mpi = ["mpirun.openmpi", "-np", "6", "--mca", "mpi_yield_when_idle", "1", program];
    let command = [&mpi[..], &ARGUMENTS, &["--until", END]].concat();
    let options = [&["--interval", "1"], options].concat();
    let mut job = ckptd.run(1, "queens", &options, &command)?;
    job.wait_for_output("rank 5 of 6 on node3", LIMIT)?;
    // The next may be under way, of a time before.
    job.wait_for_more_checkpoints(2, LIMIT)?;
    Ok(job)
}

/// Lets the job come to its end, which must be right.
pub(super) fn finish(ckptd: &Ckptd, job: &mut ClusterJob<'_>) -> Result<(), Failure> {
    end(ckptd)?;
    job.must_end_with(ANSWER, JOB_LIMIT)
}

/// Lets all jobs of this kind come to their ends.
pub(super) fn end(ckptd: &Ckptd) -> Result<(), Failure> {
    ckptd.cluster().share_script("end", "").map(drop)
}

/// The ranks of a lost node are on so many machines, none of them its own.
pub(super) fn spread(job: &mut ClusterJob<'_>, lost: &str, machines: usize) -> Result<(), Failure> {
    let status = job.status()?;
    let found = status.machines_of(lost, "nqueens");
    check(found.len() == machines && !found.contains(lost), || {
        let text = status.text();
        format!("the ranks of {lost} are on {found:?}, not on {machines} others\n{text}")
    })
}

fn kill_one(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    spread(&mut job, "node3", 2)?;
    finish(&ckptd, &mut job)?;
    check(job.errors().contains("node3"), || {
        format!("the terminal does not tell of the loss:\n{}", job.errors())
    })
}

fn kill_two(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    // What was lost with node3 is on two machines again after the next.
    job.wait_for_more_checkpoints(1, LIMIT)?;
    ckptd.kill_node(2)?;
    job.wait_for_rollback(2, LIMIT)?;
    spread(&mut job, "node2", 1)?;
    spread(&mut job, "node3", 1)?;
    finish(&ckptd, &mut job)
}

fn three_generations(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    for (generation, lost) in [(1, 3), (2, 2), (3, 3)] {
        ckptd.kill_node(lost)?;
        job.wait_for_rollback(generation, LIMIT)?;
        ckptd.node(lost).power_on()?;
        ckptd.start_agent(lost)?;
        ckptd.wait_for_members(&[1, 2, 3])?;
        job.wait_for_more_checkpoints(1, LIMIT)?;
    }
    finish(&ckptd, &mut job)
}

fn cut(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    ckptd.node(3).cut()?;
    job.wait_for_rollback(1, LIMIT)?;
    spread(&mut job, "node3", 2)?;
    ckptd.node(3).heal()?;
    // Back as a member, without what it had of the job.
    ckptd.wait_for_members(&[1, 2, 3])?;
    let left = crate::cluster::until("the old copy is gone", LIMIT, || {
        Ok((!ckptd.node(3).run(&["pgrep", "nqueens"], &[])?.stdout.contains('\n')).then_some(()))
    });
    left.map_err(|failure| job.explain(&failure))?;
    finish(&ckptd, &mut job)?;
    check(job.output().matches("solutions").count() == 1, || "two answers".to_owned())
}

fn short_cut(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    for _ in 0..3 {
        ckptd.node(2).cut()?;
        std::thread::sleep(std::time::Duration::from_millis(700));
        ckptd.node(2).heal()?;
        std::thread::sleep(std::time::Duration::from_millis(700));
    }
    let rollbacks = job.status()?.rollbacks()?.len();
    check(rollbacks == 0, || format!("{rollbacks} rollbacks"))?;
    finish(&ckptd, &mut job)
}

fn own_executable(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let own = format!("{}/own", crate::cluster::WORK);
    for number in 1..=3 {
        let shared = format!("{}/nqueens", crate::cluster::SHARED);
        ckptd.node(number).must_run(&["cp", &shared, &own])?;
    }
    let mut job = start(&ckptd, &[], &own)?;
    // From here on it is on node3 alone, for processes that are started or restored.
    for number in 1..=2 {
        ckptd.node(number).must_run(&["rm", &own])?;
    }
    job.wait_for_more_checkpoints(1, LIMIT)?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    let found = job.status()?.machines_of("node3", "own");
    check(found.len() == 2, || format!("its ranks are on {found:?}"))?;
    finish(&ckptd, &mut job)
}

fn placement_node(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &["--placement", "node"], "nqueens")?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    spread(&mut job, "node3", 1)?;
    finish(&ckptd, &mut job)
}

fn restart(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    let stopped = ckptd.ckptd(2, &["stop", "queens", "--checkpoint"])?;
    check(stopped.status == 0, || format!("stop: {}", stopped.stderr))?;
    job.wait(LIMIT)?;
    end(&ckptd)?;
    let mut again = ckptd.node(2).spawn(&["ckptd", "restart", "queens"], &[])?;
    let status = again.wait(JOB_LIMIT).map_err(|failure| ckptd.explain(&failure))?;
    let output = again.output().replace("\r\n", "\n");
    check(status == 0 && output.lines().any(|line| line == ANSWER), || {
        again.explain(&Failure(format!("restart ended with {status}"))).0
    })
}
