//! Processes that were stopped by job control stop again, those that go on after a stop do so, and their parents are told
//! of it no more than they were to be.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::super::error::{EngineError, Result};
use super::super::graph::{PendingSignal, Pid, ProcessImage, StoppedChild};
use super::super::proc::{thread_numbers, thread_state};
use super::super::sys::signals;
use super::super::trace::{
    Remote, RunningThread, Scratch, StopReport, StoppedThread, deliver, wait_for,
};
use super::threads::queue_signals;
use super::{Complete, Numbers};

/// How long all stopped children may take until they stand: some microseconds, but for a busy machine.
const LIMIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(200);

/// What a process knows of its stopped children.
#[derive(Debug, Default)]
pub(super) struct Known {
    children: Vec<StoppedChild>,
    /// Those that go on, of which it has not been told.
    continued: Vec<Pid>,
    /// Pending signals that a stop or its end takes away: of the thread at this place, or of the process.
    job_control: Vec<(Option<usize>, PendingSignal)>,
    /// An instruction in it that enters the kernel.
    entry: u64,
    /// SIGCHLD was pending.
    has_signal: bool,
    /// Signals are pending, and all threads can stop.
    has_others: bool,
}

impl Known {
    /// By the image of a process that is complete.
    pub(super) fn of(image: &ProcessImage, entry: u64) -> Self {
        let has_ended = image.threads.first().is_some_and(|leader| leader.ended);
        let of_threads = image.threads.iter().any(|thread| !thread.pending.is_empty());
        let has_others = !has_ended && (of_threads || !image.pending.is_empty());
        // Each call in a process that ignores SIGTRAP makes it another one's default again.
        if has_ended || image.ignores_traps() {
            return Self { has_others, ..Self::default() };
        }
        let has_signal = image.pending.iter().any(|one| one.signal() == Some(libc::SIGCHLD));
        Self {
            children: image.stopped_children.clone(),
            continued: image.continued_children.clone(),
            job_control: job_control(image),
            entry,
            has_signal,
            has_others,
        }
    }

    /// Whether it is told something anew when its children stop or go on.
    fn has_news(&self) -> bool {
        !self.children.is_empty() || !self.continued.is_empty()
    }
}

/// Has all that were stopped stop, and lets them go; all others still stand. Parents go behind their children: they are told of
/// no stop twice, which their children's stops would do otherwise.
///
/// # Errors
/// Where a process can't be let go. One that was killed meanwhile is no error.
pub(super) fn stop_all(processes: &mut [Complete], numbers: &Numbers) -> Result<()> {
    let (mut parents, others): (Vec<usize>, Vec<usize>) =
        (0..processes.len()).partition(|place| processes[*place].known.has_news());
    go_on_all(processes, numbers)?;
    for place in others {
        stop(&mut processes[place])?;
    }
    let until = Instant::now() + LIMIT;
    let here = |child: &StoppedChild| Some((numbers.here(child.pid)?, child.told));
    while !parents.is_empty() {
        let waits_for = |place: usize| {
            let mut children = processes[place].known.children.iter().filter_map(here);
            children.any(|(pid, _)| parents.iter().any(|other| processes[*other].pid == pid))
        };
        // There is one in every tree.
        let next = parents.iter().position(|place| !waits_for(*place)).unwrap_or(0);
        let place = parents.swap_remove(next);
        let known = std::mem::take(&mut processes[place].known.children);
        let children: Vec<(Pid, bool)> = known.iter().filter_map(here).collect();
        if children.iter().all(|(pid, _)| stands(*pid, until)) {
            // It does no harm to be told again, and nobody could be told of a failure now.
            let _ = take(&mut processes[place], &children);
        }
        stop(&mut processes[place])?;
    }
    Ok(())
}

/// Has a process stop that was stopped.
fn stop(process: &mut Complete) -> Result<()> {
    let Some(signal) = process.stopped_by else { return Ok(()) };
    if process.known.has_others {
        return stop_before_others(std::mem::take(&mut process.threads), signal);
    }
    let _ = signals::send(process.pid, signal);
    process.let_go()
}

