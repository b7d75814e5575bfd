//! Seizing, stopping and releasing single threads (ptrace(2), PTRACE_SEIZE).

use std::cell::Cell;
use std::marker::PhantomData;

use nix::errno::Errno;

use super::super::arch::{Architecture, Current, Interrupted, Registers};
use super::super::error::{EngineError, Result};
use super::super::graph::Dispatch;
use super::super::sys::abi::PtraceRequest as Request;
use super::in_progress::{SeenAsleep, asleep};
use super::ptrace::{Plain, plain, with_memory};

mod quiet;
mod registers;
mod rest;
mod sandbox;
mod sequence;
mod shield;
mod signals;
mod stood;
mod traps;

pub use super::ptrace::SIGINFO;
pub use registers::LARGEST_SET;

use registers::registers;
use traps::HeldTrap;

/// Every signal but SIGTRAP, which ends an injected run.
pub(super) const ALL_BUT_TRAP: u64 = !(1 << (libc::SIGTRAP - 1));
const EVENT_STOP: i32 = libc::PTRACE_EVENT_STOP;

/// Makes a type stay on the thread that seized.
type NotSend = PhantomData<*const ()>;

fn failed(call: &'static str, tid: i32, errno: Errno) -> EngineError {
    match errno {
        Errno::ESRCH => EngineError::Gone(tid),
        other => EngineError::system(call, format!("thread {tid}"), other),
    }
}

/// A thread that this thread has seized and that runs, or may have ended.
#[derive(Debug)]
pub struct RunningThread {
    tid: i32,
    /// Where it was last seen asleep, where the architecture wants to know.
    seen: Cell<Option<SeenAsleep>>,
    _here: NotSend,
}

impl RunningThread {
    /// Seizes a thread without stopping it. `None`: it has ended.
    ///
    /// # Errors
    /// [`EngineError::System`] with EPERM where another tracer has it or privilege is missing.
    pub fn seize(tid: i32) -> Result<Option<Self>> {
        match plain(tid, Plain::Seize) {
            Ok(_) => Ok(Some(Self { tid, seen: Cell::new(None), _here: PhantomData })),
            Err(Errno::ESRCH) => Ok(None),
            Err(errno) => Err(failed("PTRACE_SEIZE", tid, errno)),
        }
    }

    /// Asks the thread to stop; [`wait_any`] tells when it has.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn interrupt(&self) -> Result<()> {
        if Current::WANTS_CALL_IN_PROGRESS {
            // A thread that has stopped already tells nothing any more.
            if let Some(seen) = asleep(self.tid) {
                self.seen.set(Some(seen));
            }
        }
        plain(self.tid, Plain::Interrupt)
            .map_err(|errno| failed("PTRACE_INTERRUPT", self.tid, errno))
    }

    /// Number of the thread on this machine.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// The thread was reported as stopped for PTRACE_INTERRUPT or a group stop.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn stopped(self) -> Result<StoppedThread> {
        StoppedThread::new(self.tid, self.seen.get())
    }

    /// Blocks until the thread stands still, delivering signals that come first. `None`: it ended.
    ///
    /// # Errors
    /// Failed waits.
    pub fn wait_stopped(self) -> Result<Option<StoppedThread>> {
        loop {
            match wait(self.tid)? {
                StopReport::Stopped { .. } => return self.stopped().map(Some),
                StopReport::Signal { signal, .. } => deliver(self.tid, signal)?,
                StopReport::Ended { .. } => return Ok(None),
            }
        }
    }
}

/// Lets a thread in a signal-delivery stop go on with that signal.
///
/// # Errors
/// Failed ptrace calls, but not the thread's end.
pub fn deliver(tid: i32, signal: i32) -> Result<()> {
    match plain(tid, Plain::Continue(signal)) {
        Ok(_) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(failed("PTRACE_CONT", tid, errno)),
    }
}

/// What a wait for a traced thread reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReport {
    /// A stop for PTRACE_INTERRUPT, a new thread's first stop, or a group stop (`group`: its signal).
    Stopped {
        /// The thread.
        tid: i32,
        /// The stop signal of a group stop.
        group: Option<i32>,
    },
    /// A stop before the delivery of a signal, or for an event (signal 0).
    Signal {
        /// The thread.
        tid: i32,
        /// The signal to be delivered; 0 for a PTRACE_EVENT stop.
        signal: i32,
    },
    /// The thread has ended.
    Ended {
        /// The thread.
        tid: i32,
        /// As wait(2) tells it.
        status: i32,
    },
}

