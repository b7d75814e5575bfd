//! What phones do: their batteries run low, and they sleep.

use std::time::{Duration, Instant};

use super::stage::{JOB_LIMIT, LIMIT, Stage, start};
use super::{Case, check, open_mpi};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::job::ClusterJob;
use crate::cluster::until;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "battery-low",
        about: "a battery falls below the threshold: the node announces its departure, nothing is lost",
        run: battery_low,
    },
    Case {
        name: "apps",
        about: "nodes and jobs in the sandbox of Android's apps: TCP connections between them, one is lost",
        run: apps,
    },
    Case {
        name: "short-sleep",
        about: "a node whose processes all stand still for less than the grace is not gone",
        run: short_sleep,
    },
    Case {
        name: "new-address",
        about: "the address of a machine changes in the middle, then another's: the job goes back and on, on all of them",
        run: new_address,
    },
    Case {
        name: "new-address-of-the-first",
        about: "the address of the machine changes that the job was started on",
        run: new_address_of_the_first,
    },
];

/// Three processes in a ring of TCP connections, one a node, for some 10 s.
const RING: &str = "pids=; for n in 0 1 2; do \
     ckptd rsh node$((n + 1)) ring $n 7500 700 10000 node1 node2 node3 & pids=\"$pids $!\"; done; \
     for pid in $pids; do wait $pid || exit 1; done; echo the ring: right";

/// The same where a shell cannot know its children by their numbers after a restart.
const RING_OF_APPS: &str = "for n in 1 2; do \
     ckptd rsh node$((n + 1)) ring $n 7500 700 10000 node1 node2 node3 & done; \
     exec ring 0 7500 700 10000 node1 node2 node3";

fn ring(ckptd: &Ckptd) -> Result<ClusterJob<'_>, Failure> {
    start(ckptd, "ring", &[], &["bash", "-c", RING])
}

/// Why the job was made anew, each time.
fn reasons(job: &ClusterJob<'_>) -> Result<Vec<String>, Failure> {
    Ok(job.status()?.rollbacks()?.into_iter().map(|rollback| rollback.reason).collect())
}

fn battery_low(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { leave_below: Some("15%"), ..Setup::new(3) })?;
    ckptd.battery(3, 14, "Charging")?;
    let mut job = ring(&ckptd)?;
    let shown = ckptd.coordinator_node().must_run(&["ckptd", "nodes"])?;
    check(shown.contains("14 % +"), || format!("no battery that is charged:\n{shown}"))?;
    // It stayed as long as it was charged.
    check(reasons(&job)?.is_empty() && ckptd.agent_runs(3)?, || ckptd.agent_errors(3))?;
    ckptd.battery(3, 14, "Discharging")?;
    let gone = until("the agent has ended", LIMIT, || Ok((!ckptd.agent_runs(3)?).then_some(())));
    gone.map_err(|failure| job.explain(&failure))?;
    ckptd.kill_node(3)?;
    job.must_end_with("the ring: right", JOB_LIMIT)?;
    let reasons = reasons(&job)?;
    check(reasons == ["leave"], || format!("made anew for {reasons:?}"))
}

fn apps(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { apps: true, ..Setup::new(3) })?;
    let mut job = start(&ckptd, "ring", &[], &["bash", "-c", RING_OF_APPS])?;
    ckptd.kill_node(3)?;
    job.must_end_with("ring: right", JOB_LIMIT)?;
    let reasons = reasons(&job)?;
    check(reasons == ["lost"], || format!("made anew for {reasons:?}"))
}

fn short_sleep(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { grace: 20, ..Setup::new(3) })?;
    let mut job = ring(&ckptd)?;
    // All but the node's init and the one that calls it.
    ckptd.node(3).must_run(&["sh", "-c", "kill -STOP -1"])?;
    std::thread::sleep(Duration::from_secs(3));
    ckptd.node(3).must_run(&["sh", "-c", "kill -CONT -1"])?;
    job.must_end_with("the ring: right", JOB_LIMIT)?;
    let reasons = reasons(&job)?;
    check(reasons.is_empty(), || format!("made anew for {reasons:?}"))
}

/// Gives a node another address, and waits until the job runs again, for the `nth` time.
fn move_address(
    ckptd: &Ckptd,
    job: &mut ClusterJob<'_>,
    node: usize,
    nth: usize,
) -> Result<(), Failure> {
    let began = Instant::now();
    let address = ckptd.node(node).change_address()?;
    job.wait_for_rollback(nth, LIMIT)?;
    println!("  goes on {:.1} s after the change", began.elapsed().as_secs_f64());
    let status = job.status()?;
    let rollbacks = status.rollbacks()?;
    let last = rollbacks.last().map(|rollback| rollback.reason.as_str());
    check(rollbacks.len() == nth && last == Some("address"), || {
        format!("made anew for {rollbacks:?}")
    })?;
    // Everybody is where he was.
    let moved = status.places().into_iter().find(|place| place.node != place.logical_node);
    check(moved.is_none(), || format!("{moved:?} is not at home\n{}", status.text()))?;
    let nodes = ckptd.coordinator_node().must_run(&["ckptd", "nodes", "--json"])?;
    check(nodes.contains(&address), || format!("no {address}:\n{nodes}"))
}

fn new_address(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = open_mpi::start(&ckptd, &[], "nqueens")?;
    for (nth, node) in [(1, 2), (2, 3), (3, 2)] {
        move_address(&ckptd, &mut job, node, nth)?;
        // The connections that were made again are checkpointed like any others.
        job.wait_for_more_checkpoints(2, LIMIT)?;
    }
    // And a machine may be lost whose address is another one than the job knows.
    ckptd.kill_node(2)?;
    job.wait_for_rollback(4, LIMIT)?;
    open_mpi::spread(&mut job, "node2", 2)?;
    open_mpi::finish(&ckptd, &mut job)
}

fn new_address_of_the_first(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = ckptd.run(2, "ring", &["--interval", "1"], &["bash", "-c", RING])?;
    job.wait_for_output("started", LIMIT)?;
    job.wait_for_more_checkpoints(2, LIMIT)?;
    move_address(&ckptd, &mut job, 2, 1)?;
    job.must_end_with("the ring: right", JOB_LIMIT)
}
