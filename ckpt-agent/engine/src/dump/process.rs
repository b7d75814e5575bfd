//! The state of one process and its threads, but for descriptors and memory.

use std::time::Instant;

use procfs::process::{Stat, Status};

use super::super::arch::words::{ACTION, WORD, action_from_bytes, from_words};
use super::super::arch::{Architecture, Current, Interrupted};
use super::super::error::{EngineError, Refusal, Result};
use super::super::freeze::{FrozenJob, StoppedProcess};
use super::super::graph::{
    Credentials, Descriptor, IntervalTimer, NumbersInside, OpenFile, PendingSignal, Pid,
    PosixTimer, ProcessAttributes, ProcessNode, ProcessState, ResourceLimit, RobustList, Rseq,
    SandboxFilter, SemaphoreUndo, SignalAction, SignalStack, StoppedChild, ThreadImage, to_hex,
    to_sparse_hex,
};
use super::super::local_descriptors;
use super::super::proc::{must_be_own, name_of, read_text, stat_of, status_of};
use super::super::sys::cpu_features;
use super::super::sys::limits::resource_limits;
use super::super::sys::robust_list::robust_list;
use super::super::sys::schedule;
use super::super::trace::{Batch, Remote, SIGINFO, Scratch, StoppedThread, Ticket};
use super::attributes::{self, OfProcess, OfThread};
use super::connects;
use super::directories;
use super::sleep::Sleeps;

/// Highest signal number.
const SIGNALS: i32 = 64;
/// Bytes kept free for a struct sigaction.
const ACTION_SIZE: u64 = 32;
/// MEMBARRIER_CMD_GET_REGISTRATIONS (include/uapi/linux/membarrier.h), since Linux 6.3.
const GET_REGISTRATIONS: u32 = 1 << 9;
/// MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED
const REGISTER_GLOBAL: u32 = 1 << 2;
/// MEMBARRIER_CMD_PRIVATE_EXPEDITED, that with SYNC_CORE, and that with RSEQ.
const NEED_REGISTRATION: [u32; 3] = [1 << 3, 1 << 5, 1 << 7];
/// Where in the room for data no answer comes to lie: half of it is ahead.
const UNUSED: u64 = 64 * 1024;
/// PR_GET_TID_ADDRESS
const GET_TID_ADDRESS: u64 = 40;

/// /proc/PID/stat and status of a process.
///
/// # Errors
/// [`EngineError::Gone`]; text that is not understood.
pub fn stat_and_status(pid: i32) -> Result<(Stat, Status)> {
    Ok((stat_of(pid)?, status_of(pid)?))
}

/// A number as the job sees it: that of the job's PID namespace, `depth` levels below this machine's; and that in one of the
/// job's own within it, if there is one. A kernel without PID namespaces tells no more than the machine's number, `here`.
fn inner(numbers: Option<&Vec<i32>>, depth: usize, here: i32) -> Option<(Pid, Option<Pid>)> {
    let Some(numbers) = numbers else { return (depth == 1).then_some((here, None)) };
    if numbers.len() > depth + 1 {
        return None;
    }
    Some((*numbers.get(depth.checked_sub(1)?)?, numbers.get(depth).copied()))
}

/// Whether a job lives among the machine's other processes: its init is in this process's own PID namespace.
pub fn is_among_others(depth: usize) -> bool {
    depth == 1
}

