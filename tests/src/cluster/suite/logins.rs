//! Users who prove by keys who they are, where the member does not speak for them.

use super::members::as_user;
use super::stage::{LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::{Background, Output, until};
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "login",
        about: "on a worker a user is nobody until a key of theirs says who they are: then that user, and no more",
        run: login,
    },
    Case {
        name: "login-ends",
        about: "a login outlives the coordinator, and ends by its time, by its key, and with its member",
        run: ends,
    },
];

/// The user, and an account on the worker by which they work.
const NOBODY: &str = "65534";
const DAEMON: &str = "1";
/// The key of that account.
const KEY: &str = "/tmp/key";
/// Why it is not believed.
const UNPROVEN: &str = "node2 does not speak for users of that name";

/// A member that speaks for its users, node1, and one that speaks for nobody, node2.
fn with_worker(stage: &Stage) -> Result<(Ckptd, Background), Failure> {
    let ckptd = stage.cluster_of(Setup { agents: 1, ..Setup::new(2) })?;
    let token = ckptd.new_token(&["--role", "worker"])?;
    let worker = ckptd.join(2, &token, "node2")?;
    ckptd.wait_for_members(&[1, 2])?;
    let make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "of a guest", "-f", KEY];
    ckptd.node(2).must_run(&as_user(DAEMON, &make))?;
    Ok((ckptd, worker))
}

fn say(ckptd: &Ckptd, number: usize, uid: &str, words: &[&str]) -> Result<Output, Failure> {
    ckptd.node(number).run(&as_user(uid, &[&["ckptd"], words].concat()), &[])
}

fn obeyed(ckptd: &Ckptd, number: usize, uid: &str, words: &[&str]) -> Result<Output, Failure> {
    let said = say(ckptd, number, uid, words)?;
    check(said.status == 0, || format!("node{number}, {uid}, {words:?}: {said:?}"))?;
    Ok(said)
}

/// As the account on the worker: refused for that reason.
fn denied(ckptd: &Ckptd, words: &[&str], why: &str) -> Result<(), Failure> {
    let said = say(ckptd, 2, DAEMON, words)?;
    let told = said.status == 125 && said.stdout.is_empty() && said.stderr.contains(why);
    check(told, || format!("{words:?}: {said:?}"))
}

/// Has the user's key known to the cluster, where that knows the user; its fingerprint.
fn add_key(ckptd: &Ckptd) -> Result<String, Failure> {
    let public = ckptd.node(2).must_run(&["cat", "/tmp/key.pub"])?;
    let add = format!("echo '{}' | ckptd login --add-key -", public.trim());
    let said = ckptd.node(1).run(&as_user(NOBODY, &["sh", "-c", &add]), &[])?;
    check(said.status == 0 && said.stderr.contains("nobody has the key SHA256:"), || {
        format!("{said:?}")
    })?;
    let listed = obeyed(ckptd, 1, NOBODY, &["login", "--keys"])?.stdout;
    let own = ckptd.node(2).must_run(&["ssh-keygen", "-l", "-f", "/tmp/key.pub"])?;
    let fingerprint = own.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let fits = listed.contains(&fingerprint) && listed.contains("of a guest");
    check(fits && fingerprint.len() > 40, || format!("{own} is not in {listed}"))?;
    Ok(fingerprint)
}

fn log_in<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [&["login", "--user", "nobody", "--key", KEY], options].concat()
}

