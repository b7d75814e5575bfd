//! The rest of a relative sleep. A thread that waits with a relative timeout has slept part of it
//! when it is stopped. Some calls tell the rest, for others it is measured:
//!
//! * nanosleep and clock_nanosleep write the rest where their last argument points, if it points
//!   anywhere (kernel/time/hrtimer.c, nanosleep_copyout);
//! * select, pselect6 and ppoll write the rest into their timeout by themselves;
//! * poll, futex and nanosleep without a place for the rest go on through restart_syscall(2) in a
//!   live process, but an image has no such memory; epoll_wait and its kin are simply issued again.
//!   For these, `se.exec_start` in /proc/PID/task/TID/sched says when the thread last came off its
//!   CPU, which is when the sleep began. The same line of a thread of ours, just put on the same CPU,
//!   says what that clock shows now.
//!
//! Where the kernel has no such file, or has forgotten the time, the sleep starts over. It forgets when it moves a queued
//! thread to another CPU (kernel/sched/fair.c, enqueue_entity; before Linux 6.3 migrate_task_rq_fair), and since 6.12 one
//! that sleeps may still be queued (`sched_delayed`, can_migrate_task).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use procfs::FromBufRead;
use procfs::process::Status;

use super::super::arch::words::{WORD, from_words};
use super::super::arch::{Architecture, Call, Current, Interrupted, Timeout, Width};
use super::super::error::Result;
use super::super::freeze::StoppedProcess;
use super::super::proc::{Members, read_text, thread_numbers};
use super::super::sys::schedule;
use super::super::trace::ProcessMemory;

/// Distance below the stack pointer at which a timespec of ours can lie while the thread is in the
/// kernel: beyond the red zone of 128 bytes that the x86-64 ABI lets leaf functions use.
const BELOW_STACK: u64 = 512;
/// A thread seen asleep.
#[derive(Debug, Clone, Copy)]
struct Sleep {
    /// As its registers show it.
    shown: Call,
    /// What it really is, where the registers show restart_syscall.
    call: Call,
    stack: u64,
    slept: Duration,
    seen: Instant,
}

/// Threads that sleep with a relative timeout, as seen shortly before a freeze, by thread number on this
/// machine.
#[derive(Debug, Default)]
pub struct Sleeps {
    threads: HashMap<i32, Sleep>,
    /// Of processes of which only ptrace(2) tells what they are doing.
    hidden: HashMap<i32, Hidden>,
}

/// How an interrupted call goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoingOn {
    /// The call.
    pub call: Call,
    /// A timespec that must be in memory at this address when the call is made.
    pub rest: Option<(u64, [u64; 2])>,
    /// The call's timeout is what is left: a live thread can make it instead of restart_syscall, after
    /// which nobody could tell any more what it had been.
    pub knows_rest: bool,
}

impl Sleeps {
    /// Looks at all threads of a job. Reads one file a thread, two more of those that sleep.
    ///
    /// # Errors
    /// Where /proc cannot be read.
    pub fn observe(members: &Members) -> Result<Self> {
        let mut found = Self::default();
        let mut clocks: HashMap<usize, Option<Duration>> = HashMap::new();
        for pid in members.list()? {
            for tid in thread_numbers(pid)? {
                let folder = format!("/proc/{pid}/task/{tid}");
                let text = match read_text(&format!("{folder}/syscall")) {
                    Ok(Some(text)) => text,
                    Ok(None) => continue,
                    Err(_) => {
                        let hidden = Hidden::of(&folder, &mut clocks);
                        found.hidden.extend(hidden.map(|hidden| (tid, hidden)));
                        continue;
                    }
                };
                let Some((shown, stack)) = parse_syscall(&text) else { continue };
                let Some(call) = slept_in(shown, || place_of(&folder), pid) else { continue };
                let slept = slept(&folder, &mut clocks).unwrap_or_default();
                let seen = Instant::now();
                found.threads.insert(tid, Sleep { shown, call, stack, slept, seen });
            }
        }
        Ok(found)
    }

