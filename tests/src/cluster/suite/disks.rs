//! Disks that are really full: an agent's, then the coordinator's.

use std::time::Duration;

use super::open_mpi::{finish, start};
use super::stage::{LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::job::ClusterJob;
use crate::cluster::{Node, until};
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "disks-full",
        about: "an agent's disk and the coordinator's are filled to the last byte: the job goes on, and with room so do checkpoints",
        run: full,
    },
    Case {
        name: "disks-full-loss",
        about: "a node is lost while the coordinator can write nothing: it ends if it must, and with room the ranks go on elsewhere",
        run: loss,
    },
];

/// The agent's folder, and with it the coordinator's where there is one.
const AGENT: &str = "$CKPTD_DIR";
const COORDINATOR: &str = "$CKPTD_DIR/coordinator";
/// For how long a disk stays full: several checkpoints would have been taken.
const FULL_FOR: Duration = Duration::from_secs(6);

/// Puts a folder on a disk of its own, of 700 MB, with what is in it.
fn small(node: &Node, folder: &str) -> Result<(), Failure> {
    let script = format!(
        "set -e; mkdir -p {folder}; cp -a {folder} /tmp/kept; mount -t tmpfs -o size=700M,mode=755 small {folder}; \
         cp -a /tmp/kept/. {folder}/; rm -rf /tmp/kept"
    );
    node.must_run(&["sh", "-c", &script]).map(drop)
}

/// Fills the disk of a folder until nothing more fits.
fn fill(node: &Node, folder: &str) -> Result<(), Failure> {
    let script = format!("head -c 2G /dev/zero > {folder}/filling; echo x >> {folder}/filling");
    let said = node.run(&["sh", "-c", &script], &[])?;
    check(said.status != 0 && said.stderr.contains("No space left"), || said.stderr.clone())
}

fn make_room(node: &Node, folder: &str) -> Result<(), Failure> {
    node.must_run(&["sh", "-c", &format!("rm {folder}/filling")]).map(drop)
}

/// Waits until `ckptd status` tells that a disk is full, or does not any more.
fn told(ckptd: &Ckptd, whose: &str, is_told: bool) -> Result<(), Failure> {
    until(&format!("{whose} full: {is_told}"), LIMIT, || {
        let said = ckptd.coordinator_node().must_run(&["ckptd", "status", "--json"])?;
        let found = said.contains(&format!("{whose} full"));
        Ok((found == is_told).then_some(()))
    })
}

/// The job's processes stay, and none of them is taken back to an earlier checkpoint.
fn stays(job: &ClusterJob<'_>) -> Result<(), Failure> {
    let status = job.status()?;
    let is_there = status.state() == "running" && status.rollbacks()?.is_empty();
    check(is_there, || format!("it is not as it was: {}", status.text()))
}

fn full(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup::new(3))?;
    let (head, node) = (ckptd.coordinator_node(), ckptd.node(3));
    ckptd.kill_coordinator()?;
    small(head, COORDINATOR)?;
    ckptd.start_coordinator()?;
    ckptd.kill_agent(3)?;
    small(node, AGENT)?;
    ckptd.start_agent(3)?;
    ckptd.wait_for_members(&[1, 2, 3])?;
    let mut job = start(&ckptd, &[], "nqueens")?;

    fill(node, AGENT)?;
    told(&ckptd, "the disk of node3 is", true)?;
    std::thread::sleep(FULL_FOR);
    stays(&job)?;
    make_room(node, AGENT)?;
    told(&ckptd, "the disk of node3 is", false)?;
    job.wait_for_more_checkpoints(2, LIMIT)?;
    stays(&job)?;

    fill(head, COORDINATOR)?;
    told(&ckptd, "the coordinator's disk is", true)?;
    std::thread::sleep(FULL_FOR);
    stays(&job)?;
    make_room(head, COORDINATOR)?;
    told(&ckptd, "the coordinator's disk is", false)?;
    job.wait_for_more_checkpoints(2, LIMIT)?;
    stays(&job)?;
    finish(&ckptd, &mut job)
}

fn loss(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup::new(3))?;
    let head = ckptd.coordinator_node();
    ckptd.kill_coordinator()?;
    small(head, COORDINATOR)?;
    ckptd.start_coordinator()?;
    ckptd.wait_for_members(&[1, 2, 3])?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    fill(head, COORDINATOR)?;
    ckptd.kill_node(3)?;
    // What it can't write down it does not do: it ends. A short entry may fit behind the log's end all the same.
    let ended = until("the coordinator ends, or the ranks go on", LIMIT, || {
        if ckptd.coordinator_errors().contains("started again") {
            return Ok(Some(true));
        }
        let goes_on = job.status().is_ok_and(|status| status.completed_rollbacks() > 0);
        Ok(goes_on.then_some(false))
    })?;
    eprintln!("disks-full-loss: the coordinator has ended: {ended}");
    make_room(head, COORDINATOR)?;
    if ended {
        ckptd.start_coordinator()?;
    }
    job.wait_for_rollback(1, LIMIT)?;
    job.wait_for_more_checkpoints(1, LIMIT)?;
    finish(&ckptd, &mut job)
}
