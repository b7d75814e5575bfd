//! Members that are drained for their maintenance, and used again.

use super::moving::{in_order, moves, start};
use super::open_mpi::{ANSWER, finish};
use super::stage::{LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::Ckptd;
use crate::cluster::until;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[Case {
    name: "drain",
    about: "a machine is drained in mid-run and runs nothing, through a restart of the coordinator, until it is uncordoned",
    run: drain,
}];

fn drain(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &["--interval", "1"])?;
    // Known from the first checkpoint that has them.
    job.wait_for("ranks are on node2", LIMIT, |status| {
        status.spread_of("nqueens").contains_key("node2").then_some(())
    })?;
    // Root of a member is no operator.
    let denied = ckptd.ckptd(1, &["drain", "node2"])?;
    check(denied.status == 125 && denied.stderr.contains("only an operator"), || denied.stderr)?;
    let drained = ckptd.ckptd(0, &["drain", "node2"])?;
    check(drained.status == 0 && drained.stderr.contains("nothing runs there"), || {
        format!("drain: {}: {}", drained.status, drained.stderr)
    })?;
    let left = ckptd.node(2).run(&["pgrep", "nqueens|orted"], &[])?;
    check(!left.stdout.contains('\n'), || format!("on node2 runs {}", left.stdout))?;
    job.wait_for_rollback(1, LIMIT)?;
    moves(&job, "drain", 1)?;
    let is_empty = |job: &crate::cluster::job::ClusterJob<'_>| -> Result<(), Failure> {
        let places = job.status()?.places();
        check(places.iter().all(|place| place.node != "node2"), || format!("{places:?}"))
    };
    is_empty(&job)?;
    check(ckptd.agent_runs(2)?, || "the agent has gone".to_owned())?;

    // It stays so when the coordinator is started again, and for a job that comes.
    ckptd.kill_coordinator()?;
    ckptd.start_coordinator()?;
    ckptd.wait_for_members(&[1, 3])?;
    let drained =
        || Ok((ckptd.members()?.get("node2").is_some_and(|s| s == "drained")).then_some(()));
    until("node2 is told to be drained", LIMIT, drained)?;
    let status = ckptd.coordinator_node().must_run(&["ckptd", "status", "queens"])?;
    check(
        status.lines().any(|line| line.starts_with("drained") && line.contains("node2")),
        || status,
    )?;
    let other = ckptd.ckptd(2, &["run", "--interval", "0", "--", "uname", "-n"])?;
    check(other.status == 0 && other.stdout.trim() != "node2", || format!("{other:?}"))?;
    // That is said of jobs of the cluster; what is for this machine alone is its user's.
    let local = ckptd.ckptd(2, &["run", "--local", "--interval", "0", "--", "uname", "-n"])?;
    check(local.status == 0 && local.stdout.trim() == "node2", || format!("{local:?}"))?;
    job.wait_for_more_checkpoints(2, LIMIT)?;
    is_empty(&job)?;
    moves(&job, "drain", 1)?;

    stuck(&ckptd)?;
    is_empty(&job)?;
    moves(&job, "drain", 1)?;
    let again = ckptd.ckptd(0, &["uncordon", "node2"])?;
    check(again.status == 0, || format!("uncordon: {}", again.stderr))?;
    job.wait_for("processes are on node2 again", LIMIT, |status| {
        status.spread_of("nqueens").contains_key("node2").then_some(())
    })?;
    let told = ckptd.coordinator_node().must_run(&["ckptd", "audit"])?;
    for order in ["drain", "uncordon"] {
        check(told.lines().any(|line| line.contains(order) && line.contains("node2")), || {
            told.clone()
        })?;
    }
    finish(&ckptd, &mut job)?;
    in_order(&job)?;
    check(job.output().contains(ANSWER), || job.output())
}

/// Without any other machine the job stays where it is, and status says what to do.
fn stuck(ckptd: &Ckptd) -> Result<(), Failure> {
    for node in ["node1", "node3"] {
        ckptd.coordinator_node().must_run(&["ckptd", "drain", "--no-wait", node])?;
    }
    until("status says that they can't be emptied", LIMIT, || {
        let text = ckptd.coordinator_node().must_run(&["ckptd", "status"])?;
        let told = |node: &str| {
            let line = format!("{node} can't be emptied yet: no other machine is there");
            text.lines().any(|one| one.starts_with("attention") && one.contains(&line))
        };
        Ok((told("node1") && told("node3")).then_some(()))
    })?;
    for node in ["node1", "node3"] {
        ckptd.coordinator_node().must_run(&["ckptd", "uncordon", node])?;
    }
    until("nothing needs attention", LIMIT, || {
        let text = ckptd.coordinator_node().must_run(&["ckptd", "status"])?;
        Ok((!text.contains("can't be emptied")).then_some(()))
    })
}
