//! Ranks with shared memory in groups of two (`--group 2`): two on node1, two on node2, and two groups on node3, which is
//! lost.

use super::open_mpi;
use super::packaged::{self, INTEL_MPI, MPICH_5, OPEN_MPI_5, RunTime};
use super::stage::{LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::job::ClusterJob;
use crate::job::Failure;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "openmpi-groups",
        about: "Open MPI 4: ranks have shared memory in pairs, and the pairs of a lost node go to different survivors",
        run: open_mpi_4,
    },
    Case {
        name: "openmpi5-groups",
        about: "Open MPI 5: ranks have shared memory in pairs, and the pairs of a lost node go to different survivors",
        run: |stage| package(stage, &OPEN_MPI_5),
    },
    Case {
        name: "mpich5-groups",
        about: "MPICH 5: ranks have shared memory in pairs, and the pairs of a lost node go to different survivors",
        run: |stage| package(stage, &MPICH_5),
    },
    Case {
        name: "intelmpi-groups",
        about: "Intel MPI: ranks have shared memory in pairs, and the pairs of a lost node go to different survivors",
        run: |stage| package(stage, &INTEL_MPI),
    },
];

const GROUPS: [&str; 2] = ["--group", "2"];
const RANKS: [&str; 2] = ["-n", "8"];
/// What the last rank says of itself: its host is node3's second group.
const LAST: &str = "rank 7 of 8 on node3--2";

/// Three nodes with room for one group, one, and two.
fn cluster(stage: &Stage) -> Result<Ckptd, Failure> {
    stage.cluster_of(Setup { slots_of: BTreeMap::from([(3, 4)]), ..Setup::new(3) })
}

fn open_mpi_4(stage: &Stage) -> Result<(), Failure> {
    let ckptd = cluster(stage)?;
    let options = [&["--interval", "1"][..], &GROUPS].concat();
    let launcher = ["mpirun.openmpi", "--mca", "mpi_yield_when_idle", "1"];
    let program = ["nqueens", "13", "--ballast", "16", "--chat", "40", "--until", open_mpi::END];
    let command = [&launcher[..], &RANKS, &program].concat();
    let mut job = ckptd.run(1, "queens", &options, &command)?;
    lose_node_3(&ckptd, &mut job, "nqueens")?;
    open_mpi::finish(&ckptd, &mut job)
}

fn package(stage: &Stage, run_time: &RunTime) -> Result<(), Failure> {
    let ckptd = cluster(stage)?;
    let script = ["allreduce.py", open_mpi::END];
    let job = packaged::run(stage, &ckptd, run_time, (&GROUPS, &RANKS), &script)?;
    let Some(mut job) = job else { return Ok(()) };
    lose_node_3(&ckptd, &mut job, "python")?;
    packaged::finish(&ckptd, &mut job)
}

/// Kills node3, once the job has checkpoints; its groups must go to different machines, each as one.
fn lose_node_3(ckptd: &Ckptd, job: &mut ClusterJob<'_>, program: &str) -> Result<(), Failure> {
    job.wait_for_output(LAST, LIMIT)?;
    job.wait_for_more_checkpoints(2, LIMIT)?;
    for (node, groups) in [(1, 1), (2, 1), (3, 2)] {
        pairs(ckptd, node, program, groups)?;
    }
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    let status = job.status()?;
    let found = status.machines_of("node3", program);
    check(found.len() == 2 && !found.contains("node3"), || {
        format!("the groups of node3 are on {found:?}\n{}", status.text())
    })?;
    let mut hosts = BTreeMap::new();
    for node in [1, 2] {
        pairs(ckptd, node, program, 2)?;
        let names = format!("for p in $(pgrep -x {program}); do nsenter -t $p -u hostname; done");
        for name in ckptd.node(node).must_run(&["sh", "-c", &names])?.lines() {
            *hosts.entry(name.to_owned()).or_default() += 1;
        }
    }
    let kept = ["node1", "node2", "node3", "node3--2"].map(|name| (name.to_owned(), 2));
    check(hosts == BTreeMap::from(kept), || format!("host names inside: {hosts:?}"))
}

/// The ranks on a node are so many pairs, each with memory in common and none with others.
fn pairs(ckptd: &Ckptd, node: usize, program: &str, groups: usize) -> Result<(), Failure> {
    let list = format!("for p in $(pgrep -x {program}); do sed \"s/^/$p /\" /proc/$p/maps; done");
    let maps = ckptd.node(node).must_run(&["sh", "-c", &list])?;
    let found = sharing(&maps);
    check(found.len() == groups && found.iter().all(|group| group.len() == 2), || {
        let shared: Vec<&str> = maps.lines().filter(|line| line.contains(" rw-s ")).collect();
        format!(
            "processes with memory in common on node{node}: {found:?}, not {groups} pairs\n{}",
            shared.join("\n")
        )
    })
}

/// Sets of processes with memory in common, from the lines of their /proc/PID/maps, each with the process's number before
/// it. Segments of System V are left out: their numbers are those of an IPC namespace, and groups are in several.
fn sharing(maps: &str) -> Vec<BTreeSet<&str>> {
    let mut groups: Vec<BTreeSet<&str>> = Vec::new();
    let mut holders: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(pid), Some(_), Some(rights)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let (Some(_), Some(device), Some(inode)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        if !groups.iter().any(|group| group.contains(pid)) {
            groups.push(BTreeSet::from([pid]));
        }
        let is_segment = words.next().is_some_and(|path| path.starts_with("/SYSV"));
        if rights.starts_with("rw") && rights.ends_with('s') && !is_segment {
            holders.entry((device, inode)).or_default().insert(pid);
        }
    }
    for of_one in holders.values() {
        let (joined, others): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|group| !group.is_disjoint(of_one));
        groups = others;
        groups.push(joined.into_iter().flatten().collect());
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_in_common_joins_processes() {
        let maps = "1 7f00-7f10 rw-s 00000000 00:2b 7 /dev/shm/a\n1 7f20-7f30 r-xp 0 00:2b 9 /lib/c\n\
                    2 7f00-7f10 rw-s 00000000 00:2b 8 /dev/shm/b\n2 7f00-7f10 r--s 0 00:2b 9 /lib/c\n\
                    1 7f30-7f40 rw-s 0 00:11 7 /SYSV00000000 (deleted)\n2 7f30-7f40 rw-s 0 00:11 7 /SYSV00000000 (deleted)\n\
                    3 7f00-7f10 rw-s 00000000 00:2b 8 /dev/shm/b (deleted)\n3 7f20-7f30 r--s 0 00:2b 9 /lib/c\n";
        let found = sharing(maps);
        let sizes: Vec<usize> = found.iter().map(BTreeSet::len).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 3);
        assert!(found.contains(&BTreeSet::from(["2", "3"])), "{found:?}");
    }
}