/// Where a process stands in the tree. `depth`: how many PID namespaces deep the job's processes are. Which PID namespace
/// of the job's own it is in, is not known yet.
///
/// # Errors
/// A process in a PID namespace within another one of the job's is refused.
pub fn node(stat: &Stat, status: &Status, depth: usize, ppid: Pid) -> Result<ProcessNode> {
    let comm = stat.comm.clone();
    let foreign = || {
        let pid = status.nspid.as_ref().and_then(|all| all.get(depth - 1).copied());
        EngineError::RefusedProcess {
            pid: pid.unwrap_or(stat.pid),
            comm: comm.clone(),
            refusal: Refusal::new(
                "is in a PID namespace within another one of its own",
                "run the job without containers in its containers",
            ),
        }
    };
    let (pid, own) = inner(status.nspid.as_ref(), depth, stat.pid).ok_or_else(foreign)?;
    let (pgid, group) = inner(status.nspgid.as_ref(), depth, stat.pgrp).ok_or_else(foreign)?;
    let (sid, session) = inner(status.nssid.as_ref(), depth, stat.session).ok_or_else(foreign)?;
    let inside = own.map(|pid| NumbersInside {
        namespace: u32::MAX,
        pid,
        pgid: group.unwrap_or(0),
        sid: session.unwrap_or(0),
    });
    let state = if stat.state == 'Z' {
        ProcessState::Zombie { status: stat.exit_code.unwrap_or(0), user: Some(status.ruid) }
    } else {
        ProcessState::Alive
    };
    Ok(ProcessNode {
        pid,
        ppid,
        pgid,
        sid,
        comm: comm.clone(),
        exit_signal: stat.exit_signal.unwrap_or(libc::SIGCHLD),
        subreaper: false,
        state,
        inside,
    })
}

/// What a process tells about itself when asked from inside.
#[derive(Debug, Clone)]
pub struct Inside {
    /// Signal actions that are not plain SIG_DFL.
    pub actions: Vec<SignalAction>,
    /// setitimer(2) timers.
    pub interval_timers: [IntervalTimer; 3],
    /// Timers of timer_create(2).
    pub timers: Vec<PosixTimer>,
    /// What it owes to SysV semaphores.
    pub undo: Vec<SemaphoreUndo>,
    /// Address of the break.
    pub break_address: u64,
    /// PR_GET_DUMPABLE
    pub dumpable: i32,
    /// PR_GET_THP_DISABLE
    pub thp_disable: bool,
    /// Others that are numbers.
    pub attributes: ProcessAttributes,
    /// PR_GET_CHILD_SUBREAPER
    pub subreaper: bool,
    /// Registrations of membarrier(2), as the commands that make them.
    pub membarrier: u32,
    /// Segments of its own.
    pub local_descriptors: String,
    /// Its children that are stopped.
    pub stopped_children: Vec<StoppedChild>,
    /// Its children of which it has not been told that they go on.
    pub continued_children: Vec<Pid>,
    /// Threads, the leader first.
    pub threads: Vec<ThreadImage>,
    /// Filters of system calls that they are under.
    pub filters: Vec<SandboxFilter>,
}

impl Inside {
    /// What belongs to memory is told by the image of the process that it is shared with.
    pub fn leave_memory_to_another(&mut self) {
        (self.thp_disable, self.membarrier) = (false, 0);
        self.local_descriptors.clear();
        self.attributes = ProcessAttributes {
            later_locked: 0,
            memory_merge: false,
            no_exec_gain: 0,
            core_filter: None,
            group_nice: 0,
            thp_flags: 0,
            ..std::mem::take(&mut self.attributes)
        };
    }

    /// SIGTRAP is ignored, although injected calls have ended that.
    pub fn ignore_traps(&mut self) {
        let ignored = libc::SIG_IGN as u64;
        match self.actions.iter_mut().find(|action| action.signal == libc::SIGTRAP) {
            Some(action) => action.words[0] = ignored,
            None => {
                self.actions
                    .push(SignalAction { signal: libc::SIGTRAP, words: [ignored, 0, 0, 0] });
            }
        }
    }
}

/// Where in the scratch area the answers of a batch lie.
struct Answers {
    next: u64,
}

impl Answers {
    fn room(&mut self, bytes: u64) -> u64 {
        let at = self.next;
        self.next += bytes.next_multiple_of(16);
        at
    }
}

/// The machine's number and the job's of each thread.
///
/// # Errors
/// A thread of which the kernel tells no number of the job.
pub fn thread_numbers(statuses: &[Status], depth: usize) -> Result<Vec<(i32, Pid)>> {
    let number = |status: &Status| {
        let here = status.pid;
        let own = inner(status.nspid.as_ref(), depth, here);
        own.map(|(own, _)| (here, own))
            .ok_or_else(|| EngineError::odd(format!("/proc/{here}/status"), "no NSpid of the job"))
    };
    statuses.iter().map(number).collect()
}

