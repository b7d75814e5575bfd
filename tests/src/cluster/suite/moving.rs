//! Announced departures and newcomers: the job stands still for a moment and goes on elsewhere, and nothing it has done
//! is lost or done twice.

use std::collections::BTreeSet;
use std::time::Duration;

use super::open_mpi::{ANSWER, end, finish};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::job::ClusterJob;
use crate::cluster::until;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "leave-several",
        about: "mpirun's machine and another one leave at once; the last one may not",
        run: leave_several,
    },
    Case {
        name: "leave-copies",
        about: "a machine that holds only copies goes when another one has them",
        run: leave_copies,
    },
    Case {
        name: "leave-cut",
        about: "the coordinator is killed in the middle of a leave, a machine in the middle of its own",
        run: leave_cut,
    },
    Case {
        name: "join",
        about: "a third machine joins: ranks move there, and the job goes on where it stood",
        run: join,
    },
    Case {
        name: "leave-ahead",
        about: "what a leaving machine holds is sent ahead while the job runs, and the job moves then",
        run: leave_ahead,
    },
    Case {
        name: "join-ahead",
        about: "a machine that joins fetches its share ahead, and gets it then",
        run: join_ahead,
    },
];

const END: &str = "/mnt/shared/end";

/// Starts six ranks that tell every step of their way.
pub(super) fn start<'a>(ckptd: &'a Ckptd, options: &[&str]) -> Result<ClusterJob<'a>, Failure> {
    start_with(ckptd, options, "4")
}

/// The same, with so many MiB of memory each.
fn start_with<'a>(
    ckptd: &'a Ckptd,
    options: &[&str],
    ballast: &str,
) -> Result<ClusterJob<'a>, Failure> {
    let command = [
        "mpirun.openmpi",
        "-np",
        "6",
        "--oversubscribe",
        "--mca",
        "mpi_yield_when_idle",
        "1",
        "nqueens",
        "13",
        "--ballast",
        ballast,
        "--chat",
        "40",
        "--progress",
        "--until",
        END,
    ];
    // On the coordinator's machine, which stays.
    let mut job = ckptd.run(0, "queens", options, &command)?;
    job.wait_for_output("round 0", LIMIT)?;
    Ok(job)
}

/// Every line of the job's progress, in order, none twice, none left out.
pub(super) fn in_order(job: &ClusterJob<'_>) -> Result<(), Failure> {
    let output = job.output();
    let mut expected: Option<(u64, u64)> = None;
    let mut step = None;
    for line in output.lines() {
        let Some(rest) = line.strip_prefix("progress: ") else { continue };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let number = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok());
        let (Some(at), Some(of), Some(round)) = (number(0), number(2), number(5)) else {
            return Err(job.explain(&Failure(format!("odd line {line:?}"))));
        };
        if at > 0 && step.is_none() {
            step = Some(at);
        }
        check(expected.is_none_or(|expected| expected == (round, at)), || {
            job.explain(&Failure(format!("{line:?} came where {expected:?} was due"))).0
        })?;
        let next = step.map_or(at, |step| at + step);
        expected = match step {
            Some(_) if next >= of => Some((round + 1, 0)),
            Some(_) => Some((round, next)),
            None => None,
        };
    }
    check(expected.is_some(), || "the job has told nothing".to_owned())
}

pub(super) fn moves(job: &ClusterJob<'_>, reason: &str, number: usize) -> Result<(), Failure> {
    let reasons: Vec<String> =
        job.status()?.rollbacks()?.into_iter().map(|rollback| rollback.reason).collect();
    check(reasons.iter().all(|found| found == reason) && reasons.len() == number, || {
        let text = format!("the job was moved or rolled back for {reasons:?}");
        job.explain(&Failure(text)).0
    })
}

fn leave_several(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &["--interval", "0"])?;
    let mut left = ckptd.node(0).spawn(&["ckptd", "leave", "node1"], &[])?;
    let status = ckptd.end_agent(2, LIMIT)?;
    check(status == 0, || format!("the agent of node2 ended with {status}"))?;
    let status = left.wait(LIMIT)?;
    check(status == 0 && left.errors().contains("free to go"), || {
        left.explain(&Failure(format!("leave ended with {status}"))).0
    })?;
    ckptd.kill_node(1)?;
    ckptd.kill_node(2)?;
    moves(&job, "leave", 1)?;
    let spread = job.status()?.spread_of("nqueens");
    check(spread.len() == 1 && spread.get("node3") == Some(&6), || format!("{spread:?}"))?;
    // The last one has nobody to hand its work to.
    let refused = ckptd.ckptd(0, &["leave", "node3"])?;
    check(refused.status == 125 && refused.stderr.contains("no other machine"), || {
        format!("leave node3: {}: {}", refused.status, refused.stderr)
    })?;
    ckptd.tell_agent_to_end(3)?;
    until("the last agent says why it stays", LIMIT, || {
        Ok(ckptd.agent_errors(3).contains("no other machine").then_some(()))
    })?;
    check(ckptd.agent_runs(3)?, || "the last agent has gone".to_owned())?;
    finish(&ckptd, &mut job)?;
    in_order(&job)
}

