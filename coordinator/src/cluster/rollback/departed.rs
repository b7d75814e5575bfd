//! Daemons that are not brought back: what they started goes on without them.
//!
//! A daemon is what an instance begins with, where that has children: `orted` below a shell's instance, and
//! the shell that was asked to start it. The job's first process is none, whatever it started.

use crate::cluster::entry::{DepartedDaemon, ImageRecord};
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::image::ProcessFacts;
use std::collections::{BTreeMap, BTreeSet};

/// The init of an instance, as its processes see it.
const INIT: i32 = 1;

/// Programs that stand between a remote shell and the daemon that it starts.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "ksh", "zsh", "busybox", "env"];

/// Who does not come back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Departing {
    /// By instance.
    pub(super) pids: BTreeMap<InstanceId, BTreeSet<i32>>,
    /// Lines about daemons that come back all the same.
    pub(super) kept: Vec<String>,
}

impl Departing {
    /// Nothing of this instance comes back.
    pub(super) fn take_whole(&mut self, instance: InstanceId, image: &ImageRecord) {
        let all = image.facts.processes.iter().map(|process| process.pid).collect();
        self.pids.insert(instance, all);
    }

    /// Whether nothing of this instance comes back.
    pub(super) fn is_whole(&self, instance: InstanceId, image: &ImageRecord) -> bool {
        self.pids.get(&instance).is_some_and(|pids| {
            image.facts.processes.iter().all(|process| pids.contains(&process.pid))
        })
    }

    /// For the log.
    pub(super) fn daemons(
        &self,
        images: &BTreeMap<InstanceId, ImageRecord>,
    ) -> Vec<DepartedDaemon> {
        let mut daemons = Vec::new();
        for (instance, pids) in &self.pids {
            let Some(image) = images.get(instance) else { continue };
            let processes = image.facts.processes.iter();
            daemons.extend(processes.filter(|process| pids.contains(&process.pid)).map(
                |process| DepartedDaemon {
                    node: image.node.clone(),
                    logical_node: image.logical_node.clone(),
                    pid: process.pid,
                    name: process.name.clone(),
                },
            ));
        }
        daemons
    }
}

/// The image that has the job's first process: that of the lowest number, since parts are numbered in
/// the order of the instances that they come from.
fn root_image(images: &BTreeMap<InstanceId, ImageRecord>) -> Option<InstanceId> {
    images.iter().find(|(_, image)| image.facts.root.is_some()).map(|(instance, _)| *instance)
}

/// Whether an image has nothing in it but daemons, and not the job's first process.
pub(super) fn is_daemons_only(
    instance: InstanceId,
    images: &BTreeMap<InstanceId, ImageRecord>,
) -> bool {
    let Some(image) = images.get(&instance) else { return false };
    let idle = image.facts.units.iter().all(|unit| unit.load == 0);
    idle && !image.facts.units.is_empty() && root_image(images) != Some(instance)
}

/// The daemons of images whose machine is not there, where the user wants it so.
pub(super) fn fallback(
    images: &BTreeMap<InstanceId, ImageRecord>,
    is_there: impl Fn(&NodeName) -> bool,
) -> Departing {
    let mut departing = Departing::default();
    let root = root_image(images);
    for (instance, image) in images {
        if root == Some(*instance) || is_there(&image.node) {
            continue;
        }
        let (going, staying) = partition(image);
        for pid in staying {
            let name = image.facts.processes.iter().find(|process| process.pid == pid);
            let name = name.map_or("", |process| process.name.as_str());
            departing.kept.push(format!(
                "{name} ({pid}) of {} is restored all the same: it shares memory or a descriptor \
                 with its children",
                image.node
            ));
        }
        if !going.is_empty() {
            departing.pids.insert(*instance, going);
        }
    }
    departing
}

/// The daemons of one image that its other processes can do without: none of the one with the job's first
/// process.
pub(super) fn dispensable(
    instance: InstanceId,
    images: &BTreeMap<InstanceId, ImageRecord>,
) -> BTreeSet<i32> {
    let image = images.get(&instance).filter(|_| root_image(images) != Some(instance));
    image.map(|image| partition(image).0).unwrap_or_default()
}

/// The daemons of one image: those that the others can do without, and those that share memory with others.
fn partition(image: &ImageRecord) -> (BTreeSet<i32>, BTreeSet<i32>) {
    let daemons = daemons(image);
    let apart = |pid: &i32| {
        let unit = image.facts.units.iter().find(|unit| unit.pids.contains(pid));
        unit.is_some_and(|unit| unit.pids.iter().all(|other| daemons.contains(other)))
    };
    daemons.iter().copied().partition(apart)
}