/// Has a process stop in which other signals are pending, of which it would take those with lower numbers first: they are
/// blocked until it has stopped. One that does not stop in time, since somebody continues it, runs on.
fn stop_before_others(threads: Vec<StoppedThread>, signal: i32) -> Result<()> {
    for (thread, mask) in stand(threads, signal)? {
        match thread.set_blocked(mask).and_then(|()| thread.detach()) {
            Ok(()) | Err(EngineError::Gone(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Has the threads of a process stop by this signal, all others blocked: those that have not ended, each with the signals
/// that it is to block.
fn stand(threads: Vec<StoppedThread>, signal: i32) -> Result<Vec<(StoppedThread, u64)>> {
    let until = Instant::now() + LIMIT;
    // The first one takes the signal, which has all others stop as soon as they run.
    let mut sent = signal;
    let mut stopped = Vec::with_capacity(threads.len());
    for thread in threads {
        let mask = thread.blocked().and_then(|mask| {
            thread.set_blocked(!(1 << (signal - 1)))?;
            Ok(mask)
        });
        let run = mask.and_then(|mask| Ok((thread.run_with(std::mem::take(&mut sent))?, mask)));
        match run {
            Ok((running, mask)) => stopped.push((stop_by(running, until)?, mask)),
            Err(EngineError::Gone(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(stopped.into_iter().filter_map(|(thread, mask)| Some((thread?, mask))).collect())
}

/// Has those processes go on after a stop of whose end their parents have not been told. They stand still afterwards.
fn go_on_all(processes: &mut [Complete], numbers: &Numbers) -> Result<()> {
    let of = |process: &Complete| process.known.continued.clone();
    let wanted: BTreeSet<Pid> = processes.iter().flat_map(of).collect();
    let wanted: BTreeSet<Pid> = wanted.into_iter().filter_map(|pid| numbers.here(pid)).collect();
    for process in processes.iter_mut().filter(|process| wanted.contains(&process.pid)) {
        // Calls can be made in it, and nothing stops it for another reason.
        if process.known.entry == 0 || process.stopped_by.is_some() {
            continue;
        }
        match go_on(process) {
            Ok(()) | Err(EngineError::Gone(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Has a process stop, and go on: the kernel keeps the latter for its parent (kernel/signal.c, SIGNAL_STOP_CONTINUED). The
/// program itself is told of neither. It has its own limits by now: where they leave no room for calls in it, nothing is done,
/// and its parent is not told.
fn go_on(process: &mut Complete) -> Result<()> {
    let entry = process.known.entry;
    let leader = process.threads.first_mut().ok_or(EngineError::Gone(process.pid))?;
    let scratch = match Remote::take(leader, entry)?.make_scratch(None) {
        Ok(scratch) => scratch,
        Err(gone @ EngineError::Gone(_)) => return Err(gone),
        Err(_) => return Ok(()),
    };
    let (threads, masks): (Vec<_>, Vec<u64>) =
        stand(std::mem::take(&mut process.threads), libc::SIGSTOP)?.into_iter().unzip();
    process.threads = threads;
    let _ = signals::send(process.pid, libc::SIGCONT);
    let tidied = tidy(process, scratch);
    for (thread, mask) in process.threads.iter().zip(masks) {
        thread.set_blocked(mask)?;
    }
    // At worst it has a signal too many or too few of those that do nothing else than stop it and have it go on.
    match tidied {
        Err(gone @ EngineError::Gone(_)) => Err(gone),
        _ => Ok(()),
    }
}

/// Takes away the signal by which a process went on, and gives back what that and the stop have taken.
fn tidy(process: &mut Complete, scratch: Scratch) -> Result<()> {
    let (entry, job_control) = (process.known.entry, process.known.job_control.clone());
    let leader = process.threads.first_mut().ok_or(EngineError::Gone(process.pid))?;
    drop_signal(&mut Remote::take(leader, entry)?.with_scratch(scratch), libc::SIGCONT)?;
    for (place, signal) in job_control {
        let thread = process.threads.get_mut(place.unwrap_or(0));
        let thread = thread.ok_or(EngineError::Gone(process.pid))?;
        let mut remote = Remote::take(thread, entry)?.with_scratch(scratch);
        let pid = remote.call("getpid", libc::SYS_getpid, &[])? as i32;
        let tid = remote.call("gettid", libc::SYS_gettid, &[])? as i32;
        // Full queues (RLIMIT_SIGPENDING) do not keep the scratch area.
        let _ = queue_signals(&mut remote, scratch, pid, place.map(|_| tid), &[signal]);
    }
    let leader = process.threads.first_mut().ok_or(EngineError::Gone(process.pid))?;
    Remote::take(leader, entry)?.with_scratch(scratch).drop_scratch()
}

/// Waits until a thread stands, and interrupts one that does not in time. `None`: it has ended.
fn stop_by(thread: RunningThread, until: Instant) -> Result<Option<StoppedThread>> {
    let mut interrupted = false;
    loop {
        match wait_for(thread.tid())? {
            Some(StopReport::Stopped { .. }) => return thread.stopped().map(Some),
            Some(StopReport::Signal { tid, signal }) => deliver(tid, signal)?,
            Some(StopReport::Ended { .. }) => return Ok(None),
            None if !interrupted && Instant::now() > until => {
                interrupted = true;
                match thread.interrupt() {
                    Err(EngineError::Gone(_)) => return Ok(None),
                    other => other?,
                }
            }
            None => std::thread::sleep(PAUSE),
        }
    }
}

/// Whether all threads of a process have stopped by then.
fn stands(pid: Pid, until: Instant) -> bool {
    loop {
        let Ok(threads) = thread_numbers(pid) else { return false };
        let stopped = |tid: i32| matches!(thread_state(pid, tid), Ok(Some('T' | 'Z' | 'X')));
        if threads.into_iter().all(stopped) {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Takes from a process what the stops of its children have told it anew: those that it knew of, and the signal.
fn take(process: &mut Complete, children: &[(Pid, bool)]) -> Result<()> {
    let (entry, has_signal) = (process.known.entry, process.known.has_signal);
    let leader = process.threads.first_mut().ok_or(EngineError::Gone(process.pid))?;
    let mut remote = Remote::take(leader, entry)?;
    remote.make_scratch(None)?;
    for (child, _) in children.iter().filter(|(_, told)| *told) {
        let how = (libc::WSTOPPED | libc::WNOHANG) as u64;
        remote.raw(libc::SYS_waitid, &[libc::P_PID.into(), *child as u64, 0, how, 0])?;
    }
    if !has_signal {
        drop_signal(&mut remote, libc::SIGCHLD)?;
    }
    remote.drop_scratch()
}

/// Takes a pending signal out of a process.
fn drop_signal(remote: &mut Remote<'_>, signal: i32) -> Result<()> {
    // struct timespec of no time, and behind it a set of signals.
    let at = remote.scratch_data()?;
    let set = 1u64 << (signal - 1);
    remote.memory().write(at, &[0; 16])?;
    remote.memory().write(at + 16, &set.to_ne_bytes())?;
    remote.raw(libc::SYS_rt_sigtimedwait, &[at + 16, 0, at, 8])?;
    Ok(())
}

/// What of an image's pending signals a stop takes away (SIGCONT), or its end (those that stop).
fn job_control(image: &ProcessImage) -> Vec<(Option<usize>, PendingSignal)> {
    let kinds = [libc::SIGCONT, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].map(Some);
    let of_threads = image.threads.iter().enumerate();
    let of_threads = of_threads
        .flat_map(|(place, thread)| thread.pending.iter().map(move |one| (Some(place), one)));
    let all = of_threads.chain(image.pending.iter().map(|one| (None, one)));
    all.filter(|(_, one)| kinds.contains(&one.signal()))
        .map(|(place, one)| (place, one.clone()))
        .collect()
}
