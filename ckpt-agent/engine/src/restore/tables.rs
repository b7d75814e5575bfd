//! Tables of descriptors that several processes have in common.

use std::collections::BTreeMap;

use super::super::graph::{Graph, Pid};

/// How many processes of each table have still to be given what they map.
pub(super) struct Tables<'g> {
    graph: &'g Graph,
    left: BTreeMap<Pid, usize>,
}

impl<'g> Tables<'g> {
    /// Of these processes.
    pub(super) fn of(graph: &'g Graph, pids: impl Iterator<Item = Pid>) -> Self {
        let mut left = BTreeMap::new();
        for pid in pids {
            *left.entry(graph.table_of(pid)).or_default() += 1;
        }
        Self { graph, left }
    }

    /// Whether a process is the last one of its table; each is asked for once.
    pub(super) fn is_last(&mut self, pid: Pid) -> bool {
        let left = self.left.entry(self.graph.table_of(pid)).or_insert(1);
        *left -= 1;
        *left == 0
    }
}
