//! Members: who is let in, and what the death of a daemon costs.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::open_mpi::{ANSWER, end, finish, start};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::until;
use crate::job::Failure;
use crate::unnamespaced::Numbers;

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
    Case {
        name: "agent-restarted",
        about: "an agent is ended as its unit does it for a restart, and started again: nothing of its jobs moves",
        run: agent_restarted,
    },
    Case { name: "tokens", about: "wrong, expired and used-up tokens are refused", run: tokens },
    Case {
        name: "strangers",
        about: "unencrypted and malformed talk to the coordinator and agents is refused, and disturbs nothing",
        run: strangers,
    },
    Case {
        name: "roles",
        about: "a member speaks for the users that its token says, and for nobody else",
        run: roles,
    },
    Case {
        name: "trust",
        about: "a user's own agent runs that user's jobs, and others' where both sides want it",
        run: trust,
    },
    Case {
        name: "users",
        about: "a job is its user's on every node, and one whom a node does not know is refused",
        run: users,
    },
    Case {
        name: "directory-slow",
        about: "a directory service is slow to answer an agent: the node is heard, its jobs run on",
        run: users_slow,
    },
    Case {
        name: "shells-of-others",
        about: "without namespaces nobody runs commands as the user of a job but that job itself",
        run: shells_of_others,
    },
    Case {
        name: "attach",
        about: "a job is attached to from another node, and outlives its launcher",
        run: attach,
    },
];

/// Tells the programs of a job where their agent is.
const SOCKET: &str = "CKPTD_AGENT_SOCKET";
/// What a program says of its user on this node and the next.
const WHO: &str = "id -un && id -G && ckptd rsh node2 id -un && ckptd rsh node2 id -G";

fn users(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(2)?;
    let node = ckptd.node(1);
    let as_user = |uid: &str| {
        let as_user = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"];
        let home = ["env", "-C", "/", "HOME=/tmp"];
        let run = ["ckptd", "run", "--", "sh", "-c", WHO];
        node.run(&[&as_user[..], &home, &run].concat(), &[])
    };
    let groups = node.must_run(&["id", "-G", "nobody"])?;
    let known = as_user("65534")?;
    check(known.stdout == format!("nobody\n{groups}").repeat(2), || format!("{known:?}"))?;
    let unknown = as_user("54321")?;
    let expected = "node1 has no user \"54321\"";
    check(unknown.status == 125 && unknown.stderr.contains(expected), || format!("{unknown:?}"))?;
    for number in [1, 2] {
        check(ckptd.agent_runs(number)?, || ckptd.agent_errors(number))?;
    }
    Ok(())
}

/// A directory service that takes long to say that it does not know somebody: the agent that asks it is heard all
/// the same, and its other jobs run on.
fn users_slow(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    let node = ckptd.node(1);
    let slow = "printf '#!/bin/sh\nsleep 5\nexit 2\n' > /tmp/getent && chmod 755 /tmp/getent \
        && mount --bind /tmp/getent $(command -v getent) \
        && echo passwd: files sss > /tmp/nsswitch && mount --bind /tmp/nsswitch /etc/nsswitch.conf";
    node.must_run(&["sh", "-c", slow])?;
    // The agent looks when it starts whether there is such a service.
    ckptd.kill_agent(1)?;
    ckptd.start_agent(1)?;
    ckptd.wait_for_members(&[1])?;
    let run = ["env", "-C", "/", "HOME=/tmp", "ckptd", "run", "--", "true"];
    let as_user = ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"];
    let began = Instant::now();
    let unknown = node.run(&[&as_user[..], &run].concat(), &[])?;
    let expected = "there is no user \"54321\" on node1";
    check(unknown.status != 0 && unknown.stderr.contains(expected), || format!("{unknown:?}"))?;
    check(began.elapsed() > Duration::from_secs(5), || "the service was not asked".into())?;
    no_rollback(&job)?;
    finish(&ckptd, &mut job)
}

/// As which user something is run on a node.
pub(super) fn as_user<'a>(uid: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    let user = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"];
    [&user[..], &["env", "-C", "/", "HOME=/tmp"], words].concat()
}

