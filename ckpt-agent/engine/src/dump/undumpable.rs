//! Processes that nobody may look into (PR_SET_DUMPABLE). An ordinary user may trace one in a user namespace of his, but
//! /proc shows its memory and descriptors as root's all the same (fs/proc/base.c, task_dump_owner). So it is dumpable
//! while it stands, and ends with its tracer rather than go on like that.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;

use super::super::error::{EngineError, Refusal, Result};
use super::super::freeze::StoppedProcess;
use super::super::proc::{inner_number, read_text};
use super::super::trace::Remote;

/// SUID_DUMP_DISABLE (include/linux/sched/coredump.h).
const NOBODY: i64 = 0;

/// Whether /proc shows what a process has to root alone.
pub(super) fn is_hidden(host_pid: i32) -> bool {
    !nix::unistd::geteuid().is_root()
        && std::fs::read_dir(format!("/proc/{host_pid}/fd"))
            .is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// Says of a process that may not even be traced why that is so.
pub(super) fn explain(host_pid: i32, error: EngineError) -> EngineError {
    let denied = matches!(&error, EngineError::System { source, .. }
        if source.kind() == ErrorKind::PermissionDenied);
    let status = read_text(&format!("/proc/{host_pid}/status")).ok().flatten();
    let Some(status) = status.filter(|_| denied && is_hidden(host_pid)) else { return error };
    let comm = status.lines().find_map(|line| line.strip_prefix("Name:"));
    EngineError::RefusedProcess {
        pid: inner_number(&status).unwrap_or(host_pid),
        comm: comm.unwrap_or_default().trim().to_owned(),
        refusal: refusal(),
    }
}

fn refusal() -> Refusal {
    Refusal::new(
        "may not be looked into by this user: it is not dumpable (PR_SET_DUMPABLE), has changed its user, or has executed a \
         program that the user may not read",
        "run ckptd as root, or the job in namespaces of its own",
    )
}

/// The refusal of such a process in a job in which nothing holds its memory once the job goes on.
pub(super) fn refuse_standing() -> EngineError {
    Refusal::new(
        "is not dumpable (PR_SET_DUMPABLE), in a job with PID namespaces of its own",
        "run ckptd as root",
    )
    .into()
}

/// Whether a process is among those of its job alone. Where it is in this process's user namespace, others of the user that run on
/// would be shown what it has, too.
fn is_in_another_user_namespace(host_pid: i32) -> Result<bool> {
    let found = |process: &str| {
        let path = format!("/proc/{process}/ns/user");
        let found = std::fs::metadata(&path);
        found.map(|found| found.ino()).map_err(|error| EngineError::system("stat", &path, error))
    };
    Ok(found(&host_pid.to_string())? != found("self")?)
}

impl StoppedProcess {
    /// Makes a process dumpable that nobody may look into, until it goes on. Its sandbox must have been suspended.
    ///
    /// # Errors
    /// The refusal of one that it could not be given back for; [`EngineError::Gone`].
    pub(super) fn make_dumpable(&mut self, entry_point: u64) -> Result<()> {
        if !is_in_another_user_namespace(self.host_pid)? {
            return Err(refusal().into());
        }
        self.die_with_tracer();
        let first = self.threads.first_mut().ok_or(EngineError::Gone(self.host_pid))?;
        let mut remote = Remote::take(first, entry_point)?;
        // As fs.suid_dumpable may have it be (SUID_DUMP_ROOT): no process can ask for that.
        if remote.raw_quietly(libc::SYS_prctl, &[libc::PR_GET_DUMPABLE as u64])? != NOBODY {
            return Err(refusal().into());
        }
        // Before it is: what fails may have been done.
        self.made_dumpable = Some(entry_point);
        let made = remote.raw_quietly(libc::SYS_prctl, &[libc::PR_SET_DUMPABLE as u64, 1])?;
        remote.checked("PR_SET_DUMPABLE", made)?;
        drop(remote);
        // Root's for another reason.
        if is_hidden(self.host_pid) { Err(refusal().into()) } else { Ok(()) }
    }

    /// Makes it what it was: the last call that is injected.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn hide_again(&mut self) -> Result<()> {
        let Some(entry_point) = self.made_dumpable else { return Ok(()) };
        let first = self.threads.first_mut().ok_or(EngineError::Gone(self.host_pid))?;
        let mut remote = Remote::take(first, entry_point)?;
        let hidden = remote.raw_quietly(libc::SYS_prctl, &[libc::PR_SET_DUMPABLE as u64, 0])?;
        remote.checked("PR_SET_DUMPABLE", hidden)?;
        drop(remote);
        self.made_dumpable = None;
        Ok(())
    }
}
