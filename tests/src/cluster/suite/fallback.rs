//! Daemons that are not restored: what they had started goes on without them.

use super::open_mpi::{ANSWER, end, start as start_queens};
use super::runtimes::start_mpich;
use super::stage::{JOB_LIMIT, LIMIT, Stage, start};
use super::{Case, check};
use crate::cluster::job::ClusterJob;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "fallback-openmpi",
        about: "a node is killed, its orted stays away: the ranks solve the problem, and their end is known",
        run: open_mpi,
    },
    Case {
        name: "fallback-mpich",
        about: "the same with MPICH, whose ranks wait for their proxy in a read",
        run: mpich,
    },
    Case {
        name: "fallback-silence",
        about: "a daemon that stays away is silent to its child and its peer; the child's output and end count",
        run: silence,
    },
    Case {
        name: "fallback-second-loss",
        about: "two nodes are lost, one after the other, and both orteds stay away: the ranks solve the problem",
        run: second_loss,
    },
    Case {
        name: "fallback-again",
        about: "in a job that has fallen back agents are killed, and a node is lost: still silence, and no output is lost",
        run: again,
    },
];

/// How the end is told that nobody else could tell.
const OVER: &str = "the job is over, with status 0";

fn open_mpi(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start_queens(&ckptd, &["--daemons", "fallback"], "nqueens")?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    let status = job.status()?;
    let (ranks, daemons) =
        (status.machines_of("node3", "nqueens"), status.machines_of("node3", "orted"));
    let right = !ranks.is_empty() && !ranks.contains("node3") && daemons.is_empty();
    check(right, || format!("node3's ranks are on {ranks:?}, its orted on {daemons:?}"))?;
    end(&ckptd)?;
    job.must_end_with(ANSWER, JOB_LIMIT)?;
    check(job.errors().contains(OVER), || format!("nothing tells of the end:\n{}", job.errors()))
}

fn mpich(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start_mpich(&ckptd, &["--daemons", "fallback"], &["-hosts", "node2:2"], "node2")?;
    ckptd.kill_node(2)?;
    job.wait_for_rollback(1, LIMIT)?;
    let status = job.status()?;
    let ranks = status.machines_of("node2", "nqueens.mpich");
    let proxies = status.machines_of("node2", "hydra_pmi_proxy");
    let right = ranks.len() == 2 && !ranks.contains("node2") && proxies.is_empty();
    check(right, || format!("node2's ranks are on {ranks:?}, its proxy on {proxies:?}"))?;
    // Ranks that have not worked since might be in MPI_Init: those are given half a minute.
    let newest = status.newest_checkpoint().unwrap_or(0);
    job.wait_for_checkpoint(newest + 1, LIMIT)?;
    end(&ckptd)?;
    job.must_end_with(ANSWER, JOB_LIMIT)?;
    check(job.errors().contains(OVER), || format!("nothing tells of the end:\n{}", job.errors()))
}

fn second_loss(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start_queens(&ckptd, &["--daemons", "fallback"], "nqueens")?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    next_checkpoint(&mut job)?;
    ckptd.kill_node(2)?;
    job.wait_for_rollback(2, LIMIT)?;
    let status = job.status()?;
    for lost in ["node2", "node3"] {
        let (ranks, daemons) =
            (status.machines_of(lost, "nqueens"), status.machines_of(lost, "orted"));
        let right = ranks.iter().eq(["node1"]) && daemons.is_empty();
        check(right, || format!("{lost}'s ranks are on {ranks:?}, its orted on {daemons:?}"))?;
    }
    end(&ckptd)?;
    job.must_end_with(ANSWER, JOB_LIMIT)?;
    check(job.errors().contains(OVER), || explained(&job, "nothing tells of the end"))
}

fn next_checkpoint(job: &mut ClusterJob<'_>) -> Result<(), Failure> {
    job.wait_for_more_checkpoints(1, LIMIT).map(drop)
}

fn again(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let script = "ckptd rsh node3 orphan daemon 7700 0 10000 0 & \
                  orphan peer 7700 0 10000 node3 || exit 1; wait";
    let mut job = start(&ckptd, "orphans", &["--daemons", "fallback"], &["bash", "-c", script])?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    next_checkpoint(&mut job)?;
    // On node1 is the peer.
    let child = job.status()?.machines_of("node3", "orphan");
    check(child.iter().eq(["node2"]), || format!("the child is on {child:?}"))?;
    for (rollbacks, node) in [(2, 2), (3, 1)] {
        ckptd.kill_agent(node)?;
        ckptd.start_agent(node)?;
        job.wait_for_rollback(rollbacks, LIMIT)?;
        next_checkpoint(&mut job)?;
    }
    ckptd.kill_node(2)?;
    job.wait_for_rollback(4, LIMIT)?;
    end(&ckptd)?;
    job.must_end_with("orphan: right", JOB_LIMIT)?;
    for line in ["orphan: peer is right", "orphan: right on standard error"] {
        let times = job.output().lines().filter(|written| *written == line).count();
        check(times == 1, || explained(&job, &format!("the job said \"{line}\" {times} times")))?;
    }
    check(job.errors().contains(OVER), || explained(&job, "nothing tells of the end"))
}

fn silence(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    // The shell in front keeps node1 in the job; it waits for a daemon that never comes back.
    let script = |port: u32, status: u32| {
        format!(
            "ckptd rsh node3 orphan daemon {port} 900 10000 {status} & \
             orphan peer {port} 900 10000 node3 || exit 1; wait"
        )
    };
    let options = ["--daemons", "fallback"];
    let (good, bad) = (script(7700, 0), script(7710, 3));
    let mut good = start(&ckptd, "good", &options, &["bash", "-c", &good])?;
    let mut bad = start(&ckptd, "bad", &options, &["bash", "-c", &bad])?;
    ckptd.kill_node(3)?;
    good.wait_for_rollback(1, LIMIT)?;
    good.must_end_with("orphan: right", JOB_LIMIT)?;
    let also = ["orphan: peer is right", "orphan: right on standard error"];
    for line in also {
        check(good.output().lines().any(|written| written == line), || {
            explained(&good, &format!("the job never said \"{line}\""))
        })?;
    }
    check(good.errors().contains(OVER), || explained(&good, "nothing tells of the end"))?;
    let status = bad.wait(JOB_LIMIT)?;
    check(status == 3 && bad.errors().contains("ended with status 3"), || {
        explained(&bad, &format!("a child's failure came out as {status}"))
    })
}

fn explained(job: &ClusterJob<'_>, text: &str) -> String {
    job.explain(&Failure(text.to_owned())).0
}
