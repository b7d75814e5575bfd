//! Processes that have ended.

use super::hosts::Hosts;
use super::{Role, Worker};
use ckptd_farm::{Event, How, Task};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

impl Worker {
    /// Takes note of all that have ended.
    pub(super) fn reap(&mut self) {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        loop {
            let (pid, how) = match waitid(Id::All, flags) {
                Ok(WaitStatus::Exited(pid, status)) => {
                    (pid, How::Exited(u8::try_from(status & 0xff).unwrap_or(u8::MAX)))
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, How::Signalled(signal as i32)),
                Err(Errno::EINTR) => continue,
                Ok(_) | Err(_) => return,
            };
            let role = self.roles.remove(&pid);
            if let Some(Role::Task(_)) = role {
                // What it has left in its group. Until it is waited for, its number is nobody else's.
                let _ = killpg(pid, Signal::SIGKILL);
            }
            // It has ended, so this does not wait.
            let _ = waitpid(pid, None);
            self.has_ended(role, how);
        }
    }

    fn has_ended(&mut self, role: Option<Role>, how: How) {
        match role {
            Some(Role::Task(task)) => {
                self.live.remove(&task);
                let how = self.judged(task, how);
                self.feed(Event::Ended(task, how));
            }
            Some(Role::Restored(task)) => self.restored_ended(task, how),
            Some(Role::Errand(task)) => self.errand_ended(task, how),
            Some(Role::Keeper(task)) => self.keeper_ended(task, how),
            Some(Role::Leaving(task, attempt)) => {
                self.leaving -= 1;
                self.forget_once_durable(task, attempt);
            }
            // What a task had left behind became this process's child.
            None => {}
        }
    }

    /// The process that has brought a task back has ended, and the task with it.
    fn restored_ended(&mut self, task: Task, how: How) {
        let killed = self.live.remove(&task).is_some_and(|live| live.killed);
        let Some(mut keeper) = self.keepers.remove(&task) else { return };
        keeper.ended();
        let said = keeper.heard();
        let attempt = keeper.attempt;
        let Hosts::Here(jobs) = &self.hosts else { return };
        match jobs.end_of(task, &keeper) {
            Some(end) => {
                let how = self.judged(task, end);
                self.feed(Event::Ended(task, how));
            }
            None if killed => self.feed(Event::Ended(task, how)),
            None => {
                let reason =
                    said.last().cloned().unwrap_or_else(|| format!("its restart has {how:?}"));
                let way =
                    format!("ckptd restart {} --dir", super::keeping::task_name(task, attempt));
                let folder = self.folder.jobs();
                let way = format!("'{way} {}' shows why", folder.display());
                self.progress
                    .say(&format!("task {} could not be brought back: {reason}; {way}", task.0));
                self.not_restored(task, &reason);
            }
        }
    }

    fn keeper_ended(&mut self, task: Task, how: How) {
        let Some(mut keeper) = self.keepers.remove(&task) else { return };
        keeper.ended();
        let said = keeper.heard();
        // It ends with its task. One that does so before can't take checkpoints, or no more.
        if self.live.get(&task).is_some_and(|live| is_alive(live.pid)) {
            let reason =
                said.last().cloned().unwrap_or_else(|| format!("what takes them has {how:?}"));
            self.no_checkpoint(task, &reason);
            self.feed(Event::NotKept(task));
        }
    }
}

/// Whether a child has not ended yet.
fn is_alive(pid: Pid) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::StillAlive))
}