/// Asks the process through its first stopped thread. The scratch area stays for the other threads
/// and for what follows. `moment` is that of the image.
///
/// # Errors
/// Failed calls, the process's end.
pub fn ask_process(remote: &mut Remote<'_>, moment: Instant) -> Result<Inside> {
    let scratch = remote.scratch().ok_or_else(|| EngineError::odd("scratch area", "missing"))?;
    let mut answers = Answers { next: scratch.data() };
    let mut batch = Batch::new();
    // All of them: a default action can have flags as well (SA_NOCLDWAIT).
    let signals: Vec<i32> = (1..=SIGNALS)
        .filter(|signal| *signal != libc::SIGKILL && *signal != libc::SIGSTOP)
        .collect();
    let actions_at = answers.room(ACTION_SIZE * signals.len() as u64);
    let mut checked: Vec<(&'static str, Ticket)> = Vec::new();
    for (index, signal) in signals.iter().enumerate() {
        let at = actions_at + index as u64 * ACTION_SIZE;
        checked
            .push(("rt_sigaction", batch.add(libc::SYS_rt_sigaction, &[*signal as u64, 0, at, 8])));
    }
    let timers_at = answers.room(3 * 32);
    for which in 0..3 {
        checked
            .push(("getitimer", batch.add(libc::SYS_getitimer, &[which, timers_at + which * 32])));
    }
    let brk = batch.add(libc::SYS_brk, &[0]);
    let dumpable = batch.add(libc::SYS_prctl, &[libc::PR_GET_DUMPABLE as u64]);
    let attributes = OfProcess::ask(&mut batch, scratch.data() + UNUSED, answers.room(8));
    let registrations = ask_membarrier(&mut batch);
    let subreaper_at = answers.room(8);
    batch.add(libc::SYS_prctl, &[libc::PR_GET_CHILD_SUBREAPER as u64, subreaper_at]);
    let results = remote.run(&batch)?;
    for (name, ticket) in checked {
        remote.checked(name, results[ticket.0])?;
    }

    let mut actions = Vec::new();
    let mut all = vec![0; signals.len() * ACTION_SIZE as usize];
    remote.memory().read(actions_at, &mut all)?;
    for (signal, bytes) in signals.iter().zip(all.chunks_exact(ACTION_SIZE as usize)) {
        let words = action_from_bytes(&bytes[..ACTION]).unwrap_or_default();
        if words != [0; 4] {
            actions.push(SignalAction { signal: *signal, words });
        }
    }
    let mut interval_timers = [IntervalTimer::default(); 3];
    for (which, timer) in interval_timers.iter_mut().enumerate() {
        let mut bytes = [0; 4 * WORD];
        remote.memory().read(timers_at + which as u64 * 32, &mut bytes)?;
        let words = from_words(&bytes);
        timer.interval_us = words[0] * 1_000_000 + words[1];
        timer.value_us = words[2] * 1_000_000 + words[3];
    }
    let real = &mut interval_timers[0];
    if real.value_us > 0 {
        // The others stand still with the process.
        real.value_us += moment.elapsed().as_micros() as u64;
    }
    let subreaper = read_longs(remote, subreaper_at, 1)?[0] as u32 != 0;
    let local_descriptors = local_descriptors::read(remote)?;
    let (attributes, thp_disable) = attributes.read(remote.thread().tid(), &results)?;
    Ok(Inside {
        actions,
        interval_timers,
        timers: Vec::new(),
        undo: Vec::new(),
        break_address: results[brk.0] as u64,
        dumpable: results[dumpable.0] as i32,
        thp_disable,
        attributes,
        subreaper,
        membarrier: membarrier_of(registrations.map(|ticket| results[ticket.0])),
        local_descriptors,
        stopped_children: Vec::new(),
        continued_children: Vec::new(),
        threads: Vec::new(),
        filters: Vec::new(),
    })
}

/// Registrations of membarrier(2), or, before Linux 6.3, what the commands that need one answer: EPERM without.
fn ask_membarrier(batch: &mut Batch) -> [Ticket; 4] {
    let mut ask = |command: u32| batch.add(libc::SYS_membarrier, &[u64::from(command), 0, 0]);
    let [private, core, sequences] = NEED_REGISTRATION;
    [ask(GET_REGISTRATIONS), ask(private), ask(core), ask(sequences)]
}

/// The registrations out of the answers. Older kernels do not tell of that for global barriers, which costs next to nothing.
fn membarrier_of([known, asked @ ..]: [i64; 4]) -> u32 {
    if known >= 0 {
        return known as u32;
    }
    let registered = NEED_REGISTRATION.iter().zip(asked).filter(|(_, answer)| *answer == 0);
    // The command that registers is the bit above.
    let private = registered.fold(0, |all, (command, _)| all | command << 1);
    if private == 0 { 0 } else { private | REGISTER_GLOBAL }
}

fn read_longs(remote: &mut Remote<'_>, at: u64, count: usize) -> Result<Vec<u64>> {
    let mut bytes = vec![0; count * 8];
    remote.memory().read(at, &mut bytes)?;
    Ok(bytes
        .chunks_exact(8)
        .map(|chunk| {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        })
        .collect())
}

/// The main thread of a process that has ended while `other` goes on. What nobody can tell of it any more is as the other's.
///
/// # Errors
/// [`EngineError::Gone`].
pub fn ended_leader(node: &ProcessNode, leader: i32, other: &ThreadImage) -> Result<ThreadImage> {
    let (stat, _) = stat_and_status(leader)?;
    let status = stat.exit_code.unwrap_or(0);
    Ok(ThreadImage {
        tid: node.pid,
        tid_inside: node.inside.map(|inside| inside.pid),
        comm: name_of(leader)?.unwrap_or_else(|| node.comm.clone()),
        ended: true,
        // As wait(2) tells it.
        exit_status: (status >> 8) as u8,
        pending: Vec::new(),
        signal_stack: SignalStack::default(),
        clear_tid: 0,
        robust_list: RobustList::default(),
        rseq: Rseq::default(),
        rest: None,
        sandbox: None,
        ..other.clone()
    })
}

/// What is known of a process before its threads are asked.
pub struct Known<'a> {
    /// How many PID namespaces deep it is.
    pub depth: usize,
    /// Who sleeps.
    pub sleeps: &'a Sleeps,
    /// The job.
    pub job: &'a FrozenJob,
    /// The moment of the image.
    pub moment: Instant,
    /// Its descriptors.
    pub descriptors: &'a [Descriptor],
    /// What they are of.
    pub files: &'a mut [OpenFile],
}