/// Three machines: one whose users are all believed, one that speaks for nobody, one that speaks for two users.
fn roles(stage: &Stage) -> Result<(), Failure> {
    const NOBODY: &str = "65534";
    const DAEMON: &str = "1";
    let ckptd = stage.cluster_of(Setup { agents: 1, ..Setup::new(3) })?;
    let worker = ckptd.new_token(&["--role", "worker"])?;
    let _worker = ckptd.join(2, &worker, "node2")?;
    ckptd.wait_for_members(&[1, 2])?;
    let say = |number: usize, uid: &str, words: &[&str]| {
        let words = [&["ckptd"], words].concat();
        ckptd.node(number).run(&as_user(uid, &words), &[])
    };
    let denied = |number: usize, uid: &str, words: &[&str], why: &str| {
        let said = say(number, uid, words)?;
        let told = said.status == 125 && said.stdout.is_empty() && said.stderr.contains(why);
        check(told, || format!("node{number}, {uid}, {words:?}: {said:?}"))
    };
    let mut hers = ckptd
        .node(1)
        .spawn(&as_user(NOBODY, &["ckptd", "run", "--name", "hers", "--", "sleep", "1000"]), &[])?;
    until("the job runs", LIMIT, || {
        let status = say(1, NOBODY, &["status", "hers"])?;
        Ok((status.status == 0 && status.stdout.contains("running")).then_some(()))
    })?;
    // Root of a member is not root of the cluster, and users of a worker are nobody's word.
    denied(1, "0", &["stop", "hers"], "there is none of that name")?;
    denied(1, DAEMON, &["stop", "hers"], "there is none of that name")?;
    for uid in ["0", NOBODY, DAEMON] {
        for words in [&["stop", "hers"][..], &["checkpoint", "hers"], &["attach", "hers"], &["ls"]]
        {
            denied(2, uid, words, "node2 does not speak for users of that name")?;
        }
        denied(2, uid, &["run", "--", "true"], "--role login")?;
    }
    for number in [1, 2] {
        denied(
            number,
            "0",
            &["nodes", "--remove", "node1"],
            if number == 1 { "only an operator" } else { "obey" },
        )?;
    }
    denied(2, "0", &["leave", "node1"], "only its owner")?;
    // One for whom a member is named is that member's to speak for.
    let his = ckptd.new_token(&["--users", "daemon,nobody"])?;
    let _his = ckptd.join(3, &his, "node3")?;
    ckptd.wait_for_members(&[3])?;
    denied(1, NOBODY, &["stop", "hers"], "--users nobody")?;
    denied(3, "0", &["ls"], "node3 does not speak")?;
    let by_operator = ckptd.coordinator_node().must_run(&["ckptd", "nodes", "--json"])?;
    for role in ["login", "worker", "login: daemon, nobody"] {
        check(by_operator.contains(&format!("\"role\": {role:?}")), || by_operator.clone())?;
    }
    let stopped = say(3, NOBODY, &["stop", "hers"])?;
    check(stopped.status == 0, || format!("{stopped:?}"))?;
    check(hers.wait(LIMIT)? != 0, || "it was ended by a signal".into())?;
    // Who owns a machine may take it away.
    let left = say(2, "0", &["leave"])?;
    check(left.status == 0, || format!("{left:?}"))
}

