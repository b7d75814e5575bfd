//! Timers of timer_create(2). What they are, /proc/PID/timers tells (proc_pid_timers(5), since Linux 3.10, with
//! CONFIG_CHECKPOINT_RESTORE or, since 6.6, CONFIG_POSIX_TIMERS); what is left of them, the process is asked.

use std::time::{Duration, Instant};

use super::super::arch::words::{WORD, from_words};
use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::{PendingSignal, Pid, PosixTimer, from_hex};
use super::super::proc::read_text;
use super::super::trace::{Batch, Remote};

/// SIGEV_THREAD_ID (include/uapi/asm-generic/siginfo.h).
const THREAD_ID: i32 = 4;
/// CPUCLOCK_PERTHREAD_MASK (include/linux/posix-timers_types.h): of numbers of CPU clocks, which are negative.
const PER_THREAD: i32 = 4;
/// SI_TIMER
const BY_TIMER: i32 = -2;
/// Where siginfo_t has si_timerid: behind three words of 32 bits, aligned as a pointer is.
const TIMER_ID_AT: usize = if WORD == 8 { 16 } else { 12 };
/// The signal by which the C library calls functions of timers (SIGEV_THREAD) in a thread of its own, which has made none of
/// them: nptl's SIGTIMER, and musl's.
const OF_THE_LIBRARY: i32 = 32;
/// How many are asked at a time.
const AT_A_TIME: usize = 256;
/// struct itimerspec in the scratch area, with room.
const SPEC: u64 = 32;

/// What the kernel lists of a timer. Threads have the machine's numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    id: i32,
    signal: i32,
    value: u64,
    notify: i32,
    target: i32,
    clock: i32,
}

impl Listed {
    /// Whether it counts the CPU time of whichever thread made it: the kernel does not tell which.
    fn is_of_its_maker(&self) -> bool {
        self.clock < 0 && self.clock & PER_THREAD != 0 && self.clock >> 3 == -1
    }

    fn notified_thread(&self) -> Option<i32> {
        (self.notify & THREAD_ID != 0).then_some(self.target)
    }
}

/// The timers of a process.
///
/// # Errors
/// A list that is not understood.
pub fn listed(host_pid: i32) -> Result<Vec<Listed>> {
    let path = format!("/proc/{host_pid}/timers");
    // Where the kernel keeps no such list it can't be known whether there are any.
    let Some(text) = read_text(&path)? else { return Ok(Vec::new()) };
    let lines: Vec<&str> = text.lines().collect();
    let all: Option<Vec<Listed>> = lines.chunks(4).map(parse).collect();
    all.ok_or_else(|| EngineError::odd(path, "no list of timers"))
}

fn parse(lines: &[&str]) -> Option<Listed> {
    let [id, signal, notify, clock] = lines else { return None };
    let (signal, value) = signal.strip_prefix("signal: ")?.split_once('/')?;
    let (notify, target) = notify.strip_prefix("notify: ")?.split_once('/')?;
    let (whose, target) = target.split_once('.')?;
    let kind = match notify {
        "signal" => libc::SIGEV_SIGNAL,
        "none" => libc::SIGEV_NONE,
        "thread" => libc::SIGEV_THREAD,
        _ => return None,
    };
    Some(Listed {
        id: id.strip_prefix("ID: ")?.trim().parse().ok()?,
        signal: signal.parse().ok()?,
        value: u64::from_str_radix(value.trim_start_matches("0x"), 16).ok()?,
        notify: if whose == "tid" { kind | THREAD_ID } else { kind },
        target: target.parse().ok()?,
        clock: clock.strip_prefix("ClockID: ")?.trim().parse().ok()?,
    })
}

