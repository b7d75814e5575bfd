//! How fast nodes are: found by the agents themselves, and followed by the jobs.

use serde_json::Value;

use super::moving::{in_order, moves, start};
use super::open_mpi::{ANSWER, END, finish};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::status::Status;
use crate::cluster::{Share, Spec, until};
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "speeds-found",
        about: "quotas of parts of a core are found, followed, and found by the clock where they can't be read",
        run: speeds_found,
    },
    Case {
        name: "speeds-slower",
        about: "a node whose quota falls loses a rank at the next checkpoint, and the job goes on",
        run: speeds_slower,
    },
    Case {
        name: "speeds-at-once",
        about: "with an hour from one checkpoint to the next, a node whose quota falls loses a rank within seconds",
        run: speeds_at_once,
    },
    Case {
        name: "weights",
        about: "ranks of weights 1, 1, 2, 4 on two nodes, of which one is lost: the heavy ones do not come together",
        run: weights,
    },
];

/// What `ckptd nodes --json` says of a node.
fn node(ckptd: &Ckptd, name: &str) -> Result<Value, Failure> {
    let text = ckptd.coordinator_node().must_run(&["ckptd", "nodes", "--json"])?;
    let all: Vec<Value> =
        serde_json::from_str(&text).map_err(|e| Failure(format!("{e}: {text}")))?;
    let found = all.into_iter().find(|node| node["name"] == name);
    found.ok_or_else(|| Failure(format!("no {name} in {text}")))
}

fn capacity(node: &Value) -> f64 {
    node["capacity"].as_f64().unwrap_or(f64::NAN)
}

fn speeds_found(stage: &Stage) -> Result<(), Failure> {
    let shares = [(1, 0.3), (2, 0.6), (3, 0.4)].map(|(node, cores)| (node, Share::of(cores)));
    let spec = Spec { shares: shares.into(), ..Spec::new(3) };
    let ckptd = stage.cluster_of(Setup { spec, agents: 2, speed: None, ..Setup::new(3) })?;
    for (name, cores) in [("node1", 0.3), ("node2", 0.6)] {
        let found = node(&ckptd, name)?;
        let right = (capacity(&found) - cores).abs() < 0.01 && found["speed_from"] == "measured";
        check(right, || format!("{cores} cores: {found}"))?;
        check(found["speed"].as_f64().is_some_and(|speed| speed > 0.0), || found.to_string())?;
    }
    ckptd.node(2).set_cores(0.2)?;
    until("the new quota is seen", LIMIT, || {
        Ok(((capacity(&node(&ckptd, "node2")?) - 0.2).abs() < 0.01).then_some(()))
    })?;
    let shown = ckptd.coordinator_node().must_run(&["ckptd", "nodes"])?;
    check(shown.contains("0.20") && shown.contains("measured"), || shown.clone())?;
    // A node that does not show its quotas.
    ckptd.node(3).must_run(&["mount", "-t", "tmpfs", "none", "/sys/fs/cgroup"])?;
    let token = ckptd.new_token(&["--uses", "1"])?;
    let agent = ckptd.join(3, &token, "node3")?;
    let found = until("node3 is there", LIMIT, || Ok(node(&ckptd, "node3").ok()));
    let found = found.map_err(|failure| agent.explain(&failure))?;
    // On a machine that is busy, less than its quota.
    check((0.02..0.6).contains(&capacity(&found)), || found.to_string())
}

