//! The kernel's rules for process trees, as far as they matter here: a model to make realistic trees
//! with, and to try plans in.

use std::collections::BTreeMap;

use super::super::super::graph::{Pid, ProcessNode, ProcessState};
use super::plan::{GroupStep, Index, Plan, Role};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) ppid: Pid,
    pub(super) pgid: Pid,
    pub(super) sid: Pid,
    pub(super) subreaper: bool,
    pub(super) exit_signal: i32,
    pub(super) zombie: Option<i32>,
}

/// A PID namespace whose init leads session 1.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    pub(super) processes: BTreeMap<Pid, Process>,
}

impl Kernel {
    pub(super) fn new() -> Self {
        let init =
            Process { ppid: 0, pgid: 1, sid: 1, subreaper: false, exit_signal: 17, zombie: None };
        Self { processes: BTreeMap::from([(1, init)]) }
    }

    fn alive(&mut self, pid: Pid) -> Result<&mut Process, String> {
        let process = self.processes.get_mut(&pid).ok_or(format!("{pid}: ESRCH"))?;
        if process.zombie.is_some() {
            return Err(format!("{pid} acts after its end"));
        }
        Ok(process)
    }

    pub(super) fn is_free(&self, pid: Pid) -> bool {
        !self.processes.iter().any(|(p, process)| [*p, process.pgid, process.sid].contains(&pid))
    }

    pub(super) fn fork(&mut self, parent: Pid, pid: Pid, exit_signal: i32) -> Result<(), String> {
        if !self.is_free(pid) {
            return Err(format!("fork of {pid}: EEXIST"));
        }
        let Process { pgid, sid, .. } = *self.alive(parent)?;
        let child =
            Process { ppid: parent, pgid, sid, subreaper: false, exit_signal, zombie: None };
        self.processes.insert(pid, child);
        Ok(())
    }

    pub(super) fn setsid(&mut self, pid: Pid) -> Result<(), String> {
        if self.processes.values().any(|process| process.pgid == pid) {
            return Err(format!("setsid of {pid}: EPERM"));
        }
        let process = self.alive(pid)?;
        (process.sid, process.pgid) = (pid, pid);
        Ok(())
    }

    pub(super) fn setpgid(&mut self, pid: Pid, pgid: Pid) -> Result<(), String> {
        let sid = self.alive(pid)?.sid;
        let known = pgid == pid
            || self.processes.values().any(|process| process.pgid == pgid && process.sid == sid);
        if !known || sid == pid {
            return Err(format!("setpgid({pid}, {pgid}): EPERM"));
        }
        self.alive(pid)?.pgid = pgid;
        Ok(())
    }

    pub(super) fn set_subreaper(&mut self, pid: Pid, on: bool) -> Result<(), String> {
        self.alive(pid)?.subreaper = on;
        Ok(())
    }

    pub(super) fn exit(&mut self, pid: Pid, status: i32) -> Result<(), String> {
        let process = self.alive(pid)?;
        (process.zombie, process.subreaper) = (Some(status), false);
        let mut heir = self.processes[&pid].ppid;
        while heir != 1 {
            let process = &self.processes[&heir];
            if process.subreaper && process.zombie.is_none() {
                break;
            }
            heir = process.ppid;
        }
        for child in self.processes.values_mut().filter(|process| process.ppid == pid) {
            (child.ppid, child.exit_signal) = (heir, 17);
        }
        Ok(())
    }

    pub(super) fn reap(&mut self, parent: Pid, pid: Pid) -> Result<(), String> {
        self.alive(parent)?;
        match self.processes.get(&pid) {
            Some(process) if process.ppid == parent && process.zombie.is_some() => {
                self.processes.remove(&pid);
                Ok(())
            }
            other => Err(format!("{parent} waits for {pid}: ECHILD ({other:?})")),
        }
    }

    /// What a checkpoint would record.
    pub(super) fn record(&self) -> Vec<ProcessNode> {
        let others = self.processes.iter().filter(|(pid, _)| **pid != 1);
        others
            .map(|(pid, process)| ProcessNode {
                pid: *pid,
                ppid: process.ppid,
                pgid: process.pgid,
                sid: process.sid,
                comm: String::new(),
                exit_signal: process.exit_signal,
                subreaper: process.subreaper,
                inside: None,
                state: match process.zombie {
                    Some(status) => ProcessState::Zombie { status, user: None },
                    None => ProcessState::Alive,
                },
            })
            .collect()
    }

    /// Carries out a plan as real processes would. `late` postpones the births of processes as it
    /// pleases: they run side by side.
    pub(super) fn carry_out(
        &mut self,
        plan: &Plan,
        mut late: impl FnMut() -> bool,
    ) -> Result<(), String> {
        let pid = |index: Option<Index>| index.map_or(1, |index| plan.births[index].pid);
        let mut queue: std::collections::VecDeque<Index> = plan.by_init.iter().copied().collect();
        while let Some(index) = queue.pop_front() {
            if late() && !queue.is_empty() {
                queue.push_back(index);
                continue;
            }
            let birth = &plan.births[index];
            // An early child was forked already, before its parent's setsid.
            let early = birth.forked_by.is_some_and(|by| plan.births[by].early.contains(&index));
            if !early {
                self.fork(pid(birth.forked_by), birth.pid, birth.exit_signal)?;
            }
            self.live_early(plan, index)?;
            queue.extend(&birth.early);
            queue.extend(&birth.later);
        }
        for birth in &plan.births {
            if matches!(birth.group, GroupStep::Found | GroupStep::FoundAndMove(_)) {
                self.setpgid(birth.pid, birth.pid)?;
            }
        }
        for birth in &plan.births {
            if let GroupStep::Join(pgid) = birth.group {
                self.setpgid(birth.pid, pgid)?;
            }
        }
        for birth in &plan.births {
            if let GroupStep::FoundAndMove(pgid) = birth.group {
                self.setpgid(birth.pid, pgid)?;
            }
        }
        for (round, step) in plan.rounds.iter().enumerate() {
            self.set_subreaper(pid(step.adopter), true)?;
            for birth in plan.births.iter().rev() {
                if birth.role == (Role::Temporary { round }) {
                    self.exit(birth.pid, 0)?;
                    self.reap(pid(birth.forked_by), birth.pid)?;
                }
            }
            self.set_subreaper(pid(step.adopter), false)?;
        }
        for birth in &plan.births {
            match birth.role {
                Role::Zombie { status, .. } => self.exit(birth.pid, status)?,
                _ if birth.subreaper => self.set_subreaper(birth.pid, true)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn live_early(&mut self, plan: &Plan, index: Index) -> Result<(), String> {
        let birth = &plan.births[index];
        for child in &birth.early {
            self.fork(birth.pid, plan.births[*child].pid, plan.births[*child].exit_signal)?;
        }
        if birth.leads_session() { self.setsid(birth.pid) } else { Ok(()) }
    }
}
