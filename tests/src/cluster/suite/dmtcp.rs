//! DMTCP's processes on a cluster: their agents keep the images, and what is lost goes on elsewhere. The workers are stand-ins
//! for DMTCP's, which `tests/dmtcp` tries where it is installed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::stage::{LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, DMTCP_PORT, Setup};
use crate::cluster::{HOME, failure, until};
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[Case {
    name: "dmtcp-node-killed",
    about: "a node with a process of DMTCP is lost: all go back, and its process goes on where the copy of its image is",
    run: node_killed,
}];

/// The stand-in under DMTCP's names, and ckptd under that of dmtcp_command.
fn install(stage: &Stage, ckptd: &Ckptd) -> Result<(), Failure> {
    let shared = ckptd.cluster().folder().join("shared");
    let worker = stage.program("dmtcpworker")?;
    for name in ["dmtcp_launch", "dmtcp_restart"] {
        fs::copy(worker, shared.join(name)).map_err(failure("share the stand-in"))?;
    }
    symlink("ckptd", shared.join("dmtcp_command")).map_err(failure("link to ckptd"))
}

fn command(ckptd: &Ckptd, order: &str) -> Result<String, Failure> {
    let node = ckptd.coordinator_node();
    node.must_run(&["dmtcp_command", "-h", &node.address(), "-p", DMTCP_PORT, order])
}

fn runs(ckptd: &Ckptd, processes: usize) -> Result<(), Failure> {
    let wanted = format!("NUM_PEERS={processes}\n  RUNNING=yes");
    until(&format!("{processes} processes run"), LIMIT, || {
        Ok(command(ckptd, "-s")?.contains(&wanted).then_some(()))
    })
}

/// How far the worker on a node has come, as it tells there.
fn count(home: &Path) -> u32 {
    let text = fs::read_to_string(home.join("out")).unwrap_or_default();
    let last = text.lines().last().and_then(|line| line.split(' ').nth(1));
    last.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn node_killed(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { dmtcp: true, ..Setup::new(3) })?;
    install(stage, &ckptd)?;
    lose_one(&ckptd).map_err(|failure| ckptd.explain(&failure))
}

/// The checkpoint is in the list like those of other jobs.
fn listed(ckptd: &Ckptd) -> Result<(), Failure> {
    let text = ckptd.coordinator_node().must_run(&["ckptd", "ls", "--json"])?;
    let jobs: serde_json::Value =
        serde_json::from_str(&text).map_err(failure("read what ls --json says"))?;
    let job = jobs.as_array().into_iter().flatten().find(|job| job["name"] == "worker-1");
    let right = |job: &serde_json::Value| {
        job["engine"] == "dmtcp" && job["checkpoints"][0]["checkpoint"] == 1
    };
    check(job.is_some_and(right), || format!("ls --json does not have the checkpoint:\n{text}"))
}

fn lose_one(ckptd: &Ckptd) -> Result<(), Failure> {
    let host = ckptd.coordinator_node().address();
    let home = |number: usize| ckptd.node(number).disk().join("home");
    let (folder, out) = (format!("{HOME}/images"), format!("{HOME}/out"));
    let mut workers = Vec::new();
    for number in [1, 2] {
        ckptd.node(number).must_run(&["mkdir", &folder])?;
        let words = ["dmtcp_launch", "--coord-host", &host, "--coord-port", DMTCP_PORT];
        let words = [&words[..], &["--ckptdir", &folder, &out]].concat();
        workers.push(ckptd.node(number).spawn(&words, &[])?);
    }
    runs(ckptd, 2)?;
    let counted = |number: usize, least: u32| {
        until(&format!("the worker counts on node{number}"), LIMIT, || {
            Ok((count(&home(number)) > least).then_some(()))
        })
    };
    counted(1, 2)?;
    counted(2, 2)?;
    command(ckptd, "-bc")?;
    let saved = count(&home(2));
    let told = ckptd.coordinator_node().must_run(&["ckptd", "verify", "worker-1"])?;
    check(
        told.contains("agents of node1, node2") && told.contains("agents of node2, node3"),
        || format!("verify does not say who keeps the images:\n{told}"),
    )?;
    listed(ckptd)?;
    ckptd.kill_node(2)?;
    // Its image is on the node after it.
    counted(3, saved.saturating_sub(2))?;
    runs(ckptd, 2)?;
    let first = fs::read_to_string(home(3).join("out")).unwrap_or_default();
    let first = first.lines().next().unwrap_or_default().to_owned();
    let began: u32 = first.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    check(first.starts_with("node3 ") && (2..=saved + 1).contains(&began), || {
        format!("the worker begins with {first:?} on node3; it was at {saved} after its checkpoint")
    })?;
    // What is restarted is checkpointed like any other.
    command(ckptd, "-bc")?;
    command(ckptd, "-k").map(drop)
}
