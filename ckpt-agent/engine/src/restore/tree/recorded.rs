//! The recorded tree, checked: what no kernel can have produced is refused here, so that the
//! planning works on sound ground.

use std::collections::{BTreeMap, BTreeSet};

use super::super::super::graph::{Pid, ProcessNode, ProcessState};

/// The job's init, in its PID namespace.
pub(super) const INIT: Pid = 1;

/// Most processes that one tree may have: PID_MAX_LIMIT (include/linux/threads.h) on 64 bits.
const MOST: usize = 4 << 20;

/// A process tree that cannot be rebuilt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// More processes than a kernel can hold.
    #[error("the tree has {0} processes, more than any kernel can number")]
    TooMany(usize),
    /// A number that no process of a job can have.
    #[error("process {pid}: {what} {number} is not a number that a process of the job can have")]
    Number {
        /// The process.
        pid: Pid,
        /// Which number.
        what: &'static str,
        /// What it is.
        number: Pid,
    },
    /// Two processes have one number.
    #[error("process {0} is recorded twice")]
    Twice(Pid),
    /// The parent is not there, or is a zombie, which cannot have children.
    #[error("process {pid}: its parent {ppid} is not a living process of the job")]
    Parent {
        /// The process.
        pid: Pid,
        /// Its parent.
        ppid: Pid,
    },
    /// A process descends from itself.
    #[error("process {0} is its own ancestor")]
    Circle(Pid),
    /// A session leader that does not lead its own process group.
    #[error("process {pid} leads its session but is in process group {pgid}")]
    LeaderElsewhere {
        /// The process.
        pid: Pid,
        /// Its group.
        pgid: Pid,
    },
    /// A process group or session that would reach over two sessions.
    #[error("process {pid}: process group {pgid} belongs to session {found}, not {sid}")]
    GroupElsewhere {
        /// The process.
        pid: Pid,
        /// Its group.
        pgid: Pid,
        /// Its session.
        sid: Pid,
        /// The session that the group is in.
        found: Pid,
    },
    /// A session whose leader is recorded in another session.
    #[error("process {pid}: the leader of its session {sid} is recorded in another session")]
    SessionElsewhere {
        /// The process.
        pid: Pid,
        /// Its session.
        sid: Pid,
    },
    /// A zombie's status that no exit and no signal gives.
    #[error("process {pid}: {status:#x} is not the status of an ended process")]
    Status {
        /// The process.
        pid: Pid,
        /// As wait(2) tells it.
        status: i32,
    },
    /// No order of forks and exits puts the process where it was.
    #[error("process {pid}: no order of forks gives it both parent {ppid} and session {sid}")]
    Unreachable {
        /// The process.
        pid: Pid,
        /// Its parent.
        ppid: Pid,
        /// Its session.
        sid: Pid,
    },
    /// The kernel gives adopted children SIGCHLD (kernel/exit.c, reparent_leader).
    #[error("process {pid} is an orphan, whose end cannot be told by signal {exit_signal}")]
    ExitSignal {
        /// The process.
        pid: Pid,
        /// What was recorded.
        exit_signal: i32,
    },
}

/// The recorded processes by number, sound as far as one can see without a plan.
pub(super) struct Recorded<'a> {
    nodes: BTreeMap<Pid, &'a ProcessNode>,
    depths: BTreeMap<Pid, usize>,
}

impl<'a> Recorded<'a> {
    /// Checks the tree.
    pub(super) fn new(processes: &'a [ProcessNode]) -> Result<Self, TreeError> {
        if processes.len() > MOST {
            return Err(TreeError::TooMany(processes.len()));
        }
        let mut nodes = BTreeMap::new();
        for node in processes {
            check_numbers(node)?;
            if nodes.insert(node.pid, node).is_some() {
                return Err(TreeError::Twice(node.pid));
            }
        }
        let mut recorded = Self { nodes, depths: BTreeMap::new() };
        recorded.check_parents()?;
        recorded.depths = recorded.measure()?;
        recorded.check_sessions()?;
        Ok(recorded)
    }