/// What a thread tells when asked from inside, and its registers.
///
/// # Errors
/// Failed calls.
pub fn ask_thread(
    remote: &mut Remote<'_>,
    scratch: Scratch,
    status: &Status,
    known: &mut Known<'_>,
) -> Result<ThreadImage> {
    let depth = known.depth;
    let host_tid = remote.thread().tid();
    let (tid, tid_inside) = inner(status.nspid.as_ref(), depth, host_tid).ok_or_else(|| {
        EngineError::odd(format!("/proc/{host_tid}/status"), "no NSpid of the job")
    })?;
    let (rseq_address, rseq_size, rseq_signature) = remote.thread().rseq()?;
    let entry = *remote.thread().entry();
    let (registers, rest) = image_registers(remote, &entry, known)?;
    let (head, length) = robust_list(host_tid)?;

    let at = scratch.data();
    let mut batch = Batch::new();
    let stack = batch.add(libc::SYS_sigaltstack, &[0, at]);
    batch.add(libc::SYS_prctl, &[GET_TID_ADDRESS, at + 64]);
    batch.add(libc::SYS_prctl, &[libc::PR_GET_PDEATHSIG as u64, at + 80]);
    let slack = batch.add(libc::SYS_prctl, &[libc::PR_GET_TIMERSLACK as u64]);
    let securebits = batch.add(libc::SYS_prctl, &[libc::PR_GET_SECUREBITS as u64]);
    let own = OfThread::ask(&mut batch, at + 96);
    remote.memory().write(at, &[0; 96 + attributes::ROOM as usize])?;
    let mut extended = Vec::new();
    for &note in Current::EXTENDED_SETS {
        let bytes = remote.thread().register_set_if_any(note)?;
        let bytes = bytes.filter(|bytes| Current::worth_keeping(note, bytes));
        extended.extend(bytes.map(|bytes| (note, to_sparse_hex(&bytes))));
    }
    let results = remote.run(&batch)?;
    remote.checked("sigaltstack", results[stack.0])?;
    let longs = read_longs(remote, at, 11)?;
    // stack_t: ss_sp, ss_flags, ss_size.
    let mut stack = [0; 3 * WORD];
    remote.memory().read(at, &mut stack)?;
    let stack = from_words(&stack);
    let attributes = own.read(remote, &results, known.job)?;

    Ok(ThreadImage {
        tid,
        tid_inside,
        comm: name_of(host_tid)?.ok_or(EngineError::Gone(host_tid))?,
        ended: false,
        exit_status: 0,
        registers: to_hex(&Current::to_bytes(&registers)),
        extended,
        rest,
        blocked: remote.blocked(),
        pending: Vec::new(),
        signal_stack: SignalStack { base: stack[0], flags: stack[1] as i32, size: stack[2] },
        clear_tid: longs[8],
        robust_list: RobustList { head, length },
        rseq: Rseq { address: rseq_address, size: rseq_size, signature: rseq_signature },
        parent_death_signal: longs[10] as i32,
        no_new_privs: status.nonewprivs == Some(1),
        timer_slack_ns: u64::try_from(results[slack.0]).unwrap_or(0),
        affinity: schedule::affinity(host_tid)?,
        policy: schedule::policy(host_tid)?,
        attributes: Some(attributes),
        directories: None,
        directories_of: None,
        sandbox: None,
        rings: Vec::new(),
        credentials: Credentials::of_status(
            status,
            u32::try_from(results[securebits.0]).unwrap_or(0),
        ),
    })
}

