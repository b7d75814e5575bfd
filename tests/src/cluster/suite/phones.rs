//! What phones do: their batteries run low, and they sleep.

use std::time::Duration;

use super::stage::{JOB_LIMIT, LIMIT, Stage, start};
use super::{Case, check};
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
        name: "short-sleep",
        about: "a node whose processes all stand still for less than the grace is not gone",
        run: short_sleep,
    },
];

/// Three processes in a ring of TCP connections, one a node, for some 10 s.
fn ring(ckptd: &Ckptd) -> Result<ClusterJob<'_>, Failure> {
    let script = "pids=; for n in 0 1 2; do \
         ckptd rsh node$((n + 1)) ring $n 7500 700 10000 node1 node2 node3 & pids=\"$pids $!\"; done; \
         for pid in $pids; do wait $pid || exit 1; done; echo the ring: right";
    start(ckptd, "ring", &[], &["bash", "-c", script])
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
