//! What threads have forbidden themselves (seccomp(2)). Injected calls would be forbidden, too, so it is suspended before the first
//! one.

use nix::errno::Errno;
use procfs::process::Status;

use super::super::error::{EngineError, Refusal, Result};
use super::super::freeze::StoppedProcess;
use super::super::graph::{Sandbox, SandboxFilter, to_hex};
use super::super::late;
use super::super::trace::StoppedThread;

/// SECCOMP_FILTER_FLAG_LOG
const LOG: u64 = 2;
/// struct sock_filter of an answer that is a constant: its code.
const ANSWER: [u8; 2] = 6u16.to_ne_bytes();
/// SECCOMP_RET_USER_NOTIF, the upper half of the constant.
const ASK_ANOTHER: u32 = 0x7fc0;

/// Sandboxes of a process.
#[derive(Debug, Default)]
pub(super) struct Sandboxes {
    /// Of each thread; most often none has one.
    pub(super) of_threads: Vec<Option<Sandbox>>,
    /// All filters.
    pub(super) filters: Vec<SandboxFilter>,
}

/// Reads the sandboxes of all threads of a process and suspends them until the threads are let go. `inherited`: how many filters the
/// init is under, which are no part of the image.
///
/// # Errors
/// Refusals without their process's name; a thread's end.
pub(super) fn suspend(
    process: &mut StoppedProcess,
    statuses: &[Status],
    inherited: u32,
) -> Result<Sandboxes> {
    let mut found = Sandboxes::default();
    let host_pid = process.host_pid;
    for (thread, status) in process.threads.iter_mut().zip(statuses) {
        let sandbox = match status.seccomp.unwrap_or(0) {
            0 => None,
            libc::SECCOMP_MODE_STRICT => Some(Sandbox { strict: true, filters: Vec::new() }),
            _ => match late::filters_of(host_pid, thread.tid())? {
                // Those of the init were inherited, and are again.
                Some(count) if count == inherited => None,
                Some(count) => Some(found.read(thread, inherited..count)?),
                None => return Err(refuse("a seccomp filter, which this kernel does not count")),
            },
        };
        if let Some(sandbox) = &sandbox {
            let what = if sandbox.strict { "seccomp's strict mode" } else { "a seccomp filter" };
            thread.suspend_sandbox().map_err(|error| match error {
                gone @ EngineError::Gone(_) => gone,
                _ => without_right(what),
            })?;
        }
        found.of_threads.push(sandbox);
    }
    Ok(found)
}

impl Sandboxes {
    fn read(&mut self, thread: &StoppedThread, own: std::ops::Range<u32>) -> Result<Sandbox> {
        let mut filters = Vec::new();
        for index in own {
            let instructions = thread.filter(index).map_err(|errno| match errno {
                Errno::ESRCH => EngineError::Gone(thread.tid()),
                Errno::EACCES | Errno::EPERM => without_right("a seccomp filter"),
                _ => refuse("a seccomp filter, which this kernel does not tell"),
            })?;
            if instructions.chunks_exact(8).any(asks_another) {
                return Err(refuse(
                    "a seccomp filter that asks another process (SECCOMP_RET_USER_NOTIF)",
                ));
            }
            // Before Linux 4.16 nothing tells.
            let log = thread.filter_flags(index).unwrap_or(0) & LOG != 0;
            let filter = SandboxFilter { log, instructions: to_hex(&instructions) };
            let known = self.filters.iter().position(|other| *other == filter);
            let place = known.unwrap_or(self.filters.len());
            if known.is_none() {
                self.filters.push(filter);
            }
            filters.push(place as u32);
        }
        Ok(Sandbox { strict: false, filters })
    }
}

/// Whether an instruction lets somebody else decide, who would not be there after a restart.
fn asks_another(instruction: &[u8]) -> bool {
    // struct sock_filter: code, two jumps, constant.
    let constant = instruction[4..].try_into().map_or(0, u32::from_ne_bytes);
    instruction[..2] == ANSWER && constant >> 16 == ASK_ANOTHER
}

fn refuse(what: &str) -> EngineError {
    Refusal::new(format!("has {what}"), "run it without its sandbox").into()
}

fn without_right(what: &str) -> EngineError {
    let what = format!("has {what}, which takes CAP_SYS_ADMIN to suspend, and a ckptd without one");
    Refusal::new(what, "run ckptd with that right, or the job without its sandbox").into()
}

#[cfg(test)]
mod tests {
    use super::asks_another;

    fn instruction(code: u16, constant: u32) -> Vec<u8> {
        [&code.to_ne_bytes()[..], &[0, 0], &constant.to_ne_bytes()].concat()
    }

    #[test]
    fn only_an_answer_asks_another() {
        assert!(asks_another(&instruction(0x06, 0x7fc0_0000)));
        // SECCOMP_RET_ALLOW; a comparison with the same number.
        assert!(!asks_another(&instruction(0x06, 0x7fff_0000)));
        assert!(!asks_another(&instruction(0x15, 0x7fc0_0000)));
    }
}