    /// What the threads of a hidden process sleep in, now that they stand. To be called before anything is asked of them.
    pub fn learn(&mut self, process: &StoppedProcess, statuses: &[Status]) {
        for (thread, status) in process.threads.iter().zip(statuses) {
            let hidden = self.hidden.remove(&thread.tid());
            // It has left the CPU once more since it was seen, to stand. More often: it was elsewhere meanwhile.
            let stayed =
                |hidden: &Hidden| status.voluntary_ctxt_switches == Some(hidden.switches + 1);
            let Some(Hidden { place, slept, seen, .. }) = hidden.filter(stayed) else { continue };
            let (Interrupted::Again(shown) | Interrupted::RestartBlock(shown)) =
                Current::interrupted(thread.entry())
            else {
                continue;
            };
            let Some(call) = slept_in(shown, || place, process.host_pid) else { continue };
            let stack = Current::stack_pointer(thread.entry());
            self.threads.insert(thread.tid(), Sleep { shown, call, stack, slept, seen });
        }
    }

    /// The call with which an interrupted one goes on: with the time that was left at a moment, or at an earlier one.
    ///
    /// # Errors
    /// Memory that cannot be read.
    pub fn going_on(
        &self,
        host_tid: i32,
        call: Call,
        stack: u64,
        at: Instant,
        memory: &mut ProcessMemory,
    ) -> Result<GoingOn> {
        let seen = self.threads.get(&host_tid);
        let seen = seen.filter(|seen| seen.shown == call && seen.stack == stack);
        let call = seen.map_or(call, |seen| seen.call);
        let as_it_was = GoingOn { call, rest: None, knows_rest: false };
        let Some(timeout) = Current::NUMBERS.timeout_of(&call) else { return Ok(as_it_was) };
        if let Timeout::WithRest(request, rest, _) = timeout {
            if call.arguments[rest] != 0 {
                let mut call = call;
                call.arguments[request] = call.arguments[rest];
                return Ok(GoingOn { call, rest: None, knows_rest: true });
            }
        }
        let Some(sleep) = seen else { return Ok(as_it_was) };
        let slept = sleep.slept + at.saturating_duration_since(sleep.seen);
        match timeout {
            Timeout::Milliseconds(argument) => {
                // An int; negative: for ever.
                let asked = call.arguments[argument] as i32;
                if asked <= 0 {
                    return Ok(as_it_was);
                }
                let slept = i32::try_from(slept.as_millis()).unwrap_or(i32::MAX);
                let mut call = call;
                call.arguments[argument] = (asked.saturating_sub(slept)).max(0) as u64;
                Ok(GoingOn { call, rest: None, knows_rest: true })
            }
            Timeout::Timespec(argument, width) | Timeout::WithRest(argument, _, width) => {
                let asked = call.arguments[argument];
                if asked == 0 {
                    return Ok(as_it_was);
                }
                let place = (stack - BELOW_STACK) & !15;
                let (mut timespec, mut there) = ([0; 16], [0; 16]);
                if memory.read(asked, &mut timespec).is_err()
                    || memory.read(place, &mut there).is_err()
                {
                    return Ok(as_it_was);
                }
                let long = |at: usize| {
                    let mut bytes = [0; 8];
                    bytes.copy_from_slice(&timespec[at..at + 8]);
                    u64::from_ne_bytes(bytes)
                };
                let [seconds, nanoseconds] = match (width, &*from_words(&timespec[..2 * WORD])) {
                    (Width::Word, &[seconds, nanoseconds]) => [seconds, nanoseconds],
                    _ => [long(0), long(8)],
                };
                let nanoseconds = u32::try_from(nanoseconds).unwrap_or(0);
                let left = Duration::new(seconds, nanoseconds).saturating_sub(slept);
                let call = Current::NUMBERS.with_timespec(call, argument, place);
                let rest = [left.as_secs(), u64::from(left.subsec_nanos())];
                Ok(GoingOn { call, rest: Some((place, rest)), knows_rest: true })
            }
        }
    }
}

/// A thread of a process that nobody may look into.
#[derive(Debug)]
struct Hidden {
    /// How often it has left its CPU to wait.
    switches: u64,
    /// Where in the kernel it was.
    place: String,
    slept: Duration,
    seen: Instant,
}

impl Hidden {
    /// One that waits. `folder`: of /proc.
    fn of(folder: &str, clocks: &mut HashMap<usize, Option<Duration>>) -> Option<Self> {
        // First of all: then nothing else is of an earlier wait.
        let status = read_text(&format!("{folder}/status")).ok()??;
        let status = Status::from_buf_read(status.as_bytes()).ok()?;
        let switches = status.voluntary_ctxt_switches.filter(|_| status.state.starts_with('S'))?;
        let place = place_of(folder);
        let slept = slept(folder, clocks)?;
        Some(Self { switches, place, slept, seen: Instant::now() })
    }
}

