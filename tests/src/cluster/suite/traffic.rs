//! What jobs send from machine to machine, where agents encrypt it: somebody listens at the bridge.

use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::job::ClusterJob;
use crate::cluster::{Capture, until};
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "traffic-encrypted",
        about: "MPI's messages are seen on the network without --encrypt-job-traffic, and never with it: not while the job \
                runs, not when it loses a node, not after that",
        run: encrypted,
    },
    Case {
        name: "traffic-agent-killed",
        about: "an agent that encrypts is killed and started again: connections live on, and nothing goes out meanwhile",
        run: agent_killed,
    },
    Case {
        name: "traffic-datagrams",
        about: "TCP and UDP by IPv4 and IPv6 go encrypted, packets of any length, through firewalls that let agents through; \
                ports that an operator keeps clear don't, and do without the agents",
        run: datagrams,
    },
    Case {
        name: "traffic-placed",
        about: "a job whose traffic is to be encrypted is on machines that do so, or nowhere; what an agent makes for it \
                goes with the agent",
        run: placed,
    },
];

/// NFS's, which agents leave as it is; and any other one.
const CLEAR_PORT: &str = "2049";
const OTHER_PORT: &str = "5000";
/// What nodes let in, as the guide has it: coordinator and agents, NFS, and what comes through the device.
const RULES: &str = "table inet ckptd {
    chain input {
        type filter hook input priority filter; policy drop;
        iif lo accept
        ct state established,related accept
        meta l4proto { icmp, icmpv6 } accept
        tcp dport { 7070, 17070, 2049 } accept
        udp dport 2049 accept
        iifname \"ckptd*\" accept
    }
}";
/// What the ranks send each other.
const MARKER: &str = "A-WORD-THAT-NOBODY-ELSE-MAY-READ";
/// The ports of coordinator and agents.
const PORTS: [u16; 2] = [7070, 17070];
/// The ranks go on until it is there.
const END: &str = "/mnt/shared/end";
const OPTION: &str = "--encrypt-job-traffic";

fn setup(nodes: usize) -> Setup {
    Setup { encrypting: (1..=nodes).collect(), ..Setup::new(nodes) }
}

/// Starts ranks on all nodes, two on each, and lets them come to a checkpoint.
fn start<'a>(ckptd: &'a Ckptd, options: &[&str], ranks: u32) -> Result<ClusterJob<'a>, Failure> {
    let ranks = ranks.to_string();
    let command =
        ["mpirun.openmpi", "-np", &ranks, "--mca", "mpi_yield_when_idle", "1", "talk", MARKER, END];
    super::stage::start(ckptd, "talk", options, &command)
}

fn finish(ckptd: &Ckptd, job: &mut ClusterJob<'_>) -> Result<(), Failure> {
    ckptd.cluster().share_script("end", "")?;
    job.must_end_with("talk: right", JOB_LIMIT)
}

fn nothing_is_clear(capture: &mut Capture, frames: u64) -> Result<u64, Failure> {
    let seen = capture.seen()?;
    check(seen.marked == 0 && seen.outside == 0 && seen.frames > frames, || {
        format!("on the network was {seen:?}, after {frames} frames")
    })?;
    Ok(seen.frames)
}

fn encrypted(stage: &Stage) -> Result<(), Failure> {
    control(stage)?;
    let ckptd = stage.cluster_of(setup(3))?;
    let mut capture = ckptd.cluster().capture(MARKER, &PORTS)?;
    let mut job = start(&ckptd, &[OPTION], 6)?;
    let frames = nothing_is_clear(&mut capture, 0)?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    job.wait_for_more_checkpoints(2, LIMIT)?;
    let found = job.status()?.machines_of("node3", "talk");
    check(!found.is_empty() && !found.contains("node3"), || format!("ranks are on {found:?}"))?;
    let frames = nothing_is_clear(&mut capture, frames)?;
    finish(&ckptd, &mut job)?;
    nothing_is_clear(&mut capture, frames).map(drop)
}

/// Without the agents' option the same messages are seen.
fn control(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(2)?;
    let mut capture = ckptd.cluster().capture(MARKER, &PORTS)?;
    let mut job = start(&ckptd, &[], 4)?;
    let seen = capture.seen()?;
    check(seen.marked > 0 && seen.outside > 0, || format!("on the network was {seen:?}"))?;
    finish(&ckptd, &mut job)
}

fn agent_killed(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { grace: 20, ..setup(2) })?;
    let mut capture = ckptd.cluster().capture(MARKER, &PORTS)?;
    let mut job = start(&ckptd, &[OPTION], 4)?;
    let mut frames = nothing_is_clear(&mut capture, 0)?;
    for number in [2, 1] {
        ckptd.kill_agent(number)?;
        // It goes on for a while without an agent.
        let left = ckptd.node(number).must_run(&["ip", "-d", "link", "show", "ckptd0"])?;
        check(left.contains("tun"), || format!("the device is gone: {left}"))?;
        std::thread::sleep(std::time::Duration::from_millis(700));
        ckptd.start_agent(number)?;
        ckptd.wait_for_members(&[1, 2])?;
        job.wait_for_more_checkpoints(2, LIMIT)?;
        frames = nothing_is_clear(&mut capture, frames)?;
    }
    let rollbacks = job.status()?.rollbacks()?.len();
    check(rollbacks == 0, || format!("{rollbacks} rollbacks"))?;
    finish(&ckptd, &mut job)?;
    nothing_is_clear(&mut capture, frames).map(drop)
}

