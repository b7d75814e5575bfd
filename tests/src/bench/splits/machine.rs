//! What nodes with a quota do in a second, by plain mpirun.

use std::collections::BTreeMap;
use std::time::Duration;

use super::run::told;
use crate::cluster::suite::Stage;
use crate::cluster::{Cluster, Share, Spec};
use crate::job::Failure;

const LIMIT: Duration = Duration::from_secs(120);
/// Ranks on each node while it is measured.
const RANKS: f64 = 4.0;
/// How long is measured, in seconds.
const LENGTH: f64 = 4.0;
/// mpirun with the settings that ckptd gives it on a cluster; ranks that wait let others run.
const MPI: [&str; 12] = [
    "mpirun.openmpi",
    "--oversubscribe",
    "--bind-to",
    "none",
    "--mca",
    "btl",
    "self,tcp",
    "--mca",
    "mpi_preconnect_mpi",
    "1",
    "--mca",
    "mpi_yield_when_idle",
];

/// What the coordinator's node may have, on any core, before everybody else: a busy machine is not to be taken for a lost
/// coordinator. It uses a small part of that.
pub const HEAD: Share = Share { cores: 0.5, core: None, first: true };

/// Quotas of nodes from node1 on, and the coordinator's. Each node has one core of the machine, the one with the most room,
/// and comes before everybody else there. Where they do not fit, nodes take time from each other, and no speed is true.
#[must_use]
pub fn shares(cores: &[f64]) -> BTreeMap<usize, Share> {
    let mut taken = vec![0.0; crate::bench::host::cores().max(1) as usize];
    let mut shares = BTreeMap::from([(0, HEAD)]);
    for (index, wanted) in cores.iter().enumerate() {
        let mut core = 0;
        for other in 1..taken.len() {
            if taken[other] < taken[core] - 1e-9 {
                core = other;
            }
        }
        taken[core] += wanted;
        let share = Share { cores: *wanted, core: u32::try_from(core).ok(), first: true };
        shares.insert(index + 1, share);
    }
    shares
}

/// Rounds of N-Queens that each of some nodes does in a second while all of them are at work.
///
/// # Errors
/// When mpirun fails, or gives a wrong answer.
pub fn calibrate<const NODES: usize>(
    stage: &Stage,
    cores: [f64; NODES],
    queens: u32,
) -> Result<[f64; NODES], Failure> {
    let spec = Spec { head: false, shares: shares(&cores), ..Spec::new(NODES) };
    let cluster = Cluster::start(&spec)?;
    cluster.share(stage.program("nqueens")?)?;
    let first = at_once(&cluster, queens, [RANKS; NODES])?;
    // Whole turns, so that all ranks have the same work.
    let rounds = first.map(|speed| ((LENGTH * speed / RANKS).round().max(1.0)) * RANKS);
    at_once(&cluster, queens, rounds)
}

fn at_once<const NODES: usize>(
    cluster: &Cluster,
    queens: u32,
    rounds: [f64; NODES],
) -> Result<[f64; NODES], Failure> {
    let queens = queens.to_string();
    let mut running = Vec::new();
    for (index, rounds) in rounds.iter().enumerate() {
        let (ranks, rounds) = (RANKS.to_string(), rounds.to_string());
        let rest = ["1", "-np", &ranks, "nqueens", &queens, "--rounds", &rounds, "--meet", &rounds];
        let words = [&MPI[..], &rest].concat();
        running.push(cluster.node(index + 1).spawn(&words, &[("PMIX_MCA_gds", "hash")])?);
    }
    let mut speeds = [0.0; NODES];
    for (mpirun, speed) in running.iter_mut().zip(&mut speeds) {
        let status = mpirun.wait(LIMIT)?;
        let found = told(&mpirun.output(), &queens).filter(|_| status == 0);
        let wrong = || mpirun.explain(&Failure(format!("mpirun ended with {status}")));
        let (rounds, seconds) = found.ok_or_else(wrong)?;
        *speed = rounds / seconds.max(1e-3);
    }
    Ok(speeds)
}
