//! In which session each session leader was born, and so by whom every process can be forked.
//!
//! A process stays in the session it was born in until its own setsid(2). So a process whose
//! parent is in another session was forked before the parent's setsid, or was forked by somebody
//! else of its session and adopted by its parent later. The first needs a birth session for the
//! parent, which the recorded tree does not tell; this file tries those that make sense.

use std::collections::{BTreeMap, BTreeSet};

use super::super::super::graph::{Pid, ProcessNode};
use super::recorded::{INIT, Recorded, TreeError};

/// Combinations of birth sessions that are tried before giving up. One is the rule.
const ATTEMPTS: usize = 512;

/// How a process comes under its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Forked by its parent before the parent's setsid.
    Early,
    /// Forked by its parent.
    Plain,
    /// Forked by a temporary process in this session, whose end makes its parent adopt it.
    Adopted(Pid),
}

/// A consistent answer for the whole tree.
pub(super) struct Lineage {
    /// How each process comes under its parent.
    pub(super) origins: BTreeMap<Pid, Origin>,
    /// Sessions whose leader has ended, and the process that forks its replacement.
    pub(super) ended_leaders: BTreeMap<Pid, Pid>,
    /// How many processes are above each one (and each ended leader) while the tree is built.
    pub(super) depths: BTreeMap<Pid, usize>,
}

/// Finds a lineage.
pub(super) fn trace(recorded: &Recorded) -> Result<Lineage, TreeError> {
    let choices = choices(recorded);
    let mut digits = vec![0; choices.len()];
    let mut first_error = None;
    for _ in 0..ATTEMPTS {
        let birth_sessions: BTreeMap<Pid, Pid> = choices
            .iter()
            .zip(&digits)
            .filter_map(|((leader, sessions), digit)| {
                sessions.get(*digit).map(|session| (*leader, *session))
            })
            .collect();
        match attempt(recorded, &birth_sessions) {
            Ok(lineage) => return Ok(lineage),
            Err(error) => first_error = first_error.or(Some(error)),
        }
        if !advance(&mut digits, &choices) {
            break;
        }
    }
    Err(first_error.unwrap_or(TreeError::TooMany(choices.len())))
}

/// Session leaders with children of other sessions, and the sessions in which they may have been
/// born. One digit beyond the last session means: in its parent's.
fn choices(recorded: &Recorded) -> Vec<(Pid, Vec<Pid>)> {
    let mut wanted: BTreeMap<Pid, BTreeSet<Pid>> = BTreeMap::new();
    for node in recorded.deepest_first() {
        let sessions = if node.pid == node.sid {
            wanted.get(&node.pid).cloned().unwrap_or_default()
        } else {
            BTreeSet::from([node.sid])
        };
        let parent_leads = recorded.get(node.ppid).is_some_and(|parent| parent.sid == parent.pid);
        if parent_leads {
            let foreign = sessions.into_iter().filter(|session| {
                // Whoever descends from the leader cannot have been there at the leader's birth.
                let later =
                    recorded.get(*session).is_some() && recorded.descends(*session, node.ppid);
                *session != node.ppid && !later
            });
            wanted.entry(node.ppid).or_default().extend(foreign);
        }
    }
    wanted
        .into_iter()
        .filter(|(_, sessions)| !sessions.is_empty())
        .map(|(leader, sessions)| (leader, sessions.into_iter().collect()))
        .collect()
}

fn advance(digits: &mut [usize], choices: &[(Pid, Vec<Pid>)]) -> bool {
    for (digit, (_, sessions)) in digits.iter_mut().zip(choices) {
        *digit += 1;
        if *digit <= sessions.len() {
            return true;
        }
        *digit = 0;
    }
    false
}

fn attempt(recorded: &Recorded, born_in: &BTreeMap<Pid, Pid>) -> Result<Lineage, TreeError> {
    let mut origins = BTreeMap::new();
    let mut adopters: BTreeMap<Pid, BTreeSet<Pid>> = BTreeMap::new();
    for node in recorded.iter() {
        let origin = origin(recorded, born_in, node);
        if let Origin::Adopted(session) = origin {
            if session == INIT {
                return Err(unreachable(node));
            }
            if node.exit_signal != libc::SIGCHLD {
                let (pid, exit_signal) = (node.pid, node.exit_signal);
                return Err(TreeError::ExitSignal { pid, exit_signal });
            }
            adopters.entry(session).or_default().insert(node.ppid);
        }
        origins.insert(node.pid, origin);
    }
    let ended_leaders = adopters
        .iter()
        .filter(|(session, _)| recorded.get(**session).is_none())
        .filter_map(|(session, adopters)| {
            let host = adopters.iter().max_by_key(|pid| recorded.depth(**pid))?;
            Some((*session, *host))
        })
        .collect();
    let mut lineage = Lineage { origins, ended_leaders, depths: BTreeMap::new() };
    lineage.depths = lineage.measure(recorded)?;
    for node in recorded.iter() {
        if let Some(Origin::Adopted(session)) = lineage.origins.get(&node.pid) {
            if !lineage.is_above(recorded, node.ppid, *session) {
                return Err(unreachable(node));
            }
        }
    }
    Ok(lineage)
}

fn origin(recorded: &Recorded, born_in: &BTreeMap<Pid, Pid>, node: &ProcessNode) -> Origin {
    let session = if node.pid == node.sid {
        match born_in.get(&node.pid) {
            Some(session) => *session,
            None => return Origin::Plain,
        }
    } else {
        node.sid
    };
    if session == recorded.session(node.ppid) {
        Origin::Plain
    } else if born_in.get(&node.ppid) == Some(&session) {
        Origin::Early
    } else {
        Origin::Adopted(session)
    }
}

fn unreachable(node: &ProcessNode) -> TreeError {
    TreeError::Unreachable { pid: node.pid, ppid: node.ppid, sid: node.sid }
}

impl Lineage {
    /// Who is above a process (or the replacement of an ended leader) while the tree is built,
    /// leaving out intermediate processes.
    fn above(&self, recorded: &Recorded, pid: Pid) -> Pid {
        if let Some(host) = self.ended_leaders.get(&pid) {
            return *host;
        }
        match self.origins.get(&pid) {
            Some(Origin::Adopted(session)) => *session,
            _ => recorded.get(pid).map_or(INIT, |node| node.ppid),
        }
    }

    fn is_above(&self, recorded: &Recorded, ancestor: Pid, pid: Pid) -> bool {
        let mut at = pid;
        while at != ancestor {
            if at == INIT {
                return false;
            }
            at = self.above(recorded, at);
        }
        true
    }

    fn measure(&self, recorded: &Recorded) -> Result<BTreeMap<Pid, usize>, TreeError> {
        let mut depths = BTreeMap::from([(INIT, 0)]);
        let limit = self.origins.len() + self.ended_leaders.len();
        for node in recorded.iter() {
            let mut path = Vec::new();
            let mut at = node.pid;
            while !depths.contains_key(&at) {
                path.push(at);
                if path.len() > limit {
                    return Err(unreachable(node));
                }
                at = self.above(recorded, at);
            }
            let above = depths[&at];
            for (below, pid) in path.into_iter().rev().enumerate() {
                depths.insert(pid, above + below + 1);
            }
        }
        Ok(depths)
    }
}
