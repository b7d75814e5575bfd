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
    spread(cores, 0)
}

/// The same, but that node1 and node2, which remain when others are lost, have the last core for themselves. What is done on one
/// core is slowed down by what is done on the next one at the same moment, as they share caches and maybe a core of the
/// real machine; and how much of both nodes' quotas falls into the same moments is a matter of chance, which would decide how long
/// a run takes.
#[must_use]
pub fn shares_of_remaining(cores: &[f64]) -> BTreeMap<usize, Share> {
    spread(cores, 2)
}

/// `apart`: so many of the first nodes have the last core for themselves.
fn spread(cores: &[f64], apart: usize) -> BTreeMap<usize, Share> {
    let mut taken = vec![0.0; crate::bench::host::cores().max(1) as usize];
    let last = taken.len() - 1;
    let open = if apart > 0 && last > 0 { last } else { last + 1 };
    let head = (apart > 0).then_some(0);
    let mut shares = BTreeMap::from([(0, Share { core: head, ..HEAD })]);
    for (index, wanted) in cores.iter().enumerate() {
        let mut core = if index < apart { last } else { 0 };
        for other in 1..open {
            if index >= apart && taken[other] < taken[core] - 1e-9 {
                core = other;
            }
        }
        taken[core] += wanted;
        let share = Share { cores: *wanted, core: u32::try_from(core).ok(), first: true };
        shares.insert(index + 1, share);
    }
    shares
}

/// Rounds of N-Queens that each of some nodes with these `shares` does in a second while all of them are at work.
///
/// # Errors
/// When mpirun fails, or gives a wrong answer.
pub fn calibrate<const NODES: usize>(
    stage: &Stage,
    shares: BTreeMap<usize, Share>,
    queens: u32,
) -> Result<[f64; NODES], Failure> {
    let spec = Spec { head: false, shares, ..Spec::new(NODES) };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_remains_has_a_core_apart() {
        let last = crate::bench::host::cores().max(1) - 1;
        let shares = shares_of_remaining(&[0.45, 0.45, 0.45]);
        let core = |node: usize| shares[&node].core;
        assert_eq!((core(1), core(2)), (Some(last), Some(last)));
        assert_eq!((core(0), core(3)), (Some(0), Some(0)));
        assert_eq!(super::shares(&[0.4, 0.4])[&0].core, None);
    }
}
