//! How far a restart is, by the memory that its processes have.

use super::Begin;
use crate::progress::Line;
use crate::text;

/// The memory of a job that is brought back. What it has told is taken away when it is dropped.
pub(super) struct Filling {
    /// What the checkpoint has of it, in bytes; `None`: nothing is brought back.
    whole: Option<u64>,
    line: Line,
}

impl Filling {
    pub(super) fn of(begin: &Begin) -> Self {
        let whole = match begin {
            Begin::Restore(_, record) => Some(record.summary.bytes),
            Begin::Launch(_) | Begin::Adopt(_) => None,
        };
        Self { whole, line: Line::default() }
    }

    /// Tells how much is there.
    pub(super) fn tell(&mut self) {
        let Some(whole) = self.whole else { return };
        let there = resident(std::process::id() as i32).min(whole);
        let (there, whole) = (text::size(there), text::size(whole));
        self.line.show(&format!("restarting: {there} of {whole} are in memory"));
    }

    /// Takes it away, for other lines.
    pub(super) fn clear(&mut self) {
        self.line.clear();
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.clear();
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