/// Asks a process for what is left of its timers, as of `moment`. `threads`: the machine's number and the job's of each.
///
/// # Errors
/// Failed calls.
pub fn ask(
    remote: &mut Remote<'_>,
    listed: &[Listed],
    threads: &[(i32, Pid)],
    moment: Instant,
) -> Result<Vec<PosixTimer>> {
    let mut timers = Vec::with_capacity(listed.len());
    for some in listed.chunks(AT_A_TIME) {
        let scratch =
            remote.scratch().ok_or_else(|| EngineError::odd("scratch area", "missing"))?;
        let at = |index: usize| scratch.data() + index as u64 * SPEC;
        let mut batch = Batch::new();
        let mut tickets = Vec::with_capacity(some.len());
        for (index, timer) in some.iter().enumerate() {
            let id = timer.id as u64;
            let left = batch.add(libc::SYS_timer_gettime, &[id, at(index)]);
            tickets.push((left, batch.add(libc::SYS_timer_getoverrun, &[id])));
        }
        let answers = remote.run(&batch)?;
        let passed = moment.elapsed();
        for (index, (timer, (left, overrun))) in some.iter().zip(tickets).enumerate() {
            remote.checked("timer_gettime", answers[left.0])?;
            let overrun = remote.checked("timer_getoverrun", answers[overrun.0])?;
            let mut bytes = [0; 4 * WORD];
            remote.memory().read(at(index), &mut bytes)?;
            let (interval_ns, remaining_ns) = spec(&bytes);
            timers.push(PosixTimer {
                id: timer.id,
                clock: timer.clock,
                thread: own_thread(timer, threads)?,
                notify: timer.notify,
                signal: timer.signal,
                target: timer.notified_thread().map(|tid| job_number(tid, threads)).transpose()?,
                value: timer.value,
                remaining_ns: as_of(timer, passed, interval_ns, remaining_ns),
                interval_ns,
                overrun: i32::try_from(overrun).unwrap_or(0),
                due: false,
            });
        }
    }
    Ok(timers)
}

/// Period and rest out of a struct itimerspec, ns.
fn spec(bytes: &[u8]) -> (u64, u64) {
    let words = from_words(bytes);
    let time = |at: usize| words[at].saturating_mul(1_000_000_000).saturating_add(words[at + 1]);
    (time(0), time(2))
}

/// What was left a while ago. CPU time has stood still with the process.
fn as_of(timer: &Listed, passed: Duration, interval_ns: u64, remaining_ns: u64) -> u64 {
    if remaining_ns == 0 || timer.clock < 0 {
        return remaining_ns;
    }
    let then = remaining_ns.saturating_add(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX));
    // It has expired meanwhile: the signal is pending, and this is the next round.
    if interval_ns > 0 && then > interval_ns { remaining_ns } else { then }
}

/// Whose CPU time a timer counts, where that is a thread's that can be told at once: a thread that has the signals of a timer of
/// its own has made it, as a rule, since profilers do so.
fn own_thread(timer: &Listed, threads: &[(i32, Pid)]) -> Result<Option<Pid>> {
    if !timer.is_of_its_maker() {
        return Ok(None);
    }
    match (timer.notified_thread(), threads) {
        (_, [(_, only)]) => Ok(Some(*only)),
        (Some(tid), _) if timer.signal != OF_THE_LIBRARY => job_number(tid, threads).map(Some),
        _ => Ok(None),
    }
}

/// The timers of which it is not known yet whose CPU time they count.
pub fn unclaimed(listed: &[Listed], timers: &[PosixTimer]) -> Vec<i32> {
    let pairs = listed.iter().zip(timers);
    let unknown = pairs.filter(|(own, timer)| own.is_of_its_maker() && timer.thread.is_none());
    unknown.map(|(_, timer)| timer.id).collect()
}

/// Calls that cost a thread CPU time between two looks at a timer.
const BETWEEN: usize = 16;

/// Finds out whether such timers count the CPU time of this thread, while all others stand: then what is left of one falls as the
/// thread makes calls.
///
/// # Errors
/// A refusal where that of another one fell as well; failed calls.
pub fn claim(
    remote: &mut Remote<'_>,
    (host_tid, threads): (i32, &[(i32, Pid)]),
    unclaimed: &[i32],
    timers: &mut [PosixTimer],
) -> Result<()> {
    let mut asked: Vec<&mut PosixTimer> =
        timers.iter_mut().filter(|timer| unclaimed.contains(&timer.id)).collect();
    for some in asked.chunks_mut(AT_A_TIME / 2) {
        let (before, after) = left_of(remote, some)?;
        for ((timer, before), after) in some.iter_mut().zip(before).zip(after) {
            if after < before && timer.thread.replace(job_number(host_tid, threads)?).is_some() {
                let what =
                    format!("has a POSIX timer ({}) whose thread did not stand still", timer.id);
                return Err(Refusal::passing(what, "the next checkpoint will take it").into());
            }
        }
    }
    Ok(())
}

