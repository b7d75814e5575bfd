//! Other run times than Open MPI with six ranks: MPICH, mpi4py, and Open MPI while it starts.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use super::leaving::announce;
use super::open_mpi::{ANSWER, END};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::Spec;
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::job::ClusterJob;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "mpich-kill",
        about: "MPICH: a node is killed, its proxy and its ranks go to different survivors",
        run: mpich_kill,
    },
    Case {
        name: "mpich-placement-node",
        about: "MPICH with its defaults: shared memory stays on, and a node's processes move as one",
        run: mpich_placement_node,
    },
    Case {
        name: "mpich-leave",
        about: "MPICH: a machine announces its departure, its proxy and its ranks move",
        run: mpich_leave,
    },
    Case {
        name: "mpich-join",
        about: "MPICH: a machine joins, and takes over a rank of two that share a core",
        run: mpich_join,
    },
    Case { name: "mpi4py-kill", about: "mpi4py: a node is killed", run: mpi4py_kill },
    Case {
        name: "starts",
        about: "Open MPI is checkpointed while it starts, and stopped and restarted, or loses a node",
        run: starts,
    },
];

/// How long ranks of MPICH rest before MPI_Finalize, ms.
const SETTLE: &str = "1000";
/// Times from the start of a job to its checkpoint, ms: a sample of what the program `starts` goes through. After
/// the last one a node is lost.
const SAMPLE: [u64; 2] = [120, 300];
/// Answers of `ckptd checkpoint` that say: not now.
const NOT_YET: [&str; 5] =
    ["no job", "none of that name", "is not running", "not complete yet", "try again"];
/// The last line of a job that was checkpointed at its start.
const START_ANSWER: &str = "N=11: 2680 solutions";
/// A checkpoint of a job that starts may be put off that long.
const PUT_OFF: Duration = Duration::from_secs(20);

/// Starts two ranks of MPICH, the last one on the node that is named, and lets them come to a checkpoint. They rest before MPI_Finalize, where by itself this MPICH
/// hangs if a rank comes there while another is still in the barrier: see tests/nqueens. More ranks would take long,
/// since on two cores each spins while another has something to do.
pub(super) fn start_mpich<'a>(
    ckptd: &'a Ckptd,
    options: &[&str],
    hosts: &[&str],
    last: &str,
) -> Result<ClusterJob<'a>, Failure> {
    let program = ["-n", "2", "nqueens.mpich", "13", "--ballast", "16", "--chat", "40"];
    let command =
        [&["mpiexec.hydra"], hosts, &program, &["--until", END, "--settle", SETTLE]].concat();
    let options = [&["--interval", "1"], options].concat();
    let mut job = ckptd.run(1, "queens", &options, &command)?;
    job.wait_for_output(&format!("rank 1 of 2 on {last}"), LIMIT)?;
    job.wait_for_more_checkpoints(2, LIMIT)?;
    Ok(job)
}

fn end(ckptd: &Ckptd, job: &mut ClusterJob<'_>, line: &str) -> Result<(), Failure> {
    ckptd.cluster().share_script("end", "")?;
    job.must_end_with(line, JOB_LIMIT)
}

fn mpich_kill(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start_mpich(&ckptd, &[], &["-hosts", "node2:2"], "node2")?;
    ckptd.kill_node(2)?;
    job.wait_for_rollback(1, LIMIT)?;
    let status = job.status()?;
    let ranks = status.machines_of("node2", "nqueens.mpich");
    let proxy = status.machines_of("node2", "hydra_pmi_proxy");
    let gone = ranks.len() == 2 && !ranks.contains("node2") && !proxy.contains("node2");
    check(gone && proxy.len() == 1, || {
        format!("the ranks are on {ranks:?}, their proxy on {proxy:?}\n{}", status.text())
    })?;
    end(&ckptd, &mut job, ANSWER)
}

fn mpich_leave(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start_mpich(&ckptd, &[], &["-hosts", "node2:1,node3:1"], "node3")?;
    announce(&ckptd, &mut job)?;
    let status = job.status()?;
    let on = ["nqueens.mpich", "hydra_pmi_proxy"].map(|process| status.spread_of(process));
    check(on.iter().all(|on| !on.contains_key("node3")), || format!("{on:?}\n{}", status.text()))?;
    ckptd.kill_node(3)?;
    end(&ckptd, &mut job, ANSWER)
}

fn mpich_join(stage: &Stage) -> Result<(), Failure> {
    let spec = Spec { cores: Some(1.0), ..Spec::new(3) };
    let ckptd = stage.cluster_of(Setup { spec, agents: 2, ..Setup::new(3) })?;
    let mut job = start_mpich(&ckptd, &[], &["-hosts", "node2:2"], "node2")?;
    let token = ckptd.new_token(&["--uses", "1"])?;
    let agent = ckptd.join(3, &token, "node3")?;
    job.wait_for_rollback(1, LIMIT).map_err(|failure| agent.explain(&failure))?;
    let status = job.status()?;
    let ranks = status.spread_of("nqueens.mpich");
    check(ranks.len() == 2 && ranks.contains_key("node3"), || {
        format!("the ranks are on {ranks:?}\n{}", status.text())
    })?;
    end(&ckptd, &mut job, ANSWER)
}