/// A machine of root's and one of an ordinary user's.
fn trust(stage: &Stage) -> Result<(), Failure> {
    const NOBODY: &str = "65534";
    const DAEMON: &str = "1";
    let ckptd = stage.cluster_of(Setup { agents: 1, ..Setup::new(2) })?;
    let token = ckptd.new_token(&["--role", "worker", "--uses", "2"])?;
    let node = ckptd.node(2);
    node.must_run(&["install", "-d", "-o", "nobody", "/tmp/own"])?;
    let agent = |options: &[&str]| {
        let words = ["ckptd", "agent", "--dir", "/tmp/own", "--join", &token, "--name", "own"];
        let words = [&words[..], &["--slots", "2", "--speed", "1"], options].concat();
        node.spawn(&as_user(NOBODY, &words), &[])
    };
    let there = || {
        until("the user's own agent is there", LIMIT, || {
            Ok(ckptd.members()?.get("own").is_some_and(|state| state == "alive").then_some(()))
        })
    };
    let whoami = |uid: &str, options: &[&str]| {
        let run = [&["ckptd", "run", "--interval", "0"], options, &["--", "sh", "-c"]].concat();
        let words = [&run[..], &["ckptd rsh own id -un"]].concat();
        ckptd.node(1).run(&as_user(uid, &words), &[])
    };
    let mut alone = agent(&[])?;
    there()?;
    let his = whoami(NOBODY, &[])?;
    check(his.stdout == "nobody\n" && his.status == 0, || format!("{his:?}"))?;
    for options in [&[][..], &["--trust", "any"]] {
        let refused = whoami(DAEMON, options)?;
        let why = "own runs the jobs of nobody alone";
        check(refused.status != 0 && refused.stderr.contains(why), || format!("{refused:?}"))?;
    }
    // Of root's machine a job can be kept away.
    let own = ckptd
        .node(1)
        .run(&as_user(DAEMON, &["ckptd", "run", "--trust", "own", "--", "true"]), &[])?;
    let why = "node1 has an agent of root's";
    check(own.status == 125 && own.stderr.contains(why), || format!("{own:?}"))?;
    alone.signal(Signal::SIGTERM)?;
    alone.wait(LIMIT)?;
    let _shared = agent(&["--shared"])?;
    there()?;
    let shared = whoami(DAEMON, &["--trust", "any"])?;
    check(shared.stdout == "nobody\n" && shared.status == 0, || format!("{shared:?}"))
}

/// Nobody's; a stranger's.
const USERS: [&str; 2] = ["65534", "54321"];

fn shells_of_others(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { numbers: Numbers::None, ..Setup::new(2) })?;
    let node = ckptd.node(1);
    let as_user = |uid| {
        let user = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"];
        [&user[..], &["env", "-C", "/", "HOME=/tmp"]].concat()
    };
    let script = "echo at $CKPTD_AGENT_SOCKET; ckptd rsh node2 id -un; \
                  until [ -e /mnt/shared/end ]; do sleep 0.1; done; echo all is well";
    let run = ["ckptd", "run", "--name", "shells", "--", "sh", "-c", script];
    let mut job = node.spawn(&[&as_user(USERS[0])[..], &run].concat(), &[])?;
    job.wait_for_output("nobody", LIMIT)?;
    let output = job.output();
    let socket = output.lines().find_map(|line| line.trim().strip_prefix("at "));
    let socket = socket.ok_or_else(|| Failure(format!("no socket is named: {output:?}")))?;
    for uid in USERS {
        let call = ["ckptd", "rsh", "node2", "id", "-un"];
        let called = node.run(&[&as_user(uid)[..], &call].concat(), &[(SOCKET, socket)])?;
        let refused = called.status == 255 && called.stderr.contains("it works only");
        check(refused && called.stdout.is_empty(), || format!("as user {uid}: {called:?}"))?;
    }
    end(&ckptd)?;
    let status = job.wait(JOB_LIMIT)?;
    check(status == 0 && job.output().contains("all is well"), || job.output())
}

fn no_rollback(job: &crate::cluster::job::ClusterJob<'_>) -> Result<(), Failure> {
    let rollbacks = job.status()?.rollbacks()?;
    check(rollbacks.is_empty(), || format!("the job was rolled back: {rollbacks:?}"))
}

fn coordinator_killed(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    for _ in 0..3 {
        ckptd.kill_coordinator()?;
        ckptd.start_coordinator()?;
        ckptd.wait_for_members(&[1, 2, 3])?;
        job.wait_for_more_checkpoints(1, LIMIT)?;
    }
    no_rollback(&job)?;
    finish(&ckptd, &mut job)
}

fn coordinator_away(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    ckptd.kill_coordinator()?;
    std::thread::sleep(Duration::from_secs(6));
    let asked = ckptd.ckptd(1, &["checkpoint", "queens"])?;
    let reason = ": the agent has no coordinator at the moment: try again\n";
    let fits = asked.stderr.starts_with("ckptd: failed to ") && asked.stderr.ends_with(reason);
    check(asked.status == 125 && fits, || format!("{asked:?}"))?;
    ckptd.start_coordinator()?;
    ckptd.wait_for_members(&[1, 2, 3])?;
    no_rollback(&job)?;
    // By then the command that started it is attached again: what is written before is in the job's log.
    job.wait_for_more_checkpoints(2, LIMIT)?;
    finish(&ckptd, &mut job)
}