/// A timespec that a call expects, and where.
type Rest = Option<(u64, [u64; 2])>;

/// Registers for the image, and what they expect in memory: an interrupted call is issued again, with
/// the time that is left. A live thread whose call does not know its time by itself goes on the same way.
fn image_registers(
    remote: &mut Remote<'_>,
    entry: &super::super::arch::Registers,
    known: &mut Known<'_>,
) -> Result<(super::super::arch::Registers, Rest)> {
    // Where the kernel does not keep the time, or would forget what call it was, a live thread makes it
    // again, too.
    let files = &mut *known.files;
    let (call, live) = match Current::interrupted(entry) {
        Interrupted::No => {
            let next = about_to_make(remote, entry).and_then(|call| {
                connects::instead(&call, known.descriptors, files, remote.memory())
            });
            let registers = next.map_or(*entry, |call| Current::reissue(entry, call));
            return Ok((Current::settled(&registers), None));
        }
        Interrupted::Again(call) => (call, true),
        Interrupted::RestartBlock(call) => (call, false),
    };
    if let Some(call) = connects::instead(&call, known.descriptors, files, remote.memory()) {
        return Ok((Current::reissue(entry, call), None));
    }
    let (host_tid, stack) = (remote.thread().tid(), Current::stack_pointer(entry));
    let on = known.sleeps.going_on(host_tid, call, stack, known.moment, remote.memory())?;
    let registers = Current::reissue(entry, on.call);
    if live && on.call != call || on.knows_rest {
        if let Some((place, [seconds, nanoseconds])) = on.rest {
            let timespec = [seconds.to_ne_bytes(), nanoseconds.to_ne_bytes()].concat();
            remote.memory().write(place, &timespec)?;
        }
        remote.fix_resume(registers);
    }
    Ok((registers, on.rest))
}

/// The call that a thread makes when it goes on, where that is all that can be told.
fn about_to_make(
    remote: &mut Remote<'_>,
    entry: &super::super::arch::Registers,
) -> Option<super::super::arch::Call> {
    if !Current::WANTS_CALL_IN_PROGRESS {
        return None;
    }
    let mut instruction = [0; 4];
    // One that cannot be read is none: the thread will hear so.
    remote.memory().read(Current::program_counter(entry), &mut instruction).ok()?;
    Current::about_to_make(entry, instruction)
}

