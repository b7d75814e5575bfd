//! The coordinator's machine is lost, and another coordinator carries on from a copy of its log.

use std::time::Duration;

use super::open_mpi::{ANSWER, end, start};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::Ckptd;
use crate::cluster::until;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[Case {
    name: "coordinator-lost",
    about: "the coordinator's machine is lost, another carries on; the lost one comes back and ends; a node \
            is lost after that",
    run: coordinator_lost,
}];

/// `ckptd coordinator --recover` on a node, which must be refused with this word.
fn refused(ckptd: &Ckptd, number: usize, word: &str) -> Result<(), Failure> {
    let words = ["coordinator", "--listen", "127.0.0.1:0", "--recover"];
    let output = ckptd.ckptd(number, &words)?;
    check(output.status == 125 && output.stderr.contains(word), || {
        format!("status {}, said {:?} and not {word:?}", output.status, output.stderr)
    })
}

fn coordinator_lost(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    refused(&ckptd, 2, "still answers")?;
    let before = job.status()?.newest_checkpoint().unwrap_or(0);
    // Whatever it decided is at some agent; it has no disk that anybody can reach, and no clock that
    // anybody hears.
    ckptd.node(0).cut()?;
    let mut lost = ckptd.recover_coordinator(2)?;
    let explain = |failure: Failure| ckptd.explain(&lost_said(&failure, &lost));
    ckptd.wait_for_members(&[1, 2, 3]).map_err(explain)?;
    let status = job.status()?;
    check(status.newest_checkpoint() >= Some(before), || {
        format!("checkpoint {before} was lost: {}", status.text())
    })?;
    let rollbacks = status.rollbacks()?;
    check(rollbacks.is_empty(), || format!("the job was rolled back: {rollbacks:?}"))?;
    job.wait_for_checkpoint(before + 2, LIMIT).map_err(explain)?;

    // The lost one's machine is there again.
    ckptd.node(0).heal()?;
    let status = until("the lost coordinator ends", LIMIT, || lost.ended())?;
    let said = lost.errors();
    check(status == 125 && said.contains("another coordinator carries on, of term 2"), || {
        format!("the lost coordinator ended with {status}, said {said:?}")
    })?;
    let again = ckptd.ckptd(0, &["coordinator"])?;
    check(again.status == 125 && again.stderr.contains("term 2"), || {
        format!("it begins again: {} {:?}", again.status, again.stderr)
    })?;

    // From now on the job is not only watched.
    job.launcher().kill();
    let mut attached = ckptd.node(2).spawn(&["ckptd", "attach", "queens"], &[])?;
    ckptd.kill_node(3)?;
    let back = until("the job is rolled back", LIMIT, || {
        Ok((job.status()?.completed_rollbacks() >= 1).then_some(()))
    });
    back.map_err(|failure| ckptd.explain(&failure))?;
    // Those who wrote what is attached to have been told.
    std::thread::sleep(Duration::from_millis(200));
    end(&ckptd)?;
    let status = attached.wait(JOB_LIMIT).map_err(|failure| ckptd.explain(&failure))?;
    let output = attached.output().replace("\r\n", "\n");
    check(status == 0 && output.lines().any(|line| line == ANSWER), || {
        attached.explain(&Failure(format!("attach ended with {status}"))).0
    })
}

fn lost_said(failure: &Failure, lost: &crate::cluster::Background) -> Failure {
    lost.explain(failure)
}
