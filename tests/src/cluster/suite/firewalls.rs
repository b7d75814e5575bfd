//! What other machines must be able to reach: the coordinator's port, one port of each agent, and the jobs' own.

use super::stage::{JOB_LIMIT, LIMIT, Stage, start};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::{Node, until};
use crate::job::Failure;
use nix::sys::signal::Signal;

pub(super) const CASES: &[Case] = &[Case {
    name: "firewalls",
    about: "firewalls let one port of each agent through: images, connections and pipes of a lost node go on by it, and agents have it again",
    run: firewalls,
}];

/// The agents' port.
const PORT: &str = "5123";

/// Three processes in a ring of TCP connections, one a node, and a pipeline that comes apart when node3 is lost.
const JOB: &str = "pids=; run() { ckptd rsh \"$@\" & pids=\"$pids $!\"; }; \
     for n in 0 1 2; do run node$((n + 1)) ring $n 7500 700 10000 node1 node2 node3; done; \
     run node3 'stream produce 700 10000 | stream filter | stream consume 700'; \
     for pid in $pids; do wait $pid || exit 1; done; echo all are right";

/// What nodes let in: their own, answers, the coordinator, the agents, and the ring.
const RULES: &str = "table inet ckptd {
    chain input {
        type filter hook input priority filter; policy drop;
        iif lo accept
        ct state established,related accept
        meta l4proto { icmp, icmpv6 } accept
        tcp dport { 7070, 5123, 7500-7502 } accept
    }
}";

fn firewalls(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { port: Some(PORT), ..Setup::new(3) })?;
    for number in 1..=3 {
        ckptd.node(number).must_run(&["nft", RULES])?;
    }
    check(!reaches(ckptd.node(2), &ckptd.node(1).address(), "5124")?, || {
        "the firewall is none".to_owned()
    })?;
    let mut job = start(&ckptd, "walled", &[], &["bash", "-c", JOB])?;
    for number in 1..=3 {
        listens_at_one_address(&ckptd, number)?;
    }
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    let status = job.status()?;
    let found = status.machines_of("node3", "stream");
    check(found.len() == 2, || format!("the pipeline is on {found:?}\n{}", status.text()))?;
    for number in 1..=2 {
        restart_agent(&ckptd, number)?;
    }
    job.must_end_with("all are right", JOB_LIMIT)
}

/// An agent has its port again, while connections of a job are open that were made by it.
fn restart_agent(ckptd: &Ckptd, number: usize) -> Result<(), Failure> {
    let status = ckptd.end_agent_by(number, Signal::SIGUSR1, LIMIT)?;
    check(status == 0, || format!("the agent ended with {status}"))?;
    check(listens_at_one_address(ckptd, number).is_err(), || "somebody has its port".into())?;
    ckptd.start_agent(number)?;
    let again = until("the agent has its port again", LIMIT, || {
        Ok(listens_at_one_address(ckptd, number).is_ok().then_some(()))
    });
    again.map_err(|failure| Failure(format!("{failure}: {}", ckptd.agent_errors(number))))
}

/// Whether a connection is answered at all, be it by a refusal.
fn reaches(from: &Node, address: &str, port: &str) -> Result<bool, Failure> {
    let connect = format!("timeout 2 bash -c 'exec 3<>/dev/tcp/{address}/{port}'");
    // 124: timeout(1) has ended it.
    Ok(from.run(&["sh", "-c", &connect], &[])?.status != 124)
}

/// Nothing of ckptd's waits for other machines but coordinator and agent, at the address of the cluster.
fn listens_at_one_address(ckptd: &Ckptd, number: usize) -> Result<(), Failure> {
    let node = ckptd.node(number);
    let own = node.address();
    // State, queues, local address.
    let sockets = node.must_run(&["ss", "-H", "-l", "-t", "-n"])?;
    let at = |line: &str| line.split_ascii_whitespace().nth(3).map(str::to_owned);
    let open: Vec<String> = sockets.lines().filter_map(at).filter(|at| !is_local(at)).collect();
    let expected = |address: &String| {
        let (host, port) = address.rsplit_once(':').unwrap_or_default();
        let host = host.trim_matches(['[', ']']).trim_start_matches("::ffff:");
        match port {
            // The ring's, whose program listens at all addresses.
            "7500" | "7501" | "7502" => true,
            "7070" => number == 1 && host == own,
            port => port == PORT && host == own,
        }
    };
    let agents = open.iter().filter(|address| address.ends_with(&format!(":{PORT}"))).count();
    check(agents == 1 && open.iter().all(expected), || {
        format!("{} listens at {open:?}", node.name())
    })
}

fn is_local(address: &str) -> bool {
    ["127.", "[::1]", "[::ffff:127."].iter().any(|local| address.starts_with(local))
}
