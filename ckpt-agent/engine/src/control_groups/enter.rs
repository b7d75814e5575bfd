//! How a restart has a process enter its groups.

use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

use super::super::proc::mounts::Mount;
use super::{ControlGroup, Groups, below, of};

/// The file of a group that takes processes.
const PROCESSES: &str = "cgroup.procs";
/// Types of the file systems that show groups.
const FIRST: &str = "cgroup";
const SECOND: &str = "cgroup2";

/// Groups within the job's own that a process is to enter, by hierarchies. Those elsewhere belong to whoever manages the
/// machine: their names may be another's by now.
pub fn wanted(groups: &[ControlGroup], of_job: &Groups) -> Groups {
    let within = groups.iter().filter(|group| group.within);
    within
        .filter_map(|group| {
            let job = of_job.get(&group.hierarchy)?.trim_end_matches('/');
            Some((group.hierarchy.clone(), format!("{job}{}", group.path)))
        })
        .collect()
}

/// Has this process enter these groups, with whose rights it is acting. [`has_entered`] tells which it could not.
pub fn enter(wanted: &Groups) {
    let current = of("self");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
    for (hierarchy, path) in wanted {
        if current.get(hierarchy) != Some(path) {
            let _ = folder(&mounts, hierarchy, path).and_then(|folder| enter_one(&folder));
        }
    }
}

/// Whether a process is in such groups, wherever the job's own is by now.
pub fn has_entered(pid: i32, groups: &[ControlGroup]) -> bool {
    if groups.is_empty() {
        return true;
    }
    let current = of(&pid.to_string());
    groups.iter().all(|group| {
        let path = current.get(&group.hierarchy);
        path.is_some_and(|path| {
            if group.within { path.ends_with(&group.path) } else { *path == group.path }
        })
    })
}

/// Where a group is seen.
fn folder(mounts: &[Mount], hierarchy: &str, path: &str) -> Result<PathBuf> {
    // An image can name any path.
    if Path::new(path).components().any(|part| part.as_os_str() == "..") {
        return Err(ErrorKind::InvalidInput.into());
    }
    let shows = |mount: &&Mount| match hierarchy {
        "" => mount.file_system == SECOND,
        names => {
            let has = |name| mount.data.split(',').any(|option| option == name);
            mount.file_system == FIRST && names.split(',').all(has)
        }
    };
    let seen = mounts.iter().filter(shows).find_map(|mount| {
        let rest = if path == mount.root { Some("") } else { below(path, &mount.root) };
        rest.map(|rest| PathBuf::from(format!("{}{rest}", mount.at.trim_end_matches('/'))))
    });
    seen.ok_or_else(|| ErrorKind::NotFound.into())
}

fn enter_one(folder: &Path) -> Result<()> {
    let missing = folder.ancestors().take_while(|folder| !folder.exists());
    let missing: Vec<&Path> = missing.collect();
    std::fs::create_dir_all(folder)?;
    if is_frozen(folder) {
        // Nobody could tell this process to go on.
        return Err(Error::other("its processes are frozen"));
    }
    // 0: whoever writes it.
    std::fs::write(folder.join(PROCESSES), "0").inspect_err(|_| {
        for folder in missing {
            // Somebody else may have come to it.
            let _ = std::fs::remove_dir(folder);
        }
    })
}

/// Whether the processes of a group stand still (cgroup.events of version 2, the freezer of version 1).
fn is_frozen(folder: &Path) -> bool {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let thawed = |state: &str| state.is_empty() || state.trim() == "THAWED";
    read("cgroup.freeze").trim() == "1"
        || read("cgroup.events").lines().any(|line| line == "frozen 1")
        || !thawed(&read("freezer.state"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(hierarchy: &str, path: &str, within: bool) -> ControlGroup {
        ControlGroup { hierarchy: hierarchy.into(), path: path.into(), within }
    }

    #[test]
    fn groups_within_the_job_follow_it() {
        let of_job: Groups = [(String::new(), "/here".to_owned())].into();
        assert_eq!(wanted(&[group("", "/part", true)], &of_job)[""], "/here/part");
        assert!(
            wanted(&[group("", "/part", false), group("pids", "/a", true)], &of_job).is_empty()
        );
        let of_job: Groups = [(String::new(), "/".to_owned())].into();
        assert_eq!(wanted(&[group("", "/part", true)], &of_job)[""], "/part");
    }

    #[test]
    fn groups_are_found_where_they_are_mounted() {
        let mounts: Vec<Mount> = [
            "30 1 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
            "31 1 0:27 /box /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct",
            "32 1 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd",
        ]
        .iter()
        .filter_map(|line| Mount::parse(line))
        .collect();
        let found = |hierarchy, path| folder(&mounts, hierarchy, path).ok();
        assert_eq!(found("", "/a/b"), Some("/sys/fs/cgroup/unified/a/b".into()));
        assert_eq!(found("", "/"), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(found("cpu,cpuacct", "/box/a"), Some("/sys/fs/cgroup/cpu/a".into()));
        assert_eq!(found("cpu,cpuacct", "/boxes"), None);
        assert_eq!(found("name=systemd", "/s"), Some("/sys/fs/cgroup/systemd/s".into()));
        assert_eq!(found("pids", "/s"), None);
        assert_eq!(found("", "/a/../b"), None);
    }
}
