//! Makes the threads of a process and gives each its state.

use std::time::{Duration, Instant};

use super::super::arch::words::{WORD, from_words, to_words};
use super::super::arch::{Architecture, Call as ArchCall, Current, Part};
use super::super::error::{EngineError, Result};
use super::super::graph::{
    IntervalTimer, PendingSignal, Pid, ThreadImage, from_hex, from_sparse_hex,
};
use super::super::job_init::world::wants_numbers;
use super::super::names;
use super::super::sys::rounds::Counter;
use super::super::sys::trial::Call;
use super::super::sys::{abi, schedule};
use super::super::trace::{Batch, FOLLOW_CHILDREN, LARGEST_SET, Remote, Scratch, StoppedThread};
use super::held::Held;
use super::last_number::{LastInside, tell_last};

/// What threads of one process share.
const THREAD_FLAGS: u64 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM) as u64;
/// How long the number of a thread of the restorer that has ended may stay taken, on however busy a machine.
const LONGEST_TAKEN: Duration = Duration::from_secs(5);
/// How often the kernel is told which number comes next, for one thread.
const TOLD: u32 = 50;
/// Pause before it is asked for again.
const LOOK_AGAIN: Duration = Duration::from_micros(200);
/// SS_ONSTACK: told by the kernel, not accepted by it.
const ON_STACK: i32 = 1;
/// SS_DISABLE: there is none.
const DISABLE: i32 = 2;

/// What a thread or process that is made shares with its maker (CLONE_*), and the signal of its end.
#[derive(Debug, Clone, Copy)]
pub struct Born {
    /// CLONE_*
    pub flags: u64,
    /// Of a process.
    pub exit_signal: u64,
}

impl Born {
    /// A thread; one with directories of its own begins with a copy of its maker's.
    pub fn thread(own_directories: bool) -> Self {
        let without = if own_directories { libc::CLONE_FS as u64 } else { 0 };
        Self { flags: THREAD_FLAGS & !without, exit_signal: 0 }
    }
}