/// Pending signals of a thread: last of all, since timers and peers keep sending while the dump goes on.
///
/// # Errors
/// [`EngineError::Gone`].
pub fn pending(thread: &StoppedThread) -> Result<Vec<PendingSignal>> {
    Ok(thread.pending(false)?.iter().map(pending_signal).collect())
}

/// Those of the process as a whole, whichever of its threads keeps them.
///
/// # Errors
/// [`EngineError::Gone`].
pub fn pending_of_process(threads: &[StoppedThread]) -> Result<Vec<PendingSignal>> {
    let Some((first, others)) = threads.split_first() else { return Ok(Vec::new()) };
    let mut all = first.pending(true)?;
    all.extend(others.iter().flat_map(|thread| thread.held(true)));
    Ok(all.iter().map(pending_signal).collect())
}

fn pending_signal(siginfo: &[u8; SIGINFO]) -> PendingSignal {
    PendingSignal { siginfo: to_hex(siginfo) }
}

/// Limits of a process (prlimit(2)).
///
/// # Errors
/// Where they cannot be read.
pub fn limits(host_pid: i32) -> Result<Vec<ResourceLimit>> {
    resource_limits(host_pid)
}

/// The fields of struct prctl_mm_map, in its order.
pub fn memory_map(stat: &Stat, break_address: u64) -> [u64; 11] {
    let field = |value: Option<u64>| value.unwrap_or(0);
    [
        stat.startcode,
        stat.endcode,
        field(stat.start_data),
        field(stat.end_data),
        field(stat.start_brk),
        break_address,
        stat.startstack,
        field(stat.arg_start),
        field(stat.arg_end),
        field(stat.env_start),
        field(stat.env_end),
    ]
}

/// /proc/PID/task/TID/status of each thread.
///
/// # Errors
/// The refusal.
pub fn statuses(process: &StoppedProcess, pid: Pid, comm: &str) -> Result<Vec<Status>> {
    let mut statuses = Vec::with_capacity(process.threads.len());
    for thread in &process.threads {
        let tid = thread.tid();
        let status = status_of(tid)?;
        if has_shadow_stack(tid) {
            let what = "has a shadow stack, which cannot be checkpointed";
            let refusal = Refusal::new(what, "run it with GLIBC_TUNABLES=glibc.cpu.x86_shstk=off");
            return Err(EngineError::RefusedProcess { pid, comm: comm.to_owned(), refusal });
        }
        statuses.push(status);
    }
    Ok(statuses)
}

/// Whether a thread has one (x86_Thread_features of /proc/PID/status, since Linux 6.6).
fn has_shadow_stack(tid: i32) -> bool {
    // Others have none: nothing is read for them.
    if !cpu_features::offered().iter().any(|feature| feature == "user_shstk") {
        return false;
    }
    let status = read_text(&format!("/proc/{tid}/status")).ok().flatten().unwrap_or_default();
    let features = status.lines().find_map(|line| line.strip_prefix("x86_Thread_features:"));
    features.is_some_and(|features| features.split_whitespace().any(|one| one == "shstk"))
}

/// Whether the process of a thread ignores SIGTRAP.
pub fn ignores_traps(status: &Status) -> bool {
    status.sigign & 1 << (libc::SIGTRAP - 1) != 0
}

/// Refuses what no part of the image could say of a process. `threads`: those with directories of their own.
///
/// # Errors
/// The refusal.
pub fn check_supported(
    process: &StoppedProcess,
    threads: impl Iterator<Item = i32>,
    pid: Pid,
    comm: &str,
) -> Result<()> {
    for tid in std::iter::once(process.host_pid).chain(threads) {
        if let Some((what, way_out)) = directories::odd(tid)? {
            return Err(EngineError::RefusedProcess {
                pid,
                comm: comm.to_owned(),
                refusal: Refusal::new(what, way_out),
            });
        }
    }
    // It may have executed another since it was looked at.
    must_be_own(process.host_pid)
}

/// How readily the kernel kills the process where memory is short; 0 where it does not say.
///
/// # Errors
/// Failed reads.
pub fn oom_score_adj(host_pid: i32) -> Result<i32> {
    let text = read_text(&format!("/proc/{host_pid}/oom_score_adj"))?;
    Ok(text.and_then(|text| text.trim().parse().ok()).unwrap_or(0))
}
