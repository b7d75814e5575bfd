//! Stops every thread of a job: a fixed point over processes and threads, since both can be
//! born while others are being stopped.

mod vfork;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tracing::field::Empty;
use tracing::{debug_span, trace};

use super::arch::{Architecture, Current};
use super::doing::{self, Thing};
use super::error::{EngineError, Refusal, Result};
use super::proc::{
    Members, children, innermost_number, is_io_worker, must_be_own, read_text, state, status_of,
    thread_numbers, thread_state,
};
use super::sys::limits::Raised;
use super::sys::schedule::{Ahead, Hurry};
use super::trace::{
    Remote, RunningThread, Scratch, StopReport, StoppedThread, deliver, wait_any, wait_for,
};

/// A thread that has not stopped after this long may wait for a vfork child (vfork(2)): such a
/// thread stops only after the child's exec or exit, so the child must run.
const VFORK_AFTER: Duration = Duration::from_millis(3);
/// How long a failed freeze waits for the last threads to stop, so that they can be let go at once.
const SETTLE: Duration = Duration::from_millis(50);
/// Pause between looks at threads that have not stopped yet; at least as long as the look took, since they need the
/// CPU.
const LOOK_AGAIN: Duration = Duration::from_micros(20);
/// How many times as long as looking for vfork took the next such look is put off at least.
const VFORK_REST: u32 = 8;
/// From so many threads on that have not stopped yet, each is asked for by its number.
const MANY: usize = 64;
/// How many times its limit a freeze may take while threads go on stopping: new ones could be born for ever.
const PATIENCE: u32 = 5;

/// A process all of whose threads stand still.
#[derive(Debug)]
pub struct StoppedProcess {
    /// The number by which this machine shows it: its own, or that of its first living thread where the main one has ended,
    /// of which /proc shows nothing any more.
    pub host_pid: i32,
    /// Its own number on this machine.
    pub leader: i32,
    /// Its threads, the leader first unless it has ended.
    pub threads: Vec<StoppedThread>,
    /// The signal of a group stop (SIGSTOP and its like) that it was in.
    pub group_stop: Option<i32>,
    /// The scratch area that the dump has put into it, and where calls enter the kernel.
    pub scratch: Option<(u64, Scratch)>,
    /// It ignores SIGTRAP, or did before the first call was injected.
    pub ignores_traps: bool,
    /// Where calls enter the kernel, of a process that nobody may look into and that is dumpable until it goes on.
    pub made_dumpable: Option<u64>,
    /// It may map more than its limits allow, until the scratch area is taken out.
    pub raised: Option<Raised>,
}

impl StoppedProcess {
    /// Borrows its first thread for system calls through the scratch area, which is made where there
    /// is none yet.
    ///
    /// # Errors
    /// [`EngineError::Gone`]; no room for the scratch area.
    pub fn lend(&mut self, entry_point: u64) -> Result<Remote<'_>> {
        let first = self.threads.first_mut().ok_or(EngineError::Gone(self.host_pid))?;
        let mut remote = Remote::take(first, entry_point)?;
        match self.scratch {
            Some((_, scratch)) => Ok(remote.with_scratch(scratch)),
            None => {
                self.scratch = Some((entry_point, remote.make_scratch(None)?));
                Ok(remote)
            }
        }
    }

    /// From now on it is killed where its tracer dies: to be called before it is given registers that are
    /// not its own, with which it must not run on.
    pub fn die_with_tracer(&self) {
        for thread in &self.threads {
            // One that has ended does not run on.
            let _ = thread.set_options(libc::PTRACE_O_EXITKILL);
        }
    }

    /// Takes the scratch area out again, and gives back the limits that were raised for it.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn take_scratch_out(&mut self) -> Result<()> {
        // When the area is gone, or can't be taken out.
        let _raised = self.raised.take();
        self.put_scratch_away()
    }

    /// Takes the scratch area out, where another one will be needed: limits stay raised.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn put_scratch_away(&mut self) -> Result<()> {
        if let Some((entry_point, scratch)) = self.scratch.take() {
            let first = self.threads.first_mut().ok_or(EngineError::Gone(self.host_pid))?;
            let mut remote = Remote::take(first, entry_point)?.with_scratch(scratch);
            match self.ignores_traps {
                true => remote.drop_scratch_ignoring_traps()?,
                false => remote.drop_scratch()?,
            }
        }
        Ok(())
    }
}

