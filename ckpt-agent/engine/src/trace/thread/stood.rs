//! The call in which a thread was when it stopped, as its tracer alone is told: /proc shows what threads of processes that are
//! not dumpable do to root alone.

use std::io::IoSliceMut;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::super::super::arch::{Architecture, CallInProgress, Current, Registers};
use super::super::ptrace::{set_siginfo, siginfo, with_memory};
use super::Request;

/// PTRACE_GET_SYSCALL_INFO (include/uapi/linux/ptrace.h).
const GET_CALL_INFORMATION: Request = 0x420e;
/// Where si_code is in a siginfo_t.
const CODE: usize = 8;
/// Bytes of struct ptrace_syscall_info, as the first kernel with it had them, and where the first argument is.
const INFORMATION: usize = 88;
const FIRST_ARGUMENT: usize = 32;

/// The call in which a thread was that has been seen asleep and now stands. The kernel has moved the program counter to the
/// instruction that made it, or has answered with EINTR, over the first argument. That EINTR is the stop's: after a signal's,
/// the handler would have run first, and the thread have got on. `None`: it was in none, or a kernel before Linux 5.3 does not
/// tell.
pub(super) fn call(tid: i32, registers: &Registers) -> Option<CallInProgress> {
    let first = first_argument(tid)?;
    let at = Current::program_counter(registers);
    let length = Current::entry_length(registers);
    let made_at = |at: u64| Current::about_to_make(registers, instruction(tid, at)?);
    let (mut call, program_counter) = match made_at(at) {
        Some(call) if call.arguments[0] == first => (call, at.wrapping_add(length)),
        _ => (made_at(at.wrapping_sub(length))?, at),
    };
    call.arguments[0] = first;
    let stack_pointer = Current::stack_pointer(registers);
    Some(CallInProgress { call, stack_pointer, program_counter })
}

/// The first argument of the last call of a thread that stands. PTRACE_GET_SYSCALL_INFO tells a call's arguments in stops that
/// belong to one, and goes by the stop's si_code for which these are (kernel/ptrace.c, ptrace_get_syscall_info): for that moment
/// the stop is one of PTRACE_EVENT_SECCOMP.
fn first_argument(tid: i32) -> Option<u64> {
    const SECCOMP: i32 = libc::SIGTRAP | libc::PTRACE_EVENT_SECCOMP << 8;
    let own = siginfo(tid).ok()?;
    let mut of_call = own;
    of_call[CODE..CODE + 4].copy_from_slice(&SECCOMP.to_ne_bytes());
    set_siginfo(tid, &of_call).ok()?;
    let mut told = [0u8; INFORMATION];
    // SAFETY: the request writes at most as many bytes to `told` as it is told that there are.
    let size = unsafe { with_memory(GET_CALL_INFORMATION, tid, INFORMATION, told.as_mut_ptr()) };
    let given_back = set_siginfo(tid, &own);
    let ends = FIRST_ARGUMENT + size_of::<u64>();
    let is_told = usize::try_from(size.ok()?).is_ok_and(|size| size >= ends);
    // Where that fails, the thread has been killed.
    given_back.ok().filter(|()| is_told)?;
    let mut argument = [0; size_of::<u64>()];
    argument.copy_from_slice(&told[FIRST_ARGUMENT..ends]);
    Some(u64::from_ne_bytes(argument))
}

/// The four bytes at an address. Whoever may trace a process may read them, whatever /proc shows (process_vm_readv(2)).
fn instruction(tid: i32, at: u64) -> Option<[u8; 4]> {
    let mut bytes = [0; 4];
    let there = RemoteIoVec { base: usize::try_from(at).ok()?, len: bytes.len() };
    let mut here = [IoSliceMut::new(&mut bytes)];
    let count = process_vm_readv(Pid::from_raw(tid), &mut here, &[there]).ok()?;
    (count == bytes.len()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::RunningThread;
    use super::*;
    use crate::proc::{read_text, state};

    #[test]
    fn the_first_argument_of_an_interrupted_call_is_told() {
        let mut child = std::process::Command::new("sleep").arg("54321").spawn().unwrap();
        let tid = child.id() as i32;
        let (before, thread) = loop {
            std::thread::sleep(Duration::from_millis(5));
            let stat = read_text(&format!("/proc/{tid}/stat")).unwrap().unwrap();
            let text = read_text(&format!("/proc/{tid}/syscall")).unwrap().unwrap();
            let number: i64 = text.split(' ').next().unwrap().parse().unwrap_or(-1);
            let sleeps = [libc::SYS_clock_nanosleep, libc::SYS_nanosleep].map(i64::from);
            if state(&stat) == Some('S') && sleeps.contains(&number) {
                let first = text.split(' ').nth(1).unwrap().trim_start_matches("0x");
                let thread = RunningThread::seize(tid).unwrap().unwrap();
                thread.interrupt().unwrap();
                break (u64::from_str_radix(first, 16).unwrap(), thread.wait_stopped().unwrap());
            }
        };
        let thread = thread.unwrap();
        assert_eq!(first_argument(tid), Some(before));
        // It is the stop that it was.
        let own = siginfo(tid).unwrap();
        let code = i32::from_ne_bytes(own[CODE..CODE + 4].try_into().unwrap());
        assert_eq!(code, libc::SIGTRAP | libc::PTRACE_EVENT_STOP << 8);
        drop(thread);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
