//! Users of members and processes of jobs: they have the command, and the machine.

use std::time::Duration;

use ckptd_tests::cluster::ckptd::Ckptd;
use ckptd_tests::cluster::{Output, until};
use ckptd_tests::job::Failure;
use serde_json::Value;

use super::outcome::{Line, Outcome, worst};

/// How long anything may take that is no attack.
const LIMIT: Duration = Duration::from_secs(30);
/// A user who has no part in the job.
const OTHER: &str = "1";

/// Words that run a command as that user.
pub fn as_user<'a>(uid: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    let user = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"];
    [&user[..], &["env", "-C", "/", "HOME=/tmp"], words].concat()
}

/// The id of the job, and a checkpoint of it that is committed.
pub fn wait_for_checkpoint(ckptd: &Ckptd) -> Result<(String, u64), Failure> {
    until("the job has a checkpoint", LIMIT, || {
        let said = ckptd.coordinator_node().run(&["ckptd", "status", "hers", "--json"], &[])?;
        let status: Value = serde_json::from_str(&said.stdout).unwrap_or_default();
        let newest = status["checkpoints"].as_array().into_iter().flatten();
        let newest = newest.filter_map(|checkpoint| checkpoint["checkpoint"].as_u64()).max();
        Ok(status["id"].as_str().map(str::to_owned).zip(newest))
    })
}

/// Where the first node's agent is reached, HOST:PORT.
pub fn agent_address(ckptd: &Ckptd) -> Result<String, Failure> {
    let listing = ckptd.coordinator_node().must_run(&["ckptd", "nodes", "--json"])?;
    let nodes: Value = serde_json::from_str(&listing).unwrap_or_default();
    let all = nodes.as_array().or_else(|| nodes["nodes"].as_array()).into_iter().flatten();
    let found =
        all.filter(|node| node["name"] == "node1").find_map(|node| node["address"].as_str());
    found.map(str::to_owned).ok_or_else(|| Failure(format!("no address of node1: {listing}")))
}

/// Whether a command of a user's was refused without a word of what was wanted.
fn refused(said: &Output, secret: &str) -> Outcome {
    let leaked =
        !secret.is_empty() && (said.stdout.contains(secret) || said.stderr.contains(secret));
    let reason = said.stderr.lines().last().unwrap_or_default().to_owned();
    match said.status {
        0 => Outcome::Succeeded(format!("{said:?}")),
        _ if leaked => Outcome::Succeeded(format!("it was told: {said:?}")),
        _ => Outcome::Refused(reason),
    }
}

fn tries(ckptd: &Ckptd, uid: &str, commands: &[&[&str]]) -> Result<Outcome, Failure> {
    let mut outcomes = Vec::new();
    for command in commands {
        let words = as_user(uid, command);
        outcomes.push(refused(&ckptd.node(1).run(&words, &[])?, ""));
    }
    Ok(worst(outcomes))
}

/// What a user of a member may not, with the commands that everybody has.
pub fn of_users(ckptd: &Ckptd) -> Result<Vec<Line>, Failure> {
    let listing = ckptd.node(1).run(&as_user(OTHER, &["ckptd", "ls"]), &[])?;
    let seen = match listing.stdout.contains("hers") {
        true => Outcome::Succeeded(listing.stdout),
        false => Outcome::Refused("it is in no listing".to_owned()),
    };
    let orders = tries(
        ckptd,
        OTHER,
        &[
            &["ckptd", "status", "hers"],
            &["ckptd", "checkpoint", "hers"],
            &["ckptd", "stop", "hers"],
            &["ckptd", "attach", "hers"],
            &["ckptd", "restart", "hers"],
            &["ckptd", "rm", "hers"],
        ],
    )?;
    let reads = tries(
        ckptd,
        OTHER,
        &[
            &["ckptd", "logs", "hers"],
            &["ckptd", "verify", "hers"],
            &["ckptd", "inspect", "hers"],
            &["ckptd", "export", "hers", "/tmp/stolen.tar.zst"],
            &["test", "-e", "/tmp/stolen.tar.zst"],
        ],
    )?;
    let operates = tries(ckptd, OTHER, OPERATIONS)?;
    let shell =
        tries(ckptd, OTHER, &[&["ckptd", "rsh", "node2", "id"], &["ckptd", "rsh", "node1", "id"]])?;
    Ok(vec![
        Line::new("user-orders", worst([seen, orders])),
        Line::new("user-reads", reads),
        Line::new("user-opens-images", opens_images(ckptd, OTHER)?),
        Line::new("user-operates", operates),
        Line::new("user-shell", shell),
    ])
}