fn login(stage: &Stage) -> Result<(), Failure> {
    let (ckptd, _worker) = with_worker(stage)?;
    denied(&ckptd, &["login", "--keys"], UNPROVEN)?;
    denied(&ckptd, &["login", "--keys"], "log in with a key (ckptd login)")?;
    denied(&ckptd, &["login", "--add-key", "/tmp/key.pub"], UNPROVEN)?;
    denied(&ckptd, &log_in(&[]), "no key of nobody that counts has the fingerprint SHA256:")?;
    denied(&ckptd, &["login", "--add-key", KEY], "that is a private key")?;
    add_key(&ckptd)?;
    let foreign = as_user(DAEMON, &["ckptd", "run", "--name", "foreign", "--", "sleep", "1000"]);
    let _foreign = ckptd.node(1).spawn(&foreign, &[])?;
    until("the other's job runs", LIMIT, || {
        let status = say(&ckptd, 1, DAEMON, &["status", "foreign"])?;
        Ok((status.status == 0 && status.stdout.contains("running")).then_some(()))
    })?;
    let said = obeyed(&ckptd, 2, DAEMON, &log_in(&[]))?;
    check(said.stderr.contains("logged in as nobody on node2 until"), || format!("{said:?}"))?;
    // Wherever it runs, it runs as the user: not as the account, and not as a user of the number that this has.
    let script = "id -un; for node in node1 node2; do \
                  if [ $(hostname) != $node ]; then ckptd rsh $node id -un; fi; done";
    let run = ["run", "--name", "hers", "--", "sh", "-c", script];
    let ran = obeyed(&ckptd, 2, DAEMON, &run)?;
    check(ran.stdout == "nobody\n".repeat(2), || format!("{ran:?}"))?;
    let listed = obeyed(&ckptd, 2, DAEMON, &["status", "--json"])?.stdout;
    let own = listed.contains("\"hers\"") && !listed.contains("foreign");
    check(own, || listed.clone())?;
    for words in [&["stop", "foreign"][..], &["checkpoint", "foreign"], &["attach", "foreign"]] {
        denied(&ckptd, words, "there is none of that name")?;
    }
    for words in [&["nodes", "--remove", "node1"][..], &["audit"]] {
        denied(&ckptd, words, "only an operator")?;
    }
    denied(&ckptd, &["login", "--add-key", "/tmp/key.pub"], "who has logged in by one may not")?;
    // Nobody else on that machine, root neither.
    for uid in [NOBODY, "0"] {
        let said = say(&ckptd, 2, uid, &["login", "--keys"])?;
        check(said.status == 125 && said.stderr.contains(UNPROVEN), || format!("{said:?}"))?;
    }
    let status = obeyed(&ckptd, 2, DAEMON, &["login", "--status"])?.stdout;
    check(status.contains("daemon (this one)") && status.contains("SHA256:"), || status.clone())?;
    let audit = ckptd.coordinator_node().must_run(&["ckptd", "audit"])?;
    check(audit.contains("nobody (login of daemon)"), || audit.clone())?;
    // What it looks at goes on without it.
    let long = as_user(DAEMON, &["ckptd", "run", "--name", "long", "--", "sleep", "1000"]);
    let mut long = ckptd.node(2).spawn(&long, &[])?;
    let is_running = || {
        let status = say(&ckptd, 1, NOBODY, &["status", "long"])?;
        Ok((status.status == 0 && status.stdout.contains("running")).then_some(()))
    };
    until("the job runs", LIMIT, is_running)?;
    obeyed(&ckptd, 2, DAEMON, &["logout"])?;
    let status = long.wait(LIMIT)?;
    let told = status == 125 && long.errors().contains("the login is no more (it was ended)");
    check(told, || format!("{status}: {}", long.errors()))?;
    until("the job runs on", LIMIT, is_running)?;
    denied(&ckptd, &["stop", "long"], UNPROVEN)?;
    obeyed(&ckptd, 1, NOBODY, &["stop", "long"])?;
    obeyed(&ckptd, 1, DAEMON, &["stop", "foreign"]).map(drop)
}

fn ends(stage: &Stage) -> Result<(), Failure> {
    let (ckptd, _worker) = with_worker(stage)?;
    let fingerprint = add_key(&ckptd)?;
    obeyed(&ckptd, 2, DAEMON, &log_in(&["--for", "2s"]))?;
    until("its time is over", LIMIT, || {
        let said = say(&ckptd, 2, DAEMON, &["login", "--keys"])?;
        Ok((said.status == 125 && said.stderr.contains(UNPROVEN)).then_some(()))
    })?;
    obeyed(&ckptd, 2, DAEMON, &log_in(&["--for", "1h"]))?;
    ckptd.kill_coordinator()?;
    ckptd.start_coordinator()?;
    ckptd.wait_for_members(&[1, 2])?;
    obeyed(&ckptd, 2, DAEMON, &["login", "--keys"])?;
    obeyed(&ckptd, 1, NOBODY, &["login", "--remove-key", &fingerprint])?;
    denied(&ckptd, &["login", "--keys"], UNPROVEN)?;
    denied(&ckptd, &log_in(&[]), "no key of nobody that counts")?;
    add_key(&ckptd)?;
    obeyed(&ckptd, 2, DAEMON, &log_in(&[]))?;
    // An operator sees who it is, and turns the member out by which the key came.
    let operator = ckptd.coordinator_node();
    let status = operator.must_run(&["ckptd", "login", "--status"])?;
    check(status.contains("nobody") && status.contains("node2"), || status.clone())?;
    let removed = operator.run(&["ckptd", "nodes", "--remove", "node1"], &[])?;
    check(removed.stderr.contains("keys of users that came by it are given up: 1"), || {
        format!("{removed:?}")
    })?;
    denied(&ckptd, &["login", "--keys"], UNPROVEN)
}
