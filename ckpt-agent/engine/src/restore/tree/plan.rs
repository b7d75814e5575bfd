//! The plan: who forks whom, in which order, and which temporary processes are needed.

use std::collections::{BTreeMap, BTreeSet};

use super::super::super::graph::{NumbersInside, Pid, ProcessNode, ProcessState};
use super::inside::Inside;
use super::lineage::{Lineage, Origin, trace};
use super::recorded::{INIT, Recorded, TreeError};

/// Index of a [`Birth`] in its plan.
pub type Index = usize;

/// How a tree is built. Carried out in this order: births, process groups, rounds, zombies,
/// subreapers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Processes to be made. Parents come before those that they fork.
    pub births: Vec<Birth>,
    /// Births by init, in order.
    pub by_init: Vec<Index>,
    /// Births by init into PID namespaces of the job's own.
    pub inward_by_init: Vec<Index>,
    /// The ends of the temporary processes, in order.
    pub rounds: Vec<Round>,
    /// Whether init has to lead session 1.
    pub init_leads: bool,
}

/// One process to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Birth {
    /// Its number.
    pub pid: Pid,
    /// Who forks it; init if nobody is named.
    pub forked_by: Option<Index>,
    /// Its parent once the tree is complete (of a temporary process: at its end).
    pub ppid: Pid,
    /// Its session.
    pub sid: Pid,
    /// Its process group.
    pub pgid: Pid,
    /// The signal that its parent gets at its end.
    pub exit_signal: i32,
    /// What becomes of it.
    pub role: Role,
    /// Births before its setsid(2), in order.
    pub early: Vec<Index>,
    /// Births after its setsid(2), or without one, in order.
    pub later: Vec<Index>,
    /// Births, by one that is outside, into PID namespaces of the job's own, once all that are outside are there with their
    /// groups. First processes of namespaces come first.
    pub inward: Vec<Index>,
    /// Its numbers in a PID namespace of the job's own.
    pub inside: Option<NumbersInside>,
    /// Of one that is born into such a namespace: the group, made outside, that it is born in where any process of the
    /// namespace has come into that by its birth.
    pub born_in: Option<Pid>,
    /// How it comes to its group. All founders act first, then all that join, then all that move.
    pub group: GroupStep,
    /// PR_SET_CHILD_SUBREAPER in the end.
    pub subreaper: bool,
}

impl Birth {
    /// Whether it calls setsid(2).
    pub fn leads_session(&self) -> bool {
        self.pid == self.sid
    }
}

/// What becomes of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Lives on.
    Kept,
    /// Ends with this wait(2) status and is not waited for.
    Zombie {
        /// As wait(2) tells it.
        status: i32,
        /// Its real user, where that is known.
        user: Option<u32>,
    },
    /// Ends in this round and is waited for.
    Temporary {
        /// Index in [`Plan::rounds`].
        round: usize,
    },
}

/// How a process comes to its group. Before, everyone is in the group of its session's leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupStep {
    /// It is there already.
    Stay,
    /// Makes its own.
    Found,
    /// Joins one that was made by another.
    Join(Pid),
    /// Makes its own for others, then moves to another one.
    FoundAndMove(Pid),
}

/// Temporary processes that end together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// Who adopts their children: a subreaper for this round. Init if nobody is named.
    pub adopter: Option<Index>,
}

/// Works a plan out as [`plan`](super::plan()) does, without looking whether PID namespaces of the job's own come out right.
pub(super) fn draft(processes: &[ProcessNode]) -> Result<Plan, TreeError> {
    let recorded = Recorded::new(processes)?;
    let lineage = trace(&recorded)?;
    Ok(Drafter::new(&recorded, &lineage).draft())
}

struct Drafter<'a> {
    recorded: &'a Recorded<'a>,
    lineage: &'a Lineage,
    plan: Plan,
    indices: BTreeMap<Pid, Index>,
    rounds: BTreeMap<Pid, usize>,
    /// Process groups and their sessions.
    groups: BTreeMap<Pid, Pid>,
    taken: BTreeSet<Pid>,
    next_free: Pid,
    inside: Inside,
}

