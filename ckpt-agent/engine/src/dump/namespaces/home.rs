//! The mount namespace that ckptd has made for the job. A restart makes it of the machine's mounts again, so that what the job
//! has mounted or unmounted there would be lost.

use std::collections::BTreeSet;

use super::super::super::error::{EngineError, Refusal, Result};
use super::super::super::job_init::KEPT_MOUNTS;
use super::super::super::proc::mounts::Mount;
use super::super::super::proc::{descriptor_numbers, root_directory};
use super::content::file_of;

const WAY_OUT: &str = "undo it while checkpoints are taken, or do it in a mount namespace of the program's own: unshare -m";

/// File systems below one of which the kernel mounts others by itself, for whoever looks there.
const GROWING: [&str; 7] = ["nfs", "nfs4", "cifs", "smb3", "afs", "ceph", "autofs"];

/// Where service managers mount things for a service or a login, and take them away: a mount goes from all namespaces with the
/// folder that it is on, and the next start of the service makes both again.
const PASSING: &str = "/run/";

/// A mount as it is compared: what is seen, where, and its type. Options change by themselves, such as those of a file system
/// that others have mounted as well.
type Seen = (String, String, String, String);

/// Refuses a job that has changed what is mounted there, and any that ckptd has begun in a root directory of its own: paths
/// would be told from the namespace's root, and the next one would look for them below its own.
///
/// # Errors
/// The refusal; failed reads.
pub(super) fn check(init: i32) -> Result<()> {
    if let Some(root) = root_directory(init)? {
        let what = format!("ckptd runs in a root directory of its own, {root} (chroot(2))");
        let way_out =
            "run it outside, or where that is the root of a mount namespace (pivot_root(2))";
        return Err(Refusal::new(what, way_out).into());
    }
    // There is none without namespaces of ckptd's own.
    let Some(before) = kept(init)? else { return Ok(()) };
    let now = file_of(init, "mountinfo")?;
    if before == now {
        return Ok(());
    }
    match changed(&before, &now, &file_of(std::process::id() as i32, "mountinfo")?) {
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

/// The first change that is the job's doing, in words. `machine`: what is mounted where ckptd is, and where a restart begins:
/// what has come or gone there as well is none.
fn changed(before: &str, now: &str, machine: &str) -> Option<String> {
    let [was, is, machine] = [before, now, machine].map(seen);
    let place = "in the mount namespace that ckptd has made for it";
    let comes_by_itself = |kind: &str| GROWING.contains(&kind) || kind == "tracefs";
    let new = is
        .iter()
        .find(|one| !was.contains(*one) && !machine.contains(*one) && !comes_by_itself(&one.3));
    if let Some((_, _, at, kind)) = new {
        return Some(format!("the job has mounted {at} ({kind}) {place}"));
    }
    let goes_by_itself = |one: &Seen| comes_by_itself(&one.3) || one.2.starts_with(PASSING);
    let gone =
        was.iter().find(|one| !is.contains(*one) && machine.contains(*one) && !goes_by_itself(one));
    gone.map(|(_, _, at, _)| format!("the job has unmounted {at} {place}"))
}

fn seen(mountinfo: &str) -> BTreeSet<Seen> {
    let mounts = mountinfo.lines().filter_map(Mount::parse);
    mounts
        .map(|mount| {
            // That of a file which was replaced since.
            let root = mount.root.trim_end_matches("//deleted").to_owned();
            (mount.device, root, mount.at, mount.file_system)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                          22 21 0:5 / /proc rw,nosuid - proc proc rw\n";

    #[test]
    fn changes_are_named() {
        let more = format!("{BEFORE}23 21 0:9 / /mnt rw shared:3 - tmpfs none rw\n");
        let what = changed(BEFORE, &more, BEFORE).unwrap();
        assert!(what.contains("has mounted /mnt (tmpfs)"), "{what}");
        let what = changed(&more, BEFORE, &more).unwrap();
        assert!(what.contains("has unmounted /mnt"), "{what}");
    }

    #[test]
    fn what_is_not_the_jobs_doing_is_none() {
        let otherwise = BEFORE.replace("22 21", "40 21").replace("sda1 rw", "sda1 ro");
        assert_eq!(changed(BEFORE, &otherwise, BEFORE), None);
        let more = format!("{BEFORE}23 21 0:9 / /mnt rw - tmpfs none rw\n");
        assert_eq!(changed(BEFORE, &more, &more), None);
        assert_eq!(changed(&more, BEFORE, BEFORE), None);
        let credentials =
            format!("{BEFORE}23 21 0:9 / /run/credentials/agent.service ro - ramfs none rw\n");
        assert_eq!(changed(&credentials, BEFORE, &credentials), None);
        let automatic = format!("{BEFORE}23 21 0:9 / /home/x rw - nfs4 server:/home/x rw\n");
        assert_eq!(changed(BEFORE, &automatic, BEFORE), None);
    }
}