fn report(tid: i32, status: i32) -> StopReport {
    if !libc::WIFSTOPPED(status) {
        return StopReport::Ended { tid, status };
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        EVENT_STOP => {
            StopReport::Stopped { tid, group: (signal != libc::SIGTRAP).then_some(signal) }
        }
        0 => StopReport::Signal { tid, signal },
        _ => StopReport::Signal { tid, signal: 0 },
    }
}

/// Blocks until something is reported of this thread.
///
/// # Errors
/// [`EngineError::Gone`] where it is no tracee of ours any more.
pub fn wait(tid: i32) -> Result<StopReport> {
    let mut status = 0;
    loop {
        // SAFETY: `status` lives across the call.
        match Errno::result(unsafe { libc::waitpid(tid, &mut status, libc::__WALL) }) {
            Ok(_) => return Ok(report(tid, status)),
            Err(Errno::EINTR) => {}
            Err(Errno::ECHILD) => return Err(EngineError::Gone(tid)),
            Err(errno) => return Err(failed("waitpid", tid, errno)),
        }
    }
}

/// What is reported of any tracee of this operating-system thread, without blocking. The kernel looks at one after the
/// other, with a lock of those that stand: where there are many, [`wait_for`] one after the other takes less.
///
/// # Errors
/// Failed waits.
pub fn wait_any() -> Result<Option<StopReport>> {
    // waitpid(2): any.
    wait_for(-1)
}

/// What is reported of this thread, without blocking.
///
/// # Errors
/// Failed waits.
pub fn wait_for(tid: i32) -> Result<Option<StopReport>> {
    let mut status = 0;
    let options = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
    loop {
        // SAFETY: `status` lives across the call.
        match Errno::result(unsafe { libc::waitpid(tid, &mut status, options) }) {
            Ok(0) | Err(Errno::ECHILD) => return Ok(None),
            Ok(tid) => return Ok(Some(report(tid, status))),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(failed("waitpid", tid, errno)),
        }
    }
}

/// A thread that stands still in a ptrace stop. Dropping it lets it go on as if it had never
/// been stopped.
#[derive(Debug)]
pub struct StoppedThread {
    tid: i32,
    entry: Registers,
    /// Registers to put in place before the thread goes on, where not those of the stop.
    resume: Option<Registers>,
    /// `resume` is what it shall be, whatever is injected.
    resume_fixed: bool,
    /// Extended register sets that injected calls lose, by note; `None` before the first one.
    kept: Option<Vec<(u32, Vec<u8>)>>,
    /// SIGTRAPs that were pending before the first injected call.
    traps: Vec<HeldTrap>,
    /// Which calls it has sent back to itself, where that is put aside.
    dispatch: Option<Dispatch>,
    /// Calls are not filtered until it is let go.
    suspended: bool,
    /// A SIGSTOP that was pending has been taken out.
    stop_held: Cell<bool>,
    released: bool,
    _here: NotSend,
}

impl StoppedThread {
    fn new(tid: i32, seen: Option<SeenAsleep>) -> Result<Self> {
        let mut entry = match registers(tid) {
            Ok(entry) => entry,
            Err(error) => {
                // Not understood, so left alone; if it is gone, nothing is owed.
                let _ = plain(tid, Plain::Detach);
                return Err(error);
            }
        };
        let before = match seen {
            Some(SeenAsleep::In(call)) => Some(call),
            Some(SeenAsleep::Hidden) => stood::call(tid, &entry),
            None => None,
        };
        if let Some(before) = before {
            Current::remember(&mut entry, before);
        }
        let mut thread = Self {
            tid,
            entry,
            resume: None,
            resume_fixed: false,
            kept: None,
            traps: Vec::new(),
            dispatch: None,
            suspended: false,
            stop_held: Cell::new(false),
            released: false,
            _here: PhantomData,
        };
        // A call that answers a stop with plain EINTR has to be issued again whatever else happens.
        if let Interrupted::Again(call) = Current::interrupted(&thread.entry) {
            if Current::result(&thread.entry) == -i64::from(libc::EINTR) {
                thread.resume = Some(Current::reissue(&thread.entry, call));
            }
        }
        Ok(thread)
    }