impl<'a> Drafter<'a> {
    fn new(recorded: &'a Recorded<'a>, lineage: &'a Lineage) -> Self {
        let (indices, rounds) = (BTreeMap::new(), BTreeMap::new());
        let (plan, taken) = (Plan::default(), recorded.taken());
        let groups = recorded.iter().map(|node| (node.pgid, node.sid)).collect();
        let (inside, next_free) = (Inside::of(recorded.iter()), INIT + 1);
        Self { recorded, lineage, plan, indices, rounds, groups, taken, next_free, inside }
    }

    fn draft(mut self) -> Plan {
        self.plan.init_leads = self.recorded.iter().any(|node| node.sid == INIT);
        self.number_rounds();
        self.add_processes();
        self.add_group_temporaries();
        for (adopter, round) in std::mem::take(&mut self.rounds) {
            self.plan.rounds[round].adopter = self.indices.get(&adopter).copied();
        }
        self.plan
    }

    /// Adopters deep in the tree come first: a round cuts the ties of those below its adopter only. Init
    /// comes last, and takes what is left.
    fn number_rounds(&mut self) {
        let mut adopters: Vec<Pid> = self
            .recorded
            .iter()
            .filter(|node| matches!(self.lineage.origins[&node.pid], Origin::Adopted(_)))
            .map(|node| node.ppid)
            .filter(|pid| *pid != INIT)
            .collect();
        adopters.sort_by_key(|pid| (std::cmp::Reverse(self.lineage.depths[pid]), *pid));
        adopters.dedup();
        adopters.push(INIT);
        self.rounds = adopters.into_iter().enumerate().map(|(round, pid)| (pid, round)).collect();
        self.plan.rounds = vec![Round { adopter: None }; self.rounds.len()];
    }

    fn add_processes(&mut self) {
        let recorded = self.recorded;
        let mut order: Vec<Pid> = recorded.iter().map(|node| node.pid).collect();
        order.extend(self.lineage.ended_leaders.keys());
        order.sort_by_key(|pid| (self.lineage.depths[pid], *pid));
        let mut intermediates = BTreeMap::new();
        for pid in order {
            match recorded.get(pid) {
                Some(node) => self.add_recorded(node, &mut intermediates),
                None => {
                    let host = self.lineage.ended_leaders[&pid];
                    self.add_temporary(pid, host, pid, INIT);
                }
            }
        }
    }

    fn add_recorded(
        &mut self,
        node: &ProcessNode,
        intermediates: &mut BTreeMap<(Pid, Pid), Index>,
    ) {
        let origin = self.lineage.origins[&node.pid];
        let forked_by = match origin {
            Origin::Adopted(session) => {
                let known = intermediates.get(&(session, node.ppid)).copied();
                Some(known.unwrap_or_else(|| {
                    let pid = self.free_number();
                    let index = self.add_temporary(pid, session, session, node.ppid);
                    intermediates.insert((session, node.ppid), index);
                    index
                }))
            }
            Origin::Early | Origin::Plain => self.indices.get(&node.ppid).copied(),
        };
        let role = match node.state {
            ProcessState::Alive | ProcessState::StandIn => Role::Kept,
            ProcessState::Zombie { status, user } => Role::Zombie { status, user },
        };
        let birth = Birth {
            pid: node.pid,
            forked_by,
            ppid: node.ppid,
            sid: node.sid,
            pgid: node.pgid,
            exit_signal: node.exit_signal,
            role,
            early: Vec::new(),
            later: Vec::new(),
            inward: Vec::new(),
            inside: node.inside,
            born_in: self.born_in(node, forked_by),
            group: self.group_step(node),
            subreaper: node.subreaper,
        };
        self.add(birth, origin == Origin::Early);
    }

