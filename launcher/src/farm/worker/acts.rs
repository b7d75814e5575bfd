//! What the state machine wants done.

use super::away::{self, Away};
use super::hosts::Hosts;
use super::keeping::Keeper;
use super::processes::{kill_tree, pid_of};
use super::program::Program;
use super::{Live, Role, Worker};
use crate::INNER_CALL;
use crate::farm::{MARK, Submission, TASK};
use ckptd_farm::{Action, Attempt, Entry, Event, How, Task};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Instant;

/// The shell that runs a task.
const SHELL: &str = "/bin/sh";
/// The status of a command that can't be executed, as of a shell.
const NOT_EXECUTABLE: u8 = crate::EXIT_NOT_EXECUTABLE;
/// That of one that is not there.
const NOT_THERE: u8 = crate::EXIT_NOT_FOUND;

/// Why a task is not begun.
enum NotBegun {
    /// For a reason that passes.
    Now(io::Error),
    /// For one of its own.
    Ever(io::Error),
}

/// Sees to it that what somebody has submitted can be begun where it was submitted.
fn check_directory(submission: &Submission) -> Result<(), NotBegun> {
    let directory = &submission.directory;
    match std::fs::metadata(directory) {
        Ok(_) => Ok(()),
        Err(error) if passes(&error) => Err(NotBegun::Now(error)),
        Err(error) => {
            let text = format!("enter {}: {error}", directory.display());
            Err(NotBegun::Ever(io::Error::new(io::ErrorKind::NotADirectory, text)))
        }
    }
}

/// Whether that is so for all tasks alike, and passes: nothing is begun until then.
fn passes(error: &io::Error) -> bool {
    use nix::libc::{
        EAGAIN, EHOSTDOWN, EINTR, EMFILE, ENFILE, ENOMEM, ENOSPC, ENOTCONN, ESTALE, ETIMEDOUT,
    };
    let passing =
        [EAGAIN, EHOSTDOWN, EINTR, EMFILE, ENFILE, ENOMEM, ENOSPC, ENOTCONN, ESTALE, ETIMEDOUT];
    error.raw_os_error().is_some_and(|number| passing.contains(&number))
}

/// Why a process could not be started; `is_submitted`: for a program that somebody has submitted.
fn not_spawned(error: io::Error, is_submitted: bool) -> NotBegun {
    match error.kind() {
        io::ErrorKind::ArgumentListTooLong => NotBegun::Ever(error),
        // The shell is there; what somebody has submitted need not be.
        _ if is_submitted && !passes(&error) => NotBegun::Ever(error),
        _ => NotBegun::Now(error),
    }
}

impl Worker {
    /// Does it; what comes of that at once is put behind `events`.
    pub(super) fn perform(&mut self, action: Action, events: &mut VecDeque<Event>) {
        match action {
            Action::Begin(task, attempt) => events.extend(self.begin(task, attempt)),
            Action::Restore(task, attempt) => events.extend(self.restore(task, attempt)),
            Action::Keep(task) => events.extend(self.keep(task)),
            Action::Save(task) => events.extend(self.save(task)),
            Action::Unsaved(task) => self.not_saved(task, "it takes too long"),
            Action::Terminate(task) => self.terminate(task),
            Action::Kill(task) => self.kill(task),
            Action::Forget(task, attempt) => self.forget(task, attempt),
            Action::Record(entry) => {
                if let Entry::Ended(tried) = &entry {
                    if !tried.verdict.is_right() {
                        self.failed.add(tried);
                    }
                }
                let recorded = self.recorder.record(entry, &self.tasks);
                self.tidy_once_durable(&entry);
                if let Err(error) = recorded {
                    if std::mem::replace(&mut self.recordable, false) {
                        let pause = "no more tasks are begun until that is possible";
                        self.progress.say(&format!("failed to {error}; {pause}"));
                    }
                    // Before anything else is begun.
                    events.push_front(Event::Recordable(false));
                }
            }
            Action::Finish(outcome) => self.outcome = Some(outcome),
        }
    }