impl Drop for StoppedProcess {
    fn drop(&mut self) {
        // A process that has been killed meanwhile needs nothing more.
        let _ = self.take_scratch_out();
        let _ = self.hide_again();
    }
}

/// A whole job that stands still. Dropping it lets the job go on.
#[derive(Debug)]
pub struct FrozenJob {
    /// Living processes, parents before their children.
    pub processes: Vec<StoppedProcess>,
    /// Processes that have ended and were not waited for (numbers on this machine).
    pub zombies: Vec<i32>,
    /// Processes of ours that stand for others, and run (numbers on this machine).
    pub stand_ins: Vec<i32>,
    /// When the first thread was asked to stop.
    pub since: Instant,
    /// Threads of the job answer promptly meanwhile.
    pub hurry: Hurry,
}

/// Stops all processes of a job but `stand_ins` (numbers on this machine).
///
/// # Errors
/// [`EngineError::TooLong`] with the process that would not stop where none has for `limit`, or after five times
/// that; a process traced by somebody else. On every error the job goes on.
pub fn freeze(members: &Members, stand_ins: BTreeSet<i32>, limit: Duration) -> Result<FrozenJob> {
    freeze_knowing(members, stand_ins, BTreeSet::new(), limit)
}

/// As [`freeze`]. `without_rings`: processes that have just been seen to have no memory of an io_uring, so that none
/// of their threads is looked at for whether it is the kernel's, which takes time.
///
/// # Errors
/// As [`freeze`].
pub fn freeze_knowing(
    members: &Members,
    stand_ins: BTreeSet<i32>,
    without_rings: BTreeSet<i32>,
    limit: Duration,
) -> Result<FrozenJob> {
    let since = Instant::now();
    let stopping = debug_span!("stop", processes = Empty, threads = Empty).entered();
    doing::begin("stopping threads", Thing::Job);
    let ahead = Ahead::begin();
    let mut freezer = Freezer {
        known: BTreeMap::new(),
        running: BTreeMap::new(),
        stopped: BTreeMap::new(),
        group_stops: BTreeMap::new(),
        stand_ins,
        without_rings,
        limit,
        since,
        last_stop: since,
        next: 0,
    };
    loop {
        let before = freezer.known.len();
        freezer.seize_new(members)?;
        freezer.collect()?;
        if freezer.known.len() == before && freezer.running.is_empty() {
            break;
        }
    }
    drop(ahead);
    // Not before: while threads are being stopped, they are waited for by looking again and again.
    let mut hurry = Hurry::begin();
    for tid in freezer.stopped.keys() {
        hurry.take_along(*tid);
    }
    let job = freezer.finish(members, hurry)?;
    stopping.record("processes", job.processes.len());
    stopping.record("threads", job.processes.iter().map(|p| p.threads.len()).sum::<usize>());
    Ok(job)
}

struct Freezer {
    /// Every thread seized so far and its process.
    known: BTreeMap<i32, i32>,
    running: BTreeMap<i32, RunningThread>,
    stopped: BTreeMap<i32, StoppedThread>,
    group_stops: BTreeMap<i32, i32>,
    /// Not to be stopped.
    stand_ins: BTreeSet<i32>,
    /// As [`freeze_knowing`].
    without_rings: BTreeSet<i32>,
    limit: Duration,
    since: Instant,
    /// When a thread was last seen to stop, or to be asked to.
    last_stop: Instant,
    /// Where the look at those that have not stopped goes on.
    next: i32,
}

