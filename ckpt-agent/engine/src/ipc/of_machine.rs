//! Where a job has no IPC namespace of its own, its objects are among the machine's, whose numbers can't be had again.

use std::collections::BTreeSet;

use super::super::error::{EngineError, Refusal, Result};
use super::super::proc::read_text;
use super::super::sys::sysv;

/// Refuses a job of which a process, by the machine's numbers, was the last to change a semaphore, or to send or take a
/// message. Of others nobody can tell whose they are.
///
/// # Errors
/// The refusal, with the process; failed reads.
pub fn refuse_used(pids: &BTreeSet<i32>) -> Result<()> {
    let used = |number: i32, what: &str| {
        Refusal::new(
            format!(
                "uses SysV {what} {number}, which cannot be checkpointed where jobs run without namespaces"
            ),
            "use POSIX ones, or run the job on a machine with IPC namespaces",
        )
    };
    for row in rows("/proc/sysvipc/msg")? {
        // key, msqid, perms, cbytes, qnum, lspid, lrpid (ipc/msg.c).
        let [_, number, _, _, _, sender, receiver, ..] = row[..] else { continue };
        if [sender, receiver].iter().any(|pid| pids.contains(&(*pid as i32))) {
            return Err(used(number as i32, "message queue").into());
        }
    }
    for row in rows("/proc/sysvipc/sem")? {
        // key, semid, perms, nsems (ipc/sem.c).
        let [_, number, _, count, ..] = row[..] else { continue };
        let last = |index| sysv::last_process(number as i32, index).ok();
        if (0..count as i32).filter_map(last).any(|pid| pids.contains(&pid)) {
            return Err(used(number as i32, "semaphore set").into());
        }
    }
    Ok(())
}

fn rows(path: &str) -> Result<Vec<Vec<i64>>> {
    // A kernel without SysV IPC has no list.
    let Some(text) = read_text(path)? else { return Ok(Vec::new()) };
    let row = |line: &str| line.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
    let all: Option<Vec<Vec<i64>>> = text.lines().skip(1).map(row).collect();
    all.ok_or_else(|| EngineError::odd(path, "no list of IPC objects"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_used_one_is_refused() {
        let number = sysv::make_semaphores(0, 2).unwrap();
        let own = std::process::id() as i32;
        assert!(refuse_used(&BTreeSet::from([own])).is_ok());
        sysv::set_semaphores(number, &[1, 2]).unwrap();
        let refused = refuse_used(&BTreeSet::from([own])).unwrap_err().to_string();
        assert!(refused.contains(&format!("semaphore set {number}")), "{refused}");
        assert!(refuse_used(&BTreeSet::from([own + 1_000_000])).is_ok());
        sysv::remove_semaphores(number).unwrap();
    }
}
