//! Members: who is let in, and what the death of a daemon costs.

use std::time::Duration;

use super::stage::{JOB_LIMIT, LIMIT, Stage, start};
use super::{Case, check};
use crate::cluster::ckptd::Ckptd;
use crate::cluster::until;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "coordinator-killed",
        about: "the coordinator is killed and started again: the job does not notice",
        run: coordinator_killed,
    },
    Case {
        name: "coordinator-away",
        about: "the coordinator is away for longer than the lease: the job waits, and goes on",
        run: coordinator_away,
    },
    Case {
        name: "agent-killed",
        about: "an agent is killed and started again: it takes its job over",
        run: agent_killed,
    },
    Case { name: "tokens", about: "wrong, expired and used-up tokens are refused", run: tokens },
    Case {
        name: "strangers",
        about: "unencrypted and malformed talk to the coordinator and agents is refused, and disturbs nothing",
        run: strangers,
    },
    Case {
        name: "attach",
        about: "a job is attached to from another node, and outlives its launcher",
        run: attach,
    },
];

/// Rounds and their least length, microseconds: some 12 s.
const RING: &str = "pids=; for n in 0 1 2; do \
    ckptd rsh node$((n + 1)) ring $n 7500 1200 10000 node1 node2 node3 & pids=\"$pids $!\"; done; \
    for pid in $pids; do wait $pid || exit 1; done; echo the ring: right";
const RING_IS_RIGHT: &str = "the ring: right";

fn no_rollback(job: &crate::cluster::job::ClusterJob<'_>) -> Result<(), Failure> {
    let rollbacks = job.status()?.rollbacks()?;
    check(rollbacks.is_empty(), || format!("the job was rolled back: {rollbacks:?}"))
}

fn coordinator_killed(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, "ring", &[], &["bash", "-c", RING])?;
    for _ in 0..3 {
        ckptd.kill_coordinator()?;
        ckptd.start_coordinator()?;
        ckptd.wait_for_members(&[1, 2, 3])?;
        let newest = job.status()?.newest_checkpoint().unwrap_or(0);
        job.wait_for_checkpoint(newest + 1, LIMIT)?;
    }
    no_rollback(&job)?;
    job.must_end_with(RING_IS_RIGHT, JOB_LIMIT)
}

fn coordinator_away(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, "ring", &[], &["bash", "-c", RING])?;
    ckptd.kill_coordinator()?;
    std::thread::sleep(Duration::from_secs(6));
    ckptd.start_coordinator()?;
    ckptd.wait_for_members(&[1, 2, 3])?;
    no_rollback(&job)?;
    job.must_end_with(RING_IS_RIGHT, JOB_LIMIT)
}

fn agent_killed(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, "ring", &[], &["bash", "-c", RING])?;
    ckptd.kill_agent(2)?;
    ckptd.start_agent(2)?;
    ckptd.wait_for_members(&[1, 2, 3])?;
    no_rollback(&job)?;
    let newest = job.status()?.newest_checkpoint().unwrap_or(0);
    job.wait_for_checkpoint(newest + 1, LIMIT)?;
    // What it took over it can lose, too.
    ckptd.kill_node(2)?;
    job.wait_for_rollback(1, LIMIT)?;
    job.must_end_with(RING_IS_RIGHT, JOB_LIMIT)
}

/// Runs an agent on node3, which is no member, with a token that must be refused.
fn refused(ckptd: &Ckptd, token: &str, word: &str) -> Result<(), Failure> {
    let before = ckptd.coordinator_errors().len();
    let mut agent = ckptd.join(3, token, "node3")?;
    let status = agent.wait(LIMIT)?;
    let said = agent.errors();
    check(status == 125 && said.contains("failed to") && said.contains(word), || {
        format!("an agent whose token is {word}: status {status}, said {said:?}")
    })?;
    let told = ckptd.coordinator_errors();
    // A text that is no token never leaves the agent.
    let reached = token.len() > 20;
    check(!reached || told[before.min(told.len())..].contains(word), || {
        format!("the coordinator does not tell of a token that is {word}:\n{told}")
    })?;
    let members = ckptd.members()?;
    check(!members.contains_key("node3"), || format!("node3 is a member: {members:?}"))
}

