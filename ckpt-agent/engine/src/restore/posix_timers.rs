//! Timers of timer_create(2), made again with their numbers. Their threads are all there and have their user's rights; no
//! signal is delivered before they are let go.

use super::super::arch::words::{WORD, from_words, to_words};
use super::super::error::{EngineError, Result};
use super::super::graph::{Pid, PosixTimer, ProcessImage, from_hex};
use super::super::trace::{Batch, Remote, Scratch};
use super::numbers::Numbers;

/// PR_TIMER_CREATE_RESTORE_IDS (include/uapi/linux/prctl.h), since Linux 6.15: timer_create(2) takes the number that it is
/// given.
const RESTORE_IDS: u64 = 77;
/// Its values.
const OFF: u64 = 0;
const ON: u64 = 1;
/// Without it numbers are taken as the kernel hands them out, one after the other: a process that has made more timers than
/// this is refused.
const MOST_PASSED: i32 = 20_000_000;
/// How many are passed at a time: two calls each.
const PASSED_AT_A_TIME: i32 = 512;
/// CPUCLOCK_PERTHREAD_MASK, see the dump.
const PER_THREAD: i32 = 4;

/// A thread that makes calls for us, and its number in the image.
pub trait Caller {
    /// Calls of the thread with that number of the image.
    ///
    /// # Errors
    /// Where there is none.
    fn on<T>(&mut self, tid: Pid, act: impl FnOnce(&mut Remote<'_>) -> Result<T>) -> Result<T>;
}

/// Makes the timers of a process, and lets them run with what was left of them.
///
/// # Errors
/// Failed calls; timers that can't have been.
pub fn restore(
    process: &mut impl Caller,
    image: &ProcessImage,
    scratch: Scratch,
    (numbers, are_inside): (&Numbers, bool),
) -> Result<()> {
    if image.timers.is_empty() {
        return Ok(());
    }
    let leader = image.pid;
    let asks =
        process.on(leader, |remote| remote.raw(libc::SYS_prctl, &[RESTORE_IDS, ON, 0, 0, 0]))?;
    let mut all: Vec<&PosixTimer> = image.timers.iter().collect();
    all.sort_by_key(|timer| timer.id);
    let mut next = 0;
    for timer in all {
        let maker = timer.thread.unwrap_or(leader);
        process.on(maker, |remote| {
            if asks != 0 {
                pass(remote, scratch, next, timer.id)?;
            }
            create(remote, scratch, timer, (numbers, are_inside))
        })?;
        next = timer.id.saturating_add(1);
    }
    if asks == 0 {
        process.on(leader, |remote| {
            remote.call("prctl", libc::SYS_prctl, &[RESTORE_IDS, OFF, 0, 0, 0])
        })?;
    }
    for timer in &image.timers {
        let listener = timer.target.unwrap_or(leader);
        let maker = timer.thread.unwrap_or(leader);
        let told = process.on(maker, |remote| arm(remote, scratch, timer, image))?;
        if told == Told::Already {
            process.on(listener, |remote| take_signal(remote, scratch, timer.signal))?;
        }
    }
    Ok(())
}

/// Uses numbers up until the next one is `wanted`.
fn pass(remote: &mut Remote<'_>, scratch: Scratch, from: i32, wanted: i32) -> Result<()> {
    if wanted.saturating_sub(from) > MOST_PASSED || wanted < from {
        return Err(EngineError::Unfit {
            what: format!("the job has a POSIX timer with number {wanted}"),
            way_out: "restart it under Linux 6.15 or newer".into(),
        });
    }
    // struct sigevent: value, signal, SIGEV_NONE.
    let at = scratch.data();
    let event = [&[0; WORD][..], &0i32.to_ne_bytes(), &libc::SIGEV_NONE.to_ne_bytes()].concat();
    remote.memory().write(at, &event)?;
    let mut number = from;
    while number < wanted {
        let mut batch = Batch::new();
        let end = wanted.min(number + PASSED_AT_A_TIME);
        for passed in number..end {
            let monotonic = libc::CLOCK_MONOTONIC as u64;
            batch.add(libc::SYS_timer_create, &[monotonic, at, at + 64]);
            batch.add(libc::SYS_timer_delete, &[passed as u64]);
        }
        for answer in remote.run(&batch)? {
            remote.checked("timer_create", answer)?;
        }
        number = end;
    }
    Ok(())
}

fn create(
    remote: &mut Remote<'_>,
    scratch: Scratch,
    timer: &PosixTimer,
    (numbers, are_inside): (&Numbers, bool),
) -> Result<()> {
    let at = scratch.data();
    let target = timer.target.map(|tid| number_here(numbers, tid)).transpose()?.unwrap_or(0);
    let value = (timer.value as usize).to_ne_bytes();
    let rest = [timer.signal, timer.notify, target].map(i32::to_ne_bytes).concat();
    remote.memory().write(at, &[&value[..], &rest].concat())?;
    remote.memory().write(at + 64, &timer.id.to_ne_bytes())?;
    // There a clock has the number of before, which is the same.
    let clock = if are_inside { timer.clock } else { clock_here(numbers, timer)? };
    let arguments = [clock as u64, at, at + 64];
    remote.call("timer_create", libc::SYS_timer_create, &arguments)?;
    let mut made = [0; 4];
    remote.memory().read(at + 64, &mut made)?;
    match i32::from_ne_bytes(made) == timer.id {
        true => Ok(()),
        false => Err(EngineError::odd("timer_create", format!("no timer {}", timer.id))),
    }
}

fn number_here(numbers: &Numbers, recorded: Pid) -> Result<Pid> {
    let gone = || EngineError::Damaged(format!("a timer of thread {recorded}, which is none"));
    numbers.here(recorded).ok_or_else(gone)
}

/// The clock, where its number names a process or a thread: as that is numbered here.
fn clock_here(numbers: &Numbers, timer: &PosixTimer) -> Result<i32> {
    let whose = !(timer.clock >> 3);
    if timer.clock >= 0 || whose == 0 {
        return Ok(timer.clock);
    }
    Ok((!number_here(numbers, whose)? << 3) | (timer.clock & (PER_THREAD | 3)))
}

/// Whether the signal of an expiration that the program has heard of must be taken away.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Already,
    No,
}

/// Arms it. One that was due expires at once. How often one had expired when the program last took its signal is brought
/// about by a first expiration that lies so far back.
fn arm(
    remote: &mut Remote<'_>,
    scratch: Scratch,
    timer: &PosixTimer,
    image: &ProcessImage,
) -> Result<Told> {
    let mut told = Told::No;
    let period = timer.interval_ns;
    let mut first = (0, timer.remaining_ns);
    if timer.due {
        first = (0, 1);
    } else if timer.remaining_ns == 0 {
        return Ok(told);
    }
    if period > 0 {
        let overrun = if timer.due { Some(0) } else { overrun_to_tell(timer, image) };
        if let Some(overrun) = overrun {
            let running = period.saturating_sub(timer.remaining_ns);
            let back = overrun.saturating_mul(period).saturating_add(running);
            let now = now(remote, scratch, timer.clock)?;
            if let Some(begun @ 1..) = now.checked_sub(back) {
                first = (libc::TIMER_ABSTIME, begun);
                told = if timer.due { Told::No } else { Told::Already };
            }
        }
    }
    let split = |ns: u64| [ns / 1_000_000_000, ns % 1_000_000_000];
    let words = [split(period), split(first.1)].concat();
    remote.memory().write(scratch.data(), &to_words(&words))?;
    let arguments = [timer.id as u64, first.0 as u64, scratch.data(), 0];
    remote.call("timer_settime", libc::SYS_timer_settime, &arguments)?;
    Ok(told)
}

/// The overrun, if it can be brought about: its signal must not be pending for another reason.
fn overrun_to_tell(timer: &PosixTimer, image: &ProcessImage) -> Option<u64> {
    let overrun = u64::try_from(timer.overrun).ok().filter(|overrun| *overrun > 0)?;
    let threads = image.threads.iter().flat_map(|thread| &thread.pending);
    let same = |siginfo: &str| {
        let signal = from_hex(siginfo).ok()?.get(..4)?.try_into().ok().map(i32::from_ne_bytes)?;
        Some(signal == timer.signal)
    };
    let taken = threads.chain(&image.pending).any(|pending| same(&pending.siginfo) != Some(false));
    (!taken && timer.notify != libc::SIGEV_NONE).then_some(overrun)
}

/// What a clock shows in the process, ns.
fn now(remote: &mut Remote<'_>, scratch: Scratch, clock: i32) -> Result<u64> {
    let at = scratch.data();
    remote.call("clock_gettime", libc::SYS_clock_gettime, &[clock as u64, at])?;
    let mut bytes = [0; 2 * WORD];
    remote.memory().read(at, &mut bytes)?;
    let words = from_words(&bytes);
    Ok(words[0].saturating_mul(1_000_000_000).saturating_add(words[1]))
}

fn take_signal(remote: &mut Remote<'_>, scratch: Scratch, signal: i32) -> Result<()> {
    let Some(bit) = u32::try_from(signal - 1).ok().filter(|bit| *bit < 64) else {
        return Err(EngineError::Damaged(format!("a timer of signal {signal}")));
    };
    let at = scratch.data();
    let set = (1u64 << bit).to_ne_bytes();
    remote.memory().write(at, &[&set[..], &[0; 2 * WORD]].concat())?;
    // Where the signal is ignored there is none to be taken.
    remote.raw(libc::SYS_rt_sigtimedwait, &[at, 0, at + 8, 8])?;
    Ok(())
}