/// What operators alone may.
const OPERATIONS: &[&[&str]] = &[
    &["ckptd", "nodes", "--remove", "node2"],
    &["ckptd", "leave", "node2"],
    &["ckptd", "drain", "--no-wait", "node2"],
    &["ckptd", "uncordon", "node2"],
    &["ckptd", "token"],
    &["ckptd", "audit"],
];

/// Files below ckptd's folder on the first node that hold what others must not know.
fn opens_images(ckptd: &Ckptd, uid: &str) -> Result<Outcome, Failure> {
    let kinds =
        ["COMMITTED", "graph.json", "*.tar", "key.pem", "key", "images.key", "log", "FILES"];
    let names = kinds.map(|kind| format!("-name {kind:?} -o ")).concat();
    let find = format!("find /mnt/home/ckptd -type f \\( {names}-name none \\)");
    let found = ckptd.node(1).must_run(&["sh", "-c", &find])?;
    let mut outcomes = Vec::new();
    for path in found.lines() {
        outcomes.push(refused(&ckptd.node(1).run(&as_user(uid, &["cat", path]), &[])?, ""));
    }
    let key = found.lines().any(|path| path.ends_with("/key"));
    if !found.contains("COMMITTED") || !found.contains("key.pem") || !key {
        return Ok(Outcome::NotTried(format!("there is nothing to open: {found}")));
    }
    Ok(worst(outcomes))
}

/// What a process of a job may not, though it is inside.
pub fn of_jobs(ckptd: &Ckptd) -> Result<Vec<Line>, Failure> {
    // The owner is named in a token by now, so that another user's job is it.
    let inside = |script: &str| {
        let run = ["ckptd", "run", "--interval", "0", "--", "sh", "-c", script];
        ckptd.node(1).run(&as_user(OTHER, &run), &[])
    };
    let operates = inside(
        "for order in 'nodes --remove node2' 'leave node2' token audit 'stop hers' 'attach hers'; do \
         if ckptd $order; then echo obeyed: $order; fi; done; true",
    )?;
    let operates = match operates.stdout.contains("obeyed") || operates.status != 0 {
        true => Outcome::Succeeded(format!("{operates:?}")),
        false => Outcome::Refused(last_line(&operates.stderr)),
    };
    let leaves = inside("ckptd rsh node2 id -u; ckptd rsh node2 cat /etc/shadow; true")?;
    let leaves = match leaves.stdout.as_str() {
        "1\n" => Outcome::Refused(last_line(&leaves.stderr)),
        _ => Outcome::Succeeded(format!("{leaves:?}")),
    };
    let agent = ckptd.node(1).must_run(&["pgrep", "-o", "-f", "ckptd agent"])?;
    let agent = agent.trim();
    let signals = format!("kill -9 {agent} && echo done; cat /proc/{agent}/mem && echo done; true");
    let ends = inside(&signals)?;
    let ends = match ckptd.node(1).run(&["kill", "-0", agent], &[])?.status == 0
        && ends.stdout.is_empty()
    {
        true => Outcome::Refused(last_line(&ends.stderr)),
        false => Outcome::Succeeded(format!("{ends:?}")),
    };
    Ok(vec![
        Line::new("job-operates", operates),
        Line::new("job-leaves", leaves),
        Line::new("job-ends-agent", ends),
    ])
}

fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or_default().to_owned()
}
