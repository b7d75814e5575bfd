//! System calls on behalf of a stopped thread. The guard owns "registers saved, signals blocked"
//! and gives them back on every path.

use nix::errno::Errno;

use super::super::arch::words::to_words;
use super::super::arch::{Architecture, Call, Current, Interrupted, calls};
use super::super::error::{EngineError, Result};
use super::super::graph::Dispatch;
use super::super::sys::abi;
use super::batch::{Batch, RECORD, encode, results};
use super::memory::ProcessMemory;
use super::thread::{ALL_BUT_TRAP, SIGINFO, StoppedThread};

/// Options under which children of a tracee become tracees, and die with the tracer.
pub const FOLLOW_CHILDREN: i32 = libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_EXITKILL;
/// Bytes of the scratch mapping: a page of code, the call table, room for data.
pub const SCRATCH_SIZE: u64 = 256 * 1024;
/// Offset of the call table in the scratch mapping: behind the largest page of any supported
/// machine.
const TABLE: u64 = 64 * 1024;
/// Offset of the room for data.
pub const SCRATCH_DATA: u64 = 128 * 1024;
/// Calls that fit into the table.
const TABLE_CALLS: usize = ((SCRATCH_DATA - TABLE) as usize) / RECORD;
/// Largest errno (include/linux/err.h, MAX_ERRNO).
const MAX_ERRNO: i64 = 4095;

/// A mapping of ours in a traced process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scratch {
    /// Its address.
    pub base: u64,
    /// Whether code may run in it.
    pub executable: bool,
}

impl Scratch {
    /// Address of the room for data.
    pub fn data(self) -> u64 {
        self.base + SCRATCH_DATA
    }
}

/// Borrows a stopped thread to make system calls. Registers and signal mask are as before when
/// it is dropped.
#[derive(Debug)]
pub struct Remote<'t> {
    thread: &'t mut StoppedThread,
    memory: ProcessMemory,
    entry_point: u64,
    blocked: u64,
    scratch: Option<Scratch>,
    keep: bool,
}

impl<'t> Remote<'t> {
    /// Takes the thread. `entry_point` is the address of an instruction that enters the kernel, see
    /// [`find_kernel_entry`].
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn take(thread: &'t mut StoppedThread, entry_point: u64) -> Result<Self> {
        thread.keep_from_calls()?;
        let blocked = thread.blocked()?;
        thread.set_blocked(ALL_BUT_TRAP)?;
        let memory = ProcessMemory::of(thread.tid());
        // What the kernel would have done on the way out is done here, since after an injected call it
        // no longer knows.
        thread.set_resume(going_on(thread.entry()));
        Ok(Self { thread, memory, entry_point, blocked, scratch: None, keep: false })
    }

    /// Uses a scratch mapping that another thread of the process has made.
    #[must_use]
    pub fn with_scratch(mut self, scratch: Scratch) -> Self {
        self.scratch = Some(scratch);
        self
    }

    /// The scratch area, if one was made.
    pub fn scratch(&self) -> Option<Scratch> {
        self.scratch
    }

    /// Where arguments of injected calls may be put: the scratch area's first free byte.
    ///
    /// # Errors
    /// Where none was made.
    pub fn scratch_data(&self) -> Result<u64> {
        let scratch = self.scratch.ok_or_else(|| EngineError::odd("scratch area", "missing"))?;
        Ok(scratch.data())
    }

    /// Lets the thread go on with exactly these registers.
    pub fn fix_resume(&mut self, registers: super::super::arch::Registers) {
        self.thread.fix_resume(registers);
    }

    /// The thread.
    pub fn thread(&self) -> &StoppedThread {
        self.thread
    }

    /// Has a SIGTRAP pending once the thread goes on: queued at once it would be taken for the end of an injected run.
    pub fn hold_trap(&mut self, siginfo: [u8; SIGINFO], shared: bool) {
        self.thread.hold_trap(siginfo, shared);
    }

    /// What the thread had in extended register sets is not to come back.
    pub fn drop_kept(&mut self) {
        self.thread.drop_kept();
    }

    /// Has calls of the thread sent back to it from when it goes on.
    ///
    /// # Errors
    /// As [`StoppedThread::set_dispatch`].
    pub fn set_dispatch(&mut self, wanted: Dispatch) -> Result<()> {
        self.thread.set_dispatch(wanted)
    }

    /// Sets an extended register set for when the thread goes on.
    ///
    /// # Errors
    /// As [`StoppedThread::set_for_good`].
    pub fn set_extended(&mut self, note: u32, bytes: Vec<u8>) -> Result<()> {
        self.thread.set_for_good(note, bytes)
    }

    /// The signals that the thread itself blocks.
    pub fn blocked(&self) -> u64 {
        self.blocked
    }

    /// Sets the mask that the thread gets back.
    pub fn set_blocked(&mut self, mask: u64) {
        self.blocked = mask;
    }

    /// Where calls enter the kernel.
    pub fn entry_point(&self) -> u64 {
        self.entry_point
    }

