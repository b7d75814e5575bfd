//! What the processes of an instance have done: time on CPUs, in the program and in the kernel, and time in which
//! they wanted a CPU (proc_pid_stat(5); Documentation/scheduler/sched-stats.rst).
//!
//! A rank that waits for a message and does not sleep asks the kernel again and again whether it has come: much of its
//! time is the kernel's. How much of it is the program's at the same time depends on the MPI library, and is
//! learned here: in some stretch of time a process does nothing but wait, and of all stretches that one has the least of
//! the program's time for the kernel's. Where no process ever does nothing else, too much is taken for waiting; the
//! coordinator allows for that.

use std::collections::BTreeMap;

use protocol::cluster::image::{Effort, Efforts};

use super::achieved::Times;
use crate::driver::clock::boot_time;
use ckpt_engine::proc::{descendants, inner_number, read_text, thread_numbers};

/// Processes of an instance of which is told.
const MOST_PROCESSES: usize = 4096;
/// The shortest stretch of a process's time that says anything, ms on a CPU: the kernel counts in ticks of up to 10 ms.
const STRETCH_MS: u64 = 300;
/// Less than this part of a stretch in the kernel is no waiting.
const WAITING: f64 = 0.2;
/// Stretches with the least of the program's time that are remembered; the last of them counts, so that one or two that were
/// measured badly do not.
const FEWEST: usize = 3;

/// What the processes below an init have done so far.
#[must_use]
pub fn efforts(init: i32, idle_permille: Option<u32>) -> Efforts {
    let at_ms = boot_time() / 1_000_000;
    let mut processes = BTreeMap::new();
    for pid in descendants(init).unwrap_or_default().into_iter().take(MOST_PROCESSES) {
        let Some(inner) = job_number(pid) else { continue };
        let Some((user_ms, system_ms)) = used(pid) else { continue };
        processes.insert(inner, Effort { user_ms, system_ms, waited_ms: waited(pid) });
    }
    Efforts { at_ms, processes, idle_permille }
}

/// Its number for the job.
fn job_number(pid: i32) -> Option<i32> {
    let status = read_text(&format!("/proc/{pid}/status")).ok()??;
    Some(inner_number(&status).unwrap_or(pid))
}

/// Milliseconds of all its threads in the program and in the kernel.
fn used(pid: i32) -> Option<(u64, u64)> {
    let text = read_text(&format!("/proc/{pid}/stat")).ok()??;
    times(&text, ticks_per_second())
}

fn ticks_per_second() -> u64 {
    let found = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    found.and_then(|ticks| u64::try_from(ticks).ok()).filter(|ticks| *ticks > 0).unwrap_or(100)
}

/// Fields 14 and 15. The name, field 2, is in parentheses and may hold anything.
fn times(stat: &str, per_second: u64) -> Option<(u64, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut next = || -> Option<u64> {
        let ticks: u64 = fields.next()?.parse().ok()?;
        Some(ticks.saturating_mul(1000) / per_second)
    };
    Some((next()?, next()?))
}

/// Milliseconds in which its threads wanted a CPU and had none.
fn waited(pid: i32) -> u64 {
    let mut sum = 0_u64;
    for thread in thread_numbers(pid).unwrap_or_default() {
        let path = format!("/proc/{pid}/task/{thread}/schedstat");
        let Ok(Some(text)) = read_text(&path) else { continue };
        sum = sum.saturating_add(Times::parse(&text).map_or(0, |times| times.waited));
    }
    sum / 1_000_000
}

/// What is learned of how an instance's processes wait.
#[derive(Debug, Default)]
pub struct Idling {
    /// By process, its times when its stretch began.
    begun: BTreeMap<i32, (u64, u64)>,
    /// The program's time for the kernel's: the least found.
    fewest: Vec<f64>,
}

impl Idling {
    /// Takes one more look at the processes below an init.
    pub fn look(&mut self, init: i32) {
        let pids = descendants(init).unwrap_or_default();
        self.begun.retain(|pid, _| pids.contains(pid));
        for pid in pids.into_iter().take(MOST_PROCESSES) {
            if let Some(times) = used(pid) {
                self.see(pid, times);
            }
        }
    }

    fn see(&mut self, pid: i32, now: (u64, u64)) {
        let begun = *self.begun.entry(pid).or_insert(now);
        let user = now.0.saturating_sub(begun.0);
        let system = now.1.saturating_sub(begun.1);
        if user + system < STRETCH_MS {
            return;
        }
        self.begun.insert(pid, now);
        if system as f64 >= WAITING * (user + system) as f64 {
            self.fewest.push(user as f64 / system as f64);
            self.fewest.sort_by(f64::total_cmp);
            self.fewest.truncate(FEWEST);
        }
    }

    /// Milliseconds in the program for 1000 in the kernel of who only waits.
    #[must_use]
    pub fn permille(&self) -> Option<u32> {
        let last = self.fewest.get(FEWEST - 1)?;
        Some((last * 1000.0).round().clamp(0.0, 1e6) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn times_are_behind_a_name_of_any_kind() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 104 0 0 0 12 34 5 6 20 0 1 0 6216 3 4";
        assert_eq!(times(stat, 100), Some((120, 340)));
        assert_eq!(times("7 (a) S 1", 100), None);
    }

    #[test]
    fn who_waits_most_tells_how_waiting_looks() {
        let mut idling = Idling::default();
        // One computes; one waits half of the time; one does nothing else, with 400 ms for 600 ms.
        for second in 0..10_u64 {
            idling.see(1, (second * 1000, 0));
            idling.see(2, (second * 700, second * 300));
            if second < 2 {
                assert_eq!(idling.permille(), None);
            }
            idling.see(3, (second * 400, second * 600));
        }
        assert_eq!(idling.permille(), Some(667));
        // With a CPU's time now and then it takes longer, and is the same.
        let mut idling = Idling::default();
        for second in 0..60_u64 {
            idling.see(3, (second * 4, second * 6));
        }
        assert_eq!(idling.permille(), None);
        for second in 60..1000_u64 {
            idling.see(3, (second * 4, second * 6));
        }
        assert_eq!(idling.permille(), Some(667));
    }

    #[test]
    fn this_machine_tells_what_a_child_does() {
        let mut child =
            std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        let pid = child.id() as i32;
        let number = job_number(pid).unwrap();
        let done = |efforts: &Efforts| {
            let effort = efforts.processes.get(&number);
            effort.is_some_and(|effort| effort.user_ms + effort.system_ms > 50)
        };
        let mut found = efforts(std::process::id() as i32, None);
        while !done(&found) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
            found = efforts(std::process::id() as i32, None);
        }
        let _ = child.kill();
        let _ = child.wait();
        assert!(done(&found), "{found:?}");
    }
}
