//! Processes in PID namespaces of the job's own (pid_namespaces(7)), in a plan. All that are in one descend from its first
//! process, or from others that somebody outside has forked into it.

use std::collections::{BTreeMap, BTreeSet};

use super::super::super::graph::{NumbersInside, Pid, ProcessNode};
use super::plan::{Birth, Index, Plan};
use super::recorded::{INIT, TreeError};

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

/// Refuses a plan in which a process would come into another PID namespace than it was in, or into the same one as somebody else.
pub(super) fn check(plan: &Plan) -> Result<(), TreeError> {
    let mut numbers = BTreeSet::new();
    for birth in &plan.births {
        let by = birth.forked_by.map(|parent| &plan.births[parent]);
        let of_forker = by.and_then(|by| by.inside);
        let Some(inside) = birth.inside else {
            match of_forker {
                None => continue,
                Some(_) => return Err(unreachable(birth)),
            }
        };
        if inside.pid < NumbersInside::FIRST || inside.pgid < 0 || inside.sid < 0 {
            return Err(TreeError::Number {
                pid: birth.pid,
                what: "its number in a PID namespace",
                number: inside.pid.min(inside.pgid).min(inside.sid),
            });
        }
        if !numbers.insert((inside.namespace, inside.pid)) {
            return Err(TreeError::Twice(birth.pid));
        }
        let fits = match of_forker {
            Some(by) => by.namespace == inside.namespace && !inside.is_first(),
            // Whoever is born before a setsid(2) of its parent comes before there are groups.
            None => by.is_none_or(|by| by.inward.contains(&index(plan, birth))),
        };
        if !fits {
            return Err(unreachable(birth));
        }
    }
    let without = plan.births.iter().find(|birth| {
        let inside = birth.inside.map(|inside| inside.namespace);
        inside.is_some_and(|namespace| first_of(plan, namespace).is_none())
    });
    without.map_or(Ok(()), |birth| Err(unreachable(birth)))
}

/// The first process of a namespace.
pub(super) fn first_of(plan: &Plan, namespace: u32) -> Option<Index> {
    let is_first = |inside: &NumbersInside| inside.namespace == namespace && inside.is_first();
    plan.births.iter().position(|birth| birth.inside.as_ref().is_some_and(is_first))
}

fn index(plan: &Plan, birth: &Birth) -> usize {
    plan.births.iter().position(|other| other.pid == birth.pid).unwrap_or(usize::MAX)
}

fn unreachable(birth: &Birth) -> TreeError {
    TreeError::Unreachable { pid: birth.pid, ppid: birth.ppid, sid: birth.sid }
}
