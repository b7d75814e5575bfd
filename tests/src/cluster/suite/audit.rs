//! The log of who ordered what.

use super::stage::{LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::{CKPTD_DIR, Output, until};
use crate::job::Failure;

pub const CASES: &[Case] = &[Case {
    name: "audit",
    about: "orders and refusals are written down, through restarts, for operators to read; what is changed is found",
    run,
}];

const NOBODY: &str = "65534";

fn run(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { agents: 1, ..Setup::new(2) })?;
    let worker = ckptd.new_token(&["--role", "worker"])?;
    let _worker = ckptd.join(2, &worker, "node2")?;
    ckptd.wait_for_members(&[1, 2])?;
    let as_nobody = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "ckptd"];
    let hers = [&as_nobody[..], &["run", "--name", "hers", "--", "sleep", "1000"]].concat();
    let mut hers = ckptd.node(1).spawn(&hers, &[])?;
    until("the job runs", LIMIT, || {
        let said = ckptd.coordinator_node().run(&["ckptd", "status", "hers"], &[])?;
        Ok((said.status == 0 && said.stdout.contains("running")).then_some(()))
    })?;
    for number in [1, 2] {
        let denied = ckptd.ckptd(number, &["stop", "hers"])?;
        check(denied.status == 125, || format!("{denied:?}"))?;
        let denied = ckptd.ckptd(number, &["audit"])?;
        check(denied.status == 125 && denied.stdout.is_empty(), || format!("{denied:?}"))?;
    }
    ckptd.coordinator_node().must_run(&["ckptd", "stop", "hers"])?;
    hers.wait(LIMIT)?;
    let first = audit(&ckptd, &[])?;
    told(&first.stdout, 1, &["coordinator began"])?;
    told(&first.stdout, 1, &["root (operator)", "coordinator", "token", "login"])?;
    told(&first.stdout, 1, &["root (operator)", "coordinator", "token", "worker"])?;
    told(&first.stdout, 1, &["node2, key", "joined"])?;
    told(&first.stdout, 1, &["nobody", "node1", "run", "hers: sleep"])?;
    told(&first.stdout, 1, &["root", "node1", "stop", "hers", "there is none of that name"])?;
    told(&first.stdout, 1, &["root", "node2", "stop", "hers", "does not speak for users"])?;
    told(&first.stdout, 1, &["root", "node1", "audit", "only an operator"])?;
    told(&first.stdout, 1, &["root (operator)", "coordinator", "stop", "hers"])?;
    let (_, after) = first.stderr.split_once("hash is ").unwrap_or_default();
    let head = after.split(';').next().unwrap_or_default();
    check(head.len() == 64, || first.stderr.clone())?;

    ckptd.kill_coordinator()?;
    ckptd.start_coordinator()?;
    let second = audit(&ckptd, &["--contains", head])?;
    told(&second.stdout, 2, &["coordinator began"])?;
    let wrong = audit_fails(&ckptd, &["--contains", &head.replace(|_| true, "0")])?;
    check(wrong.stderr.contains("was written anew"), || format!("{wrong:?}"))?;
    // Somebody who can write there has another user have stopped the job.
    // (In place: a file of the same name would be seen by the next coordinator only.)
    let file = format!("{CKPTD_DIR}/coordinator/audit.log");
    let change = format!("sed '0,/\"nobody\"/s//\"daemon\"/' {file} >new && cat new >{file}");
    ckptd.coordinator_node().must_run(&["sh", "-c", &change])?;
    let broken = audit_fails(&ckptd, &[])?;
    check(broken.stderr.contains("does not follow the one before"), || format!("{broken:?}"))?;
    check(broken.stdout.contains("token"), || "what is before that is shown".into())
}

/// What an operator sees.
fn audit(ckptd: &Ckptd, options: &[&str]) -> Result<Output, Failure> {
    let said = ckptd.coordinator_node().run(&[&["ckptd", "audit"], options].concat(), &[])?;
    check(said.status == 0, || format!("{said:?}"))?;
    Ok(said)
}

fn audit_fails(ckptd: &Ckptd, options: &[&str]) -> Result<Output, Failure> {
    let said = ckptd.coordinator_node().run(&[&["ckptd", "audit"], options].concat(), &[])?;
    check(said.status == 125, || format!("{said:?}"))?;
    Ok(said)
}

/// Fails unless so many lines, or more, have all these words.
fn told(listing: &str, least: usize, words: &[&str]) -> Result<(), Failure> {
    let lines = listing.lines().filter(|line| words.iter().all(|word| line.contains(word)));
    check(lines.count() >= least, || format!("{words:?} are not {least} times in:\n{listing}"))
}