/// What is left of some timers, and again after calls that cost the thread CPU time.
fn left_of(remote: &mut Remote<'_>, some: &[&mut PosixTimer]) -> Result<(Vec<u64>, Vec<u64>)> {
    let data = remote.scratch_data()?;
    let at = |index: usize| data + index as u64 * SPEC;
    let mut batch = Batch::new();
    let mut looks = Vec::with_capacity(2 * some.len());
    let mut look = |batch: &mut Batch| {
        for timer in some {
            let place = at(looks.len());
            looks.push(batch.add(libc::SYS_timer_gettime, &[timer.id as u64, place]));
        }
    };
    look(&mut batch);
    for _ in 0..BETWEEN {
        batch.add(libc::SYS_getppid, &[]);
    }
    look(&mut batch);
    let answers = remote.run(&batch)?;
    let mut left = Vec::with_capacity(looks.len());
    for (index, ticket) in looks.into_iter().enumerate() {
        remote.checked("timer_gettime", answers[ticket.0])?;
        let mut bytes = [0; 4 * WORD];
        remote.memory().read(at(index), &mut bytes)?;
        left.push(spec(&bytes).1);
    }
    let after = left.split_off(some.len());
    Ok((left, after))
}

/// Refuses a timer that no thread's calls have changed.
///
/// # Errors
/// The refusal.
pub fn refuse_unclaimed(unclaimed: &[i32], timers: &[PosixTimer]) -> Result<()> {
    let unknown = |timer: &&PosixTimer| timer.thread.is_none() && unclaimed.contains(&timer.id);
    let Some(timer) = timers.iter().find(unknown) else { return Ok(()) };
    if timer.remaining_ns > 0 {
        // From its time to the next tick of its thread the least is left of it all the time (posix_cpu_timer_get).
        let what = format!(
            "has a POSIX timer ({}) of a thread's CPU time that is about to expire",
            timer.id
        );
        return Err(Refusal::passing(what, "it is taken once it has").into());
    }
    let what = format!(
        "has a POSIX timer ({}) of a thread's CPU time that is not armed, or whose thread has ended, and the kernel does not tell which thread's",
        timer.id
    );
    Err(Refusal::new(what, "make it with the clock of pthread_getcpuclockid(3)").into())
}

fn job_number(tid: i32, threads: &[(i32, Pid)]) -> Result<Pid> {
    let found = threads.iter().find(|(host, _)| *host == tid);
    found.map(|(_, pid)| *pid).ok_or_else(|| {
        let what = format!("a timer that signals thread {tid}");
        Refusal::new(what + ", which has ended", "delete the timer with its thread").into()
    })
}

/// Takes the signals of timers out of what is pending: the timers bring them about again.
pub fn take_due(timers: &mut [PosixTimer], pending: &mut Vec<PendingSignal>) {
    pending.retain(|pending| {
        let Some(id) = timer_of(pending) else { return true };
        let Some(timer) = timers.iter_mut().find(|timer| timer.id == id) else { return true };
        timer.due = true;
        false
    });
}

