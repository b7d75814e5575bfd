//! A memory limit of the job's cgroup while snapshot processes hold its old pages. When the limit comes near, the
//! snapshot processes go before the kernel's OOM killer has to choose: what it frees by killing them may come too
//! late, and then it chooses the job (cgroups(7)). While memory is short nothing is allocated here, since that would
//! wait for what is to be freed: files are open before, and so is a handle of each snapshot process.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid as UnixPid;

use crate::sys::pidfd::PidFd;
use crate::sys::trial::Call;

/// The snapshot processes go when less than this part of the limit is left.
const RESERVE: u64 = 8;

/// The files of one cgroup with a limit.
#[derive(Debug)]
struct Limited {
    usage: File,
    limit: u64,
}

/// A snapshot process that can be killed.
#[derive(Debug)]
struct Victim {
    host_pid: i32,
    /// `None` on kernels that have none.
    handle: Option<PidFd>,
}

/// The limits that a job is under, and the snapshot processes that go when one of them is near.
#[derive(Debug, Default)]
pub struct MemoryWatch {
    limited: Vec<Limited>,
    victims: Vec<Victim>,
}

impl MemoryWatch {
    /// Of snapshot processes as this machine numbers them, all in one cgroup as their job is. Limits of it and of those
    /// above it count; what cannot be read is taken for unlimited.
    pub fn of(snapshot_processes: &[i32]) -> Self {
        let mut watch = Self::default();
        let Some(host_pid) = snapshot_processes.first() else { return watch };
        watch.add_limits(*host_pid);
        if watch.is_needed() {
            let victim = |pid: &i32| Victim { host_pid: *pid, handle: PidFd::open(*pid).ok() };
            watch.victims = snapshot_processes.iter().map(victim).collect();
        }
        watch
    }

    fn add_limits(&mut self, host_pid: i32) {
        // Where it can't be read, the process has ended, or the kernel has no cgroups, and no limits of theirs.
        let Ok(text) = std::fs::read_to_string(format!("/proc/{host_pid}/cgroup")) else {
            return;
        };
        for line in text.lines() {
            let mut fields = line.splitn(3, ':');
            let (_, Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            if controllers.split(',').any(|name| name == "memory") {
                let names = ["memory.usage_in_bytes", "memory.limit_in_bytes"];
                self.add("/sys/fs/cgroup/memory", path, names);
            } else if controllers.is_empty() {
                for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
                    self.add(root, path, ["memory.current", "memory.max"]);
                }
            }
        }
    }

    fn add(&mut self, root: &str, path: &str, [usage, limit]: [&str; 2]) {
        let top = Path::new(root);
        let mut folder = Some(top.join(path.trim_start_matches('/')));
        while let Some(here) = folder.filter(|here| here.starts_with(top)) {
            let limit = File::open(here.join(limit)).ok().and_then(|file| number(&file));
            if let (Some(limit), Ok(usage)) = (limit, File::open(here.join(usage))) {
                self.limited.push(Limited { usage, limit });
            }
            folder = here.parent().map(Path::to_owned);
        }
    }

    /// Whether there is any limit to be watched.
    pub fn is_needed(&self) -> bool {
        !self.limited.is_empty()
    }

    /// Whether the memory of what has been killed can be taken from it, so that snapshot processes may stop at their
    /// ends.
    pub fn can_release(&self) -> bool {
        self.victims.iter().all(|victim| victim.handle.is_some())
            && Call::ProcessMrelease.may_be_made()
    }

    /// Kills the snapshot processes if a limit is near. The writer finds them gone and gives the checkpoint up.
    pub fn look(&mut self) {
        if self.is_near() {
            self.victims.retain(|victim| !victim.kill());
        }
    }

    fn is_near(&self) -> bool {
        self.limited.iter().any(|limited| {
            number(&limited.usage)
                .is_some_and(|usage| usage > limited.limit - limited.limit / RESERVE)
        })
    }
}

impl Victim {
    /// Kills it and takes its memory at once: it may not be scheduled for long while the job goes on to copy pages.
    /// Whether that is done with.
    fn kill(&self) -> bool {
        let Some(handle) = &self.handle else {
            return kill(UnixPid::from_raw(self.host_pid), Signal::SIGKILL).is_ok();
        };
        if handle.signal(libc::SIGKILL).is_err() {
            return true;
        }
        !Call::ProcessMrelease.may_be_made() || handle.release_memory() != Err(Errno::EAGAIN)
    }
}

/// A number in a file; "max", and the huge numbers by which version 1 says the same, are none.
fn number(file: &File) -> Option<u64> {
    const UNLIMITED: u64 = 1 << 60;
    let mut buffer = [0; 32];
    let length = file.read_at(&mut buffer, 0).ok()?;
    let number = std::str::from_utf8(&buffer[..length]).ok()?.trim().parse().ok()?;
    (number < UNLIMITED).then_some(number)
}
