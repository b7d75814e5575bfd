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
        name: "disks-full-away",
        about: "an agent's disk stays full: its part of checkpoints is kept by a partner, from which the job goes on when that node is lost",
        run: away,
    },
    Case {
        name: "disks-full-moves",
        about: "an agent's disk stays full for a minute: the job moves to the other nodes, and nothing of it is lost",
        run: moves,
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
/// For how long a disk is full before jobs move away from it.
const STAYS_FULL: Duration = Duration::from_secs(60);

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

/// The images of the newest checkpoint that this node holds, and those that one node alone holds.
fn held(job: &ClusterJob<'_>, node: &str) -> Result<(usize, usize), Failure> {
    let holders = job.status()?.holders();
    let here = holders.iter().filter(|names| names.contains(node)).count();
    Ok((here, holders.iter().filter(|names| names.len() == 1).count()))
}

/// The checkpoint from which the job went on last, as its launcher was told.
fn went_on_from(said: &str) -> Option<u64> {
    let (_, number) = said.rsplit_once("goes on from checkpoint ")?;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn away(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup::new(3))?;
    let node = ckptd.node(3);
    ckptd.kill_agent(3)?;
    small(node, AGENT)?;
    ckptd.start_agent(3)?;
    ckptd.wait_for_members(&[1, 2, 3])?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    check(held(&job, "node3")?.0 > 0, || "node3 holds nothing".to_owned())?;

    fill(node, AGENT)?;
    told(&ckptd, "the disk of node3 is", true)?;
    // One may be under way, or be the last that fails.
    job.wait_for_more_checkpoints(3, LIMIT)?;
    stays(&job)?;
    told(&ckptd, "the disk of node3 is", true)?;
    let (here, alone) = held(&job, "node3")?;
    check(alone >= 1, || format!("no image is with a partner alone: {here} on node3"))?;
    let said = job.errors();
    check(said.contains("there is no room on node3"), || format!("not told: {said}"))?;

    make_room(node, AGENT)?;
    told(&ckptd, "the disk of node3 is", false)?;
    job.wait_for_more_checkpoints(3, LIMIT)?;
    let (here, alone) = held(&job, "node3")?;
    check(here >= 1 && alone == 0, || format!("{here} images on node3, {alone} alone"))?;

    fill(node, AGENT)?;
    told(&ckptd, "the disk of node3 is", true)?;
    job.wait_for_more_checkpoints(3, LIMIT)?;
    let (_, alone) = held(&job, "node3")?;
    check(alone >= 1, || "no image is with a partner alone".to_owned())?;
    let newest = job.checkpoint()?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    let from = went_on_from(&job.errors());
    check(from >= Some(newest), || format!("back to {from:?}, and {newest} was there"))?;
    job.wait_for_more_checkpoints(1, LIMIT)?;
    finish(&ckptd, &mut job)
}

fn moves(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup::new(3))?;
    let node = ckptd.node(3);
    ckptd.kill_agent(3)?;
    small(node, AGENT)?;
    ckptd.start_agent(3)?;
    ckptd.wait_for_members(&[1, 2, 3])?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    fill(node, AGENT)?;
    told(&ckptd, "the disk of node3 is", true)?;
    job.wait_for_rollback(1, STAYS_FULL + 2 * LIMIT)?;
    let status = job.status()?;
    let reasons: Vec<String> =
        status.rollbacks()?.into_iter().map(|rollback| rollback.reason).collect();
    check(reasons == ["full"], || format!("it was moved for {reasons:?}"))?;
    let left = status.places().into_iter().filter(|place| place.node == "node3").count();
    check(left == 0, || format!("{left} processes are on node3: {}", status.text()))?;
    job.wait_for_more_checkpoints(2, LIMIT)?;
    let (here, alone) = held(&job, "node3")?;
    check((here, alone) == (0, 0), || format!("{here} images on node3, {alone} alone"))?;
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
