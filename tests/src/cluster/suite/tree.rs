//! Checkpoints whose steps agents pass on to each other.

use super::stage::{JOB_LIMIT, LIMIT, Stage, start};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[Case {
    name: "command-tree",
    about: "steps of checkpoints go from agent to agent; one is killed, and a node is lost",
    run: command_tree,
}];

/// How often an agent has connected to another one for the tree since it was started.
fn lines(ckptd: &Ckptd, from: usize, to: usize) -> usize {
    let errors = ckptd.agent_errors(from);
    let node = format!("node{to}");
    errors.lines().filter(|l| l.contains("command tree: connected") && l.contains(&node)).count()
}

fn command_tree(stage: &Stage) -> Result<(), Failure> {
    let mut setup = Setup::new(3);
    setup.tree_above = Some(0);
    let ckptd = stage.cluster_of(setup)?;
    let script = "pids=; for n in 0 1 2; do \
         ckptd rsh node$((n + 1)) ring $n 7501 1200 10000 node1 node2 node3 & pids=\"$pids $!\"; done; \
         for pid in $pids; do wait $pid || exit 1; done; echo the ring: right";
    let mut job = start(&ckptd, "tree", &[], &["bash", "-c", script])?;
    let made = [lines(&ckptd, 1, 2), lines(&ckptd, 1, 3)];
    check(made == [1, 1], || ckptd.explain(&Failure(format!("{made:?} lines from node1"))).0)?;
    // Its lines are gone with it: they are made again, once a checkpoint has done without.
    ckptd.kill_agent(2)?;
    ckptd.start_agent(2)?;
    ckptd.wait_for_members(&[1, 2, 3])?;
    job.wait_for_more_checkpoints(3, LIMIT)?;
    let made = lines(&ckptd, 1, 2);
    check(made >= 2, || ckptd.explain(&Failure(format!("{made} lines from node1 to node2"))).0)?;
    let rollbacks = job.status()?.rollbacks()?.len();
    ckptd.kill_node(3)?;
    job.wait_for_rollback(rollbacks + 1, LIMIT)?;
    job.must_end_with("the ring: right", JOB_LIMIT)
}
