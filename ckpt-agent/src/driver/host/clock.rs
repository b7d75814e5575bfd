//! Signs that a machine has become slower: its clock's limit, and time that its host takes away.

use std::time::{Duration, Instant};

/// For how long stolen time is put together.
const WINDOW: Duration = Duration::from_secs(8);
/// A smaller part is none.
const LEAST: f64 = 0.1;

/// The highest frequency that the kernel allows, all CPUs together (Documentation/admin-guide/pm/cpufreq.rst,
/// scaling_max_freq): a phone that is hot lowers it.
#[derive(Debug, Default)]
pub struct Clock {
    last: Option<u64>,
}

impl Clock {
    /// Whether it is not what it was at the last look.
    pub fn has_changed(&mut self) -> bool {
        let folders = std::fs::read_dir("/sys/devices/system/cpu/cpufreq").into_iter().flatten();
        let limit = |folder: std::fs::DirEntry| -> Option<u64> {
            let path = folder.path().join("scaling_max_freq");
            std::fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        let now = folders.flatten().filter_map(limit).fold(0, u64::saturating_add);
        self.last.replace(now).is_some_and(|last| last != now)
    }
}

/// Time that a virtual machine's host takes from CPUs that want to run (proc_stat(5), steal).
#[derive(Debug, Default)]
pub struct StolenTime {
    /// When it was looked at: busy, stolen; in ticks.
    from: Option<(Instant, u64, u64)>,
    part: f64,
}

impl StolenTime {
    /// Which part of the time that this machine's CPUs wanted, of late.
    pub fn part(&mut self) -> f64 {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        if let Some((busy, stolen)) = times(&text) {
            self.see(Instant::now(), busy, stolen);
        }
        self.part
    }

    fn see(&mut self, now: Instant, busy: u64, stolen: u64) {
        match self.from {
            Some((at, ..)) if now.saturating_duration_since(at) < WINDOW => return,
            Some((_, busy_before, stolen_before)) => {
                let busy = busy.saturating_sub(busy_before) as f64;
                let stolen = stolen.saturating_sub(stolen_before) as f64;
                let part = stolen / (busy + stolen).max(1.0);
                self.part = if part > LEAST { part } else { 0.0 };
            }
            None => {}
        }
        self.from = Some((now, busy, stolen));
    }
}

/// Ticks busy and stolen: "cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL ...".
fn times(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let numbers: Vec<u64> =
        line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [user, nice, system, _, _, irq, softirq, stolen, ..] = numbers[..] else { return None };
    Some((user + nice + system + irq + softirq, stolen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_takes_much_is_noticed() {
        assert_eq!(times("cpu  10 1 5 900 3 1 2 40 0 0\ncpu0 1\n"), Some((19, 40)));
        assert_eq!(times("cpu 1 2\n"), None);
        let mut stolen = StolenTime::default();
        let begin = Instant::now();
        let mut at = |seconds: u64, busy, taken| {
            stolen.see(begin + Duration::from_secs(seconds), busy, taken);
            stolen.part
        };
        assert!(at(0, 100, 500) < 1e-9);
        assert!(at(9, 1100, 550) < 1e-9);
        assert!((at(18, 1600, 1050) - 0.5).abs() < 1e-9);
        assert!((at(20, 9600, 1050) - 0.5).abs() < 1e-9);
        assert!(at(27, 9600, 1050) < 1e-9);
    }

    #[test]
    fn a_clock_that_stays_has_not_changed() {
        let mut clock = Clock::default();
        assert!(!clock.has_changed());
        // Without the files, as in most virtual machines, never.
        clock.last = Some(u64::MAX);
        assert!(clock.has_changed());
    }
}
