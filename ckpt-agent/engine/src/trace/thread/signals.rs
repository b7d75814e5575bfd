//! Blocked and pending signals of a stopped thread.

use super::super::ptrace::with_memory;
use super::{SIGINFO, StoppedThread, failed};
use crate::error::{EngineError, Result};
use crate::proc::read_text;
use crate::sys::abi::{self, PtraceRequest};

/// PTRACE_GETSIGMASK and PTRACE_SETSIGMASK (include/uapi/linux/ptrace.h), which the libc crate has in another type for musl.
const GET_SIGNAL_MASK: PtraceRequest = 0x420a;
const SET_SIGNAL_MASK: PtraceRequest = 0x420b;

/// The highest number of a signal.
const SIGNALS: i32 = 64;

fn signal_of(siginfo: &[u8; SIGINFO]) -> i32 {
    let [a, b, c, d, ..] = *siginfo;
    i32::from_ne_bytes([a, b, c, d])
}

/// A signal in a set as the kernel writes it.
fn bit_of(signal: i32) -> u64 {
    if (1..=SIGNALS).contains(&signal) { 1 << (signal - 1) } else { 0 }
}

/// What a program gets with a signal whose siginfo was not kept: SI_USER, from nobody (kernel/signal.c, collect_signal).
fn without_info(signal: i32) -> [u8; SIGINFO] {
    let mut siginfo = [0; SIGINFO];
    siginfo[..4].copy_from_slice(&signal.to_ne_bytes());
    siginfo
}

impl StoppedThread {
    /// Blocked signals; of a thread in sigsuspend or ppoll those that hold when the call is over.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn blocked(&self) -> Result<u64> {
        let mut mask = 0u64;
        // SAFETY: the request writes 8 bytes to `mask`.
        unsafe { with_memory(GET_SIGNAL_MASK, self.tid, size_of::<u64>(), &raw mut mask) }
            .map_err(|errno| failed("PTRACE_GETSIGMASK", self.tid, errno))?;
        Ok(mask)
    }

    /// Sets the blocked signals.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn set_blocked(&self, mut mask: u64) -> Result<()> {
        // SAFETY: the request reads 8 bytes from `mask`.
        unsafe { with_memory(SET_SIGNAL_MASK, self.tid, size_of::<u64>(), &raw mut mask) }
            .map(drop)
            .map_err(|errno| failed("PTRACE_SETSIGMASK", self.tid, errno))
    }

    /// Pending signals of the thread, or (`shared`) of its process: siginfo_t each.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn pending(&self, shared: bool) -> Result<Vec<[u8; SIGINFO]>> {
        // First of all: whatever comes meanwhile is in the queue.
        let set = self.pending_set(shared)?;
        let mut found = self.queued(shared)?;
        found.extend(self.held(shared));
        let known = found.iter().fold(0, |known, siginfo| known | bit_of(signal_of(siginfo)));
        // SIGKILL has no siginfo, and nobody is left whom it could be sent to again.
        let lost = set & !known & !bit_of(libc::SIGKILL) & !bit_of(libc::SIGTRAP);
        found.extend((1..=SIGNALS).filter(|signal| lost & bit_of(*signal) != 0).map(without_info));
        Ok(found)
    }

    /// The signals that are pending, also those for which the queue had no room (RLIMIT_SIGPENDING).
    fn pending_set(&self, shared: bool) -> Result<u64> {
        let status = read_text(&format!("/proc/{}/status", self.tid))?;
        let name = if shared { "ShdPnd:" } else { "SigPnd:" };
        let set = status
            .iter()
            .flat_map(|text| text.lines())
            .find_map(|line| u64::from_str_radix(line.strip_prefix(name)?.trim(), 16).ok());
        set.ok_or(EngineError::Gone(self.tid))
    }

    /// Those that the kernel has.
    pub(super) fn queued(&self, shared: bool) -> Result<Vec<[u8; SIGINFO]>> {
        /// struct ptrace_peeksiginfo_args
        #[repr(C)]
        struct Arguments {
            offset: u64,
            flags: u32,
            count: i32,
        }
        /// PTRACE_PEEKSIGINFO_SHARED
        const SHARED: u32 = 1;
        const AT_ONCE: usize = 16;
        let mut found = Vec::new();
        loop {
            let mut buffer = [[0u8; SIGINFO]; AT_ONCE];
            let arguments = Arguments {
                offset: found.len() as u64,
                flags: if shared { SHARED } else { 0 },
                count: AT_ONCE as i32,
            };
            // SAFETY: the request reads `arguments`, and writes at most as many elements to `buffer` as they say.
            let count = unsafe {
                with_memory(
                    abi::PTRACE_PEEKSIGINFO,
                    self.tid,
                    &raw const arguments as usize,
                    buffer.as_mut_ptr(),
                )
            }
            .map_err(|errno| failed("PTRACE_PEEKSIGINFO", self.tid, errno))?;
            found.extend_from_slice(&buffer[..count as usize]);
            if (count as usize) < AT_ONCE {
                return Ok(found);
            }
        }
    }

    /// Those of them that are kept while calls are injected.
    pub fn held(&self, shared: bool) -> impl Iterator<Item = [u8; SIGINFO]> {
        self.traps.iter().filter(move |trap| trap.shared == shared).map(|trap| trap.siginfo)
    }
}