fn agent_killed(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    ckptd.kill_agent(2)?;
    ckptd.start_agent(2)?;
    ckptd.wait_for_members(&[1, 2, 3])?;
    no_rollback(&job)?;
    job.wait_for_more_checkpoints(1, LIMIT)?;
    // What it took over it can lose, too.
    ckptd.kill_node(2)?;
    job.wait_for_rollback(1, LIMIT)?;
    finish(&ckptd, &mut job)
}

fn agent_restarted(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    for number in [1, 2] {
        let status = ckptd.end_agent_by(number, Signal::SIGUSR1, LIMIT)?;
        check(status == 0, || format!("the agent ended with {status}"))?;
        ckptd.start_agent(number)?;
        ckptd.wait_for_members(&[1, 2, 3])?;
    }
    job.wait_for_more_checkpoints(1, LIMIT)?;
    no_rollback(&job)?;
    finish(&ckptd, &mut job)
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

/// The same token with another secret: that stands last in the JSON text whose base64 a token is.
fn with_other_secret(token: &str) -> Result<String, Failure> {
    let dot = token.find('.').ok_or(Failure(format!("no token: {token:?}")))?;
    // Four characters are three bytes; the last two bytes close the text.
    let bytes = (token.len() - dot - 1) * 3 / 4;
    let at = dot + 1 + ((bytes - 2) / 3 - 2) * 4;
    let other = if token.get(at..at + 4) == Some("QUFB") { "QkJC" } else { "QUFB" };
    let mut wrong = token.to_owned();
    wrong.replace_range(at..at + 4, other);
    Ok(wrong)
}

fn tokens(stage: &Stage) -> Result<(), Failure> {
    let mut setup = Setup::new(3);
    setup.agents = 2;
    let ckptd = Ckptd::start(&stage.ckptd, setup)?;
    refused(&ckptd, "nonsense", "token")?;
    let good = ckptd.new_token(&["--uses", "1", "--valid", "1h"])?;
    let wrong = with_other_secret(&good)?;
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
    // Turned out, it is out; invited again, it is in.
    let removed = ckptd.coordinator_node().run(&["ckptd", "nodes", "--remove", "node3"], &[])?;
    check(removed.status == 0, || format!("nodes --remove: {}", removed.stderr))?;
    let status = agent.wait(LIMIT)?;
    check(status == 125 && agent.errors().contains("turned out"), || {
        agent.explain(&Failure(format!("the agent that was turned out ended with {status}"))).0
    })?;
    let mut agent = ckptd.join(3, &good, "node3")?;
    let status = agent.wait(LIMIT)?;
    check(status == 125, || format!("with its old certificate and token: {status}"))?;
    let invited = ckptd.new_token(&["--uses", "1"])?;
    let mut agent = ckptd.join(3, &invited, "node3")?;
    let joined = ckptd.wait_for_members(&[3]);
    joined.map_err(|failure| agent.explain(&failure))?;
    agent.kill();
    // Also for a coordinator that is started again.
    ckptd.kill_coordinator()?;
    ckptd.start_coordinator()?;
    let mut agent = ckptd.join(3, &invited, "node3")?;
    let joined = ckptd.wait_for_members(&[3]);
    joined.map_err(|failure| agent.explain(&failure))?;
    agent.kill();
    Ok(())
}

fn strangers(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
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
    finish(&ckptd, &mut job)
}

fn attach(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    job.launcher().kill();
    let mut attached = ckptd.node(2).spawn(&["ckptd", "attach", "queens"], &[])?;
    // Two checkpoints later it has been there for a while.
    let newest = job.status()?.newest_checkpoint().unwrap_or(0);
    let later = crate::cluster::until("two more checkpoints", LIMIT, || {
        let found = job.status()?.newest_checkpoint();
        Ok(found.filter(|found| *found >= newest + 2))
    });
    later.map_err(|failure| ckptd.explain(&failure))?;
    end(&ckptd)?;
    let status = attached.wait(JOB_LIMIT).map_err(|failure| ckptd.explain(&failure))?;
    let output = attached.output().replace("\r\n", "\n");
    check(status == 0 && output.lines().any(|line| line == ANSWER), || {
        attached.explain(&Failure(format!("attach ended with {status}"))).0
    })
}
