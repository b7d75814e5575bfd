//! Nice values of the groups of tasks that sessions are to the scheduler (sched(7), "The autogroup feature").

use std::time::Duration;

use super::super::proc::read_text;

/// The kernel takes one such value of unprivileged users every tenth of a second (kernel/sched/autogroup.c).
const PAUSE: Duration = Duration::from_millis(20);
const TRIES: u32 = 50;

/// The value of the group that a process is in. `None`: the kernel has no such groups, or the process has ended.
pub fn nice_of(pid: i32) -> Option<i32> {
    // "/autogroup-25 nice 0"
    let text = read_text(&path(pid)).ok().flatten()?;
    text.trim().rsplit_once("nice ")?.1.parse().ok()
}

/// Gives the group of a process a value, where it has another one; whether it has it then.
pub fn set_nice(pid: i32, nice: i32) -> bool {
    for _ in 0..TRIES {
        if nice_of(pid) == Some(nice) {
            return true;
        }
        match std::fs::write(path(pid), nice.to_string()) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(PAUSE);
            }
            other => return other.is_ok(),
        }
    }
    false
}

fn path(pid: i32) -> String {
    format!("/proc/{pid}/autogroup")
}
