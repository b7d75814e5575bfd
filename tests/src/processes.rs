//! Finding and describing a job's processes, from outside, by a mark in their environment.

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// The variable by which every process of a test job, ckptd's own included, is known.
pub const MARK: &str = "CKPTD_TEST_JOB";

/// The living processes (zombies are none) whose environment has `MARK=mark`.
pub fn marked(mark: &str) -> Vec<i32> {
    let wanted = format!("{MARK}={mark}");
    numbered("/proc")
        .into_iter()
        .filter(|pid| {
            environment(*pid).split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
        })
        .collect()
}

/// The environment that a process was started with: shown by another thread where the main one has ended.
fn environment(pid: i32) -> Vec<u8> {
    let threads = || numbered(&format!("/proc/{pid}/task")).into_iter();
    let own = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    if !own.is_empty() {
        return own;
    }
    let shown = |tid| fs::read(format!("/proc/{pid}/task/{tid}/environ")).ok();
    threads().filter_map(shown).find(|shown| !shown.is_empty()).unwrap_or_default()
}

/// Waits until no process has the mark; the ones left over after `limit`.
pub fn wait_until_gone(mark: &str, limit: Duration) -> Vec<i32> {
    let deadline = Instant::now() + limit;
    loop {
        let left = marked(mark);
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// One paragraph for each process: its name, state, and where in the kernel its threads are.
pub fn describe(pids: &[i32]) -> String {
    let mut text = String::new();
    for pid in pids {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let _ = writeln!(text, "process {pid}: {command}");
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let wanted = ["State:", "PPid:", "TracerPid:", "NSpid:", "SigPnd:", "ShdPnd:", "SigBlk:"];
        for line in status.lines().filter(|line| wanted.iter().any(|w| line.starts_with(w))) {
            let _ = writeln!(text, "    {line}");
        }
        for tid in numbered(&format!("/proc/{pid}/task")).into_iter().take(8) {
            let place = fs::read_to_string(format!("/proc/{pid}/task/{tid}/wchan"));
            let call = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"));
            let (place, call) = (place.unwrap_or_default(), call.unwrap_or_default());
            let _ = writeln!(text, "    thread {tid}: in {place}, call {}", call.trim());
        }
    }
    text
}

/// Ends processes at once, one by one, by their id.
pub fn kill(pids: &[i32]) {
    send(pids, Signal::SIGKILL);
}

/// Asks processes to end, one by one, by their id.
pub fn terminate(pids: &[i32]) {
    send(pids, Signal::SIGTERM);
}

/// Stops processes, one by one, by their id.
pub fn stop(pids: &[i32]) {
    send(pids, Signal::SIGSTOP);
}

fn send(pids: &[i32], signal: Signal) {
    for pid in pids {
        // It may have ended meanwhile, which is what is wanted.
        let _ = nix::sys::signal::kill(Pid::from_raw(*pid), signal);
    }
}

fn numbered(folder: &str) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
