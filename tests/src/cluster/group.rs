//! A limit of processor time for a node: a control group, of version 2 where it has the processor's
//! controller, else of version 1.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::failure;
use crate::job::Failure;

/// Microseconds in which the time is counted.
const PERIOD: u32 = 20_000;

/// A control group. Dropping it removes it.
pub(super) struct Group {
    folder: PathBuf,
}

impl Group {
    /// A new group whose members get so many cores' time together.
    pub(super) fn new(name: &str, cores: f64) -> Result<Group, Failure> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let unique = format!("ckptd-test-{}-{number}-{name}", std::process::id());
        // No test asks for so many that this would not fit.
        let quota = (f64::from(PERIOD) * cores) as u32;
        for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
            let controllers = fs::read_to_string(format!("{root}/cgroup.controllers"));
            if controllers.is_ok_and(|c| c.split_whitespace().any(|word| word == "cpu")) {
                // Refused if it is enabled already below another's authority: the write below tells.
                let _ = fs::write(format!("{root}/cgroup.subtree_control"), "+cpu");
                return Group::make(root, &unique, &[("cpu.max", format!("{quota} {PERIOD}"))]);
            }
        }
        let values =
            [("cpu.cfs_period_us", PERIOD.to_string()), ("cpu.cfs_quota_us", quota.to_string())];
        Group::make("/sys/fs/cgroup/cpu", &unique, &values)
    }

    fn make(root: &str, name: &str, values: &[(&str, String)]) -> Result<Group, Failure> {
        let folder = Path::new(root).join(name);
        let what = format!("make the control group {}", folder.display());
        fs::create_dir(&folder).map_err(failure(&what))?;
        let group = Group { folder };
        for (file, value) in values {
            fs::write(group.folder.join(file), value).map_err(failure(&what))?;
        }
        Ok(group)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last member may be dying still; what is left over after a second is empty.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}
