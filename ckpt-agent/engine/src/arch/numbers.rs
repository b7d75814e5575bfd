//! The system calls that wait, by the numbers of each architecture's table: images hold these numbers, and libc's
//! constants are those of the machine that this program was built for.

use super::Call;

/// FUTEX_CMD_MASK
const FUTEX_COMMAND: u64 = !(128 | 256);
/// FUTEX_WAIT and FUTEX_WAIT_BITSET
const FUTEX_WAITS: [u64; 2] = [0, 9];
/// TIMER_ABSTIME
const ABSOLUTE: u64 = 1;
/// What ipc(2) does, in the low half of its first argument (include/uapi/linux/ipc.h): SEMOP and SEMTIMEDOP.
const SEMOP: u64 = 1;
const SEMTIMEDOP: u64 = 4;
/// io_uring_enter(2), the same in all tables. It answers so only where it has taken no request.
const IO_URING_ENTER: i64 = 426;
/// CLOCK_MONOTONIC
const MONOTONIC: u64 = 1;

/// Calls that wait. `None`: the architecture has no such call.
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    /// restart_syscall(2)
    pub restart_syscall: i64,
    /// nanosleep(2)
    pub nanosleep: i64,
    /// clock_nanosleep(2)
    pub clock_nanosleep: i64,
    /// futex(2)
    pub futex: i64,
    /// poll(2)
    pub poll: Option<i64>,
    /// ppoll(2)
    pub ppoll: i64,
    /// epoll_wait(2)
    pub epoll_wait: Option<i64>,
    /// epoll_pwait(2)
    pub epoll_pwait: i64,
    /// epoll_pwait2(2), whose timespec is wide everywhere
    pub epoll_pwait2: i64,
    /// semop(2)
    pub semop: Option<i64>,
    /// semtimedop(2)
    pub semtimedop: Option<i64>,
    /// ipc(2), which does the work of the two before
    pub ipc: Option<i64>,
    /// rt_sigtimedwait(2)
    pub rt_sigtimedwait: i64,
    /// io_getevents(2)
    pub io_getevents: i64,
    /// io_pgetevents(2), which a stop does not end
    pub io_pgetevents: i64,
    /// Calls of sockets that may wait: read, write, readv, writev, connect, accept, accept4, those that send and those that
    /// receive, and socketcall(2), which does the work of all.
    pub of_sockets: &'static [i64],
    /// Calls that do the same with 64-bit times, where a word has 32 bits.
    pub wide: Option<Wide>,
}

/// The numbers of calls with 64-bit times, the same in all 32-bit tables.
#[derive(Debug, Clone, Copy)]
pub struct Wide {
    /// clock_nanosleep_time64
    pub clock_nanosleep: i64,
    /// ppoll_time64
    pub ppoll: i64,
    /// io_pgetevents_time64
    pub io_pgetevents: i64,
    /// semtimedop_time64
    pub semtimedop: i64,
    /// rt_sigtimedwait_time64
    pub rt_sigtimedwait: i64,
    /// futex_time64
    pub futex: i64,
}

/// Of all 32-bit architectures (since Linux 5.1).
pub const WIDE: Wide = Wide {
    clock_nanosleep: 407,
    ppoll: 414,
    io_pgetevents: 416,
    semtimedop: 420,
    rt_sigtimedwait: 421,
    futex: 422,
};

/// Where a call keeps its relative timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timeout {
    /// Milliseconds in this argument.
    Milliseconds(usize),
    /// This argument points to a timespec.
    Timespec(usize, Width),
    /// A timespec by the first argument; the rest is written where the second points.
    WithRest(usize, usize, Width),
}

/// Of what the two fields of a timespec are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// Words of the architecture.
    Word,
    /// 64-bit integers.
    Wide,
}

