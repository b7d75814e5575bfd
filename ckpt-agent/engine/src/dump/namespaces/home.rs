//! The mount namespace that ckptd has made for the job. A restart makes it of the machine's mounts again, so that what the job
//! has mounted or unmounted there would be lost.

use std::collections::BTreeMap;

use super::super::super::error::{EngineError, Refusal, Result};
use super::super::super::job_init::KEPT_MOUNTS;
use super::super::super::proc::descriptor_numbers;
use super::super::super::proc::mounts::Mount;
use super::content::{file_of, mounted};

const WAY_OUT: &str = "undo it while checkpoints are taken, or do it in a mount namespace of the program's own: unshare -m";

/// Mounts, and how often each is there.
type Counted = BTreeMap<String, usize>;

/// Refuses a job that has changed what is mounted there.
///
/// # Errors
/// The refusal; failed reads.
pub(super) fn check(init: i32) -> Result<()> {
    // There is none without namespaces of ckptd's own.
    let Some(before) = kept(init)? else { return Ok(()) };
    match changed(&before, &file_of(init, "mountinfo")?) {
        Some(what) => Err(Refusal::new(what, WAY_OUT).into()),
        None => Ok(()),
    }
}

/// What was mounted when the job began, from the file that its init keeps.
fn kept(init: i32) -> Result<Option<String>> {
    let name = format!("/memfd:{} (deleted)", KEPT_MOUNTS.to_string_lossy());
    let paths = descriptor_numbers(init)?.into_iter().map(|fd| format!("/proc/{init}/fd/{fd}"));
    let is_kept = |path: &String| {
        std::fs::read_link(path).is_ok_and(|link| link.as_os_str() == name.as_str())
    };
    let Some(path) = paths.into_iter().find(is_kept) else { return Ok(None) };
    let text = std::fs::read_to_string(&path);
    text.map(Some).map_err(|error| EngineError::system("read", path, error))
}

/// The first change, in words.
fn changed(before: &str, now: &str) -> Option<String> {
    let (was, is) = (mounted(before), mounted(now));
    if was == is {
        return None;
    }
    let first = |text: &str, all: &Counted, others: &Counted| {
        let is_new = |line: &&str| mounted(line).keys().any(|one| all.get(one) > others.get(one));
        text.lines().find(is_new).and_then(Mount::parse)
    };
    let place = "in the mount namespace that ckptd has made for it";
    if let Some(Mount { at, file_system, .. }) = first(now, &is, &was) {
        return Some(format!("the job has mounted {at} ({file_system}) {place}"));
    }
    let gone = first(before, &was, &is)?;
    Some(format!("the job has unmounted {} {place}", gone.at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                          22 21 0:5 / /proc rw,nosuid - proc proc rw\n";

    #[test]
    fn changes_are_named() {
        let numbered_otherwise = BEFORE.replace("22 21", "40 21");
        assert_eq!(changed(BEFORE, &numbered_otherwise), None);
        let more = format!("{BEFORE}23 21 0:9 / /mnt rw shared:3 - tmpfs none rw\n");
        let what = changed(BEFORE, &more).unwrap();
        assert!(what.contains("has mounted /mnt (tmpfs)"), "{what}");
        let what = changed(&more, BEFORE).unwrap();
        assert!(what.contains("has unmounted /mnt"), "{what}");
        let twice = format!("{BEFORE}30 22 0:5 / /proc rw,nosuid - proc proc rw\n");
        assert!(changed(BEFORE, &twice).unwrap().contains("has mounted /proc (proc)"));
    }
}