/// Where in the kernel a thread is.
fn place_of(folder: &str) -> String {
    read_text(&format!("{folder}/wchan")).ok().flatten().unwrap_or_default()
}

/// How long ago a thread that waits has left its CPU.
fn slept(folder: &str, clocks: &mut HashMap<usize, Option<Duration>>) -> Option<Duration> {
    let began = exec_start(&read_text(&format!("{folder}/sched")).ok()??)?;
    let cpu = last_cpu(&read_text(&format!("{folder}/stat")).ok()??)?;
    let now = (*clocks.entry(cpu).or_insert_with(|| clock_of(cpu)))?;
    Some(now.saturating_sub(began))
}

/// The call in which a thread is if /proc shows this one. `None`: what is left of it need not be known. `place`: where in the
/// kernel it is.
fn slept_in(shown: Call, place: impl FnOnce() -> String, pid: i32) -> Option<Call> {
    let numbers = Current::NUMBERS;
    let call = match shown.number == numbers.restart_syscall {
        true => widened(numbers.restarted(&shown, &place()), pid),
        false => shown,
    };
    match numbers.timeout_of(&call) {
        // What it is in restart_syscall nobody could tell later: a futex wait until a moment is there, too.
        None if shown == call => None,
        // The kernel will tell.
        Some(Timeout::WithRest(_, rest, _)) if shown == call && shown.arguments[rest] != 0 => None,
        _ => Some(call),
    }
}

/// The call, or its twin with 64-bit times if memory tells that it is that one: restart_syscall(2) hides which it was.
fn widened(call: Call, pid: i32) -> Call {
    let numbers = Current::NUMBERS;
    let Some(place) = numbers.telling_timespec(&call) else { return call };
    let mut bytes = [0; 16];
    if ProcessMemory::of(pid).read(place, &mut bytes).is_err() {
        return call;
    }
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    numbers.widened(&call, [word(0), word(4), word(8), word(12)])
}

/// /proc/PID/task/TID/syscall: number, six arguments, stack pointer, program counter.
fn parse_syscall(text: &str) -> Option<(Call, u64)> {
    let mut words = text.split_ascii_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    if number < 0 {
        return None;
    }
    let mut hex = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = hex()?;
    }
    Some((Call { number, arguments }, hex()?))
}

/// `se.exec_start` of /proc/PID/task/TID/sched, written as milliseconds with six decimals; `None` for 0, by which the
/// kernel says that the thread has not run since it came to its CPU.
fn exec_start(text: &str) -> Option<Duration> {
    let line = text.lines().find(|line| line.starts_with("se.exec_start"))?;
    let (milliseconds, nanoseconds) = line.rsplit_once(':')?.1.trim().split_once('.')?;
    let milliseconds: u64 = milliseconds.parse().ok()?;
    let nanoseconds: u64 = nanoseconds.parse().ok()?;
    let start = Duration::from_millis(milliseconds) + Duration::from_nanos(nanoseconds);
    (!start.is_zero()).then_some(start)
}

/// Field 39 of /proc/PID/stat: the CPU last run on.
fn last_cpu(text: &str) -> Option<usize> {
    text.rsplit_once(") ")?.1.split_ascii_whitespace().nth(36)?.parse().ok()
}

/// What the scheduler's clock of a CPU shows now: this thread goes there and looks at itself.
fn clock_of(cpu: usize) -> Option<Duration> {
    schedule::on_cpu(cpu, || {
        let own = nix::unistd::gettid();
        exec_start(&read_text(&format!("/proc/self/task/{own}/sched")).ok()??)
    })?
}

#[cfg(test)]
mod tests {
    use super::super::super::arch::{Numbers, WIDE};
    use super::*;

    fn call(number: i64, arguments: [u64; 6]) -> Call {
        Call { number, arguments }
    }

    #[test]
    fn the_kernel_tells_the_rest_of_a_nanosleep() {
        let numbers = Current::NUMBERS;
        let mut memory = ProcessMemory::of(std::process::id() as i32);
        let (sleeps, now) = (Sleeps::default(), Instant::now());
        let on = sleeps
            .going_on(1, call(numbers.nanosleep, [1, 2, 0, 0, 0, 0]), 0, now, &mut memory)
            .unwrap();
        assert_eq!(on.call.arguments[0], 2);
        let on = sleeps
            .going_on(1, call(numbers.clock_nanosleep, [1, 0, 3, 4, 0, 0]), 0, now, &mut memory)
            .unwrap();
        assert_eq!(on.call.arguments[2], 4);
        let absolute = call(numbers.clock_nanosleep, [1, libc::TIMER_ABSTIME as u64, 3, 4, 0, 0]);
        let on = sleeps.going_on(1, absolute, 0, now, &mut memory).unwrap();
        assert_eq!(on, GoingOn { call: absolute, rest: None, knows_rest: false });
    }