fn leave_copies(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let script = format!("echo started; while [ ! -e {END} ]; do sleep 0.05; done; echo done");
    let mut job = ckptd.run(0, "waits", &["--interval", "0"], &["sh", "-c", &script])?;
    job.wait_for_output("started", LIMIT)?;
    job.checkpoint()?;
    let status = job.status()?;
    let held: BTreeSet<String> = status.holders().into_iter().flatten().collect();
    let home = status.places().first().map(|place| place.node.clone()).unwrap_or_default();
    let partner = held.iter().find(|node| **node != home).cloned();
    let partner = partner.ok_or_else(|| Failure(format!("held by {held:?} only")))?;
    let left = ckptd.ckptd(0, &["leave", &partner])?;
    check(left.status == 0, || format!("leave: {}", left.stderr))?;
    let held: BTreeSet<String> = job.status()?.holders().into_iter().flatten().collect();
    let others: Vec<&String> =
        held.iter().filter(|node| **node != home && **node != partner).collect();
    check(!others.is_empty(), || format!("{partner} has gone, its images are on {held:?}"))?;
    moves(&job, "leave", 0)?;
    let number = |node: &str| node.trim_start_matches("node").parse().unwrap_or(0);
    ckptd.kill_node(number(&partner))?;
    ckptd.kill_node(number(&home))?;
    job.wait_for_rollback(1, LIMIT)?;
    end(&ckptd)?;
    job.must_end_with("done", JOB_LIMIT)
}

fn leave_cut(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &["--interval", "1"])?;
    job.wait_for_checkpoint(1, LIMIT)?;
    ckptd.tell_agent_to_end(3)?;
    // In the checkpoint, or in the move: any moment will do.
    std::thread::sleep(Duration::from_millis(600));
    ckptd.kill_coordinator()?;
    ckptd.start_coordinator()?;
    let gone =
        until("the agent of node3 has ended", LIMIT, || Ok((!ckptd.agent_runs(3)?).then_some(())));
    gone.map_err(|failure| job.explain(&failure))?;
    let on = job.status()?.spread_of("nqueens");
    check(!on.contains_key("node3"), || format!("{on:?}"))?;
    ckptd.kill_node(3)?;
    let before = job.status()?.completed_rollbacks();
    let mut leave = ckptd.node(0).spawn(&["ckptd", "leave", "node2"], &[])?;
    // In the midst of its departure, whose steps leave shows only when all is done.
    std::thread::sleep(Duration::from_millis(400));
    ckptd.kill_node(2)?;
    let status = leave.wait(LIMIT)?;
    check(status == 125 && leave.errors().contains("node2"), || {
        leave.explain(&Failure(format!("leave ended with {status}"))).0
    })?;
    job.wait_for_rollback(before + 1, LIMIT)?;
    finish(&ckptd, &mut job)
}

fn join(stage: &Stage) -> Result<(), Failure> {
    let setup = Setup { agents: 2, ..Setup::new(3) };
    let ckptd = stage.cluster_of(setup)?;
    let mut job = start(&ckptd, &["--interval", "1"])?;
    job.wait_for_checkpoint(1, LIMIT)?;
    let token = ckptd.new_token(&["--uses", "1"])?;
    let agent = ckptd.join(3, &token, "node3")?;
    let moved = job.wait_for_rollback(1, LIMIT);
    moved.map_err(|failure| agent.explain(&failure))?;
    moves(&job, "join", 1)?;
    let status = job.status()?;
    let spread = status.spread_of("nqueens");
    check(spread.len() == 3 && spread.values().all(|count| *count == 2), || {
        format!("{spread:?}\n{}", status.text())
    })?;
    check(status.text().contains("node3 has joined"), || status.text())?;
    check(job.errors().contains("node3 has joined, 1.50 times as fast expected"), || job.errors())?;
    let newest = status.newest_checkpoint().unwrap_or(0);
    job.wait_for_checkpoint(newest + 2, LIMIT)?;
    finish(&ckptd, &mut job)?;
    moves(&job, "join", 1)?;
    in_order(&job)?;
    check(job.output().contains(ANSWER), || job.output())
}

/// What ranks have of memory where it is worth the while to send it ahead.
const BALLAST: &str = "24";

/// The coordinator's log tells that images were sent ahead, in so many rounds or more, and that none failed.
fn went_ahead(ckptd: &Ckptd, rounds: usize) -> Result<(), Failure> {
    let said = ckptd.coordinator_errors();
    let found = said.matches("images go ahead of its move").count();
    check(found >= rounds && !said.contains("did not arrive ahead"), || {
        format!("{found} rounds of images went ahead\n{said}")
    })
}

fn leave_ahead(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start_with(&ckptd, &["--interval", "0"], BALLAST)?;
    job.checkpoint()?;
    job.checkpoint()?;
    let left = ckptd.ckptd(0, &["leave", "node3"])?;
    check(
        left.status == 0 && left.stderr.contains("queens runs on while this goes ahead"),
        || format!("leave: {}: {}", left.status, left.stderr),
    )?;
    moves(&job, "leave", 1)?;
    went_ahead(&ckptd, 1)?;
    ckptd.kill_node(3)?;
    finish(&ckptd, &mut job)?;
    in_order(&job)
}

fn join_ahead(stage: &Stage) -> Result<(), Failure> {
    let setup = Setup { agents: 2, ..Setup::new(3) };
    let ckptd = stage.cluster_of(setup)?;
    let mut job = start_with(&ckptd, &["--interval", "2"], BALLAST)?;
    job.wait_for_checkpoint(3, LIMIT)?;
    let token = ckptd.new_token(&["--uses", "1"])?;
    let agent = ckptd.join(3, &token, "node3")?;
    let moved = job.wait_for_rollback(1, LIMIT);
    moved.map_err(|failure| agent.explain(&failure))?;
    moves(&job, "join", 1)?;
    went_ahead(&ckptd, 1)?;
    let spread = job.status()?.spread_of("nqueens");
    check(spread.get("node3").is_some_and(|count| *count > 0), || format!("{spread:?}"))?;
    finish(&ckptd, &mut job)?;
    in_order(&job)
}