fn mpich_placement_node(stage: &Stage) -> Result<(), Failure> {
    let setup = Setup { slots: 1, ..Setup::new(3) };
    let ckptd = stage.cluster_of(setup)?;
    // Each rank has a segment of its own, and hydra is told the hosts by ckptd.
    let mut job = start_mpich(&ckptd, &["--placement", "node"], &[], "node2")?;
    ckptd.kill_node(2)?;
    job.wait_for_rollback(1, LIMIT)?;
    let status = job.status()?;
    let found: BTreeSet<String> = ["nqueens.mpich", "hydra_pmi_proxy"]
        .iter()
        .flat_map(|program| status.machines_of("node2", program))
        .collect();
    check(found.len() == 1 && !found.contains("node2"), || {
        format!("the processes of node2 are on {found:?}\n{}", status.text())
    })?;
    end(&ckptd, &mut job, ANSWER)
}

fn mpi4py_kill(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let script = ckptd.cluster().share(&stage.script("allreduce.py"))?;
    // The Debian package is that python's.
    let command = ["mpirun.openmpi", "-np", "6", "--mca", "mpi_yield_when_idle", "1"];
    let command = [&command[..], &["/usr/bin/python3", &script, END]].concat();
    let mut job = ckptd.run(1, "allreduce", &["--interval", "1"], &command)?;
    job.wait_for_output("rank 5 of 6 on node3", LIMIT)?;
    job.wait_for_more_checkpoints(2, LIMIT)?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    let found = job.status()?.machines_of("node3", "python3");
    check(found.len() == 2 && !found.contains("node3"), || format!("its ranks are on {found:?}"))?;
    end(&ckptd, &mut job, "allreduce: right")
}

fn starts(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let [first, last] = SAMPLE.map(Duration::from_millis);
    restart_at(&ckptd, first)?;
    lose_at(&ckptd, last).map(drop)
}

/// Starts six ranks of Open MPI, and asks for a checkpoint so long after. Whether the ranks worked already when it was asked
/// for.
fn checkpoint_at(ckptd: &Ckptd, after: Duration) -> Result<(ClusterJob<'_>, bool), Failure> {
    let name = format!("start{}", after.as_millis());
    let mpi = ["mpirun.openmpi", "-np", "6", "--mca", "mpi_yield_when_idle", "1", "nqueens"];
    let command = [&mpi[..], &["11", "--ballast", "1", "--chat", "40", "--until", END]].concat();
    let begun = Instant::now();
    let mut job = ckptd.run(1, &name, &["--interval", "0"], &command)?;
    std::thread::sleep(after.saturating_sub(begun.elapsed()));
    let worked = job.output().contains("rank ");
    loop {
        let answer = ckptd.ckptd(1, &["checkpoint", &name])?;
        if answer.status == 0 {
            return Ok((job, worked));
        }
        let put_off = NOT_YET.iter().any(|words| answer.stderr.contains(words));
        let over =
            !put_off || begun.elapsed() > after + PUT_OFF || job.launcher().ended()?.is_some();
        check(!over, || {
            job.explain(&Failure(format!("{name}: checkpoint: {}", answer.stderr.trim()))).0
        })?;
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Checkpoints a job of Open MPI so long after its start, stops it and restarts it from there; it must come to the right
/// end. Whether the ranks worked already at the checkpoint.
///
/// # Errors
/// When anything of that does not work.
pub fn restart_at(ckptd: &Ckptd, after: Duration) -> Result<bool, Failure> {
    let (mut job, worked) = checkpoint_at(ckptd, after)?;
    let stopped = ckptd.ckptd(2, &["stop", job.name()])?;
    check(stopped.status == 0, || format!("stop: {}", stopped.stderr))?;
    job.wait(LIMIT)?;
    ckptd.cluster().share_script("end", "")?;
    let ended = ckptd.restart(2, job.name())?.must_end_with(START_ANSWER, JOB_LIMIT);
    let _ = fs::remove_file(ckptd.cluster().folder().join("shared/end"));
    ended.map_err(|failure| job.explain(&failure))?;
    Ok(worked)
}

/// Checkpoints a job of Open MPI so long after its start, and kills a node once its ranks work: they go back to the checkpoint
/// without it, to different machines, and must come to the right end. Whether the ranks worked already at the checkpoint.
///
/// # Errors
/// When anything of that does not work.
pub fn lose_at(ckptd: &Ckptd, after: Duration) -> Result<bool, Failure> {
    let (mut job, worked) = checkpoint_at(ckptd, after)?;
    job.wait_for_output("rank 5 of 6 on node3", LIMIT)?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    ckptd.cluster().share_script("end", "")?;
    job.must_end_with(START_ANSWER, JOB_LIMIT)?;
    Ok(worked)
}
