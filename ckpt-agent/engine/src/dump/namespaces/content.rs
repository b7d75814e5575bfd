//! What namespaces say. One that holds what no image has is refused.

use std::collections::BTreeMap;

use super::super::super::error::{EngineError, Result};
use super::super::super::freeze::StoppedProcess;
use super::super::super::graph::{IdRange, NamespaceContent};
use super::super::super::proc::{read_text, status_of};
use super::memory_files::Maker;
use super::refuse;

/// Bytes of struct new_utsname (include/uapi/linux/utsname.h): six texts.
pub const UTS_ROOM: u64 = 6 * UTS_TEXT as u64;
/// Bytes of each.
const UTS_TEXT: usize = 65;
/// The host's and the domain's name in the answer of uname(2).
pub fn host_and_domain(answer: &[u8]) -> (String, String) {
    let text = |index: usize| {
        let bytes = answer.get(index * UTS_TEXT..(index + 1) * UTS_TEXT).unwrap_or_default();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    (text(1), text(5))
}

pub(super) fn file_of(pid: i32, name: &str) -> Result<String> {
    read_text(&format!("/proc/{pid}/{name}"))?.ok_or(EngineError::Gone(pid))
}

/// A user namespace by its maps.
pub(super) fn user(pid: i32) -> Result<NamespaceContent> {
    let map = |name: &str| {
        let text = file_of(pid, name)?;
        let ranges: Option<Vec<IdRange>> = text.lines().map(IdRange::of_line).collect();
        ranges
            .filter(|ranges| ranges.len() <= IdRange::MOST)
            .ok_or_else(|| EngineError::odd(format!("/proc/{pid}/{name}"), text))
    };
    let may_set_groups = file_of(pid, "setgroups")?.trim_end() == "allow";
    Ok(NamespaceContent::User { uids: map("uid_map")?, gids: map("gid_map")?, may_set_groups })
}

/// A user namespace around another one, in which no process is, so that nobody tells its maps: there root has the one
/// number that the other one's user has in the job. `None`: the other one has several.
pub(super) fn around(inner: &NamespaceContent) -> Option<NamespaceContent> {
    let NamespaceContent::User { uids, gids, .. } = inner else { return None };
    let alone = |ranges: &[IdRange]| match ranges {
        [IdRange(_, outside, 1)] => Some(vec![IdRange(0, *outside, 1)]),
        _ => None,
    };
    Some(NamespaceContent::User { uids: alone(uids)?, gids: alone(gids)?, may_set_groups: false })
}

/// A user namespace within another one is mapped from inside after a restart, where the kernel takes nothing but the one number of
/// whoever writes, and that of a group once groups can't be set any more (user_namespaces(7)).
pub(super) fn check_within(pid: i32, content: &NamespaceContent) -> Result<()> {
    let status = status(pid)?;
    match may_map(content, status.euid, status.egid) {
        true => Ok(()),
        false => {
            let what = "is in a user namespace within another one that maps more than its own user and group";
            Err(refuse(what.to_owned()))
        }
    }
}

fn may_map(content: &NamespaceContent, user: u32, group: u32) -> bool {
    let NamespaceContent::User { uids, gids, may_set_groups } = content else { return false };
    let is_own = |ranges: &[IdRange], own: u32| match ranges {
        [] => true,
        [IdRange(_, outside, 1)] => *outside == own,
        _ => false,
    };
    is_own(uids, user) && is_own(gids, group) && (gids.is_empty() || !may_set_groups)
}

/// Users and groups are those of the job's own user namespace, and become a process's before it enters its own: they are
/// all threads'.
pub(super) fn check_one_user(process: &StoppedProcess) -> Result<()> {
    let Some((leader, others)) = process.threads.split_first() else { return Ok(()) };
    let of = |tid: i32| -> Result<Vec<String>> {
        let text = file_of(tid, "status")?;
        let ids = ["Uid:", "Gid:", "Groups:"];
        let lines = text.lines().filter(|line| ids.iter().any(|id| line.starts_with(id)));
        Ok(lines.map(str::to_owned).collect())
    };
    let of_leader = of(leader.tid())?;
    for thread in others {
        if of(thread.tid())? != of_leader {
            let what = "has threads of different users in a user namespace of its own";
            return Err(refuse(what.to_owned()));
        }
    }
    Ok(())
}

/// Whoever makes a mount namespace again. `of_job`: it belongs to the job's user namespace.
pub(super) fn maker(pid: i32, of_job: bool) -> Result<Maker> {
    let status = status(pid)?;
    Ok(match of_job {
        // Files there have their owners in the image.
        true => Maker { user: 0, group: 0, may_own: true },
        false => Maker { user: status.fuid, group: status.fgid, may_own: false },
    })
}

fn status(pid: i32) -> Result<procfs::process::Status> {
    status_of(pid)
}

/// What is mounted, how often each (proc_pid_mountinfo(5)), without numbers and propagation.
pub(super) fn mounted(text: &str) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let (mount, file_system) = line.split_once(" - ").unwrap_or((line, ""));
        let fields: Vec<&str> = mount.split(' ').skip(2).take(4).collect();
        *all.entry(format!("{} - {file_system}", fields.join(" "))).or_default() += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        let mut answer = vec![0; UTS_ROOM as usize];
        answer[65..69].copy_from_slice(b"host");
        answer[325..329].copy_from_slice(b"dom\0");
        assert_eq!(host_and_domain(&answer), ("host".to_owned(), "dom".to_owned()));
        assert_eq!(host_and_domain(&[]), (String::new(), String::new()));
    }

    #[test]
    fn maps_are_read() {
        assert_eq!(IdRange::of_line("         0       1000          1"), Some(IdRange(0, 1000, 1)));
        assert_eq!(IdRange::of_line("0 1000"), None);
        assert_eq!(IdRange::of_line("0 -1 1"), None);
    }

    #[test]
    fn one_number_is_mapped_from_inside() {
        let of = |uids: &[IdRange], gids: &[IdRange], may_set_groups| {
            let (uids, gids) = (uids.to_vec(), gids.to_vec());
            may_map(&NamespaceContent::User { uids, gids, may_set_groups }, 5, 6)
        };
        let (user, group) = (IdRange(0, 5, 1), IdRange(0, 6, 1));
        assert!(of(&[user], &[group], false) && of(&[], &[], true) && of(&[user], &[], true));
        assert!(!of(&[user], &[group], true));
        assert!(!of(&[IdRange(0, 5, 2)], &[group], false) && !of(&[group], &[group], false));
        assert!(!of(&[user, IdRange(1, 7, 1)], &[group], false) && !of(&[user], &[user], false));
    }

    #[test]
    fn the_same_mounts_are_told_whatever_their_numbers_are() {
        let one = "22 28 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n";
        let other = "91 97 0:20 / /sys rw,nosuid master:7 - sysfs sysfs rw\n";
        assert_eq!(mounted(one), mounted(other));
        assert_ne!(mounted(one), mounted(&one.repeat(2)));
        assert_ne!(mounted(one), mounted(&one.replace("0:20", "0:21")));
        assert_ne!(mounted(one), mounted(&one.replace("rw,nosuid", "ro,nosuid")));
    }
}
