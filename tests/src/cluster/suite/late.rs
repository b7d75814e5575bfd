//! Connections that are made after a move.

use super::stage::{JOB_LIMIT, LIMIT, Stage, start};
use super::{Case, open_mpi};
use crate::cluster::job::ClusterJob;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "listener-port-taken",
        about: "a listener comes to a machine where its port is taken, and is reached still",
        run: listener,
    },
    Case {
        name: "late-connections",
        about: "all connect to all after a split, by IPv4 and IPv6; all addresses are what they were",
        run: late,
    },
    Case {
        name: "late-unanswered",
        about: "connections that nobody has answered yet move with both of their ends, and are made",
        run: unanswered,
    },
    Case {
        name: "late-openmpi",
        about: "ranks that have never spoken to each other do so after a split",
        run: open_mpi,
    },
    Case {
        name: "no-rewire-openmpi",
        about: "--no-rewire-connect: what was connected before a loss goes on to the right answer",
        run: no_rewire,
    },
    Case {
        name: "no-rewire-listener",
        about: "--no-rewire-connect: who has moved is not found at its address any more",
        run: no_rewire_listener,
    },
    Case {
        name: "spawn-openmpi",
        about: "ranks start others by MPI_Comm_spawn on all nodes, and all speak to all",
        run: |stage| spawn(stage, false),
    },
    Case {
        name: "spawn-openmpi-split",
        about: "ranks start others by MPI_Comm_spawn after a split, and all speak to all",
        run: |stage| spawn(stage, true),
    },
];

/// Rounds and their least length, microseconds: some 10 s.
const ROUNDS: [&str; 2] = ["1000", "10000"];
/// The processes go on when it is there.
const GO: &str = "/mnt/shared/go";

/// Servers on all nodes, and who connects to each of them all the time.
fn ask_listeners() -> String {
    let [rounds, pace] = ROUNDS;
    format!(
        "for n in 1 2 3; do ckptd rsh node$n listener serve 7600 & done; \
         listener ask 7600 {rounds} {pace} node1 node2 node3 || exit 1; wait"
    )
}

fn listener(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, "listener", &[], &["bash", "-c", &ask_listeners()])?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    job.must_end_with("listener: right", JOB_LIMIT)
}

fn late(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let hosts = "node1 node2 node3 node3";
    // The two processes of node3 go to different machines.
    let script = format!(
        "pids=; run() {{ ckptd rsh \"$@\" & pids=\"$pids $!\"; }}; \
         run node1 late 0 7600 {GO} {hosts}; run node2 late 1 7600 {GO} {hosts}; \
         run node3 'late 2 7600 {GO} {hosts} & pid=$!; late 3 7600 {GO} {hosts} && wait $pid'; \
         for pid in $pids; do wait $pid || exit 1; done; echo all are right"
    );
    let mut job = start(&ckptd, "late", &[], &["bash", "-c", &script])?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    let found = job.status()?.machines_of("node3", "late");
    super::check(found.len() == 2, || format!("its processes are on {found:?}"))?;
    wait_for_another_checkpoint(&mut job)?;
    ckptd.cluster().share_script("go", "")?;
    job.must_end_with("all are right", JOB_LIMIT)
}

/// The listener that is asked is on the lost node, and so is another one's asker.
fn unanswered(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let script = format!(
        "pids=; run() {{ ckptd rsh \"$@\" & pids=\"$pids $!\"; }}; \
         run node2 connecting serve 7601 {GO} node3; run node3 connecting serve 7602 {GO} node1; \
         run node3 connecting ask 7601 {GO} node2; run node1 connecting ask 7602 {GO} node3; \
         for pid in $pids; do wait $pid || exit 1; done; echo all are right"
    );
    let mut job = start(&ckptd, "connecting", &[], &["bash", "-c", &script])?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    wait_for_another_checkpoint(&mut job)?;
    ckptd.cluster().share_script("go", "")?;
    job.must_end_with("all are right", JOB_LIMIT)
}

fn open_mpi(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mpi = ["mpirun.openmpi", "-np", "6", "--mca", "mpi_yield_when_idle", "1"];
    let command = [&mpi[..], &["--mca", "mpi_preconnect_mpi", "0", "exchange", GO]].concat();
    let mut job = start(&ckptd, "exchange", &[], &command)?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    wait_for_another_checkpoint(&mut job)?;
    ckptd.cluster().share_script("go", "")?;
    job.must_end_with("exchange: right", JOB_LIMIT)
}

fn spawn(stage: &Stage, lose: bool) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mpi =
        ["mpirun.openmpi", "-np", "3", "--map-by", "node", "--mca", "mpi_yield_when_idle", "1"];
    let hosts = ckptd.cluster().share_script("hosts", "node1\nnode2\nnode3\n")?;
    let command = [&mpi[..], &["spawn", GO, "3", &hosts]].concat();
    let mut job = start(&ckptd, "spawn", &[], &command)?;
    if lose {
        ckptd.kill_node(3)?;
        job.wait_for_rollback(1, LIMIT)?;
    }
    wait_for_another_checkpoint(&mut job)?;
    ckptd.cluster().share_script("go", "")?;
    job.must_end_with("spawn: right", JOB_LIMIT)
}

fn no_rewire(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = open_mpi::start(&ckptd, &["--no-rewire-connect"], "nqueens")?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    open_mpi::spread(&mut job, "node3", 2)?;
    open_mpi::finish(&ckptd, &mut job)
}

fn no_rewire_listener(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let options = ["--no-rewire-connect"];
    let mut job = start(&ckptd, "listener", &options, &["bash", "-c", &ask_listeners()])?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    let status = job.wait(JOB_LIMIT)?;
    let (output, errors) = (job.output(), job.errors());
    // Nobody is at its address; or, where two are on one machine now, whoever came first has the port.
    let said = format!("{output}{errors}");
    let lost = said.contains("connect: ") || said.contains(" answered for ");
    super::check(status == 1 && lost && !output.contains("listener: right"), || {
        job.explain(&Failure(format!("the job ended with status {status}"))).0
    })
}

/// What has moved can be checkpointed again.
fn wait_for_another_checkpoint(job: &mut ClusterJob<'_>) -> Result<(), Failure> {
    job.wait_for_more_checkpoints(1, LIMIT).map(drop)
}