impl Drop for Freezer {
    /// Lets go of what was seized when the freeze has failed: first what stands, so that it can wake
    /// what does not stop yet.
    fn drop(&mut self) {
        self.stopped.clear();
        LINGERING.with_borrow_mut(|lingering| lingering.append(&mut self.running));
        let begun = Instant::now();
        while settle_lingering() && begun.elapsed() < SETTLE {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

thread_local! {
    /// Threads that were asked to stop and have not done so yet, although nobody wants it any more.
    static LINGERING: std::cell::RefCell<BTreeMap<i32, RunningThread>> =
        const { std::cell::RefCell::new(BTreeMap::new()) };
}

thread_local! {
    /// Ends that were reported to this thread while it froze a job, where it wants to know them.
    static ENDS: std::cell::RefCell<Option<Vec<(i32, i32)>>> = const { std::cell::RefCell::new(None) };
}

/// From now on the ends of tracees and children that a freeze comes across are kept for [`take_ends`]: for
/// an init, whose own children they are.
pub fn keep_ends() {
    ENDS.with_borrow_mut(|ends| {
        ends.get_or_insert_default();
    });
}

/// Thread numbers and wait(2)'s status of those that have ended since the last call.
pub fn take_ends() -> Vec<(i32, i32)> {
    ENDS.with_borrow_mut(|ends| ends.as_mut().map(std::mem::take).unwrap_or_default())
}

fn note_end(tid: i32, status: i32) {
    ENDS.with_borrow_mut(|ends| {
        if let Some(ends) = ends {
            ends.push((tid, status));
        }
    });
}

/// Lets go of threads that have stopped only after their freeze was given up. Whether there are more to
/// come: then to be called again soon, on the same thread.
pub fn settle_lingering() -> bool {
    LINGERING.with_borrow_mut(|lingering| {
        while !lingering.is_empty() {
            match wait_any() {
                Ok(Some(StopReport::Stopped { tid, .. })) => {
                    if let Some(thread) = lingering.remove(&tid) {
                        // Dropped, it runs on.
                        drop(thread.stopped());
                    }
                }
                Ok(Some(StopReport::Signal { tid, signal })) => {
                    let _ = deliver(tid, signal);
                }
                Ok(Some(StopReport::Ended { tid, status })) => {
                    note_end(tid, status);
                    lingering.remove(&tid);
                }
                Ok(None) => return true,
                Err(_) => lingering.clear(),
            }
        }
        false
    })
}

impl Freezer {
    fn seize_new(&mut self, members: &Members) -> Result<()> {
        for pid in members.list()? {
            if self.stand_ins.contains(&pid) {
                continue;
            }
            self.seize_threads(pid)?;
        }
        Ok(())
    }

    fn seize_threads(&mut self, pid: i32) -> Result<()> {
        for tid in thread_numbers(pid)? {
            if self.known.contains_key(&tid) {
                continue;
            }
            // A stop would end what the kernel's own threads are doing for a ring with EINTR.
            if tid != pid && !self.without_rings.contains(&pid) && is_io_worker(pid, tid)? {
                continue;
            }
            doing::begin("stopping", Thing::HostThread { tid, pid });
            let seized = match RunningThread::seize(tid) {
                Ok(seized) => seized,
                Err(error) => {
                    if is_zombie(pid, tid)? {
                        continue;
                    }
                    return Err(explain(pid, error));
                }
            };
            let Some(thread) = seized else { continue };
            match thread.interrupt() {
                Ok(()) => {
                    self.known.insert(tid, pid);
                    self.running.insert(tid, thread);
                }
                Err(EngineError::Gone(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until all seized threads stand still or have ended.
    fn collect(&mut self) -> Result<()> {
        let begun = Instant::now();
        let mut next_release = begun + VFORK_AFTER;
        self.last_stop = begun;
        while !self.running.is_empty() {
            let looked = Instant::now();
            match self.next_report()? {
                Some(StopReport::Stopped { tid, group }) => {
                    self.last_stop = looked;
                    trace!(tid, "stopped");
                    if let Some(thread) = self.running.remove(&tid) {
                        if let (Some(signal), Some(pid)) = (group, self.known.get(&tid)) {
                            self.group_stops.insert(*pid, signal);
                        }
                        match thread.stopped() {
                            Ok(stopped) => self.take(tid, stopped)?,
                            Err(EngineError::Gone(_)) => {}
                            Err(error) => {
                                // Registers of another processor: a program that has been executed just now.
                                must_be_own(self.known.get(&tid).copied().unwrap_or(tid))?;
                                return Err(error);
                            }
                        }
                    }
                }
                Some(StopReport::Signal { tid, signal }) => deliver(tid, signal)?,
                Some(StopReport::Ended { tid, status }) => {
                    note_end(tid, status);
                    self.running.remove(&tid);
                    self.stopped.remove(&tid).map(StoppedThread::forget).unwrap_or_default();
                    self.known.remove(&tid);
                }
                None => {
                    let cost = looked.elapsed();
                    if let Some((&tid, _)) = self.running.first_key_value() {
                        let pid = self.known.get(&tid).copied().unwrap_or(tid);
                        doing::begin("waiting for", Thing::HostThread { tid, pid });
                    }
                    if self.last_stop.elapsed() > self.limit
                        || self.since.elapsed() > self.limit * PATIENCE
                    {
                        return Err(self.too_long());
                    }
                    if looked > next_release {
                        self.release_vfork_children()?;
                        next_release =
                            Instant::now() + VFORK_AFTER.max(looked.elapsed() * VFORK_REST);
                    }
                    std::thread::sleep(LOOK_AGAIN.max(cost));
                }
            }
        }
        Ok(())
    }

    /// What is reported of a thread that has not stopped yet, or of any other. Of many threads, each is asked for by
    /// its number, one after the other: asked for any, the kernel looks each time at all that stand.
    fn next_report(&mut self) -> Result<Option<StopReport>> {
        if self.running.len() < MANY {
            return wait_any();
        }
        let (before, after) = (..self.next, self.next..);
        let turn = self.running.range(after).chain(self.running.range(before));
        for (tid, _) in turn {
            let found = wait_for(*tid)?;
            if found.is_some() {
                self.next = tid.saturating_add(1);
                return Ok(found);
            }
        }
        wait_any()
    }

    /// A thread stands. One of the kernel's own that has come since runs on: it has no place in the program where it
    /// would.
    fn take(&mut self, tid: i32, stopped: StoppedThread) -> Result<()> {
        let pid = self.known.get(&tid).copied().unwrap_or(tid);
        let is_nowhere = Current::program_counter(stopped.entry()) == 0;
        if tid == pid || !is_nowhere || !is_io_worker(pid, tid)? {
            self.stopped.insert(tid, stopped);
        }
        Ok(())
    }

    /// Lets the stopped children of threads that wait in vfork run on.
    fn release_vfork_children(&mut self) -> Result<()> {
        let waiting: Vec<i32> = self.running.keys().copied().collect();
        for tid in waiting {
            let Some(&pid) = self.known.get(&tid) else { continue };
            if !vfork::waits_uninterruptibly(pid, tid)? {
                // Only slow: it has not been on a CPU yet.
                continue;
            }
            let Some(children) = children(pid, tid)? else { continue };
            let children: BTreeSet<i32> = children.into_iter().collect();
            let held: Vec<i32> = self
                .known
                .iter()
                .filter(|(thread, process)| {
                    children.contains(process) && self.stopped.contains_key(thread)
                })
                .map(|(thread, _)| *thread)
                .collect();
            for thread in held {
                self.known.remove(&thread);
                if let Some(stopped) = self.stopped.remove(&thread) {
                    match stopped.detach() {
                        Ok(()) | Err(EngineError::Gone(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(())
    }

    fn too_long(&self) -> EngineError {
        // It is named here.
        doing::nothing();
        let of = |tid: &i32| self.known.get(tid).copied().unwrap_or(*tid);
        let in_vfork = |tid: &i32| vfork::refusal(of(tid), *tid, self.limit);
        if let Some(refusal) = self.running.keys().find_map(in_vfork) {
            return refusal;
        }
        let count = self.running.len();
        let culprit = self.running.keys().next().map_or_else(String::new, |tid| {
            let pid = self.known.get(tid).copied().unwrap_or(*tid);
            let text = |file: &str| {
                read_text(&format!("/proc/{pid}/task/{tid}/{file}"))
                    .ok()
                    .flatten()
                    .unwrap_or_default()
            };
            let (comm, stat, wchan) = (text("comm"), text("stat"), text("wchan"));
            format!(
                "stopping {count} of {} threads (thread {tid} of process {pid} ({}) is in state {}, waiting in {})",
                self.known.len(),
                comm.trim_end(),
                state(&stat).unwrap_or('?'),
                match wchan.trim_end() {
                    "" | "0" => "nothing that the kernel tells",
                    place => place,
                }
            )
        });
        EngineError::TooLong { what: culprit, limit_ms: self.limit.as_millis() as u64 }
    }

    fn finish(mut self, members: &Members, hurry: Hurry) -> Result<FrozenJob> {
        let mut processes = Vec::new();
        let mut zombies = Vec::new();
        let mut stand_ins = Vec::new();
        let since = self.since;
        for host_pid in members.list()? {
            let mut threads = Vec::new();
            for tid in thread_numbers(host_pid)? {
                threads.extend(self.stopped.remove(&tid));
            }
            if self.stand_ins.contains(&host_pid) && !is_zombie(host_pid, host_pid)? {
                stand_ins.push(host_pid);
            } else if let Some(first) = threads.first().map(StoppedThread::tid) {
                let group_stop = self.group_stops.remove(&host_pid);
                processes.push(StoppedProcess {
                    host_pid: first,
                    leader: host_pid,
                    threads,
                    group_stop,
                    scratch: None,
                    ignores_traps: false,
                    made_dumpable: None,
                    raised: None,
                });
            } else {
                zombies.push(host_pid);
            }
        }
        Ok(FrozenJob { processes, zombies, stand_ins, since, hurry })
    }
}

fn is_zombie(pid: i32, tid: i32) -> Result<bool> {
    Ok(matches!(thread_state(pid, tid)?, Some('Z' | 'X') | None))
}

/// Says who else traces a process that cannot be seized.
fn explain(pid: i32, error: EngineError) -> EngineError {
    refuse_traced(pid).err().unwrap_or(error)
}

/// Refuses a process that somebody else traces.
///
/// # Errors
/// The refusal, with both named.
pub fn refuse_traced(pid: i32) -> Result<()> {
    let Ok(status) = status_of(pid) else { return Ok(()) };
    if status.tracerpid == 0 {
        return Ok(());
    }
    // Of a thread that waits so, the tracer of an earlier checkpoint can't let go before it stops.
    if let Some(refusal) = vfork::refusal(pid, pid, Duration::ZERO) {
        return Err(refusal);
    }
    let tracer = read_text(&format!("/proc/{}/comm", status.tracerpid)).ok().flatten();
    Err(EngineError::RefusedProcess {
        pid: innermost_number(&status),
        comm: status.name,
        refusal: Refusal::new(
            format!(
                "is traced by process {} ({})",
                status.tracerpid,
                tracer.as_deref().map_or("?", str::trim_end)
            ),
            "detach the debugger",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::proc::descendants;
    use super::*;
    use nix::sys::wait::waitpid;
    use nix::unistd::{ForkResult, Pid, fork};

    /// Only calls that may be made after a fork of a program with threads.
    fn wait_for_ever() -> ! {
        loop {
            nix::unistd::pause();
        }
    }

    /// As vfork(2), but the child never comes back.
    fn vfork_for_ever() {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: the child shares this stack, on which it does nothing but wait until it is killed; its parent
        // stands in the call as long.
        if unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } == 0 {
            wait_for_ever();
        }
    }

    #[test]
    fn more_than_are_asked_for_together_stop() {
        let script = format!("for i in $(seq {}); do sleep 60 & done; wait", MANY + 20);
        let mut shell = std::process::Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let init = shell.id() as i32;
        let deadline = Instant::now() + Duration::from_secs(20);
        while descendants(init).unwrap().len() < MANY + 20 && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let job = freeze(&Members::Below(init), BTreeSet::new(), Duration::from_secs(2)).unwrap();
        assert_eq!((job.processes.len(), job.zombies.len()), (MANY + 20, 0));
        for process in &job.processes {
            let path = format!("/proc/{}/stat", process.host_pid);
            let stat = std::fs::read_to_string(path).unwrap();
            assert!(process.threads.len() == 1 && state(&stat) == Some('t'), "{stat}");
        }
        drop(job);
        for pid in descendants(init).unwrap() {
            let _ = nix::sys::signal::kill(Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
        shell.wait().unwrap();
    }

    #[test]
    fn a_thread_that_waits_in_vfork_is_named() {
        // SAFETY: the child makes plain system calls alone.
        let init = match unsafe { fork() }.unwrap() {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                // SAFETY: as above.
                if let Ok(ForkResult::Child) = unsafe { fork() } {
                    vfork_for_ever();
                }
                wait_for_ever()
            }
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        let job = loop {
            let job = descendants(init.as_raw()).unwrap();
            if job.len() == 2 || Instant::now() > deadline {
                break job;
            }
            std::thread::yield_now();
        };
        let members = Members::Below(init.as_raw());
        let error = freeze(&members, BTreeSet::new(), Duration::from_millis(100)).err();
        for pid in job.iter().rev().chain([&init.as_raw()]) {
            // One that has ended with another needs no more.
            let _ = nix::sys::signal::kill(Pid::from_raw(*pid), nix::sys::signal::Signal::SIGKILL);
        }
        let _ = waitpid(init, None);
        let text = error.map(|error| error.with_place(doing::last())).unwrap_or_default();
        let stuck = format!("process {} (", job[0]);
        assert!(text.starts_with(&stuck) && text.contains("): waits in vfork(2) for"), "{text}");
        assert!(text.contains(&format!("for process {} (", job[1])), "{text}, of {job:?}");
        assert!(text.contains("nor ended within 100 ms; "), "{text}");
    }
}
