//! The machine itself: kernel, processor, disk.

use std::fs::File;
use std::path::Path;

use nix::sys::statfs::{TMPFS_MAGIC, statfs};

use super::Check;
use ckpt_engine::arch::{Architecture, Current};
use ckpt_engine::dump::page_size;
use ckpt_engine::sys::tun;

/// Below this, interfaces are missing without which nothing works (pidfd_getfd, 5.6; clone3 with
/// set_tid without root, 5.9).
const OLDEST: (u32, u32) = (5, 9);
/// Less room than this holds no image of a job of any size.
const LITTLE_ROOM: u64 = 1 << 30;

pub(super) fn checks(jobs: &Path) -> Vec<Check> {
    vec![kernel(), architecture(), pages(), room(jobs), devices()]
}

fn kernel() -> Check {
    let release = match nix::sys::utsname::uname() {
        Ok(name) => name.release().to_string_lossy().into_owned(),
        Err(errno) => return Check::limited("kernel", errno.desc(), "its version is not known"),
    };
    match version(&release) {
        Some(version) if version >= OLDEST => Check::ok("kernel", format!("Linux {release}")),
        _ => Check::limited(
            "kernel",
            format!("Linux {release}"),
            "Linux 5.9 or later is expected; see what is missing below",
        ),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn architecture() -> Check {
    if Current::EXTENDED_SETS.is_empty() {
        let consequence = "jobs cannot be checkpointed on this architecture; x86_64, x86, aarch64 and arm are \
             supported";
        return Check {
            required: true,
            ..Check::missing("architecture", Current::NAME, consequence)
        };
    }
    Check::ok("architecture", Current::NAME)
}

fn pages() -> Check {
    match page_size() {
        4096 => Check::ok("page size", "4096"),
        other => Check::limited(
            "page size",
            other.to_string(),
            "a job can be restarted only on machines with pages of this size",
        ),
    }
}

/// Network devices of programs. Nothing is made: a device comes with another call.
fn devices() -> Check {
    let name = "network devices of programs";
    match File::options().read(true).write(true).open(tun::DEVICE) {
        Ok(_) => Check::ok(name, format!("{} is there", tun::DEVICE)),
        Err(error) => Check::limited(
            name,
            format!("{}: {error}", tun::DEVICE),
            "an agent can't encrypt jobs' traffic (--encrypt-job-traffic), which needs root and the kernel's driver tun \
             (modprobe tun)",
        ),
    }
}

fn room(jobs: &Path) -> Check {
    let name = "room for images";
    // The folder is made by the first job.
    let Some(existing) = jobs.ancestors().find(|path| path.exists()) else {
        return Check::limited(name, "unknown", "the folder of jobs has no place");
    };
    #[allow(clippy::useless_conversion, reason = "these have 32 bits for some machines")]
    let room = |found: &nix::sys::statvfs::Statvfs| {
        u64::from(found.blocks_available()).saturating_mul(found.fragment_size().into())
    };
    let free = match nix::sys::statvfs::statvfs(existing) {
        Ok(found) => room(&found),
        Err(errno) => {
            return Check::limited(name, errno.desc(), "it is not known how much is free");
        }
    };
    let found = format!("{} MiB free in {}", free >> 20, jobs.display());
    if nix::unistd::access(existing, nix::unistd::AccessFlags::W_OK).is_err() {
        let consequence = "no job can be kept there; name another folder (--dir)";
        let found = format!("{} may not be written", existing.display());
        return Check { required: true, ..Check::missing(name, found, consequence) };
    }
    if free < LITTLE_ROOM {
        return Check::limited(
            name,
            found,
            "checkpoints of larger jobs are abandoned; make room (ckptd gc, ckptd rm), or name another \
             folder (--dir)",
        );
    }
    if statfs(existing).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC) {
        return Check::limited(
            name,
            found,
            "images are kept in memory there, and are lost with the power; name another folder (--dir)",
        );
    }
    Check::ok(name, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version("6.18.44-fc-v595"), Some((6, 18)));
        assert_eq!(version("5.4"), Some((5, 4)));
        assert_eq!(version("next"), None);
    }

    #[test]
    fn a_folder_that_is_not_there_is_judged_by_the_one_above() {
        let folder = tempfile::tempdir().unwrap();
        let found = room(&folder.path().join("a/b")).found;
        assert!(found.contains("MiB free") || found.contains("/a/b"), "{found}");
    }
}
