//! How much memory is free, and what is said where it is too little.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use super::super::error::{EngineError, Refusal};

/// Where control groups are (cgroups(7), version 2).
const GROUPS: &str = "/sys/fs/cgroup";

/// Bytes of memory that can be had without swapping. `None`: this machine does not tell.
pub fn available_memory() -> Option<u64> {
    let info = read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib = line.trim().trim_end_matches(" kB").parse::<u64>().ok()?;
    Some(kib.saturating_mul(1024))
}

/// The same, and not more than the control groups that this process is in have left.
pub fn available_here() -> Option<u64> {
    let own = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let group = own.map(|path| Path::new(GROUPS).join(path));
    let groups = group.iter().flat_map(|group| group.ancestors());
    let groups = groups.take_while(|group| group.starts_with(GROUPS));
    groups.map(Path::to_path_buf).filter_map(left_in).chain(available_memory()).min()
}

/// What a control group may still take: what files have in memory can be thrown away.
fn left_in(group: PathBuf) -> Option<u64> {
    let number = |name: &str| read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    let left = number("memory.max")?.saturating_sub(number("memory.current")?);
    let stat = read_to_string(group.join("memory.stat")).unwrap_or_default();
    Some(left.saturating_add(of_files(&stat)))
}

fn of_files(stat: &str) -> u64 {
    let of = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|bytes| bytes.parse::<u64>().ok()).unwrap_or(0)
    };
    of("active_file").saturating_add(of("inactive_file"))
}

/// A refusal of what has no place.
pub(super) fn too_large(wanted: u64) -> EngineError {
    Refusal::new(
        format!("its content of {wanted} bytes fits neither into free memory nor onto the disk"),
        "free memory or the disk, or keep the file outside of the session directories",
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_what_its_limit_and_files_leave() {
        let group = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(group.path().join(name), text).unwrap();
        let left = || left_in(group.path().to_owned());
        assert_eq!(left(), None);
        write("memory.current", "700\n");
        write("memory.max", "max\n");
        assert_eq!(left(), None);
        write("memory.max", "1000\n");
        assert_eq!(left(), Some(300));
        write("memory.stat", "anon 5\ninactive_file 30\nactive_file 4\nfile 99\n");
        assert_eq!(left(), Some(334));
        assert!(available_here() <= available_memory().map(|free| free * 2));
    }
}