    fn begin(&mut self, task: Task, attempt: Attempt) -> Option<Event> {
        if !self.recordable {
            // The step that wants it has not heard of that yet.
            return Some(Event::NotNow(task));
        }
        if !self.outputs.has_room() {
            let folder = self.outputs.folder().display().to_string();
            self.progress
                .warn(&format!("the disk of {folder} is full: tasks are begun once there is room"));
            return Some(Event::NotNow(task));
        }
        if self.is_still_kept(task) {
            return Some(Event::NotNow(task));
        }
        self.untidied.retain(|(untidied, _)| *untidied != task);
        // What there is a job of may have written something already.
        let is_new = !self.hosts.are_away() || self.sent.insert((task, attempt));
        if let Err(reason) = if is_new { self.make_way(task) } else { Ok(()) } {
            self.progress.warn(&format!("task {} can't be begun: {reason}", task.0));
            return Some(Event::Ended(task, How::Exited(NOT_EXECUTABLE)));
        }
        let begun = match &self.hosts {
            Hosts::Here(_) => self.spawn(task).map(|pid| (pid, Role::Task(task), None)),
            Hosts::Away(away) => self.send(away, task, attempt),
        };
        match begun {
            Ok((pid, role, keeper)) => {
                self.roles.insert(pid, role);
                self.keepers.extend(keeper.map(|keeper| (task, keeper)));
                let since = Instant::now();
                let live = Live { pid, attempt, restored: false, killed: false, since };
                self.live.insert(task, live);
                None
            }
            Err(NotBegun::Ever(error)) => {
                self.progress.warn(&format!("task {} can't be begun: {error}", task.0));
                // It is the task's own failure, and stands where it would tell of such.
                self.outputs.tell(task, &format!("ckptd: failed to begin this task: {error}\n"));
                let status = match error.kind() {
                    io::ErrorKind::NotFound => NOT_THERE,
                    _ => NOT_EXECUTABLE,
                };
                Some(Event::Ended(task, How::Exited(status)))
            }
            Err(NotBegun::Now(error)) => {
                let text = "tasks can't be begun at the moment, which is tried again each second";
                self.progress.warn(&format!("{text}: {error}"));
                Some(Event::NotNow(task))
            }
        }
    }

    /// Empty files for what a task writes.
    fn outputs(&self, task: Task) -> Result<(File, File), NotBegun> {
        self.outputs.begin(task).map_err(|error| match error.kind() {
            // What earlier tries have written stands where it would be put aside.
            io::ErrorKind::AlreadyExists => NotBegun::Ever(error),
            _ => NotBegun::Now(error),
        })
    }

    /// The program of a task, and whether it was submitted as such.
    fn program(&self, task: Task) -> Result<(Program, bool), NotBegun> {
        let submission = self.tasks.submission(task).transpose();
        let submission = submission.map_err(|error| match passes(&error) {
            true => NotBegun::Now(error),
            // What is damaged is no program that is not there.
            false => NotBegun::Ever(io::Error::other(format!("read what was submitted: {error}"))),
        })?;
        match submission {
            None => {
                let text = self.tasks.command(task).map_err(NotBegun::Now)?;
                let words = vec![SHELL.into(), "-c".into(), OsString::from_vec(text)];
                let directory = self.folder.record().working_directory.clone();
                Ok((Program { words, directory, environment: None }, false))
            }
            Some(submission) => {
                check_directory(&submission)?;
                let Submission { directory, words, environment } = submission;
                Ok((Program { words, directory, environment: Some(environment) }, true))
            }
        }
    }

    fn spawn(&self, task: Task) -> Result<Pid, NotBegun> {
        let (out, err) = self.outputs(task)?;
        let (program, is_submitted) = self.program(task)?;
        let mut command = program.command();
        command.process_group(0).stdin(Stdio::null()).stdout(out).stderr(err);
        command.env(MARK, self.folder.path()).env(TASK, task.0.to_string()).env_remove(INNER_CALL);
        command
            .spawn()
            .map(|child| pid_of(&child))
            .map_err(|error| not_spawned(error, is_submitted))
    }

    /// Sends an errand for a task that runs on a cluster.
    fn send(
        &self,
        away: &Away,
        task: Task,
        attempt: Attempt,
    ) -> Result<(Pid, Role, Option<Keeper>), NotBegun> {
        let outputs = self.outputs(task)?;
        let (program, is_submitted) = self.program(task)?;
        let keeper = away.send((task, attempt), program, outputs);
        let keeper = keeper.map_err(|error| not_spawned(error, is_submitted))?;
        Ok((keeper.pid, Role::Errand(task), Some(keeper)))
    }

