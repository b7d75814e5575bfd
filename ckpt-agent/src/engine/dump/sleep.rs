//! The rest of a relative sleep. While a process lives, restart_syscall(2) knows how much of its
//! sleep is left; an image has to say it in the call's arguments.

use super::super::arch::Call;
use super::super::error::Result;
use super::super::trace::ProcessMemory;

/// The call with which an interrupted sleep is to go on in an image.
///
/// * nanosleep and clock_nanosleep write what is left where their last argument points, if it
///   points anywhere (kernel/time/hrtimer.c, nanosleep_copyout): the call is given that as its
///   request.
/// * select, pselect and ppoll write what is left into their timeout by themselves.
/// * of the others (poll, futex with a relative timeout, nanosleep without a place for the
///   rest) the kernel tells nobody: they start over, and last longer by what had passed.
///
/// # Errors
/// Memory that cannot be read.
pub fn with_rest(call: Call, memory: &mut ProcessMemory) -> Result<Call> {
    let place = match call.number {
        libc::SYS_nanosleep => 1,
        libc::SYS_clock_nanosleep => 3,
        _ => return Ok(call),
    };
    let request = if call.number == libc::SYS_nanosleep { 0 } else { 2 };
    let rest = call.arguments[place];
    if rest == 0 {
        return Ok(call);
    }
    let mut timespec = [0; 16];
    if memory.read(rest, &mut timespec).is_err() {
        return Ok(call);
    }
    let mut going_on = call;
    going_on.arguments[request] = rest;
    Ok(going_on)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on_with_the_rest() {
        let rest = [1u64, 2];
        let at = rest.as_ptr() as u64;
        let mut memory = ProcessMemory::of(std::process::id() as i32);
        let call = Call { number: libc::SYS_nanosleep, arguments: [1, at, 0, 0, 0, 0] };
        assert_eq!(with_rest(call, &mut memory).unwrap().arguments[0], at);
        let call = Call { number: libc::SYS_nanosleep, arguments: [1, 0, 0, 0, 0, 0] };
        assert_eq!(with_rest(call, &mut memory).unwrap(), call);
        let call = Call { number: libc::SYS_clock_nanosleep, arguments: [1, 0, 7, at, 0, 0] };
        assert_eq!(with_rest(call, &mut memory).unwrap().arguments[2], at);
        let call = Call { number: libc::SYS_futex, arguments: [1, 1, 100, 0, 0, 0] };
        assert_eq!(with_rest(call, &mut memory).unwrap(), call);
    }
}