    /// Enters the kernel elsewhere from now on: the vdso has moved.
    pub fn set_entry_point(&mut self, address: u64) {
        self.entry_point = address;
    }

    /// Memory of the process.
    pub fn memory(&mut self) -> &mut ProcessMemory {
        &mut self.memory
    }

    /// Makes one call; the kernel's raw answer.
    ///
    /// # Errors
    /// [`EngineError::Gone`], never a failure of the call itself.
    pub fn raw(&mut self, number: impl Into<i64>, arguments: &[u64]) -> Result<i64> {
        self.prepare_one(number, arguments)?;
        self.thread.step()?;
        Ok(Current::result(&self.thread.registers()?))
    }

    /// Makes one call without a SIGTRAP at its end, which a process that ignores it would ignore no more; the kernel's raw answer.
    ///
    /// # Errors
    /// As [`Remote::raw`].
    pub fn raw_quietly(&mut self, number: impl Into<i64>, arguments: &[u64]) -> Result<i64> {
        self.prepare_one(number, arguments)?;
        self.thread.call_quietly()?;
        let answer = Current::result(&self.thread.registers()?);
        // Not in a stop at the end of a call, where some architectures keep a register for themselves.
        self.thread.stop_again(0)?;
        Ok(answer)
    }

    fn prepare_one(&mut self, number: impl Into<i64>, arguments: &[u64]) -> Result<()> {
        let mut batch = Batch::new();
        batch.add(number, arguments);
        let mut registers = *self.thread.entry();
        if let Some(scratch) = self.scratch {
            Current::set_stack_pointer(&mut registers, scratch.base + SCRATCH_SIZE - 256);
        }
        Current::prepare_call(&mut registers, self.entry_point, batch.calls()[0]);
        self.thread.set_registers(&registers)
    }

    /// Makes one call and turns -errno into an error that names it.
    ///
    /// # Errors
    /// The call's failure.
    pub fn call(
        &mut self,
        name: &'static str,
        number: impl Into<i64>,
        arguments: &[u64],
    ) -> Result<u64> {
        let answer = self.raw(number, arguments)?;
        self.checked(name, answer)
    }

    /// Turns a raw answer into a result.
    ///
    /// # Errors
    /// The call's failure.
    pub fn checked(&self, name: &'static str, answer: i64) -> Result<u64> {
        if (-MAX_ERRNO..0).contains(&answer) {
            return Err(EngineError::system(
                name,
                format!("in thread {}", self.thread.tid()),
                Errno::from_raw(-answer as i32),
            ));
        }
        Ok(answer as u64)
    }