/// How a thread's number is to be had.
#[derive(Debug)]
pub enum Asking<'a, 'h> {
    /// By asking for it, and for the one that it has in a PID namespace of the job's own.
    Plainly(Option<Pid>),
    /// By telling the kernel which number it has given out last: this process may, whatever the helper may. And the same in a
    /// PID namespace of the job's own.
    ByTheLast(Option<LastInside>),
    /// By telling the kernel the same while others of the machine are being born, to whom the number is denied until then.
    Held(&'a Counter, &'h mut Held),
    /// By asking, or else by waiting until its turn comes, if no more than so many others come before.
    Near(&'a Counter, Pid),
    /// Not at all: it may be any.
    Not(&'a Counter),
}

/// Makes a process that shares the maker's memory, with this number.
///
/// # Errors
/// As [`make`].
pub fn make_process(
    maker: &mut Remote<'_>,
    wanted: Pid,
    scratch: Scratch,
    born: Born,
) -> Result<StoppedThread> {
    let made = make(maker, wanted, scratch, (Asking::Plainly(None), born))?;
    made.ok_or_else(|| EngineError::odd("clone3", format!("another process than {wanted}")))
}

/// Makes a thread with this number. `None`: it can't be had, but another one may do.
///
/// # Errors
/// EEXIST where a number is taken that must be had.
pub fn make(
    leader: &mut Remote<'_>,
    wanted: i32,
    scratch: Scratch,
    (asking, born): (Asking<'_, '_>, Born),
) -> Result<Option<StoppedThread>> {
    leader.thread().set_options(FOLLOW_CHILDREN)?;
    let made = match asking {
        Asking::Plainly(inside) => {
            make_patiently(leader, (wanted, inside), scratch, born).map(Some)
        }
        Asking::ByTheLast(inside) => make_after_the_last(leader, wanted, inside, born).map(Some),
        Asking::Held(counter, held) => make_held(leader, wanted, (counter, born), held),
        Asking::Near(counter, limit) => make_near(leader, wanted, scratch, (counter, limit), born),
        Asking::Not(counter) => make_any(leader, counter, born).map(Some),
    };
    leader.thread().set_options(0)?;
    let made = made?;
    if let Some(made) = &made {
        made.set_options(0)?;
    }
    Ok(made)
}

fn make_near(
    leader: &mut Remote<'_>,
    wanted: i32,
    scratch: Scratch,
    (counter, limit): (&Counter, Pid),
    born: Born,
) -> Result<Option<StoppedThread>> {
    if !wants_numbers() {
        return Ok(None);
    }
    if Call::Clone3.may_be_made() {
        match make_exact(leader, (wanted, None), scratch, born) {
            Err(EngineError::System { source, .. }) => {
                if source.raw_os_error() == Some(libc::EEXIST) {
                    return Ok(None);
                }
            }
            made => return made.map(Some),
        }
    }
    // Where this process may tell the kernel which number comes next, although the helper may not ask for it. Others of the
    // machine are being born meanwhile.
    for _ in 0..TOLD {
        if tell_last(wanted).is_err() {
            break;
        }
        if let Some(made) = make_if(leader, wanted, counter, born)? {
            return Ok(Some(made));
        }
    }
    match counter.approach_within(wanted, limit) {
        true => make_if(leader, wanted, counter, born),
        false => Ok(None),
    }
}

/// A thread with a number that is held. Who is born between its release and the thread may still be quicker; then the number
/// is waited for.
fn make_held(
    leader: &mut Remote<'_>,
    wanted: i32,
    (counter, born): (&Counter, Born),
    held: &mut Held,
) -> Result<Option<StoppedThread>> {
    while held.has(wanted) || held.hold_again(wanted) {
        held.give_back(wanted);
        if tell_last(wanted).is_err() {
            break;
        }
        if let Some(made) = make_if(leader, wanted, counter, born)? {
            return Ok(Some(made));
        }
    }
    Ok(None)
}

/// A thread, if it gets this number.
fn make_if(
    leader: &mut Remote<'_>,
    wanted: i32,
    counter: &Counter,
    born: Born,
) -> Result<Option<StoppedThread>> {
    let made = make_any(leader, counter, born)?;
    if made.tid() == wanted {
        return Ok(Some(made));
    }
    end(made, leader.entry_point())?;
    Ok(None)
}

/// A thread with any number.
fn make_any(leader: &mut Remote<'_>, counter: &Counter, born: Born) -> Result<StoppedThread> {
    make_seen(leader, counter, born).map(|(_, made)| made)
}

/// The same, and what number its process sees.
fn make_seen(
    leader: &mut Remote<'_>,
    counter: &Counter,
    born: Born,
) -> Result<(u64, StoppedThread)> {
    // No stack, no cells to be written, no thread pointer: zeros in any order.
    let (seen, made) = leader.give_birth("clone", libc::SYS_clone, &[born.flags])?;
    counter.note(made.tid());
    Ok((seen, made))
}

/// Ends a thread that has done nothing yet.
fn end(mut thread: StoppedThread, entry_point: u64) -> Result<()> {
    thread.set_options(0)?;
    let exit = ArchCall::of(libc::SYS_exit, [0; 6]);
    let mut loan = Remote::take(&mut thread, entry_point)?;
    let prepared = loan.prepare(exit);
    loan.abandon();
    prepared?;
    thread.release()
}

/// A thread with this number, in a PID namespace of the job's own. The restorer's threads, which have filled the memory,
/// may have had it: a thread that has been joined keeps its number until the kernel has put it away (kernel/exit.c,
/// do_exit: the futex of the join is woken long before release_task).
fn make_patiently(
    leader: &mut Remote<'_>,
    wanted: (Pid, Option<Pid>),
    scratch: Scratch,
    born: Born,
) -> Result<StoppedThread> {
    let begun = Instant::now();
    loop {
        match make_exact(leader, wanted, scratch, born) {
            Err(EngineError::System { source, .. })
                if source.raw_os_error() == Some(libc::EEXIST)
                    && begun.elapsed() < LONGEST_TAKEN =>
            {
                std::thread::sleep(LOOK_AGAIN);
            }
            made => return made,
        }
    }
}

/// A thread with this number, which comes next: nobody else is being born in the job's PID namespace.
fn make_after_the_last(
    leader: &mut Remote<'_>,
    wanted: i32,
    inside: Option<LastInside>,
    born: Born,
) -> Result<StoppedThread> {
    let (begun, counter) = (Instant::now(), Counter::default());
    loop {
        inside.map(LastInside::tell).transpose()?;
        tell_last(wanted)?;
        // What the call answers is the number that the caller sees.
        let (seen, made) = make_seen(leader, &counter, born)?;
        let is_inside = inside.is_none_or(|inside| u64::try_from(inside.wanted) == Ok(seen));
        if made.tid() == wanted && is_inside {
            return Ok(made);
        }
        end(made, leader.entry_point())?;
        if begun.elapsed() > LONGEST_TAKEN {
            return Err(EngineError::odd("clone", format!("another thread than {wanted}")));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// A thread with this number, and this one in a PID namespace of the job's own.
fn make_exact(
    leader: &mut Remote<'_>,
    (wanted, inside): (Pid, Option<Pid>),
    scratch: Scratch,
    born: Born,
) -> Result<StoppedThread> {
    let at = scratch.data();
    // The innermost comes first, and is told to the caller.
    let numbers: Vec<Pid> = inside.into_iter().chain([wanted]).collect();
    // struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls,
    // set_tid, set_tid_size, cgroup.
    let Born { flags, exit_signal } = born;
    let words = [flags, 0, 0, 0, exit_signal, 0, 0, 0, at + 128, numbers.len() as u64, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let list: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    leader.memory().write(at + 128, &list)?;
    leader.memory().write(at, &bytes)?;
    let arguments = [at, bytes.len() as u64];
    let (tid, made) = leader.give_birth("clone3", libc::SYS_clone3, &arguments)?;
    match Some(tid) == numbers.first().map(|number| *number as u64) {
        true => Ok(made),
        false => Err(EngineError::odd("clone3", format!("thread {tid}"))),
    }
}

/// Entries of a list of robust mutexes that the kernel looks at (include/linux/futex.h, ROBUST_LIST_LIMIT).
const ROBUST_MOST: usize = 2048;
/// Bits of a futex that hold its owner's number (linux/futex.h, FUTEX_TID_MASK).
const OWNER: u32 = 0x3fff_ffff;

/// Gives the robust mutexes that a thread holds its new number: the kernel looks for it at the thread's end, and so does
/// whoever waits. glibc keeps it once more, in the mutex's owner, two words on.
///
/// # Errors
/// Memory that can't be written.
fn own_robust_mutexes(remote: &mut Remote<'_>, thread: &ThreadImage, tid: i32) -> Result<()> {
    let head = thread.robust_list.head;
    if head == 0 {
        return Ok(());
    }
    // struct robust_list_head: the first entry, where the futex is from an entry, an entry about to be added.
    let mut bytes = [0; 3 * WORD];
    if remote.memory().read(head, &mut bytes).is_err() {
        return Ok(());
    }
    let words = from_words(&bytes);
    let (mut entry, distance, pending) = (words[0], words[1], words[2]);
    let mut entries = vec![pending];
    while entry & !1 != head && entry != 0 && entries.len() < ROBUST_MOST {
        entries.push(entry);
        let mut next = [0; WORD];
        if remote.memory().read(entry & !1, &mut next).is_err() {
            break;
        }
        entry = from_words(&next)[0];
    }
    // Bit 0 marks those with priority inheritance.
    for entry in entries.into_iter().map(|entry| entry & !1).filter(|entry| *entry != 0) {
        let futex = match WORD {
            4 => u64::from((entry as u32).wrapping_add(distance as u32)),
            _ => entry.wrapping_add(distance),
        };
        let mut cell = [0; 4];
        for (at, mask) in [(futex, OWNER), (futex.wrapping_add(8), u32::MAX)] {
            if remote.memory().read(at, &mut cell).is_err() {
                continue;
            }
            let value = u32::from_ne_bytes(cell);
            if value & mask == thread.tid.unsigned_abs() {
                let value = (value & !mask) | tid.unsigned_abs();
                remote.memory().write(at, &value.to_ne_bytes())?;
            }
        }
    }
    Ok(())
}

/// Tells the C library of a thread's process the thread's new number, in the cell where it keeps it: glibc and bionic
/// register its address by set_tid_address(2), since the kernel is to clear it at the thread's end. The process's number,
/// where it is kept, is right behind it (glibc before 2.25; bionic, in 31 bits). `process`: its number before and now.
///
/// # Errors
/// Memory that can't be written.
pub fn tell_number(
    remote: &mut Remote<'_>,
    thread: &ThreadImage,
    tid: i32,
    process: (i32, i32),
) -> Result<()> {
    if tid != thread.tid {
        own_robust_mutexes(remote, thread, tid)?;
    }
    if thread.clear_tid == 0 || (tid == thread.tid && process.0 == process.1) {
        return Ok(());
    }
    let mut cells = [[0; 4]; 2];
    for (index, cell) in cells.iter_mut().enumerate() {
        let at = thread.clear_tid + index as u64 * 4;
        if remote.memory().read(at, cell).is_err() {
            // No cell, or the last one of its area.
            return Ok(());
        }
    }
    let [own, of_process] = cells.map(i32::from_ne_bytes);
    // musl registers the address of a lock instead.
    if own != thread.tid {
        return Ok(());
    }
    remote.memory().write(thread.clear_tid, &tid.to_ne_bytes())?;
    if of_process == process.0 {
        remote.memory().write(thread.clear_tid + 4, &process.1.to_ne_bytes())?;
    }
    Ok(())
}

/// Gives one thread its registrations and pending signals. Registers and mask come last, when it is
/// let go.
///
/// # Errors
/// Failed calls.
pub fn furnish(
    remote: &mut Remote<'_>,
    thread: &ThreadImage,
    layout: &[Part],
    scratch: Scratch,
) -> Result<()> {
    let at = scratch.data();
    let mut batch = Batch::new();
    let mut checked = Vec::new();
    let stack = &thread.signal_stack;
    // stack_t: ss_sp, ss_flags, ss_size. A thread without one must not keep the restorer's.
    let flags = if stack.size > 0 { stack.flags & !ON_STACK } else { DISABLE };
    remote.memory().write(at, &to_words(&[stack.base, u64::from(flags as u32), stack.size]))?;
    let mut name = names::bytes(&thread.comm).into_owned();
    name.truncate(15);
    name.push(0);
    remote.memory().write(at + 64, &name)?;
    checked.push(("sigaltstack", batch.add(libc::SYS_sigaltstack, &[at, 0])));
    batch.add(libc::SYS_set_tid_address, &[thread.clear_tid]);
    if thread.robust_list.head != 0 {
        Call::SetRobustList.must_not_be_forbidden()?;
        let arguments = [thread.robust_list.head, thread.robust_list.length];
        checked.push(("set_robust_list", batch.add(libc::SYS_set_robust_list, &arguments)));
    }
    if thread.rseq.address != 0 {
        Call::Rseq.must_not_be_forbidden()?;
        let rseq = &thread.rseq;
        let arguments = [rseq.address, u64::from(rseq.size), 0, u64::from(rseq.signature)];
        checked.push(("rseq", batch.add(abi::SYS_RSEQ, &arguments)));
    }
    batch.add(libc::SYS_prctl, &[libc::PR_SET_NAME as u64, at + 64]);
    if thread.timer_slack_ns > 0 {
        batch.add(libc::SYS_prctl, &[libc::PR_SET_TIMERSLACK as u64, thread.timer_slack_ns]);
    }
    let answers = remote.run(&batch)?;
    for (name, ticket) in checked {
        remote.checked(name, answers[ticket.0])?;
    }
    if let Some((place, [seconds, nanoseconds])) = thread.rest {
        let timespec = [seconds.to_ne_bytes(), nanoseconds.to_ne_bytes()].concat();
        remote.memory().write(place, &timespec)?;
    }
    remote.drop_kept();
    for (note, bytes) in &thread.extended {
        let bytes = from_sparse_hex(bytes, LARGEST_SET)?;
        match Current::SET_TLS {
            Some((thread_pointer, call)) if thread_pointer == *note => {
                let pointer = from_words(&bytes).first().copied().unwrap_or_default();
                remote.call("set_tls", call, &[pointer])?;
            }
            _ => {
                let bytes = fitted(remote, *note, bytes, layout)?;
                if let Some(code) = Current::code_that_uses(*note, &bytes) {
                    remote.run_code(&code)?;
                }
                remote.set_extended(*note, bytes)?;
            }
        }
    }
    let host_tid = remote.thread().tid();
    if thread.policy != (0, 0) && thread.attributes.is_none() {
        // Without privilege real-time policies are not to be had; the thread runs all the same.
        let _ = schedule::set_policy(host_tid, thread.policy.0, thread.policy.1);
    }
    if let Some(cpus) = &thread.affinity {
        schedule::set_affinity(host_tid, cpus)?;
    }
    Ok(())
}

/// An extended register set as this machine has it.
fn fitted(remote: &mut Remote<'_>, note: u32, saved: Vec<u8>, layout: &[Part]) -> Result<Vec<u8>> {
    let here = remote.thread().register_set(note)?;
    Current::fit_set(note, saved, layout, &here).map_err(|lacking| EngineError::Unfit {
        what: format!("the job's processes use {lacking}, which this machine's processor lacks"),
        way_out: "restart it on a machine that has it, or run it with --cpu-baseline".into(),
    })
}

/// Queues signals that were pending: for the thread alone, or for its process. SIGTRAPs come when it is let go. The numbers
/// are those that the thread sees itself.
///
/// # Errors
/// Failed calls.
pub fn queue_signals(
    remote: &mut Remote<'_>,
    scratch: Scratch,
    pid: i32,
    tid: Option<i32>,
    signals: &[PendingSignal],
) -> Result<()> {
    for pending in signals {
        let siginfo = from_hex(&pending.siginfo)?;
        let signal = siginfo
            .get(..4)
            .and_then(|bytes| bytes.try_into().ok())
            .map(i32::from_ne_bytes)
            .ok_or_else(|| EngineError::Damaged("a siginfo that is too short".into()))?;
        if signal == libc::SIGTRAP {
            let siginfo = siginfo
                .try_into()
                .map_err(|_| EngineError::Damaged("a siginfo that is too long".into()))?;
            remote.hold_trap(siginfo, tid.is_none());
            continue;
        }
        let at = scratch.data();
        remote.memory().write(at, &siginfo)?;
        match tid {
            Some(tid) => remote.call(
                "rt_tgsigqueueinfo",
                libc::SYS_rt_tgsigqueueinfo,
                &[pid as u64, tid as u64, signal as u64, at],
            )?,
            None => remote.call(
                "rt_sigqueueinfo",
                libc::SYS_rt_sigqueueinfo,
                &[pid as u64, signal as u64, at],
            )?,
        };
    }
    Ok(())
}

/// Arms the interval timers.
///
/// # Errors
/// Failed setitimer(2).
pub fn arm_timers(
    remote: &mut Remote<'_>,
    scratch: Scratch,
    timers: &[IntervalTimer; 3],
) -> Result<()> {
    for (which, timer) in timers.iter().enumerate() {
        if *timer == IntervalTimer::default() {
            continue;
        }
        // A timer whose signal is still pending reads as 0 and is armed again by the signal's delivery.
        let value = if timer.value_us == 0 { timer.interval_us } else { timer.value_us };
        let split = |micros: u64| [micros / 1_000_000, micros % 1_000_000];
        let words = [split(timer.interval_us), split(value)].concat();
        remote.memory().write(scratch.data(), &to_words(&words))?;
        remote.call("setitimer", libc::SYS_setitimer, &[which as u64, scratch.data(), 0])?;
    }
    Ok(())
}

/// Registers of a thread.
///
/// # Errors
/// [`EngineError::Damaged`].
pub fn registers(thread: &ThreadImage) -> Result<super::super::arch::Registers> {
    Current::from_bytes(&from_hex(&thread.registers)?)
        .ok_or_else(|| EngineError::Damaged(format!("registers of thread {}", thread.tid)))
}