fn datagrams(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(setup(2))?;
    for number in [1, 2] {
        ckptd.node(number).must_run(&["nft", RULES])?;
    }
    let mut server = ckptd.node(1).spawn(&["wire", "serve", CLEAR_PORT, OTHER_PORT], &[])?;
    server.wait_for_output("serving", LIMIT)?;
    let four = ckptd.node(1).address();
    let six = format!("fd00:c::{four}");
    let mut capture = ckptd.cluster().capture(MARKER, &PORTS)?;
    let mut frames = 0;
    for (protocol, host) in [("tcp", &four), ("udp", &four), ("tcp", &six), ("udp", &six)] {
        for bytes in ["64", "1472", "60000"] {
            ask(&ckptd, protocol, host, OTHER_PORT, bytes)?;
            frames = nothing_is_clear(&mut capture, frames)?;
        }
    }
    // The longest datagram that IPv4 has.
    ask(&ckptd, "udp", &four, OTHER_PORT, "65507")?;
    nothing_is_clear(&mut capture, frames)?;
    for number in [1, 2] {
        ckptd.kill_agent(number)?;
    }
    ask(&ckptd, "udp", &four, CLEAR_PORT, "64")?;
    ask(&ckptd, "tcp", &six, CLEAR_PORT, "64")?;
    let seen = capture.seen()?;
    check(seen.marked > 0, || format!("the network is not seen: {seen:?}"))?;
    // What leads nowhere without agents is not seen, nor without the device.
    let lost = || {
        let words = ["timeout", "3", "wire", "ask", "udp", &four, OTHER_PORT, "1", "64", MARKER];
        ckptd.node(2).run(&words, &[])
    };
    let without_agent = lost()?;
    ckptd.node(2).must_run(&["ip", "link", "delete", "ckptd0"])?;
    let without_device = lost()?;
    let (after, fail) = (capture.seen()?, without_agent.status != 0 && without_device.status != 0);
    check(fail && after.marked == seen.marked, || {
        format!("{without_agent:?}, {without_device:?}: {after:?}")
    })
}

/// Has messages sent from node2 to node1 and back.
fn ask(ckptd: &Ckptd, protocol: &str, host: &str, port: &str, bytes: &str) -> Result<(), Failure> {
    let words = ["wire", "ask", protocol, host, port, "20", bytes, MARKER];
    ckptd.node(2).must_run(&words).map(drop)
}

fn placed(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { encrypting: [2].into(), ..Setup::new(2) })?;
    let run = |name, command: &[&str]| {
        ckptd.ckptd(1, &[&["run", "--name", name, OPTION, "--"], command].concat())
    };
    let job = run("there", &["hostname"])?;
    check(job.status == 0 && job.stdout.contains("node2"), || format!("it ran so: {job:?}"))?;
    let shell = run("shell", &["ckptd", "rsh", "node1", "true"])?;
    check(shell.status != 0 && shell.stderr.contains(OPTION), || format!("a shell: {shell:?}"))?;
    // Where jobs' traffic was encrypted, nothing of that is left when the agent has gone.
    check(leftovers(&ckptd, 2)?.contains("ckptd0"), || "there was no device".to_owned())?;
    let status = ckptd.end_agent(2, LIMIT)?;
    check(status == 0, || format!("the agent ended with {status}"))?;
    let left = leftovers(&ckptd, 2)?;
    check(left.is_empty(), || format!("the agent has left {left}"))?;
    let refused = run("nowhere", &["hostname"])?;
    check(refused.status == 125 && refused.stderr.contains(OPTION), || {
        format!("it was not refused: {refused:?}")
    })?;
    cleared_by_hand(&ckptd)
}

/// What a killed agent has left stays, until somebody takes it away.
fn cleared_by_hand(ckptd: &Ckptd) -> Result<(), Failure> {
    ckptd.start_agent(2)?;
    ckptd.wait_for_members(&[2])?;
    let rules = until("rules are there", LIMIT, || {
        let left = leftovers(ckptd, 2)?;
        Ok((left.contains("17070") && left.contains("ckptd0")).then_some(left))
    })?;
    ckptd.kill_agent(2)?;
    check(leftovers(ckptd, 2)? == rules, || "it did not stay".to_owned())?;
    let cleared = ckptd.ckptd(2, &["agent", "--clear-job-traffic"])?;
    let left = leftovers(ckptd, 2)?;
    check(cleared.status == 0 && left.is_empty(), || format!("{cleared:?} has left {left}"))
}

/// Devices, rules and routes of agents.
fn leftovers(ckptd: &Ckptd, number: usize) -> Result<String, Failure> {
    let script = "ip -br link show type tun | cut -d ' ' -f 1; ip rule | grep 1707; ip -6 rule | grep 1707; \
                  ip route show table 17070 2>/dev/null; true";
    ckptd.node(number).must_run(&["sh", "-c", script]).map(|text| text.trim().to_owned())
}