    /// The group in which whoever forks a process is for that moment: where it may join it, as of its own session and no leader
    /// of one (setpgid(2)).
    fn born_in(&self, node: &ProcessNode, forked_by: Option<Index>) -> Option<Pid> {
        let group = node.inside.and_then(|inside| self.inside.born_in(inside))?;
        let by = &self.plan.births[forked_by?];
        let session = self.groups.get(&group).copied().unwrap_or(group);
        let may_join = by.sid == session && (by.pid != by.sid || group == by.pgid);
        may_join.then_some(group)
    }

    fn group_step(&self, node: &ProcessNode) -> GroupStep {
        if node.inside.is_some_and(|inside| inside.pgid == 0) {
            // It has been born in it, as the first process of its namespace has.
            return GroupStep::Stay;
        }
        let founds = node.pid != node.sid && self.groups.contains_key(&node.pid);
        match (founds, node.pgid) {
            (true, pgid) if pgid == node.pid => GroupStep::Found,
            (true, pgid) => GroupStep::FoundAndMove(pgid),
            (false, pgid) if pgid == node.sid => GroupStep::Stay,
            (false, pgid) => GroupStep::Join(pgid),
        }
    }

    /// Groups whose leader has ended need one for the time of the founding; groups whose leader
    /// went elsewhere need somebody who stays in it, in case that all its members are such leaders.
    fn add_group_temporaries(&mut self) {
        for (pgid, sid) in std::mem::take(&mut self.groups) {
            if pgid == sid {
                continue;
            }
            match self.recorded.get(pgid) {
                Some(leader) if leader.pgid == pgid => {}
                Some(_) => {
                    let pid = self.free_number();
                    let index = self.add_temporary(pid, self.inside.host(pgid, sid), sid, INIT);
                    self.plan.births[index].pgid = pgid;
                    self.plan.births[index].group = GroupStep::Join(pgid);
                }
                None => {
                    let index = self.add_temporary(pgid, self.inside.host(pgid, sid), sid, INIT);
                    self.plan.births[index].pgid = pgid;
                    self.plan.births[index].group = GroupStep::Found;
                }
            }
        }
    }

    /// A temporary process, forked by `host`, that ends in the round of `adopter`.
    fn add_temporary(&mut self, pid: Pid, host: Pid, sid: Pid, adopter: Pid) -> Index {
        let forked_by = self.indices.get(&host).copied();
        let of_host = forked_by.and_then(|host| self.plan.births[host].inside);
        let birth = Birth {
            pid,
            forked_by,
            ppid: host,
            sid,
            pgid: sid,
            exit_signal: libc::SIGCHLD,
            role: Role::Temporary { round: self.rounds[&adopter] },
            early: Vec::new(),
            later: Vec::new(),
            inward: Vec::new(),
            inside: of_host.map(|of_host| self.inside.temporary(pid, of_host)),
            born_in: None,
            group: GroupStep::Stay,
            subreaper: false,
        };
        self.add(birth, false)
    }

    fn add(&mut self, birth: Birth, early: bool) -> Index {
        let index = self.plan.births.len();
        let is_outside = |index: Index| self.plan.births[index].inside.is_none();
        let is_inward = birth.inside.is_some() && birth.forked_by.is_none_or(is_outside);
        let is_first = birth.inside.is_some_and(|inside| inside.is_first());
        let place = |all: &[Index]| if is_first { 0 } else { all.len() };
        match birth.forked_by {
            None if is_inward => {
                let all = &mut self.plan.inward_by_init;
                all.insert(place(all), index);
            }
            None => self.plan.by_init.push(index),
            Some(parent) if is_inward && !early => {
                let all = &mut self.plan.births[parent].inward;
                all.insert(place(all), index);
            }
            Some(parent) if early => self.plan.births[parent].early.push(index),
            Some(parent) => self.plan.births[parent].later.push(index),
        }
        self.indices.insert(birth.pid, index);
        self.plan.births.push(birth);
        index
    }

    /// The lowest number that nobody of the tree has or needs.
    fn free_number(&mut self) -> Pid {
        while !self.taken.insert(self.next_free) {
            self.next_free += 1;
        }
        self.next_free
    }
}

#[cfg(test)]
mod tests;
