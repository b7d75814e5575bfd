//! A memory limit of the job's cgroup while ghosts hold its old pages. When the limit comes near, the
//! ghosts go before the kernel's OOM killer has to choose: what it frees by killing them may come too
//! late, and then it chooses the job (cgroups(7)).

use std::path::{Path, PathBuf};

/// The ghosts go when less than this part of the limit is left.
const RESERVE: u64 = 8;

/// The files of one cgroup with a limit.
#[derive(Debug)]
struct Limited {
    usage: PathBuf,
    limit: u64,
}

/// The limits that a process is under.
#[derive(Debug, Default)]
pub struct MemoryWatch {
    limited: Vec<Limited>,
}

impl MemoryWatch {
    /// Of a process as this machine numbers it. Limits of its cgroup and of those above it count;
    /// what cannot be read is taken for unlimited.
    pub fn of(host_pid: i32) -> Self {
        let mut watch = Self::default();
        let Ok(text) = std::fs::read_to_string(format!("/proc/{host_pid}/cgroup")) else {
            return watch;
        };
        for line in text.lines() {
            let mut fields = line.splitn(3, ':');
            let (_, Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            if controllers.split(',').any(|name| name == "memory") {
                let names = ["memory.usage_in_bytes", "memory.limit_in_bytes"];
                watch.add("/sys/fs/cgroup/memory", path, names);
            } else if controllers.is_empty() {
                for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
                    watch.add(root, path, ["memory.current", "memory.max"]);
                }
            }
        }
        watch
    }

    fn add(&mut self, root: &str, path: &str, [usage, limit]: [&str; 2]) {
        let top = Path::new(root);
        let mut folder = Some(top.join(path.trim_start_matches('/')));
        while let Some(here) = folder.filter(|here| here.starts_with(top)) {
            if let Some(limit) = number(&here.join(limit)) {
                self.limited.push(Limited { usage: here.join(usage), limit });
            }
            folder = here.parent().map(Path::to_owned);
        }
    }

    /// Whether there is any limit to be watched.
    pub fn is_needed(&self) -> bool {
        !self.limited.is_empty()
    }

    /// Whether a limit is near.
    pub fn is_near(&self) -> bool {
        self.limited.iter().any(|limited| {
            number(&limited.usage)
                .is_some_and(|usage| usage > limited.limit - limited.limit / RESERVE)
        })
    }
}

/// A number in a file; "max", and the huge numbers by which version 1 says the same, are none.
fn number(path: &Path) -> Option<u64> {
    const UNLIMITED: u64 = 1 << 60;
    let number = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
    (number < UNLIMITED).then_some(number)
}