    /// Takes over a new thread or process that is attached automatically (PTRACE_O_TRACECLONE) and
    /// waits for its first stop. Dropping it lets it run.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn adopt(tid: i32) -> Result<Self> {
        loop {
            match wait(tid)? {
                StopReport::Stopped { .. } => return Self::new(tid, None),
                StopReport::Signal { signal, .. } => deliver(tid, signal)?,
                StopReport::Ended { .. } => return Err(EngineError::Gone(tid)),
            }
        }
    }

    /// Number of the thread on this machine.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// Registers as they were at the stop.
    pub fn entry(&self) -> &Registers {
        &self.entry
    }

    /// Registers with which the thread shall go on instead of those of the stop, until others are
    /// fixed.
    pub fn set_resume(&mut self, registers: Registers) {
        if !self.resume_fixed {
            self.resume = Some(registers);
        }
    }

    /// Registers with which the thread shall go on, for good.
    pub fn fix_resume(&mut self, registers: Registers) {
        self.resume = Some(registers);
        self.resume_fixed = true;
    }

    /// Has the thread go on from other registers than those of the stop, as if it had been stopped with these.
    pub fn go_on_with(&mut self, registers: Registers) {
        self.entry = registers;
        self.set_resume(registers);
    }

    /// Sets PTRACE_O_* options.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn set_options(&self, options: i32) -> Result<()> {
        let suspend = if self.suspended { sandbox::SUSPEND } else { 0 };
        plain(self.tid, Plain::SetOptions(options | suspend))
            .map_err(|errno| failed("PTRACE_SETOPTIONS", self.tid, errno))
    }

    /// The thread's rseq(2) registration: address, size, signature. All zero where there is none or
    /// the kernel (before 5.13) does not tell.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn rseq(&self) -> Result<(u64, u32, u32)> {
        /// PTRACE_GET_RSEQ_CONFIGURATION
        const REQUEST: Request = 0x420f;
        /// struct ptrace_rseq_configuration
        #[repr(C)]
        #[derive(Default)]
        struct Configuration {
            address: u64,
            size: u32,
            signature: u32,
            flags: u32,
            pad: u32,
        }
        let mut found = Configuration::default();
        // SAFETY: the request writes at most as many bytes as it is told to `found`.
        let told =
            unsafe { with_memory(REQUEST, self.tid, size_of::<Configuration>(), &raw mut found) };
        match told {
            Ok(_) => Ok((found.address, found.size, found.signature)),
            Err(Errno::EIO | Errno::EINVAL) => Ok((0, 0, 0)),
            Err(errno) => Err(failed("PTRACE_GET_RSEQ_CONFIGURATION", self.tid, errno)),
        }
    }

    /// Runs one instruction.
    ///
    /// # Errors
    /// [`EngineError::Gone`] where the thread ended; [`EngineError::NotUnderstood`] where it stopped
    /// for another reason.
    pub fn step(&self) -> Result<()> {
        self.go_until_trap(Plain::Step)
    }

    /// Runs until a breakpoint.
    ///
    /// # Errors
    /// As [`StoppedThread::step`].
    pub fn run_to_breakpoint(&self) -> Result<()> {
        self.go_until_trap(Plain::Continue(0))
    }

    /// Runs the thread, signals blocked, until its program counter is elsewhere, for so many instructions at most. It is
    /// then as if it had stopped there. Nothing is done with a thread that is in a system call.
    ///
    /// # Errors
    /// As [`StoppedThread::step`].
    pub fn leave(&mut self, inside: impl Fn(u64) -> bool, most: u32) -> Result<()> {
        let counter = Current::program_counter;
        if !inside(counter(&self.entry)) || self.resume_fixed {
            return Ok(());
        }
        if Current::interrupted(&self.entry) != Interrupted::No {
            return Ok(());
        }
        self.hold_traps()?;
        let blocked = self.blocked()?;
        self.set_blocked(ALL_BUT_TRAP)?;
        self.set_registers(&Current::settled(&self.entry))?;
        let mut left = Ok(());
        for _ in 0..most {
            left = self.step();
            if left.is_err() || !inside(counter(&self.registers()?)) {
                break;
            }
        }
        self.set_blocked(blocked)?;
        left?;
        self.entry = self.registers()?;
        self.resume = Some(Current::settled(&self.entry));
        Ok(())
    }

    fn go_until_trap(&self, request: Plain) -> Result<()> {
        loop {
            plain(self.tid, request).map_err(|errno| failed(request.name(), self.tid, errno))?;
            match wait(self.tid)? {
                StopReport::Signal { signal: libc::SIGTRAP, .. } => return Ok(()),
                // An event of the call itself (a new thread), or a group stop that came in between.
                StopReport::Signal { signal: 0, .. } | StopReport::Stopped { .. } => {}
                // No mask keeps it back. It comes again when the thread goes on.
                StopReport::Signal { signal: libc::SIGSTOP, .. } => self.stop_held.set(true),
                StopReport::Signal { signal, .. } => {
                    return Err(EngineError::odd(
                        format!("stop of thread {} during an injected call", self.tid),
                        format!("signal {signal}, {:?}", self.registers()?),
                    ));
                }
                StopReport::Ended { .. } => return Err(EngineError::Gone(self.tid)),
            }
        }
    }

    /// Number of the child that the event of this stop tells of, as this machine numbers it
    /// (PTRACE_GETEVENTMSG translates to the tracer's PID namespace).
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn event_message(&self) -> Result<i32> {
        let mut message: libc::c_ulong = 0;
        // SAFETY: the request writes one long to `message`.
        unsafe { with_memory(libc::PTRACE_GETEVENTMSG, self.tid, 0, &raw mut message) }
            .map_err(|errno| failed("PTRACE_GETEVENTMSG", self.tid, errno))?;
        Ok(message as i32)
    }

    /// Runs one instruction that makes a child; the child's number on this machine, where one was
    /// made. Needs PTRACE_O_TRACECLONE and its kin.
    ///
    /// # Errors
    /// As [`StoppedThread::step`].
    pub fn step_over_birth(&self) -> Result<Option<i32>> {
        let mut child = None;
        loop {
            plain(self.tid, Plain::Step)
                .map_err(|errno| failed("PTRACE_SINGLESTEP", self.tid, errno))?;
            match wait(self.tid)? {
                StopReport::Signal { signal: libc::SIGTRAP, .. } => return Ok(child),
                StopReport::Signal { signal: 0, .. } => child = Some(self.event_message()?),
                StopReport::Signal { signal: libc::SIGSTOP, .. } => self.stop_held.set(true),
                StopReport::Stopped { .. } => {}
                other => {
                    return Err(EngineError::odd(
                        format!("stop of thread {} in clone", self.tid),
                        format!("{other:?}"),
                    ));
                }
            }
        }
    }

    /// Lets the thread go with the registers that it has now; its end is told to its parent alone.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn release(mut self) -> Result<()> {
        self.released = true;
        plain(self.tid, Plain::Detach).map_err(|errno| failed("PTRACE_DETACH", self.tid, errno))
    }

    /// Has the thread run while it stays seized, with a signal sent to it before, or 0.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn run_with(mut self, signal: i32) -> Result<RunningThread> {
        self.put_all()?;
        self.put_stop();
        if signal != 0 {
            // SAFETY: takes numbers only; the thread is a tracee still, so that the number is its own.
            unsafe { libc::syscall(libc::SYS_tkill, self.tid, signal) };
        }
        self.released = true;
        plain(self.tid, Plain::Continue(0))
            .map_err(|errno| failed("PTRACE_CONT", self.tid, errno))?;
        Ok(RunningThread { tid: self.tid, seen: Cell::new(None), _here: PhantomData })
    }

    /// Lets the thread go for good.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn detach(mut self) -> Result<()> {
        self.let_go()
    }

    fn put_registers(&mut self) -> Result<()> {
        let kept = self.kept.take().into_iter().flatten();
        let kept =
            kept.map(|(note, bytes)| self.set_register_set(note, &bytes)).fold(Ok(()), Result::and);
        kept.and(self.resume.take().map_or(Ok(()), |registers| self.set_registers(&registers)))
    }

    /// Gives back what was borrowed or put aside.
    fn put_all(&mut self) -> Result<()> {
        self.put_registers().and(self.put_dispatch()).and_then(|()| self.put_traps())
    }

    /// Has a SIGSTOP pending again that was taken out.
    fn put_stop(&self) {
        if self.stop_held.take() {
            // SAFETY: takes numbers only; the thread is a tracee still, so that the number is its own.
            unsafe { libc::syscall(libc::SYS_tkill, self.tid, libc::SIGSTOP) };
        }
    }

    fn let_go(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.released, true) {
            return Ok(());
        }
        let put = self.put_all();
        self.put_stop();
        let detached = plain(self.tid, Plain::Detach)
            .map_err(|errno| failed("PTRACE_DETACH", self.tid, errno));
        put.and(detached)
    }

    /// Gives up the tracee without letting it run: it is killed elsewhere.
    pub fn forget(mut self) {
        self.released = true;
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        // A thread that has been killed meanwhile needs nothing more.
        let _ = self.let_go();
    }
}