/// The number of the timer that a signal is of.
fn timer_of(pending: &PendingSignal) -> Option<i32> {
    let siginfo = from_hex(&pending.siginfo).ok()?;
    let number = |at: usize| {
        let bytes = siginfo.get(at..at + 4)?.try_into().ok()?;
        Some(i32::from_ne_bytes(bytes))
    };
    (number(8)? == BY_TIMER).then(|| number(TIMER_ID_AT))?
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &str = "ID: 0\nsignal: 14/0000000000000000\nnotify: signal/pid.2634\nClockID: 1\n\
                         ID: 1\nsignal: 34/00007fff12345678\nnotify: signal/tid.2635\nClockID: -2\n\
                         ID: 7\nsignal: 0/0000000000000000\nnotify: none/pid.2634\nClockID: -6\n";

    fn three() -> Vec<Listed> {
        THREE.lines().collect::<Vec<_>>().chunks(4).map(|lines| parse(lines).unwrap()).collect()
    }

    #[test]
    fn a_list_is_read() {
        let timers = three();
        let whole = (timers[0].id, timers[0].signal, timers[0].notify, timers[0].clock);
        assert_eq!(whole, (0, 14, libc::SIGEV_SIGNAL, 1));
        assert_eq!((timers[1].value, timers[1].notified_thread()), (0x7fff_1234_5678, Some(2635)));
        assert_eq!((timers[2].id, timers[2].notify), (7, libc::SIGEV_NONE));
    }

    #[test]
    fn what_is_no_list_is_told() {
        assert_eq!(parse(&["ID: 0", "signal: 14/0"]), None);
        assert_eq!(parse(&["ID: x", "signal: 14/0", "notify: none/pid.1", "ClockID: 1"]), None);
        assert_eq!(parse(&["ID: 0", "signal: 14/0", "notify: odd/pid.1", "ClockID: 1"]), None);
    }

    #[test]
    fn whose_cpu_time_a_timer_counts() {
        let [monotonic, of_thread, of_process] = &three()[..] else { panic!("not three") };
        assert!(!monotonic.is_of_its_maker() && !of_process.is_of_its_maker());
        assert!(of_thread.is_of_its_maker());
        let threads = [(2634, 2), (2635, 3)];
        assert_eq!(own_thread(of_thread, &threads).unwrap(), Some(3));
        assert_eq!(own_thread(of_process, &threads).unwrap(), None);
        let of_library = Listed { signal: OF_THE_LIBRARY, ..of_thread.clone() };
        assert_eq!(own_thread(&of_library, &threads).unwrap(), None);
        let unheard = Listed { notify: libc::SIGEV_SIGNAL, ..of_thread.clone() };
        assert_eq!(own_thread(&unheard, &threads).unwrap(), None);
        assert_eq!(own_thread(&unheard, &threads[..1]).unwrap(), Some(2));
    }

    #[test]
    fn what_no_thread_claims_is_refused() {
        let listed = three();
        let unheard = Listed { notify: libc::SIGEV_SIGNAL, ..listed[1].clone() };
        let mut timers = vec![timer(listed[0].id), timer(unheard.id)];
        let unclaimed = unclaimed(&[listed[0].clone(), unheard], &timers);
        assert_eq!(unclaimed, [1]);
        let refusal = refuse_unclaimed(&unclaimed, &timers).unwrap_err().to_string();
        assert!(refusal.contains("POSIX timer (1)"), "{refusal}");
        timers[1].thread = Some(3);
        refuse_unclaimed(&unclaimed, &timers).unwrap();
    }

    fn timer(id: i32) -> PosixTimer {
        PosixTimer {
            id,
            clock: 1,
            thread: None,
            notify: 0,
            signal: 14,
            target: None,
            value: 0,
            remaining_ns: 1,
            interval_ns: 1,
            overrun: 0,
            due: false,
        }
    }

    #[test]
    fn a_signal_of_a_timer_is_the_timer_s() {
        let mut siginfo = [0u8; 128];
        siginfo[8..12].copy_from_slice(&BY_TIMER.to_ne_bytes());
        siginfo[TIMER_ID_AT..TIMER_ID_AT + 4].copy_from_slice(&5i32.to_ne_bytes());
        let hex = |bytes: &[u8]| PendingSignal { siginfo: crate::graph::to_hex(bytes) };
        let mut timers = vec![timer(5)];
        let other = hex(&[0; 128]);
        let mut pending = vec![other.clone(), hex(&siginfo)];
        take_due(&mut timers, &mut pending);
        assert_eq!(pending, [other]);
        assert!(timers[0].due);
    }
}
