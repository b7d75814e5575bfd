//! The init of a job's last run on this machine, for a restart that comes at once after a kill.
//!
//! The lock of a job's folder goes with ckptd itself. Its processes end a moment later, and hold their sockets, ports
//! and files until then. So the folder names the init, which is there until the last of them has ended. A job that was
//! adopted goes on without ckptd: of that, the folder names the first process.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{SessionError, note};
use crate::proc::{is_ended, start_time};

/// The file in a job's folder.
const FILE: &str = "init.json";
/// How long an old job's end is waited for: much memory takes seconds to free.
const LIMIT: Duration = Duration::from_secs(30);
/// How often it is looked for.
const STEP: Duration = Duration::from_millis(5);

/// A process that no later one is taken for.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    pid: i32,
    start_time: u64,
    /// Its number means nothing on another machine, or after another start of this one.
    boot: String,
    /// What it is to the job.
    #[serde(default)]
    whose: Whose,
}

/// Who has started a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Whose {
    /// It is the job's init, which ends with ckptd.
    #[default]
    Inits,
    /// It is the first process of a job that was adopted, which goes on without ckptd.
    Strangers,
}

impl Known {
    /// A process that lives: one that is dead and not reaped has no children any more.
    fn of(pid: i32, whose: Whose) -> Option<Self> {
        if is_ended(pid) {
            return None;
        }
        let start_time = start_time(pid)?;
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(Self { pid, start_time, boot, whose })
    }

    fn lives(&self) -> bool {
        Self::of(self.pid, self.whose).as_ref() == Some(self)
    }
}

/// Leaves word of a job's init, or of an adopted job's first process, in the job's folder. Without it a restart is refused
/// where it would have waited.
pub(super) fn remember(job_dir: &Path, pid: i32, whose: Whose) {
    if let Some(known) = Known::of(pid, whose) {
        let _ = note::write(job_dir, FILE, &known);
    }
}

/// Waits until all processes of the job's last run have ended.
///
/// # Errors
/// They do not end.
pub(super) fn wait_gone(job_dir: &Path) -> Result<(), SessionError> {
    if let Some(pid) = living_stranger(job_dir) {
        return Err(SessionError::Adopted(pid));
    }
    let Some(known) = recall(job_dir) else { return Ok(()) };
    let began = Instant::now();
    while known.lives() {
        if began.elapsed() > LIMIT {
            return Err(SessionError::Init(format!(
                "the job's processes of before have not ended: its init, process {}, is still there",
                known.pid
            )));
        }
        std::thread::sleep(STEP);
    }
    Ok(())
}

/// The first process of a job that was adopted, if it still lives on this machine: it can't be restarted then.
#[must_use]
pub fn living_stranger(job_dir: &Path) -> Option<i32> {
    let known = recall(job_dir).filter(|known| known.whose == Whose::Strangers)?;
    known.lives().then_some(known.pid)
}

/// Whether the job's last run on this machine goes on.
pub(super) fn runs(job_dir: &Path) -> bool {
    recall(job_dir).is_some_and(|known| known.lives())
}

fn recall(job_dir: &Path) -> Option<Known> {
    note::read(job_dir, FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_process_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep").arg("0.3").spawn().unwrap();
        remember(folder.path(), child.id() as i32, Whose::Inits);
        let known = recall(folder.path()).unwrap();
        assert!(known.lives());
        // It stays a zombie meanwhile.
        wait_gone(folder.path()).unwrap();
        assert!(child.try_wait().unwrap().is_some());
    }

    #[test]
    fn a_number_that_another_process_has_by_now_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::process::id() as i32;
        let known = Known { start_time: 1, ..Known::of(own, Whose::Inits).unwrap() };
        std::fs::write(folder.path().join(FILE), serde_json::to_vec(&known).unwrap()).unwrap();
        wait_gone(folder.path()).unwrap();
        std::fs::write(folder.path().join(FILE), "[]").unwrap();
        wait_gone(folder.path()).unwrap();
    }
}