/// The daemons of one image.
fn daemons(image: &ImageRecord) -> BTreeSet<i32> {
    let facts = &image.facts;
    let works: BTreeSet<i32> = facts
        .units
        .iter()
        .filter(|unit| unit.pids.len() == 1 && unit.load > 0)
        .flat_map(|unit| unit.pids.iter().copied())
        .collect();
    let children = |pid: i32| facts.processes.iter().filter(move |process| process.parent == pid);
    // In a unit of several nobody says who of them works: who has children does not.
    let is_parent = |process: &ProcessFacts| {
        let alone = facts.units.iter().any(|unit| unit.pids == [process.pid]);
        if alone { !works.contains(&process.pid) } else { children(process.pid).next().is_some() }
    };
    let mut daemons = BTreeSet::new();
    let mut next: Vec<&ProcessFacts> = children(INIT).filter(|top| is_parent(top)).collect();
    while let Some(process) = next.pop() {
        if !daemons.insert(process.pid) || !SHELLS.contains(&process.name.as_str()) {
            continue;
        }
        let below: Vec<&ProcessFacts> = children(process.pid).collect();
        if let [only] = below[..] {
            next.extend(is_parent(only).then_some(only));
        }
    }
    daemons
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::cluster::text;
    use protocol::cluster::image::{ImageFacts, Unit};

    pub(in super::super) fn image(
        node: &str,
        root: Option<i32>,
        processes: &[(i32, i32, &str)],
    ) -> ImageRecord {
        let parents: Vec<i32> = processes.iter().map(|(_, parent, _)| *parent).collect();
        let facts = ImageFacts {
            root,
            processes: processes
                .iter()
                .map(|(pid, parent, name)| ProcessFacts {
                    pid: *pid,
                    parent: *parent,
                    name: (*name).to_owned(),
                    threads: 1,
                    bytes: 1,
                })
                .collect(),
            units: processes
                .iter()
                .map(|(pid, ..)| Unit {
                    pids: vec![*pid],
                    bytes: 1,
                    load: u32::from(!parents.contains(pid)),
                    because: String::new(),
                })
                .collect(),
            requirements: Default::default(),
            at_stake: Vec::new(),
            digest: String::new(),
            efforts: None,
        };
        let node: NodeName = node.parse().unwrap();
        ImageRecord {
            node: node.clone(),
            logical_node: node.clone(),
            holders: vec![node],
            speed_permille: 1000,
            facts,
        }
    }

    pub(in super::super) fn mpi() -> BTreeMap<InstanceId, ImageRecord> {
        let root = [(2, 1, "mpirun"), (3, 2, "rank"), (4, 2, "rank")];
        let other = [(2, 1, "sh"), (3, 2, "orted"), (4, 3, "rank"), (5, 3, "rank"), (6, 5, "du")];
        BTreeMap::from([
            (InstanceId(1), image("node1", Some(2), &root)),
            (InstanceId(2), image("node2", Some(2), &other)),
            (InstanceId(3), image("node3", None, &[(9, 1, "orted"), (10, 9, "rank")])),
        ])
    }

    fn gone(departing: &Departing) -> Vec<(u32, Vec<i32>)> {
        let all = departing.pids.iter();
        all.map(|(instance, pids)| (instance.0, pids.iter().copied().collect())).collect()
    }

    #[test]
    fn daemons_of_lost_machines_depart_with_the_shells_that_started_them() {
        let departing = fallback(&mpi(), |_| false);
        // A rank with a child of its own is none.
        assert_eq!(gone(&departing), [(2, vec![2, 3]), (3, vec![9])]);
        assert!(departing.kept.is_empty());
        let daemons = departing.daemons(&mpi());
        assert_eq!(
            text::daemons(&daemons),
            "sh (2) of node2, orted (3) of node2 and orted (9) of node3"
        );
    }

    #[test]
    fn machines_that_are_there_keep_theirs() {
        let departing = fallback(&mpi(), |node| node.as_str() != "node3");
        assert_eq!(gone(&departing), [(3, vec![9])]);
    }

    #[test]
    fn a_daemon_that_shares_memory_with_its_children_stays_with_them() {
        let mut images = mpi();
        let units = &mut images.get_mut(&InstanceId(3)).unwrap().facts.units;
        *units = vec![Unit { pids: vec![9, 10], bytes: 2, load: 1, because: String::new() }];
        let departing = fallback(&images, |node| node.as_str() != "node3");
        assert!(departing.pids.is_empty());
        assert_eq!(departing.kept.len(), 1);
    }

    #[test]
    fn what_only_waits_is_daemons_only() {
        let mut images = mpi();
        assert!(!is_daemons_only(InstanceId(3), &images));
        let facts = &mut images.get_mut(&InstanceId(3)).unwrap().facts;
        facts.processes.truncate(1);
        facts.units.truncate(1);
        assert!(is_daemons_only(InstanceId(3), &images));
        // Never the one with the job's first process.
        let facts = &mut images.get_mut(&InstanceId(1)).unwrap().facts;
        facts.units.truncate(1);
        assert!(!is_daemons_only(InstanceId(1), &images));
    }
}
