//! Whose children are stopped or have ended, and what a restart does not repeat of that.

use std::collections::BTreeMap;

use super::Quiesced;
use crate::dump::stops::Children;
use crate::freeze::StoppedProcess;
use crate::graph::{Pid, ProcessState};

impl Quiesced {
    /// The children of each process, and which are stopped. Processes in PID namespaces of the job's own call them by other
    /// numbers, and are not asked.
    pub(super) fn children_of(&self, processes: &[StoppedProcess]) -> Vec<Children> {
        let node = |process: &StoppedProcess| self.nodes.get(&process.host_pid);
        let mut children: BTreeMap<Pid, Children> = BTreeMap::new();
        for process in processes {
            let Some(child) = node(process) else { continue };
            children.entry(child.ppid).or_default().add(child.pid, process.group_stop.is_some());
        }
        let own = |process: &StoppedProcess| {
            let own = node(process).filter(|node| node.inside.is_none());
            own.and_then(|own| children.remove(&own.pid)).unwrap_or_default()
        };
        processes.iter().map(own).collect()
    }

    /// Says of which ended children a restart does not repeat that they have left a core (WCOREDUMP, CLD_DUMPED): that takes
    /// another core.
    pub(super) fn say_cores(&mut self) {
        /// WCOREDUMP
        const CORE: i32 = 0x80;
        let ended = self.nodes.values().filter_map(|node| match node.state {
            ProcessState::Zombie { status, .. } if status & CORE != 0 => {
                Some((node.pid, node.comm.clone()))
            }
            _ => None,
        });
        for (pid, comm) in ended.collect::<Vec<_>>() {
            self.context.warn(format!(
                "process {pid} ({comm}) has ended with a core dump, and after a restart its parent is told of its signal \
                 alone (WCOREDUMP)"
            ));
        }
    }
}