    /// All processes, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'a ProcessNode> + '_ {
        self.nodes.values().copied()
    }

    /// The process of that number, if it was recorded.
    pub(super) fn get(&self, pid: Pid) -> Option<&'a ProcessNode> {
        self.nodes.get(&pid).copied()
    }

    /// The session that the process ends up in; init is in its own.
    pub(super) fn session(&self, pid: Pid) -> Pid {
        self.get(pid).map_or(INIT, |node| node.sid)
    }

    /// How many ancestors the process has.
    pub(super) fn depth(&self, pid: Pid) -> usize {
        self.depths.get(&pid).copied().unwrap_or(0)
    }

    /// Whether `ancestor` is the process itself or one of its recorded ancestors.
    pub(super) fn descends(&self, pid: Pid, ancestor: Pid) -> bool {
        let mut at = pid;
        while at != ancestor {
            match self.get(at) {
                Some(node) => at = node.ppid,
                None => return false,
            }
        }
        true
    }

    /// Processes sorted so that children come before their parents.
    pub(super) fn deepest_first(&self) -> Vec<&'a ProcessNode> {
        let mut nodes: Vec<_> = self.iter().collect();
        nodes.sort_by_key(|node| (std::cmp::Reverse(self.depth(node.pid)), node.pid));
        nodes
    }

    /// Numbers that temporary processes must not take.
    pub(super) fn taken(&self) -> BTreeSet<Pid> {
        self.iter().flat_map(|node| [node.pid, node.pgid, node.sid]).chain([INIT]).collect()
    }

    fn check_parents(&self) -> Result<(), TreeError> {
        for node in self.iter() {
            let alive = node.ppid == INIT
                || self
                    .get(node.ppid)
                    .is_some_and(|parent| !matches!(parent.state, ProcessState::Zombie { .. }));
            if !alive {
                return Err(TreeError::Parent { pid: node.pid, ppid: node.ppid });
            }
        }
        Ok(())
    }

    fn measure(&self) -> Result<BTreeMap<Pid, usize>, TreeError> {
        let mut depths = BTreeMap::from([(INIT, 0)]);
        for node in self.iter() {
            let mut path = Vec::new();
            let mut at = node.pid;
            while !depths.contains_key(&at) {
                path.push(at);
                // A path longer than the tree has gone round in a circle.
                if path.len() > self.nodes.len() {
                    return Err(TreeError::Circle(node.pid));
                }
                at = self.get(at).map_or(INIT, |node| node.ppid);
            }
            let above = depths[&at];
            for (below, pid) in path.into_iter().rev().enumerate() {
                depths.insert(pid, above + below + 1);
            }
        }
        Ok(depths)
    }

    fn check_sessions(&self) -> Result<(), TreeError> {
        let mut sessions: BTreeMap<Pid, Pid> =
            self.iter().map(|node| (node.sid, node.sid)).collect();
        for node in self.iter() {
            if node.pid == node.sid && node.pgid != node.pid {
                return Err(TreeError::LeaderElsewhere { pid: node.pid, pgid: node.pgid });
            }
            if node.sid != INIT && self.get(node.sid).is_some_and(|leader| leader.sid != node.sid) {
                return Err(TreeError::SessionElsewhere { pid: node.pid, sid: node.sid });
            }
        }
        // `sessions` becomes the session of every group: that of a leader is known from the start.
        sessions.insert(INIT, INIT);
        for node in self.iter() {
            let of_leader = self.get(node.pgid).map(|leader| leader.sid);
            let found = *sessions.entry(node.pgid).or_insert(of_leader.unwrap_or(node.sid));
            if found != node.sid || of_leader.is_some_and(|sid| sid != node.sid) {
                let (pid, pgid, sid) = (node.pid, node.pgid, node.sid);
                return Err(TreeError::GroupElsewhere { pid, pgid, sid, found });
            }
        }
        Ok(())
    }
}

fn check_numbers(node: &ProcessNode) -> Result<(), TreeError> {
    let pid = node.pid;
    let number = |what, number| Err(TreeError::Number { pid, what, number });
    if pid <= INIT || pid as usize >= MOST {
        return number("its number", pid);
    }
    if node.ppid < INIT {
        return number("its parent", node.ppid);
    }
    for (what, found) in [("its process group", node.pgid), ("its session", node.sid)] {
        if found < INIT || found as usize >= MOST {
            return number(what, found);
        }
    }
    if !(0..=64).contains(&node.exit_signal) {
        return number("its exit signal", node.exit_signal);
    }
    match node.state {
        // Such an end would have ended or stopped the parent.
        ProcessState::Zombie { .. }
            if [libc::SIGKILL, libc::SIGSTOP].contains(&node.exit_signal) =>
        {
            number("its exit signal", node.exit_signal)
        }
        ProcessState::Zombie { status, .. } if super::zombie::Ending::of(status).is_none() => {
            Err(TreeError::Status { pid, status })
        }
        _ => Ok(()),
    }
}
