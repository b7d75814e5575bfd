//! Processes of a run: who descends from whom, and how they are ended.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::farm::MARK;
use ckpt_engine::proc::is_executing;

/// How long killed processes may take to end.
const LAST_BREATH: Duration = Duration::from_secs(10);
/// How often it is looked whether they have.
const LOOK: Duration = Duration::from_millis(5);
/// How long a process may take to execute another program, until which it can't be told what it is.
const EXECUTION: Duration = Duration::from_secs(1);
/// The most processes that are looked at.
const MOST: usize = 1_000_000;

/// The number of a child.
pub fn pid_of(child: &Child) -> Pid {
    // Numbers of processes fit (pid_max, proc_sys_kernel(5)); what does not is nobody's.
    Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX))
}

/// The children of a process.
fn children(pid: Pid) -> Vec<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let of_task = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children"));
    let all = tasks.into_iter().flatten().flatten().filter_map(|task| of_task(task).ok());
    let numbers =
        |text: String| text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
    all.flat_map(|text| -> Vec<i32> { numbers(text) }).map(Pid::from_raw).collect()
}

/// A process and all that descend from it.
fn tree(root: Pid) -> BTreeSet<Pid> {
    let mut all = BTreeSet::from([root]);
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        if all.len() > MOST {
            break;
        }
        open.extend(children(pid).into_iter().filter(|child| all.insert(*child)));
    }
    all
}

/// Ends a process with its group and with all that descend from it.
pub fn kill_tree(root: Pid) {
    let all = tree(root);
    // They may have ended.
    let _ = killpg(root, Signal::SIGKILL);
    for pid in all {
        let _ = kill(pid, Signal::SIGKILL);
    }
}

/// Ends all that descend from this process, which is their subreaper, and waits for their end; how many there were.
///
/// # Errors
/// Where they do not end.
pub fn end_all() -> io::Result<usize> {
    let own = Pid::this();
    let until = Instant::now() + LAST_BREATH;
    let mut seen = BTreeSet::new();
    loop {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => break,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return Ok(seen.len()),
            }
        }
        for pid in tree(own).into_iter().filter(|pid| *pid != own) {
            seen.insert(pid);
            let _ = kill(pid, Signal::SIGKILL);
        }
        if Instant::now() > until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(LOOK);
    }
}

/// Ends what is left of a run of which everything was killed that belonged to ckptd; how many there were.
///
/// # Errors
/// Where they do not end.
pub fn end_left(folder: &Path) -> io::Result<usize> {
    let mark = [MARK.as_bytes(), b"=", folder.as_os_str().as_bytes()].concat();
    let since = Instant::now();
    let mut seen = BTreeSet::new();
    loop {
        let Marked { left, are_unclear } = marked(&mark)?;
        let waits = are_unclear && since.elapsed() < EXECUTION;
        if left.is_empty() && !waits {
            return Ok(seen.len());
        }
        if since.elapsed() > LAST_BREATH {
            return Err(io::ErrorKind::TimedOut.into());
        }
        for pid in left {
            seen.insert(pid);
            kill_tree(pid);
        }
        std::thread::sleep(LOOK);
    }
}

/// What is left of a run.
struct Marked {
    left: Vec<Pid>,
    /// Whether there are processes that are executing a program at this moment.
    are_unclear: bool,
}

/// The processes with this in their environment. That of others' can't be read; those that have ended have none.
fn marked(mark: &[u8]) -> io::Result<Marked> {
    let own = Pid::this();
    let mut found = Marked { left: Vec::new(), are_unclear: false };
    for entry in std::fs::read_dir("/proc")?.flatten().take(MOST) {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).map(Pid::from_raw) else {
            continue;
        };
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else { continue };
        if pid != own && environment.split(|byte| *byte == 0).any(|entry| entry == mark) {
            found.left.push(pid);
        }
        found.are_unclear |= environment.is_empty() && is_executing(pid.as_raw());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn who_executes_a_program_is_told_from_all_others() {
        assert!(!is_executing(Pid::this().as_raw()));
        assert!(!is_executing(i32::MAX));
        let mut empty = Command::new("sleep").arg("1000").env_clear().spawn().unwrap();
        let until = Instant::now() + EXECUTION;
        while is_executing(pid_of(&empty).as_raw()) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        assert!(!is_executing(pid_of(&empty).as_raw()), "one that has no environment");
        empty.kill().unwrap();
        assert!(!is_executing(pid_of(&empty).as_raw()), "a zombie");
        empty.wait().unwrap();
    }

    #[test]
    fn what_is_left_of_a_run_is_found_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1000 & sleep 1000"]).env(MARK, folder.path()).process_group(0);
        let mut shell = shell.spawn().unwrap();
        // Somebody has to wait for it, as init does for those that are left.
        let waits = std::thread::spawn(move || shell.wait().unwrap());
        assert!(end_left(folder.path()).unwrap() > 0);
        assert!(!waits.join().unwrap().success());
        assert_eq!(end_left(folder.path()).unwrap(), 0);
    }
}
