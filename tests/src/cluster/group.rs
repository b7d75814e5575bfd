//! A limit of processor time for a node: control groups, of version 2 where it has the processor's
//! controllers, else of version 1.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::failure;
use crate::job::Failure;

/// Microseconds in which the time is counted.
const PERIOD: u32 = 20_000;
/// What a node that goes first weighs, in times of what everybody else does.
const FIRST: u32 = 64;

/// A node's share of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Processor time, in cores.
    pub cores: f64,
    /// The one core that the node has, as the machine numbers it; None: any. On one core all processes have equal parts of
    /// the quota; on several, those on the fuller one get less.
    pub core: Option<u32>,
    /// Whether what it has is given to it before anybody outside of the cluster.
    pub first: bool,
}

impl Share {
    /// So many cores' time, on any core.
    pub fn of(cores: f64) -> Share {
        Share { cores, core: None, first: false }
    }
}

/// The control groups of a node. Dropping them removes them.
pub(super) struct Group {
    /// One of version 2, or one for each controller of version 1, the processor's first.
    folders: Vec<PathBuf>,
    version: u8,
}

impl Group {
    /// A new group whose members have that share together.
    pub(super) fn new(name: &str, share: Share) -> Result<Group, Failure> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let unique = format!("ckptd-test-{}-{number}-{name}", std::process::id());
        for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
            let controllers = fs::read_to_string(format!("{root}/cgroup.controllers"));
            if controllers.is_ok_and(|c| c.split_whitespace().any(|word| word == "cpu")) {
                // Refused if it is enabled already below another's authority: the writes below tell.
                let _ = fs::write(format!("{root}/cgroup.subtree_control"), "+cpu");
                let _ = fs::write(format!("{root}/cgroup.subtree_control"), "+cpuset");
                let mut group = Group { folders: Vec::new(), version: 2 };
                let mut values = Vec::new();
                if share.first {
                    values.push(("cpu.weight", (100 * FIRST).to_string()));
                }
                if let Some(core) = share.core {
                    values.push(("cpuset.cpus", core.to_string()));
                }
                group.make(root, &unique, &values)?;
                group.set(share.cores)?;
                return Ok(group);
            }
        }
        let mut group = Group { folders: Vec::new(), version: 1 };
        let weight = ("cpu.shares", (1024 * FIRST).to_string());
        let weight = share.first.then_some(weight);
        group.make("/sys/fs/cgroup/cpu", &unique, weight.as_slice())?;
        group.set(share.cores)?;
        if let Some(core) = share.core {
            let root = "/sys/fs/cgroup/cpuset";
            let memory = fs::read_to_string(format!("{root}/cpuset.mems"));
            let memory = memory.map_err(failure("read cpuset.mems"))?.trim().to_owned();
            group.make(
                root,
                &unique,
                &[("cpuset.cpus", core.to_string()), ("cpuset.mems", memory)],
            )?;
        }
        let account = "/sys/fs/cgroup/cpuacct";
        // Where it is one hierarchy with the processor's, the group is there already.
        if Path::new(account).is_dir() && !Path::new(account).join(&unique).exists() {
            group.make(account, &unique, &[])?;
        }
        Ok(group)
    }

    fn make(&mut self, root: &str, name: &str, values: &[(&str, String)]) -> Result<(), Failure> {
        let folder = Path::new(root).join(name);
        let what = format!("make the control group {}", folder.display());
        fs::create_dir(&folder).map_err(failure(&what))?;
        self.folders.push(folder.clone());
        for (file, value) in values {
            fs::write(folder.join(file), value)
                .map_err(failure(&format!("{what}: {file} {value}")))?;
        }
        Ok(())
    }

    /// Changes how much processor time there is, in cores.
    pub(super) fn set(&self, cores: f64) -> Result<(), Failure> {
        // No test asks for so many that this would not fit.
        let quota = (f64::from(PERIOD) * cores) as u32;
        let values = match self.version {
            2 => vec![("cpu.max", format!("{quota} {PERIOD}"))],
            _ => vec![
                ("cpu.cfs_period_us", PERIOD.to_string()),
                ("cpu.cfs_quota_us", quota.to_string()),
            ],
        };
        for (file, value) in values {
            let Some(folder) = self.folders.first() else { break };
            let path = folder.join(file);
            fs::write(&path, &value)
                .map_err(failure(&format!("write {value} to {}", path.display())))?;
        }
        Ok(())
    }

    /// The processor time that its members, past and present, have had.
    pub(super) fn used(&self) -> Result<Duration, Failure> {
        for folder in &self.folders {
            let nanoseconds = fs::read_to_string(folder.join("cpuacct.usage")).ok();
            if let Some(used) = nanoseconds.and_then(|text| text.trim().parse().ok()) {
                return Ok(Duration::from_nanos(used));
            }
            let stat = fs::read_to_string(folder.join("cpu.stat")).unwrap_or_default();
            let microseconds = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
            if let Some(used) = microseconds.and_then(|text| text.parse().ok()) {
                return Ok(Duration::from_micros(used));
            }
        }
        Err(Failure("no control group tells of processor time".into()))
    }

    pub(super) fn folders(&self) -> &[PathBuf] {
        &self.folders
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last member may be dying still; what is left over after a second is empty.
        for folder in &self.folders {
            for _ in 0..100 {
                if fs::remove_dir(folder).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
