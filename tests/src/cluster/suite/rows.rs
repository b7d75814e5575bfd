//! Each row of the table of what an object becomes whose ends come apart, by a small program of our own.

use super::stage::{JOB_LIMIT, LIMIT, Stage, start};
use super::{Case, check};
use crate::cluster::ckptd::Ckptd;
use crate::cluster::status::Status;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case { name: "ring", about: "plain TCP between nodes; one is lost", run: ring },
    Case {
        name: "pipeline-over-nodes",
        about: "producer, filter and consumer on three nodes; the filter's is lost",
        run: pipeline_over_nodes,
    },
    Case {
        name: "pipeline-split",
        about: "a pipeline within a lost node is spread: pipes become relays",
        run: pipeline_split,
    },
    Case { name: "terminal-split", about: "a pseudo-terminal's ends come apart", run: terminal },
    Case { name: "pair-stream", about: "a Unix stream pair comes apart", run: pair_stream },
    Case { name: "pair-dgram", about: "a Unix datagram pair comes apart", run: pair_dgram },
    Case {
        name: "pair-seqpacket",
        about: "a Unix seqpacket pair comes apart",
        run: pair_seqpacket,
    },
    Case {
        name: "family-split",
        about: "parent and children come apart: getppid, kill and wait stay right",
        run: family,
    },
    Case {
        name: "shared-together",
        about: "processes that share memory move together",
        run: shared,
    },
];

/// Rounds and their least length, microseconds: some 10 s.
const ROUNDS: [&str; 2] = ["1000", "10000"];

fn ring(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let script = format!(
        "pids=; for n in 0 1 2; do \
         ckptd rsh node$((n + 1)) ring $n 7500 {} {} node1 node2 node3 & pids=\"$pids $!\"; done; \
         for pid in $pids; do wait $pid || exit 1; done; echo the ring: right",
        ROUNDS[0], ROUNDS[1]
    );
    let mut job = start(&ckptd, "ring", &[], &["bash", "-c", &script])?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    let found = job.status()?.machines_of("node3", "ring");
    check(found.len() == 1 && !found.contains("node3"), || format!("its process is on {found:?}"))?;
    job.must_end_with("the ring: right", JOB_LIMIT)?;
    let right = job.output().lines().filter(|line| *line == "ring: right").count();
    check(right == 3, || format!("{right} of 3 processes are right\n{}", job.output()))
}

fn pipeline_over_nodes(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let [rounds, pace] = ROUNDS;
    let script = format!(
        "set -o pipefail; ckptd rsh node2 stream produce {rounds} {pace} | \
         ckptd rsh node3 stream filter | stream consume {rounds}"
    );
    let mut job = start(&ckptd, "pipeline", &[], &["bash", "-c", &script])?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    job.must_end_with("stream: right", JOB_LIMIT)
}

/// Runs a command on node3, kills node3, and looks where the processes of `program` have gone; then the job must
/// end with a line.
fn lose_node3(
    stage: &Stage,
    command: &str,
    line: &str,
    look: impl FnOnce(&Ckptd, &Status) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    // The shell in front keeps node1 in the job.
    let script = format!("ckptd rsh node3 {command}; exit $?");
    let mut job = start(&ckptd, "split", &[], &["bash", "-c", &script])?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    look(&ckptd, &job.status()?)?;
    job.must_end_with(line, JOB_LIMIT)
}

fn on_machines(
    program: &'static str,
    count: usize,
) -> impl FnOnce(&Ckptd, &Status) -> Result<(), Failure> {
    move |_, status| {
        let found = status.machines_of("node3", program);
        check(found.len() == count && !found.contains("node3"), || {
            format!("{program} is on {found:?}, not on {count} machines\n{}", status.text())
        })
    }
}

fn pipeline_split(stage: &Stage) -> Result<(), Failure> {
    let [rounds, pace] = ROUNDS;
    let command =
        format!("'stream produce {rounds} {pace} | stream filter | stream consume {rounds}'");
    lose_node3(stage, &command, "stream: right", on_machines("stream", 2))
}

fn terminal(stage: &Stage) -> Result<(), Failure> {
    let command = format!("terminal {}", ROUNDS.join(" "));
    lose_node3(stage, &command, "terminal: right", on_machines("terminal", 2))
}

fn pair(stage: &Stage, kind: &str) -> Result<(), Failure> {
    let command = format!("pair {kind} {}", ROUNDS.join(" "));
    lose_node3(stage, &command, "pair: right", on_machines("pair", 2))
}

fn pair_stream(stage: &Stage) -> Result<(), Failure> {
    pair(stage, "stream")
}

fn pair_dgram(stage: &Stage) -> Result<(), Failure> {
    pair(stage, "dgram")
}

fn pair_seqpacket(stage: &Stage) -> Result<(), Failure> {
    pair(stage, "seqpacket")
}

fn family(stage: &Stage) -> Result<(), Failure> {
    let command = format!("family {}", ROUNDS.join(" "));
    lose_node3(stage, &command, "family: right", on_machines("family", 2))
}

fn shared(stage: &Stage) -> Result<(), Failure> {
    let command = format!("shared {}", ROUNDS.join(" "));
    lose_node3(stage, &command, "shared: right", on_machines("shared", 1))
}
