//! Cores that this process may use: its affinity, and the CPU quota of its cgroups (cgroups(7)).

use std::path::{Path, PathBuf};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// Cores, at least 1. Part of a core counts as a whole one.
#[must_use]
pub fn cores() -> u32 {
    let allowed = sched_getaffinity(Pid::from_raw(0)).map_or(1, |set| {
        (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).count()
    });
    let allowed = u32::try_from(allowed).unwrap_or(u32::MAX).max(1);
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    quotas(&groups).into_iter().fold(allowed, |cores, quota| cores.min(quota.ceil() as u32)).max(1)
}

/// The quota of each cgroup that this process is in, in cores.
fn quotas(groups: &str) -> Vec<f64> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (_, Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if controllers.split(',').any(|name| name == "cpu") {
            above(Path::new("/sys/fs/cgroup/cpu"), path, |folder| found.extend(version_1(folder)));
        } else if controllers.is_empty() {
            for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
                above(Path::new(root), path, |folder| found.extend(version_2(folder)));
            }
        }
    }
    found
}

/// A group and those above it.
fn above(root: &Path, path: &str, mut look: impl FnMut(&Path)) {
    let mut folder: Option<PathBuf> = Some(root.join(path.trim_start_matches('/')));
    while let Some(here) = folder.filter(|here| here.starts_with(root)) {
        look(&here);
        folder = here.parent().map(Path::to_owned);
    }
}

fn version_1(folder: &Path) -> Option<f64> {
    let number = |name: &str| -> Option<f64> {
        std::fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
    };
    share(number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
}

fn version_2(folder: &Path) -> Option<f64> {
    max(&std::fs::read_to_string(folder.join("cpu.max")).ok()?)
}

/// "QUOTA PERIOD", or "max PERIOD".
fn max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    share(quota.parse().ok()?, period.parse().ok()?)
}

fn share(quota: f64, period: f64) -> Option<f64> {
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read() {
        assert_eq!(max("150000 100000\n"), Some(1.5));
        assert_eq!(max("max 100000\n"), None);
        assert_eq!(share(-1.0, 100_000.0), None);
        assert!(cores() >= 1);
    }
}