    /// Maps a scratch area, at `hint` if given (which must be free), else where the kernel likes.
    ///
    /// # Errors
    /// Where the process cannot map any more (RLIMIT_AS, memory).
    pub fn make_scratch(&mut self, hint: Option<u64>) -> Result<Scratch> {
        let data = libc::PROT_READ | libc::PROT_WRITE;
        let fixed = if hint.is_some() { abi::MAP_FIXED_NOREPLACE } else { 0 };
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed) as u64;
        let map = |protection: i32| {
            calls::map(hint.unwrap_or(0), SCRATCH_SIZE, protection as u64, flags, u64::MAX, 0)
        };
        // Data and code at once, for as long as the process stands still: each further call into it
        // would make it stand longer.
        let both = map(data | libc::PROT_EXEC);
        let at_once = self.raw(both.number, &both.arguments)?;
        let executable = self.checked("mmap", at_once).is_ok();
        let base = match executable {
            true => at_once as u64,
            // A policy against memory that is both.
            false => self.call("mmap", map(data).number, &map(data).arguments)?,
        };
        self.memory.write_code(base, Current::BATCH)?;
        let scratch = Scratch { base, executable };
        self.scratch = Some(scratch);
        Ok(scratch)
    }

    /// Unmaps the scratch area. The last call through it.
    ///
    /// # Errors
    /// The call's failure.
    pub fn drop_scratch(&mut self) -> Result<()> {
        if let Some(scratch) = self.scratch.take() {
            self.call("munmap", libc::SYS_munmap, &[scratch.base, SCRATCH_SIZE])?;
        }
        Ok(())
    }

    /// Like [`Remote::drop_scratch`], for a process that ignores SIGTRAP: each injected run has ended that.
    ///
    /// # Errors
    /// The call's failure.
    pub fn drop_scratch_ignoring_traps(&mut self) -> Result<()> {
        let Some(scratch) = self.scratch else { return Ok(()) };
        let (at, trap) = (scratch.data(), libc::SIGTRAP as u64);
        let found = self.raw_quietly(libc::SYS_rt_sigaction, &[trap, 0, at, 8])?;
        self.checked("rt_sigaction", found)?;
        // struct sigaction begins with the handler.
        self.memory.write(at, &to_words(&[libc::SIG_IGN as u64]))?;
        let set = self.raw_quietly(libc::SYS_rt_sigaction, &[trap, at, 0, 8])?;
        self.checked("rt_sigaction", set)?;
        let unmapped = self.raw_quietly(libc::SYS_munmap, &[scratch.base, SCRATCH_SIZE])?;
        self.scratch = None;
        self.checked("munmap", unmapped).map(drop)
    }

    /// Runs all calls of a batch; the kernel's raw answers in order.
    ///
    /// # Errors
    /// [`EngineError::Gone`], never a failure of the calls themselves.
    pub fn run(&mut self, batch: &Batch) -> Result<Vec<i64>> {
        let mut answers = Vec::with_capacity(batch.len());
        match self.scratch {
            Some(scratch) if scratch.executable => {
                for part in batch.calls().chunks(TABLE_CALLS) {
                    let mut table = encode(part);
                    let at = scratch.base + TABLE;
                    self.memory.write(at, &table)?;
                    let mut registers = *self.thread.entry();
                    Current::set_stack_pointer(&mut registers, scratch.base + SCRATCH_SIZE - 256);
                    Current::prepare_batch(&mut registers, scratch.base, at, part.len() as u64);
                    self.thread.set_registers(&registers)?;
                    self.thread.run_to_breakpoint()?;
                    self.memory.read(at, &mut table)?;
                    answers.extend(results(&table));
                }
            }
            _ => {
                for call in batch.calls() {
                    answers.push(self.raw(call.number, &call.arguments)?);
                }
            }
        }
        Ok(answers)
    }

    /// Runs code that ends in a breakpoint, in the room for data.
    ///
    /// # Errors
    /// Where the scratch area may not have code; [`EngineError::Gone`].
    pub fn run_code(&mut self, code: &[u8]) -> Result<()> {
        let scratch = self.scratch.filter(|scratch| scratch.executable);
        let scratch = scratch.ok_or_else(|| EngineError::odd("scratch area", "no code"))?;
        self.memory.write_code(scratch.data(), code)?;
        let mut registers = Current::settled(self.thread.entry());
        Current::set_program_counter(&mut registers, scratch.data());
        self.thread.set_registers(&registers)?;
        self.thread.run_to_breakpoint()
    }

    /// Sets up the registers for one call without running it, for calls that do not return (exit).
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn prepare(&mut self, call: Call) -> Result<()> {
        let mut registers = *self.thread.entry();
        Current::prepare_call(&mut registers, self.entry_point, call);
        self.thread.set_registers(&registers)
    }

    /// Makes a clone(2) call and takes hold of the child: its number for the process itself, and the
    /// child in its first stop. Needs the options of [`FOLLOW_CHILDREN`].
    ///
    /// # Errors
    /// The call's failure.
    pub fn clone_child(&mut self, flags: u64) -> Result<(u64, StoppedThread)> {
        self.give_birth("clone", libc::SYS_clone, &[flags])
    }

    /// Makes a call that makes a child or a thread, and takes hold of it as
    /// [`Remote::clone_child`] does.
    ///
    /// # Errors
    /// The call's failure.
    pub fn give_birth(
        &mut self,
        name: &'static str,
        number: impl Into<i64>,
        arguments: &[u64],
    ) -> Result<(u64, StoppedThread)> {
        let mut batch = Batch::new();
        batch.add(number, arguments);
        let mut registers = *self.thread.entry();
        Current::prepare_call(&mut registers, self.entry_point, batch.calls()[0]);
        self.thread.set_registers(&registers)?;
        let child = self.thread.step_over_birth()?;
        let answer = Current::result(&self.thread.registers()?);
        let inner = self.checked(name, answer)?;
        let child = child.ok_or_else(|| EngineError::odd(name, "no event of the child"))?;
        let mut child = StoppedThread::adopt(child)?;
        child.inherit_suspension(self.thread);
        Ok((inner, child))
    }

    /// Ends the loan without giving anything back: the thread was given new registers and a new mask,
    /// or will be killed.
    pub fn abandon(mut self) {
        self.keep = true;
    }
}

impl Drop for Remote<'_> {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        // Only the death of the thread can make these fail, and then nothing is owed.
        let _ = self.thread.set_blocked(self.blocked);
    }
}

/// Registers with which a live thread goes on after injected calls.
fn going_on(entry: &super::super::arch::Registers) -> super::super::arch::Registers {
    match Current::interrupted(entry) {
        Interrupted::Again(call) => Current::reissue(entry, call),
        Interrupted::RestartBlock(_) => Current::restart_block(entry),
        Interrupted::No => Current::settled(entry),
    }
}

/// Finds an instruction that enters the kernel in the bytes of a process's vdso.
///
/// # Errors
/// [`EngineError::NotUnderstood`] where there is none.
pub fn find_kernel_entry(vdso_start: u64, vdso: &[u8]) -> Result<u64> {
    let code = Current::ENTER_KERNEL;
    (0..vdso.len())
        .step_by(Current::CODE_ALIGNMENT)
        .find(|offset| vdso[*offset..].starts_with(code))
        .map(|offset| vdso_start + offset as u64)
        .ok_or_else(|| EngineError::odd("vdso", "no instruction that enters the kernel"))
}