    fn restore(&mut self, task: Task, attempt: Attempt) -> Option<Event> {
        let Hosts::Here(jobs) = &self.hosts else { return self.begin(task, attempt) };
        if !self.recordable {
            return Some(Event::NotNow(task));
        }
        match jobs.restart(task, attempt) {
            Ok(keeper) => {
                self.roles.insert(keeper.pid, Role::Restored(task));
                self.live.insert(
                    task,
                    Live {
                        pid: keeper.pid,
                        attempt,
                        restored: true,
                        killed: false,
                        since: Instant::now(),
                    },
                );
                self.keepers.insert(task, keeper);
                None
            }
            Err(error) => {
                let text =
                    "tasks can't be brought back at the moment, which is tried again each second";
                self.progress.warn(&format!("{text}: {error}"));
                Some(Event::NotNow(task))
            }
        }
    }

    /// Has a keeper for a task of this machine, unless there is one.
    fn keeper(&mut self, task: Task) -> io::Result<()> {
        let Some(live) = self.live.get(&task) else { return Err(io::ErrorKind::NotFound.into()) };
        let Hosts::Here(jobs) = &self.hosts else { return Ok(()) };
        if self.keepers.contains_key(&task) {
            return Ok(());
        }
        let keeper = jobs.adopt(task, live.attempt, live.pid)?;
        self.roles.insert(keeper.pid, Role::Keeper(task));
        self.keepers.insert(task, keeper);
        Ok(())
    }

    fn keep(&mut self, task: Task) -> Option<Event> {
        let asked = self.keeper(task).and_then(|()| match (&self.hosts, self.keepers.get(&task)) {
            (Hosts::Here(jobs), Some(keeper)) => jobs.checkpoint(task, keeper, self.tell.clone()),
            // A cluster does so by itself.
            (Hosts::Away(_), _) | (_, None) => Ok(()),
        });
        let error = asked.err()?;
        self.no_checkpoint(task, &error.to_string());
        Some(Event::NotKept(task))
    }

    fn save(&mut self, task: Task) -> Option<Event> {
        let asked = self.keeper(task).and_then(|()| match self.keepers.get(&task) {
            Some(keeper) => self.hosts.save(task, keeper, self.tell.clone()),
            None => Err(io::ErrorKind::NotFound.into()),
        });
        let error = asked.err()?;
        self.not_saved(task, &error.to_string());
        Some(Event::Saved(task, false))
    }

    fn terminate(&mut self, task: Task) {
        let Some(live) = self.live.get_mut(&task) else { return };
        if self.hosts.are_away() {
            live.killed = true;
            let _ = kill(live.pid, away::TERMINATE);
            return;
        }
        // It may just have ended.
        if live.restored {
            let _ = kill(live.pid, Signal::SIGTERM);
            return;
        }
        let pid = live.pid;
        self.end_keeper(task);
        let _ = killpg(pid, Signal::SIGTERM);
    }

    fn kill(&mut self, task: Task) {
        let Some(live) = self.live.get_mut(&task) else { return };
        live.killed = true;
        let pid = live.pid;
        if self.hosts.are_away() {
            // The errand has the job ended; without it, the job would run on.
            let _ = kill(pid, away::KILL);
            return;
        }
        if live.restored {
            // The kernel ends what it has brought back with it.
            let _ = kill(pid, Signal::SIGKILL);
            return;
        }
        self.end_keeper(task);
        kill_tree(pid);
    }

    /// What is ended now would be taken for having ended by itself.
    fn end_keeper(&self, task: Task) {
        if let Some(keeper) = self.keepers.get(&task) {
            let _ = kill(keeper.pid, Signal::SIGKILL);
        }
    }

    fn forget(&mut self, task: Task, attempt: Attempt) {
        match self.keepers.remove(&task) {
            // It notices the end in a moment, and has the job's folder until then.
            Some(keeper) if keeper.attempt == attempt => {
                self.roles.insert(keeper.pid, Role::Leaving(task, attempt));
                self.leaving += 1;
            }
            other => {
                self.keepers.extend(other.map(|keeper| (task, keeper)));
                self.forget_once_durable(task, attempt);
            }
        }
    }

    /// Removes the job of a try once it is durable how that has ended: until then it is all that there is of the task.
    pub(super) fn forget_once_durable(&mut self, task: Task, attempt: Attempt) {
        self.over.push(((task, attempt), self.recorder.recorded()));
        self.forget_over();
    }

    /// Removes the jobs that are of no use any more, if that is durable.
    pub(super) fn forget_over(&mut self) {
        self.tidy();
        let over = super::take_durable(&mut self.over, self.recorder.durable());
        for (task, attempt) in over {
            self.sent.remove(&(task, attempt));
            self.hosts.forget(task, attempt);
        }
    }
}
