//! The machine that measures: what it is, the day, and what else it was busy with.

use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// Processor, cores and kernel.
#[must_use]
pub fn machine() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, name)| name);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{model}, {} cores, Linux {}", cores(), kernel.trim())
}

/// Its cores.
#[must_use]
pub fn cores() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(cores).unwrap_or(1)
}

/// Day and time.
#[must_use]
pub fn now() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output();
    output.map_or_else(|_| "?".to_owned(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}

/// What was measured where, when and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The machine.
    pub machine: String,
    /// When it was begun.
    pub date: String,
    /// The command that measures it again.
    pub command: String,
    /// Whether it is a short form.
    pub quick: bool,
}

impl Origin {
    /// Here and now, by `tests/bench` with these words.
    #[must_use]
    pub fn of(words: &str, quick: bool) -> Origin {
        let command = format!("tests/bench {words}{}", if quick { " --quick" } else { "" });
        Origin { machine: machine(), date: now(), command, quick }
    }
}

/// A look at the time that all cores have spent, in ticks.
#[derive(Debug, Clone, Copy)]
pub struct Ticks {
    all: f64,
    idle: f64,
    stolen: f64,
}

impl Ticks {
    /// As of now; nothing where the kernel does not tell.
    #[must_use]
    pub fn now() -> Ticks {
        Ticks::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// user nice system idle iowait irq softirq steal (proc_stat(5)).
    fn parse(stat: &str) -> Ticks {
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<f64> =
            line.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
        let at = |index: usize| ticks.get(index).copied().unwrap_or(0.0);
        Ticks { all: ticks.iter().sum(), idle: at(3) + at(4), stolen: at(7) }
    }

    /// The parts of the machine's time since then that it was idle, and that its hypervisor gave to others.
    #[must_use]
    pub fn since(self) -> (f64, f64) {
        let now = Ticks::now();
        let all = (now.all - self.all).max(1.0);
        ((now.idle - self.idle) / all, (now.stolen - self.stolen) / all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read() {
        let ticks = Ticks::parse("cpu  100 2 30 400 5 6 7 50 0 0\ncpu0 1 2 3\n");
        assert_eq!((ticks.all, ticks.idle, ticks.stolen), (600.0, 405.0, 50.0));
        assert!(Ticks::parse("").all < 1.0);
    }

    #[test]
    fn a_day_is_told() {
        assert!(now().ends_with("UTC") && now().len() > 15, "{}", now());
    }
}