    #[test]
    fn a_start_that_the_kernel_forgot_is_none() {
        let line = |value: &str| format!("se.exec_start      :   {value}\n");
        assert_eq!(exec_start(&line("0.000000")), None);
        assert_eq!(exec_start(&line("12.000034")), Some(Duration::new(0, 12_000_034)));
    }

    #[test]
    fn measures_a_sleep() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            sender.send(nix::unistd::gettid().as_raw()).unwrap();
            let asked = libc::timespec { tv_sec: 1, tv_nsec: 0 };
            // SAFETY: the timespec lives across the call.
            unsafe { libc::nanosleep(&asked, std::ptr::null_mut()) };
        });
        let tid = receiver.recv().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let pid = std::process::id();
        let text = |file: &str| {
            read_text(&format!("/proc/{pid}/task/{tid}/{file}")).unwrap().unwrap_or_default()
        };
        let Some(began) = exec_start(&text("sched")) else { return };
        let cpu = last_cpu(&text("stat")).unwrap();
        let slept = clock_of(cpu).unwrap().saturating_sub(began);
        assert!((200..5000).contains(&slept.as_millis()), "{slept:?}");
        sleeper.join().unwrap();
    }

    #[test]
    fn sees_through_restart_syscall() {
        let numbers = Current::NUMBERS;
        let shown = call(numbers.restart_syscall, [0x7000, 0, 0, 0, 0, 0]);
        assert_eq!(numbers.restarted(&shown, "hrtimer_nanosleep").number, numbers.nanosleep);
        assert_eq!(numbers.restarted(&shown, "do_syscall_64").number, numbers.nanosleep);
        assert_eq!(numbers.restarted(&shown, "do_int80_emulation").number, numbers.nanosleep);
        assert_eq!(numbers.restarted(&shown, "futex_do_wait").number, numbers.futex);
        let by_clock = call(numbers.restart_syscall, [1, 0, 0x7000, 0, 0, 0]);
        assert_eq!(
            numbers.restarted(&by_clock, "hrtimer_nanosleep").number,
            numbers.clock_nanosleep
        );
        assert_eq!(numbers.restarted(&shown, "0").number, numbers.restart_syscall);
    }

    #[test]
    fn times_of_64_bits_are_told_by_memory() {
        let numbers = Numbers { wide: Some(WIDE), ..Current::NUMBERS };
        let sleep = call(numbers.clock_nanosleep, [1, 0, 0x7000, 0x8000, 0, 0]);
        assert_eq!(numbers.telling_timespec(&sleep), Some(0x8000));
        assert_eq!(numbers.widened(&sleep, [2, 0, 5, 0]).number, WIDE.clock_nanosleep);
        assert_eq!(numbers.widened(&sleep, [2, 5, 7, 0]), sleep);
        assert_eq!(numbers.widened(&sleep, [2, 0, u32::MAX, 0]), sleep);
        let without = call(numbers.clock_nanosleep, [1, 0, 0x7000, 0, 0, 0]);
        assert_eq!(numbers.telling_timespec(&without), Some(0x7000));
        let wait = call(numbers.futex, [0x7000, 9, 1, 0x8000, 0, 0]);
        assert_eq!(numbers.widened(&wait, [2, 0, 5, 0]).number, WIDE.futex);
        let poll = call(numbers.ppoll, [0x7000, 1, 5, 0x8000, 0, 0]);
        assert_eq!(numbers.telling_timespec(&poll), None);
        let word = Numbers { wide: None, ..Current::NUMBERS };
        assert_eq!(word.telling_timespec(&sleep), None);
        assert_eq!(word.widened(&sleep, [2, 0, 5, 0]), sleep);
    }

    #[test]
    fn reads_a_call() {
        let (found, stack) =
            parse_syscall("7 0x1 0x2 0xffffffff 0x4 0x5 0x6 0x7ffc 0x7f\n").unwrap();
        assert_eq!(found, call(7, [1, 2, 0xffff_ffff, 4, 5, 6]));
        assert_eq!(stack, 0x7ffc);
        assert_eq!(parse_syscall("running\n"), None);
        assert_eq!(parse_syscall("-1 0x1 0x2\n"), None);
    }
}
