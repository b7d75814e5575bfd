//! The cluster gets a new certificate authority.

use super::open_mpi::{ANSWER, end, start};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::until;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[Case {
    name: "authority-exchanged",
    about: "the cluster gets a new certificate authority under a job: members renew, one that slept later, one that was \
            turned out never",
    run: exchanged,
}];

/// Certificates in a file.
fn certificates(ckptd: &Ckptd, number: usize, file: &str) -> Result<usize, Failure> {
    let path = ckptd.node(number).disk().join("home/ckptd").join(file);
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Failure(format!("read {}: {error}", path.display())))?;
    Ok(text.matches("BEGIN CERTIFICATE").count())
}

fn exchanged(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { agents: 3, ..Setup::new(5) })?;
    let invited = ckptd.new_token(&["--uses", "2"])?;
    let agent = |number: usize| ckptd.join(number, &invited, &ckptd.node(number).name());
    let asleep = [agent(4)?, agent(5)?];
    ckptd.wait_for_members(&[4, 5])?;
    drop(asleep);
    for number in [4, 5] {
        ckptd.wait_until_gone(number, LIMIT)?;
    }
    let mut job = start(&ckptd, &[], "nqueens")?;
    ckptd.coordinator_node().must_run(&["ckptd", "nodes", "--remove", "node5"])?;
    let token = ckptd.new_token(&[])?;
    let denied = ckptd.ckptd(0, &["coordinator", "--rotate"])?;
    check(denied.status == 125 && denied.stderr.contains("another coordinator runs"), || {
        format!("under a coordinator that runs: {denied:?}")
    })?;

    ckptd.kill_coordinator()?;
    let done = ckptd.ckptd(0, &["coordinator", "--rotate"])?;
    check(done.status == 0 && done.stdout.contains("its 4 members get new certificates"), || {
        format!("{done:?}")
    })?;
    ckptd.start_coordinator()?;
    ckptd.wait_for_members(&[1, 2, 3])?;
    for number in 1..=3 {
        let count = certificates(&ckptd, number, "identity/cert.pem")?;
        check(count == 2, || format!("node{number} has {count} certificates"))?;
    }
    job.wait_for_more_checkpoints(2, LIMIT)?;
    let rollbacks = job.status()?.rollbacks()?;
    check(rollbacks.is_empty(), || format!("the job was rolled back: {rollbacks:?}"))?;
    let join = ["agent", "--dir", "/tmp/late", "--join", &token, "--name", "late"];
    let late = ckptd.ckptd(4, &join)?;
    check(late.status == 125, || format!("with a token of before: {late:?}"))?;

    // The old one is kept for those who sleep.
    let kept = certificates(&ckptd, 0, "coordinator/authority.pem")?;
    check(kept == 2, || format!("{kept} authorities are kept for the one that sleeps"))?;
    let mut turned_out = agent(5)?;
    let status = turned_out.wait(LIMIT)?;
    check(status == 125 && turned_out.errors().contains("revoked"), || {
        turned_out.explain(&Failure(format!("node5's agent ended with {status}"))).0
    })?;
    let _awake = agent(4)?;
    ckptd.wait_for_members(&[1, 2, 3, 4])?;
    let kept = certificates(&ckptd, 0, "coordinator/authority.pem")?;
    check(kept == 1, || format!("{kept} authorities, though nobody needs the old one"))?;
    // Images move, by grants that the new authority's coordinator has sealed.
    ckptd.kill_node(3)?;
    let back = until("the job is rolled back", LIMIT, || {
        Ok((job.status()?.completed_rollbacks() >= 1).then_some(()))
    });
    back.map_err(|failure| ckptd.explain(&failure))?;
    // Members that start again show the token of before, as their unit has it.
    ckptd.kill_agent(2)?;
    ckptd.start_agent(2)?;
    ckptd.wait_for_members(&[1, 2, 4])?;
    end(&ckptd)?;
    job.must_end_with(ANSWER, JOB_LIMIT)
}
