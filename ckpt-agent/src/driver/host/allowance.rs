//! Processor time that this process may use: its affinity (sched_setaffinity(2)), and the quotas of its control
//! group and of all above it (cgroups(7); Documentation/admin-guide/cgroup-v2.rst, cpu.max;
//! Documentation/scheduler/sched-bwc.rst).

use std::path::{Path, PathBuf};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// What this process may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allowance {
    /// CPUs on which it may run, at least 1.
    pub cpus: u32,
    /// The least of the quotas that can be read, in cores.
    pub quota: Option<f64>,
    /// Whether there can be no quota that was not read: but for those above a container's own group.
    pub is_certain: bool,
}

impl Allowance {
    /// As it is now: quotas change.
    #[must_use]
    pub fn read() -> Self {
        let allowed = sched_getaffinity(Pid::from_raw(0)).map_or(1, |set| {
            (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).count()
        });
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let folder = folder(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
        let folder = folder.filter(|folder| folder.path.is_dir());
        Self {
            cpus: u32::try_from(allowed).unwrap_or(u32::MAX).max(1),
            quota: folder.as_ref().and_then(Folder::least_quota),
            is_certain: folder.is_some(),
        }
    }

    /// In cores; parts of a core count.
    #[must_use]
    pub fn cores(&self) -> f64 {
        let cpus = f64::from(self.cpus);
        self.quota.map_or(cpus, |quota| quota.min(cpus))
    }
}

/// Where the quotas of a control group are.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Folder {
    /// The hierarchy's own.
    root: PathBuf,
    /// The group's.
    path: PathBuf,
    /// Version of the hierarchy.
    version: u8,
}

impl Folder {
    fn least_quota(&self) -> Option<f64> {
        let above = self.path.ancestors().take_while(|folder| folder.starts_with(&self.root));
        let quota = |folder: &Path| match self.version {
            1 => version_1(folder),
            _ => version_2(folder),
        };
        above.filter_map(quota).min_by(f64::total_cmp)
    }
}

/// From /proc/self/cgroup and /proc/self/mountinfo: the group by which CPU time is given out. The controller is in
/// one hierarchy only: of version 1 where that is named there.
fn folder(groups: &str, mounts: &str) -> Option<Folder> {
    let lines = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        Some((controllers, path))
    });
    let of = |wanted: fn(&str) -> bool| {
        lines.clone().find(|(controllers, _)| wanted(controllers)).map(|(_, path)| path)
    };
    let has_cpu = |names: &str| names.split(',').any(|name| name == "cpu");
    let (version, path) = match of(has_cpu) {
        Some(path) => (1, path),
        None => (2, of(str::is_empty)?),
    };
    mounts.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let (mut front, mut back) = (front.split(' ').skip(3), back.split(' '));
        let (top, root) = (front.next()?, front.next()?);
        let (kind, _, options) = (back.next()?, back.next()?, back.next()?);
        let fits = match version {
            1 => kind == "cgroup" && has_cpu(options),
            _ => kind == "cgroup2",
        };
        // A mount shows the groups from `top` on; one outside of this namespace begins with "/..".
        let below = Path::new(path).strip_prefix(top).ok()?;
        let found = fits && !path.contains("/..");
        found.then(|| Folder { root: root.into(), path: Path::new(root).join(below), version })
    })
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
        let own = Allowance::read();
        assert!(own.cpus >= 1 && own.cores() > 0.0 && own.cores() <= f64::from(own.cpus));
    }

    #[test]
    fn part_of_a_core_counts_as_such() {
        let cores = |quota| Allowance { cpus: 2, quota, is_certain: true }.cores();
        assert!((cores(Some(0.6)) - 0.6).abs() < 1e-9);
        assert!((cores(Some(8.0)) - 2.0).abs() < 1e-9);
        assert!((cores(None) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn the_group_is_found_wherever_its_hierarchy_is_mounted() {
        let place = |groups, mounts| folder(groups, mounts).map(|found| (found.root, found.path));
        let some = |root: &str, path: &str| Some((PathBuf::from(root), PathBuf::from(path)));
        let unified = "34 28 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
        assert_eq!(place("0::/a/b\n", unified), some("/sys/fs/cgroup", "/sys/fs/cgroup/a/b"));
        assert_eq!(place("0::/\n", unified), some("/sys/fs/cgroup", "/sys/fs/cgroup"));
        let both = "35 28 0:31 / /cpu rw - cgroup cgroup rw,cpu\n\
                    36 28 0:32 / /unified rw - cgroup2 cgroup2 rw\n";
        assert_eq!(place("1:cpu,cpuacct:/x\n0::/y\n", both), some("/cpu", "/cpu/x"));
        assert_eq!(place("2:cpuacct:/x\n0::/y\n", both), some("/unified", "/unified/y"));
        let bound = "34 28 0:30 /box/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(place("0::/box/1/in\n", bound), some("/sys/fs/cgroup", "/sys/fs/cgroup/in"));
    }

    #[test]
    fn what_cannot_be_seen_is_not_taken_for_no_quota() {
        let unified = "34 28 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
        for (groups, mounts) in [
            ("", unified),
            ("0::/a\n", ""),
            ("0::/../other\n", unified),
            ("0::/a\n", "34 28 0:30 /b /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ] {
            assert_eq!(folder(groups, mounts), None, "{groups} {mounts}");
        }
    }

    #[test]
    fn the_least_quota_of_all_groups_above_counts() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("outer/inner");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(root.path().join("outer/cpu.max"), "60000 100000\n").unwrap();
        std::fs::write(path.join("cpu.max"), "90000 100000\n").unwrap();
        let found = Folder { root: root.path().to_owned(), path, version: 2 };
        assert_eq!(found.least_quota(), Some(0.6));
    }
}
