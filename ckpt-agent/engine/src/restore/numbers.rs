//! What the recorded numbers of processes and threads are here. In a PID namespace of the job's own they are the same;
//! without one another process may have a number, or the restorer may not choose.

use std::collections::BTreeMap;

use super::super::graph::{Graph, Pid, ProcessImage};
use super::image::Processes;

/// Recorded numbers of processes, threads, process groups and sessions, and those that they have here.
#[derive(Debug, Default)]
pub(super) struct Numbers(pub(super) BTreeMap<Pid, Pid>);

impl Numbers {
    /// What a recorded number is here, if somebody has it.
    pub(super) fn here(&self, recorded: Pid) -> Option<Pid> {
        self.0.get(&recorded).copied()
    }

    /// The threads of a process, which have been made.
    pub(super) fn add_threads(&mut self, image: &ProcessImage, tids: &[i32]) {
        self.0.extend(image.threads.iter().map(|thread| thread.tid).zip(tids.iter().copied()));
    }

    /// What a process in a PID namespace of the job's own calls itself, its threads and the other processes there; `None`: it
    /// is in none.
    pub(super) fn inside(&self, graph: &Graph, image: &ProcessImage) -> Option<Self> {
        let of_nodes = graph.processes.iter().filter_map(|node| Some((node.pid, node.inside?)));
        let all: BTreeMap<Pid, _> = of_nodes.collect();
        let own = all.get(&image.pid)?.namespace;
        let others = all.iter().filter(|(_, inside)| inside.namespace == own);
        let threads =
            image.threads.iter().filter_map(|thread| Some((thread.tid, thread.tid_inside?)));
        Some(Self(others.map(|(pid, inside)| (*pid, inside.pid)).chain(threads).collect()))
    }

    /// A line for the user where the job can see that numbers have changed.
    pub(super) fn warning(&self, processes: &Processes) -> Option<String> {
        let threads = processes.values().flat_map(|process| &process.threads);
        let all: Vec<Pid> = threads.map(|thread| thread.tid).collect();
        let changed = all.iter().filter(|tid| self.here(**tid).is_some_and(|here| here != **tid));
        let changed = changed.count();
        (changed > 0).then(|| {
            format!(
                "{changed} of the job's {} threads have other numbers than before: what its programs remember of \
                 each other's (for kill, waitpid) is out of date",
                all.len()
            )
        })
    }
}
