//! Huge pages (hugetlbfs) for the time of a test, which most machines have none of.

use std::fs;
use std::process::Command;

/// How many may be taken beyond those that are set aside.
const PATH: &str = "/proc/sys/vm/nr_overcommit_hugepages";

/// What the machine allowed before, for when this ends.
#[derive(Debug)]
pub struct HugePages(String);

impl HugePages {
    /// Allows as many pages of the usual size beyond those that somebody holds already, such as the files of an earlier run
    /// that was killed. `None`: only root may, on a kernel that has such pages.
    pub fn lend(pages: u32) -> Option<Self> {
        let before = fs::read_to_string(PATH).ok()?;
        // None is none, whatever is held.
        let held = if pages == 0 { 0 } else { held()? };
        fs::write(PATH, pages.saturating_add(held).to_string()).ok()?;
        Some(Self(before))
    }
}

/// How many pages beyond those that are set aside are in use: they count towards the limit.
fn held() -> Option<u32> {
    let known = fs::read_to_string("/proc/meminfo").ok()?;
    let line = known.lines().find_map(|line| line.strip_prefix("HugePages_Surp:"))?;
    line.trim().parse().ok()
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(PATH, &self.0);
    }
}

/// A mounted file system of such pages, for everybody.
#[derive(Debug)]
pub struct HugeFolder(tempfile::TempDir);

impl HugeFolder {
    /// Mounts one in a new folder. `None`: only root may, on a kernel that has such pages. Not below /tmp: a user could not
    /// rehearse restarts any more, since nothing is laid over a folder with mounts in it that are not the user's.
    pub fn mount() -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("ckptd-t-").tempdir_in("/run").ok()?;
        let mut command = Command::new("mount");
        command.args(["-t", "hugetlbfs", "-o", "mode=1777,pagesize=2M", "none"]).arg(folder.path());
        command.status().ok()?.success().then(|| Self(folder))
    }
}

impl Drop for HugeFolder {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}
