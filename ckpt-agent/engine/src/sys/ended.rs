//! Numbers of processes that have ended. They are taken until somebody has waited for the process (wait(2)), and who should may be
//! slow: a job that was killed leaves its processes to the machine's init.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::super::graph::Pid;

/// How long a restore waits for all such numbers together. An init that waits for nobody, as in some containers, shall not cost more.
const LIMIT: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// How long numbers may be waited for.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    until: Instant,
}

impl Patience {
    /// That of this process and of all that it forks from now on, which began with the first call.
    pub fn of_this_restore() -> Self {
        static UNTIL: OnceLock<Instant> = OnceLock::new();
        Self { until: *UNTIL.get_or_init(|| Instant::now() + LIMIT) }
    }

    /// Waits for a moment, if the number belongs to nobody who lives; whether it is worth another try.
    pub fn outlasts(self, pid: Pid) -> bool {
        let passes = has_ended(pid) && Instant::now() < self.until;
        if passes {
            std::thread::sleep(LOOK_AGAIN);
        }
        passes
    }
}

/// PF_EXITING (include/linux/sched.h)
const EXITING: u64 = 4;

/// Whether a number is that of a process that has ended or is about to, or of none: those that end keep it a moment longer as that of
/// a group or session (kernel/pid.c, free_pid).
fn has_ended(pid: Pid) -> bool {
    let file = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
    let Ok(stat) = file("stat") else { return true };
    // The name before it may hold anything. Behind it: state, five numbers, flags (proc_pid_stat(5)).
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = fields.split(' ').take(7).collect();
    let flags = fields.get(6).and_then(|flags| flags.parse::<u64>().ok()).unwrap_or(0);
    let is_killed = || file("status").is_ok_and(|status| awaits_its_end(&status));
    matches!(fields.first(), Some(&("Z" | "X"))) || flags & EXITING != 0 || is_killed()
}

/// Whether SIGKILL is pending, by /proc/PID/status.
fn awaits_its_end(status: &str) -> bool {
    let pending = status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:")));
    let mut sets = pending.filter_map(|set| u64::from_str_radix(set.trim(), 16).ok());
    sets.any(|set| set & 1 << (libc::SIGKILL - 1) != 0)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn tells_who_has_ended() {
        let own = std::process::id() as Pid;
        assert!(!has_ended(own));
        let mut child = Command::new("true").spawn().unwrap();
        let number = child.id() as Pid;
        // Until it is waited for.
        while !has_ended(number) {
            std::thread::sleep(LOOK_AGAIN);
        }
        assert!(std::path::Path::new(&format!("/proc/{number}")).exists());
        child.wait().unwrap();
        assert!(has_ended(number));
    }

    #[test]
    fn tells_who_is_killed() {
        let status = |set: u64| format!("Name:\tx\nSigPnd:\t{set:016x}\nShdPnd:\t{:016x}\n", 0);
        assert!(awaits_its_end(&status(0x100)));
        assert!(!awaits_its_end(&status(0x4000)));
        assert!(!awaits_its_end("Name:\tx\n"));
    }

    #[test]
    fn patience_ends() {
        let soon = Patience { until: Instant::now() };
        assert!(!soon.outlasts(Pid::MAX));
        let later = Patience { until: Instant::now() + LIMIT };
        assert!(later.outlasts(Pid::MAX));
        assert!(!later.outlasts(std::process::id() as Pid));
    }
}