fn speeds_slower(stage: &Stage) -> Result<(), Failure> {
    let spec = Spec { cores: Some(1.0), ..Spec::new(3) };
    let ckptd = stage.cluster_of(Setup { spec, ..Setup::new(3) })?;
    let mut job = start(&ckptd, &["--interval", "1"])?;
    job.wait_for_checkpoint(2, LIMIT)?;
    moves(&job, "speed", 0)?;
    ckptd.node(2).set_cores(0.4)?;
    job.wait_for_rollback(1, LIMIT)?;
    let status = job.status()?;
    let spread = status.spread_of("nqueens");
    check(spread.get("node2") == Some(&1), || format!("{spread:?}\n{}", status.text()))?;
    check(job.errors().contains("node2 is 0.40 times as fast as it was"), || job.errors())?;
    let newest = status.newest_checkpoint().unwrap_or(0);
    job.wait_for_checkpoint(newest + 2, LIMIT)?;
    // Nor does it go to and fro.
    moves(&job, "speed", 1)?;
    finish(&ckptd, &mut job)?;
    in_order(&job)?;
    check(job.output().contains(ANSWER), || job.output())
}

/// Half a minute from one checkpoint to the next, or here an hour, is not what a slow machine holds all others back for.
fn speeds_at_once(stage: &Stage) -> Result<(), Failure> {
    let spec = Spec { cores: Some(1.0), ..Spec::new(3) };
    let ckptd = stage.cluster_of(Setup { spec, ..Setup::new(3) })?;
    let mut job = start(&ckptd, &["--interval", "3600"])?;
    job.checkpoint()?;
    ckptd.node(2).set_cores(0.4)?;
    job.wait_for_rollback(1, LIMIT)?;
    let status = job.status()?;
    let spread = status.spread_of("nqueens");
    check(spread.get("node2") == Some(&1), || format!("{spread:?}\n{}", status.text()))?;
    moves(&job, "speed", 1)?;
    finish(&ckptd, &mut job)?;
    in_order(&job)?;
    check(job.output().contains(ANSWER), || job.output())
}

/// The ranks of a logical node by their numbers, as they were started: what each has to do, and where it is.
fn ranks(status: &Status, logical_node: &str) -> Vec<(Option<f64>, String)> {
    let places = status.places().into_iter();
    let mut ranks: Vec<_> =
        places.filter(|at| at.logical_node == logical_node && at.process == "nqueens").collect();
    ranks.sort_by_key(|place| place.pid);
    ranks.into_iter().map(|place| (place.work, place.node)).collect()
}

fn weights(stage: &Stage) -> Result<(), Failure> {
    // As much of a core each: two light ranks and the middle one have as much to do as the heavy one.
    let spec = Spec { cores: Some(0.5), ..Spec::new(3) };
    let ckptd = stage.cluster_of(Setup { spec, ..Setup::new(3) })?;
    let mpi = ["mpirun.openmpi", "-np", "4", "--mca", "mpi_yield_when_idle", "1"];
    let program = ["nqueens", "13", "--weights", "1,1,2,4", "--until", END];
    let command = [&mpi[..], &program].concat();
    let mut job = ckptd.run(1, "queens", &["--interval", "1"], &command)?;
    job.wait_for_output("rank 1 of 4 on node1", LIMIT)?;
    job.wait_for_output("rank 3 of 4 on node2", LIMIT)?;
    job.wait_for("the heavy rank is found", JOB_LIMIT, |status| {
        let figures = |node: &str| -> Option<Vec<f64>> {
            ranks(status, node).into_iter().map(|(work, _)| work).collect()
        };
        let (light, heavy) = (figures("node1")?, figures("node2")?);
        let ([first, second], [middle, heaviest]) = (&light[..], &heavy[..]) else { return None };
        [first, second, middle].into_iter().all(|other| other < heaviest).then_some(())
    })?;
    let shown = ckptd.coordinator_node().must_run(&["ckptd", "status", "queens"])?;
    check(shown.contains("learned over"), || shown.clone())?;
    ckptd.kill_node(2)?;
    job.wait_for_rollback(1, LIMIT)?;
    let status = job.status()?;
    let nodes: Vec<String> = ["node1", "node2"]
        .into_iter()
        .flat_map(|node| ranks(&status, node))
        .map(|(_, node)| node)
        .collect();
    check(nodes == ["node1", "node1", "node1", "node3"], || {
        format!("ranks are on {nodes:?}\n{}", status.text())
    })?;
    finish(&ckptd, &mut job)
}
