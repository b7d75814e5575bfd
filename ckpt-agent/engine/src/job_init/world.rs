//! Where a job's processes live: in namespaces of their own, or, where the machine offers none (phones), among all
//! others of the machine.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Result};
use super::super::proc::Members;
use super::super::sys::prctl;
use super::super::sys::reap::{Reaped, reap_any};

/// The variable by which namespaces are done without although there are some: `none`.
const VARIABLE: &str = "CKPTD_NAMESPACES";
/// The variable by which, without namespaces, processes get new numbers although they could have theirs: `new`. For
/// tests.
pub const NUMBERS_VARIABLE: &str = "CKPTD_NUMBERS";
/// The number of the init of a PID namespace.
const FIRST: u32 = 1;
/// How long the last processes may take to die: the kernel may hold one back for as long as a device takes.
const LAST_BREATH: Duration = Duration::from_secs(10);
/// Pause between looks at what is dying.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Where a job's processes live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum World {
    /// In namespaces of their own, whose process 1 is the job's init.
    #[default]
    Own,
    /// In the machine's own namespaces, below the job's init, to which orphans fall
    /// (PR_SET_CHILD_SUBREAPER(2const)). Their numbers are the machine's.
    Machine,
}

impl World {
    /// What jobs get here: namespaces of their own, unless the kernel has none or the user does without.
    pub fn chosen() -> Self {
        if std::env::var_os(VARIABLE).is_some_and(|value| value == "none") || lacking().is_some() {
            Self::Machine
        } else {
            Self::Own
        }
    }

    /// The world that the calling init of a job is in.
    pub fn of_this_init() -> Self {
        if std::process::id() == FIRST { Self::Own } else { Self::Machine }
    }

    /// From now on orphans below the caller fall to it, where no namespace sees to that.
    ///
    /// # Errors
    /// Failed prctl(2).
    pub fn adopt_orphans(self) -> Result<()> {
        match self {
            Self::Own => Ok(()),
            Self::Machine => prctl::set_child_subreaper(true)
                .map_err(|errno| EngineError::system("prctl", "PR_SET_CHILD_SUBREAPER", errno)),
        }
    }

    /// Ends all processes of the job, from its init, which is about to end itself. In a PID namespace the kernel
    /// does that.
    pub fn end_all(self) {
        if self == Self::Machine {
            end_descendants();
        }
    }
}

/// Whether numbers of before are asked for at all.
pub fn wants_numbers() -> bool {
    std::env::var_os(NUMBERS_VARIABLE).is_none_or(|value| value != "new")
}

/// What the kernel is built without and jobs with namespaces of their own need.
pub fn lacking() -> Option<&'static str> {
    let there = |name: &str| Path::new("/proc/self/ns").join(name).symlink_metadata().is_ok();
    if !Path::new("/proc/self").exists() {
        // Nothing is known without /proc, which says so by itself.
        None
    } else if !there("pid") {
        Some("the kernel has no PID namespaces")
    } else if !there("user") && !nix::unistd::geteuid().is_root() {
        Some("the kernel has no user namespaces")
    } else {
        None
    }
}

/// Kills every process of the job but its init, which calls this.
pub fn kill_all() {
    match World::of_this_init() {
        // SAFETY: takes numbers only; -1 leaves out process 1 and the caller, and reaches no further than this
        // PID namespace (kill(2)).
        World::Own => drop(unsafe { libc::kill(-1, libc::SIGKILL) }),
        World::Machine => {
            own_members().stop();
            own_members().kill_living();
        }
    }
}

/// Those that are below the calling init.
fn own_members() -> Members {
    Members::Below(std::process::id() as i32)
}

/// Kills and reaps until nobody is left. A child that was forked while its parent was being killed falls to the
/// caller, a subreaper, and is found in the next round. What has ended and stays for its tracer to see is nobody
/// any more.
fn end_descendants() {
    let begun = Instant::now();
    let members = own_members();
    members.stop();
    loop {
        let alive = members.kill_living();
        while let Ok(Reaped::Ended(..) | Reaped::Stopped) = reap_any() {}
        if (!alive && !members.kill_living()) || begun.elapsed() > LAST_BREATH {
            return;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_no_init_of_a_namespace() {
        assert_eq!(World::of_this_init(), World::Machine);
        assert_eq!(World::default(), World::Own);
    }
}
