//! Numbers of processes that have ended. They are taken until somebody has waited for the process (wait(2)), and who should may be
//! slow: a job that was killed leaves its processes to the machine's init.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::super::graph::Pid;
use super::super::proc::is_ending;

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

    /// Waits for a moment, if the number belongs to nobody who lives; whether it is worth another try. What has ended keeps it a
    /// moment longer as that of a group or session (kernel/pid.c, free_pid).
    pub fn outlasts(self, pid: Pid) -> bool {
        let passes = is_ending(pid) && Instant::now() < self.until;
        if passes {
            std::thread::sleep(LOOK_AGAIN);
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends() {
        let soon = Patience { until: Instant::now() };
        assert!(!soon.outlasts(Pid::MAX));
        let later = Patience { until: Instant::now() + LIMIT };
        assert!(later.outlasts(Pid::MAX));
        assert!(!later.outlasts(std::process::id() as Pid));
    }
}