impl Numbers {
    /// Calls that answer a stop with EINTR (signal(7), "Interruption of system calls and library functions by stop
    /// signals"). Those of sockets do where these have a limit on how long they wait (SO_RCVTIMEO, SO_SNDTIMEO).
    pub fn never_restarted(&self, call: &Call) -> bool {
        let number = Some(call.number);
        let named = [self.epoll_wait, self.semop, self.semtimedop].contains(&number)
            || [self.epoll_pwait, self.epoll_pwait2, self.rt_sigtimedwait, self.io_getevents]
                .contains(&call.number)
            || call.number == IO_URING_ENTER;
        let wide = self.wide.is_some_and(|wide| {
            [wide.semtimedop, wide.rt_sigtimedwait, wide.io_pgetevents].contains(&call.number)
        });
        let through_ipc =
            self.ipc == number && [SEMOP, SEMTIMEDOP].contains(&(call.arguments[0] & 0xffff));
        named || wide || through_ipc || self.of_sockets.contains(&call.number)
    }

    /// Whether the kernel answers a stop in this call with -ERESTART_RESTARTBLOCK: sleeps for a time
    /// (kernel/time/hrtimer.c, hrtimer_nanosleep), futex waits with a limit (kernel/futex/waitwake.c, futex_wait) and
    /// poll(2) (fs/select.c), but not ppoll(2).
    pub fn has_restart_block(&self, call: &Call) -> bool {
        let [_, second, _, fourth, ..] = call.arguments;
        let number = call.number;
        if number == self.restart_syscall || number == self.nanosleep || Some(number) == self.poll {
            return true;
        }
        if number == self.clock_nanosleep
            || self.wide.is_some_and(|wide| number == wide.clock_nanosleep)
        {
            return second & ABSOLUTE == 0;
        }
        self.is_futex(number) && fourth != 0 && FUTEX_WAITS.contains(&(second & FUTEX_COMMAND))
    }

    fn is_futex(&self, number: i64) -> bool {
        number == self.futex || self.wide.is_some_and(|wide| number == wide.futex)
    }

    /// Whether this is poll(2) or ppoll(2).
    pub fn is_poll(&self, number: i64) -> bool {
        Some(number) == self.poll
            || number == self.ppoll
            || self.wide.is_some_and(|wide| number == wide.ppoll)
    }

    /// Where a call keeps a relative timeout, if it has one that it does not keep up to date by itself.
    pub fn timeout_of(&self, call: &Call) -> Option<Timeout> {
        let Call { number, arguments } = *call;
        let own = Some(number);
        if own == self.poll {
            return Some(Timeout::Milliseconds(2));
        }
        if own == self.epoll_wait || number == self.epoll_pwait {
            return Some(Timeout::Milliseconds(3));
        }
        if number == self.epoll_pwait2 {
            return Some(Timeout::Timespec(3, Width::Wide));
        }
        let short = if own == self.semtimedop {
            Some(Timeout::Timespec(3, Width::Word))
        } else if own == self.ipc && arguments[0] & 0xffff == SEMTIMEDOP {
            Some(Timeout::Timespec(5, Width::Word))
        } else if number == self.rt_sigtimedwait {
            Some(Timeout::Timespec(2, Width::Word))
        } else if [self.io_getevents, self.io_pgetevents].contains(&number) {
            Some(Timeout::Timespec(4, Width::Word))
        } else if number == self.futex && arguments[1] & FUTEX_COMMAND == 0 {
            Some(Timeout::Timespec(3, Width::Word))
        } else if number == self.nanosleep {
            Some(Timeout::WithRest(0, 1, Width::Word))
        } else if number == self.clock_nanosleep && arguments[1] & ABSOLUTE == 0 {
            Some(Timeout::WithRest(2, 3, Width::Word))
        } else {
            None
        };
        short.or_else(|| {
            let wide = self.wide?;
            if number == wide.semtimedop {
                Some(Timeout::Timespec(3, Width::Wide))
            } else if number == wide.rt_sigtimedwait {
                Some(Timeout::Timespec(2, Width::Wide))
            } else if number == wide.io_pgetevents {
                Some(Timeout::Timespec(4, Width::Wide))
            } else if number == wide.futex && arguments[1] & FUTEX_COMMAND == 0 {
                Some(Timeout::Timespec(3, Width::Wide))
            } else if number == wide.clock_nanosleep && arguments[1] & ABSOLUTE == 0 {
                Some(Timeout::WithRest(2, 3, Width::Wide))
            } else {
                None
            }
        })
    }

