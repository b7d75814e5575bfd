//! Processes in PID namespaces of the job's own (pid_namespaces(7)), in a plan. All that are in one descend from its first
//! process, or from others that somebody outside has forked into it.

use std::collections::{BTreeMap, BTreeSet};

use super::super::super::graph::{NumbersInside, Pid, ProcessNode};
use super::recorded::INIT;

/// What numbers in such namespaces are known of a recorded tree.
pub(super) struct Inside {
    /// Of processes, groups and sessions, by their numbers in the job's.
    known: BTreeMap<Pid, NumbersInside>,
    /// Those that are taken, by namespaces.
    taken: BTreeMap<u32, BTreeSet<Pid>>,
    /// Groups that were made outside, and who inside is in any, by namespaces.
    born_in: BTreeMap<u32, Pid>,
    /// A process of each session that was made outside, by namespace and session.
    members: BTreeMap<(u32, Pid), Pid>,
}

impl Inside {
    pub(super) fn of<'a>(nodes: impl Iterator<Item = &'a ProcessNode>) -> Self {
        let (known, taken, born_in) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut all = Self { known, taken, born_in, members: BTreeMap::new() };
        for node in nodes {
            let Some(inside) = node.inside else { continue };
            let namespace = inside.namespace;
            let taken: &mut BTreeSet<Pid> = all.taken.entry(namespace).or_default();
            for (pid, own) in
                [(node.pid, inside.pid), (node.pgid, inside.pgid), (node.sid, inside.sid)]
            {
                if own != 0 {
                    taken.insert(own);
                    all.known.insert(pid, NumbersInside { pid: own, ..inside });
                }
            }
            if inside.pgid == 0 {
                all.born_in.insert(namespace, node.pgid);
            }
            // The first one, where that is in the session: all others descend from it.
            let member = all.members.entry((namespace, node.sid)).or_insert(node.pid);
            if inside.is_first() {
                *member = node.pid;
            }
        }
        all
    }

    /// The group that whoever is forked into a namespace from outside is born in.
    pub(super) fn born_in(&self, inside: NumbersInside) -> Option<Pid> {
        self.born_in.get(&inside.namespace).copied()
    }

    /// Who forks temporary processes for a group of a session: of one within a namespace somebody within it.
    pub(super) fn host(&self, pgid: Pid, sid: Pid) -> Pid {
        let namespace = self.known.get(&pgid).map(|inside| inside.namespace);
        let member = namespace.and_then(|namespace| self.members.get(&(namespace, sid)));
        match member {
            Some(member) if !self.known.contains_key(&sid) => *member,
            _ => sid,
        }
    }

    /// The numbers of a temporary process that is forked by one inside.
    pub(super) fn temporary(&mut self, pid: Pid, of_host: NumbersInside) -> NumbersInside {
        let known = self.known.get(&pid).map(|known| known.pid);
        let taken = self.taken.entry(of_host.namespace).or_default();
        let free = || (INIT + 1..).find(|number| !taken.contains(number)).unwrap_or(Pid::MAX);
        let own = known.unwrap_or_else(free);
        taken.insert(own);
        NumbersInside { pid: own, ..of_host }
    }
}
