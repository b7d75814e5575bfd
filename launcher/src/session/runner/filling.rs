//! How far a restart is, by the memory that its processes have.

use super::{Begin, Session};
use crate::{progress, text};

/// The memory of a job that is brought back. What it has told is taken away when it is dropped.
pub(super) struct Filling {
    /// What the checkpoint has of it, in bytes; `None`: nothing is told.
    whole: Option<u64>,
}

impl Filling {
    pub(super) fn of(session: &Session<'_>) -> Self {
        let whole = match &session.begin {
            Begin::Restore(_, record) if session.loud => Some(record.summary.bytes),
            Begin::Restore(..) | Begin::Launch(_) | Begin::Adopt(_) => None,
        };
        Self { whole }
    }

    /// Tells how much is there.
    pub(super) fn tell(&self) {
        let Some(whole) = self.whole else { return };
        let there = resident(std::process::id() as i32).min(whole);
        let (there, whole) = (text::size(there), text::size(whole));
        progress::show(&format!("restarting: {there} of {whole} are in memory"));
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        progress::clear();
    }
}

/// Bytes of memory that the processes below one have (proc_pid_statm(5), resident); those that just end have none.
fn resident(root: i32) -> u64 {
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    let page = page.and_then(|page| u64::try_from(page).ok()).unwrap_or(4096);
    let pages = |pid: i32| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        text.split(' ').nth(1)?.parse().ok()
    };
    let all = ckpt_engine::proc::descendants(root).unwrap_or_default();
    all.into_iter().filter_map(pages).sum::<u64>() * page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_child_counts() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let there = resident(std::process::id() as i32);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(there > 0, "{there}");
        assert_eq!(resident(i32::MAX), 0);
    }
}