fn tokens(stage: &Stage) -> Result<(), Failure> {
    let mut setup = crate::cluster::ckptd::Setup::new(3);
    setup.agents = 2;
    let ckptd = Ckptd::start(&stage.ckptd, setup)?;
    refused(&ckptd, "nonsense", "token")?;
    let good = ckptd.new_token(&["--uses", "1", "--valid", "1h"])?;
    // The same with another secret.
    let Some(last) = good.chars().last() else { return Err(Failure("an empty token".into())) };
    let other = if last == 'A' { 'Q' } else { 'A' };
    let mut wrong = good.clone();
    wrong.truncate(good.len() - 6);
    wrong.extend(std::iter::repeat_n(other, 6));
    refused(&ckptd, &wrong, "token")?;
    let short = ckptd.new_token(&["--uses", "1", "--valid", "1s"])?;
    std::thread::sleep(Duration::from_millis(2100));
    refused(&ckptd, &short, "expired")?;
    let used_up = ckptd.new_token(&["--uses", "1"])?;
    let mut first = ckptd.join(3, &used_up, "extra")?;
    until("the first use is taken", LIMIT, || {
        if let Some(status) = first.ended()? {
            return Err(first.explain(&Failure(format!("the first use ended with {status}"))));
        }
        Ok(ckptd.members()?.contains_key("extra").then_some(()))
    })?;
    first.kill();
    // As another machine: without the certificate.
    let folder = ckptd.node(3).disk().join("home/ckptd");
    std::fs::remove_dir_all(folder).map_err(|e| Failure(e.to_string()))?;
    refused(&ckptd, &used_up, "used")?;
    // A machine that was refused joins with a good one.
    let mut agent = ckptd.join(3, &good, "node3")?;
    let joined = ckptd.wait_for_members(&[3]);
    joined.map_err(|failure| agent.explain(&failure))?;
    agent.kill();
    Ok(())
}

fn strangers(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, "ring", &[], &["bash", "-c", RING])?;
    let address = ckptd.coordinator_address().replace(':', "/");
    let talks = [
        "printf '{\"ask\":\"hello\",\"version\":1}\\n'",
        "printf 'GET / HTTP/1.0\\r\\n\\r\\n'",
        "head -c 100000 /dev/urandom",
        // A TLS record's head, and nothing behind it.
        "printf '\\026\\003\\001\\002\\000'",
        "true",
    ];
    for talk in talks {
        let script = format!(
            "exec 3<>/dev/tcp/{address}; {talk} >&3; timeout 12 cat <&3 | head -c 4096 | od -c"
        );
        // The write may meet a connection that is closed already.
        let output = ckptd.node(2).run(&["bash", "-c", &script], &[])?;
        let readable = output.stdout.replace(' ', "");
        check(!readable.contains("answer") && !readable.contains("token"), || {
            format!("{talk} was answered: {}", output.stdout)
        })?;
    }
    // Of those that were half open meanwhile nobody has kept the members from being heard.
    ckptd.wait_for_members(&[1, 2, 3])?;
    no_rollback(&job)?;
    job.must_end_with(RING_IS_RIGHT, JOB_LIMIT)
}

fn attach(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, "ring", &[], &["bash", "-c", RING])?;
    job.launcher().kill();
    let mut attached = ckptd.node(2).spawn(&["ckptd", "attach", "ring"], &[])?;
    let status = attached.wait(JOB_LIMIT).map_err(|failure| ckptd.explain(&failure))?;
    let output = attached.output().replace("\r\n", "\n");
    check(status == 0 && output.lines().any(|line| line == RING_IS_RIGHT), || {
        attached.explain(&Failure(format!("attach ended with {status}"))).0
    })
}