    /// The call with its timeout taken from a timespec of two 64-bit integers at `place`. `argument`: which one points
    /// to it now.
    pub fn with_timespec(&self, call: Call, argument: usize, place: u64) -> Call {
        let mut call = call;
        let Some(wide) = self.wide else {
            call.arguments[argument] = place;
            return call;
        };
        let [_, second, third, _, fifth, _] = call.arguments;
        if call.number == self.nanosleep {
            // It sleeps by that clock (kernel/time/hrtimer.c).
            return Call {
                number: wide.clock_nanosleep,
                arguments: [MONOTONIC, 0, place, 0, 0, 0],
            };
        }
        if Some(call.number) == self.ipc {
            // ipc(SEMTIMEDOP, number, count, -, operations, timeout)
            return Call {
                number: wide.semtimedop,
                arguments: [second, fifth, third, place, 0, 0],
            };
        }
        if call.number == self.io_getevents {
            call.arguments[5] = 0;
        }
        call.arguments[argument] = place;
        call.number = match call.number {
            number if number == self.clock_nanosleep => wide.clock_nanosleep,
            number if number == self.futex => wide.futex,
            number if Some(number) == self.semtimedop => wide.semtimedop,
            number if number == self.rt_sigtimedwait => wide.rt_sigtimedwait,
            number if [self.io_getevents, self.io_pgetevents].contains(&number) => {
                wide.io_pgetevents
            }
            number => number,
        };
        call
    }

    /// What a thread in restart_syscall(2) is really in: its arguments are still in place, and the kernel function that it
    /// sleeps in tells the rest. (A job that was stopped and continued gets there by itself.)
    pub fn restarted(&self, shown: &Call, place: &str) -> Call {
        /// Clock numbers are small, addresses are not.
        const LOWEST_ADDRESS: u64 = 4096;
        let is_known = !place.is_empty() && place != "0";
        let number = if place.contains("futex") {
            self.futex
        } else if place.contains("poll") {
            // Where there is none, ppoll has taken its place, and is never restarted this way.
            self.poll.unwrap_or(shown.number)
        } else if is_known {
            // Sleeps are all that is left (struct restart_block). The function that goes on with one counts as part of the
            // scheduler (__sched), which is passed over: kernels show the one that has called it
            // (__x64_sys_restart_syscall), or what called that (do_int80_emulation).
            if shown.arguments[0] < LOWEST_ADDRESS { self.clock_nanosleep } else { self.nanosleep }
        } else {
            shown.number
        };
        Call { number, ..*shown }
    }

    /// Where a call found by [`Numbers::restarted`] has a timespec that tells whether it is really the one with 64-bit
    /// times: the rest that the kernel wrote, or what was asked for.
    pub fn telling_timespec(&self, call: &Call) -> Option<u64> {
        let [_, _, third, fourth, ..] = call.arguments;
        let place = if call.number == self.clock_nanosleep && fourth == 0 {
            third
        } else if call.number == self.clock_nanosleep || call.number == self.futex {
            fourth
        } else {
            0
        };
        (self.wide.is_some() && place != 0).then_some(place)
    }

    /// The call, or its twin with 64-bit times where the four words at its timespec can't be a narrow one's: the upper
    /// halves of both fields are 0 then. (A whole number of seconds in two words looks like that if something small
    /// follows; the thread sleeps up to a second longer then, never shorter.)
    pub fn widened(&self, call: &Call, words: [u32; 4]) -> Call {
        const SECOND: u32 = 1_000_000_000;
        let Some(wide) = self.wide else { return *call };
        let [_, upper_seconds, nanoseconds, upper_nanoseconds] = words;
        let number = if upper_seconds != 0 || upper_nanoseconds != 0 || nanoseconds >= SECOND {
            call.number
        } else if call.number == self.clock_nanosleep {
            wide.clock_nanosleep
        } else if call.number == self.futex {
            wide.futex
        } else {
            call.number
        };
        Call { number, ..*call }
    }
}
