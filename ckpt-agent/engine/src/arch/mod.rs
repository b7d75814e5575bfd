//! What differs between processors: registers, how a system call is entered and restarted.
//! One folder per architecture; nothing outside of this module names a register.

// Compiled for the tests on other machines too: all but one line of them is plain arithmetic.
#[cfg(any(target_arch = "aarch64", test))]
mod aarch64;
#[cfg(any(target_arch = "arm", test))]
mod arm;
pub mod calls;
mod numbers;
pub mod words;
#[cfg(any(target_arch = "x86", test))]
mod x86;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(any(target_arch = "x86_64", target_arch = "x86", test))]
mod xstate;

#[cfg(target_arch = "aarch64")]
pub use aarch64::Aarch64 as Current;
#[cfg(target_arch = "arm")]
pub use arm::Arm as Current;
pub use numbers::{Numbers, Timeout, WIDE, Wide, Width};
#[cfg(target_arch = "x86")]
pub use x86::X86 as Current;
#[cfg(target_arch = "x86_64")]
pub use x86_64::X86_64 as Current;

use serde::{Deserialize, Serialize};

/// A feature of the processor, by its name, that a thread uses and this machine lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LackingFeature(pub String);

/// General registers of the architecture that this program was built for.
pub type Registers = <Current as Architecture>::Registers;

/// A part of an extended register set that not all machines keep at the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Which, by the architecture's own numbers.
    pub number: u32,
    /// Where it begins, in bytes.
    pub offset: u32,
    /// Its bytes.
    pub size: u32,
}

/// A system call found in a thread's registers: the number and its six arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Its number.
    pub number: i64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

impl Call {
    /// A call by the number that libc has for it.
    pub fn of(number: impl Into<i64>, arguments: [u64; 6]) -> Self {
        Self { number: number.into(), arguments }
    }
}

/// A system call in which a thread was seen while it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallInProgress {
    /// The call, with the arguments that it was made with.
    pub call: Call,
    /// The thread's stack pointer.
    pub stack_pointer: u64,
    /// Where the thread goes on after the call.
    pub program_counter: u64,
}

/// How the kernel has left an interrupted system call (include/linux/errno.h: these values are
/// seen by tracers only).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupted {
    /// The thread was not in a system call, or the call is done.
    No,
    /// To be issued again with the same arguments.
    Again(Call),
    /// To go on with restart_syscall(2), which knows the time left; that knowledge is lost in an image.
    RestartBlock(Call),
}

/// -ERESTARTSYS
pub const ERESTARTSYS: i64 = 512;
/// -ERESTARTNOINTR
pub const ERESTARTNOINTR: i64 = 513;
/// -ERESTARTNOHAND
pub const ERESTARTNOHAND: i64 = 514;
/// -ERESTART_RESTARTBLOCK
pub const ERESTART_RESTARTBLOCK: i64 = 516;

/// Decides from a call's number and result how it was interrupted. Shared by the architectures,
/// which only know where number and result are kept.
pub fn interrupted(call: Call, result: i64, numbers: &Numbers) -> Interrupted {
    match -result {
        ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND => Interrupted::Again(call),
        ERESTART_RESTARTBLOCK => Interrupted::RestartBlock(call),
        // The program must not see it.
        error if error == i64::from(libc::EINTR) && numbers.never_restarted(&call) => {
            Interrupted::Again(call)
        }
        _ => Interrupted::No,
    }
}

/// The same where the kernel rewinds a call before its thread stops, as on ARM: from the registers of the stop, the address of
/// the instruction that made the call, and what the thread was seen doing before. Without a call in progress before the stop,
/// or where the thread has got on since, registers that go on by themselves are all that is needed.
#[cfg(any(target_arch = "aarch64", target_arch = "arm", test))]
fn rewound<A: Architecture>(
    registers: &A::Registers,
    mut call: Call,
    before: CallInProgress,
    entered: u64,
) -> Interrupted {
    let same = call.number == before.call.number
        && call.arguments[1..] == before.call.arguments[1..]
        && A::stack_pointer(registers) == before.stack_pointer;
    if !same {
        return Interrupted::No;
    }
    let at = A::program_counter(registers);
    if at == entered && call.arguments[0] == before.call.arguments[0] {
        return if A::NUMBERS.has_restart_block(&call) {
            Interrupted::RestartBlock(call)
        } else {
            Interrupted::Again(call)
        };
    }
    let refused = -A::result(registers) == i64::from(libc::EINTR);
    if at == before.program_counter && refused && A::NUMBERS.never_restarted(&call) {
        call.arguments[0] = before.call.arguments[0];
        return Interrupted::Again(call);
    }
    Interrupted::No
}

/// A word as a call of a 32-bit table returns it: the last page of numbers is errors, the rest may be addresses.
#[cfg(any(target_pointer_width = "32", test))]
pub fn narrow_answer(word: u64) -> i64 {
    let word = word as u32;
    if word > 0xffff_f000 { i64::from(word as i32) } else { i64::from(word) }
}

/// A processor architecture, as far as tracing goes.
pub trait Architecture {
    /// General registers, laid out as PTRACE_GETREGSET with NT_PRSTATUS gives them.
    type Registers: Copy + std::fmt::Debug;

    /// Name as Rust's `target_arch` has it.
    const NAME: &'static str;
    /// The table of system calls, as filters see it (linux/audit.h, AUDIT_ARCH_*).
    const AUDIT_ARCH: u32;
    /// Machine code of the instruction that enters the kernel.
    const ENTER_KERNEL: &'static [u8];
    /// Bytes at multiples of which instructions lie.
    const CODE_ALIGNMENT: usize = 1;
    /// Code that runs a table of prepared calls and ends in a breakpoint. The table's records are
    /// 64 bytes: number, six arguments, place for the result.
    const BATCH: &'static [u8];
    /// Note types (NT_*, elf.h) of the extended register sets to save, in the order in which they are
    /// set again.
    const EXTENDED_SETS: &'static [u32];
    /// Those of the extended register sets that a system call does not preserve.
    const LOST_BY_CALLS: &'static [u32] = &[];
    /// Whether [`Architecture::interrupted`] has to know the call in which a thread was seen before it
    /// was asked to stop.
    const WANTS_CALL_IN_PROGRESS: bool = false;
    /// Calls that wait.
    const NUMBERS: Numbers;
    /// The mapping in which [`Architecture::ENTER_KERNEL`] is looked for.
    const ENTRY_MAPPING: &'static str = "[vdso]";
    /// The register set that holds the thread pointer, and the call that sets it, where a tracer cannot.
    const SET_TLS: Option<(u32, i64)> = None;
    /// modify_ldt(2), where processes can have segments of their own.
    const MODIFY_LDT: Option<libc::c_long> = None;
    /// arch_prctl(2), where it knows what [`crate::sys::arch_prctl`] has.
    const ARCH_PRCTL: Option<libc::c_long> = None;
    /// Whether code that was written to memory has to be made known to the processor.
    const CODE_IS_CACHED: bool = false;

    /// What the processor offers without /proc/cpuinfo having a name for it, named like features.
    fn unnamed_features() -> Vec<String> {
        Vec::new()
    }
    /// Whether a feature of this machine is one that programs which begin here do not get.
    fn is_an_alternative(_feature: &str) -> bool {
        false
    }
    /// One past the highest address that a process of this machine can map.
    fn user_top() -> u64;

    /// Registers from the bytes of a register set.
    fn from_bytes(bytes: &[u8]) -> Option<Self::Registers>;
    /// The bytes of the register set.
    fn to_bytes(registers: &Self::Registers) -> Vec<u8>;

    /// The program counter.
    fn program_counter(registers: &Self::Registers) -> u64;
    /// Sets the program counter.
    fn set_program_counter(registers: &mut Self::Registers, address: u64);
    /// The stack pointer.
    fn stack_pointer(registers: &Self::Registers) -> u64;
    /// Sets the stack pointer.
    fn set_stack_pointer(registers: &mut Self::Registers, address: u64);

    /// Prepares one system call through the instruction at `at`. The result must not be taken for an
    /// interrupted call by the kernel.
    fn prepare_call(registers: &mut Self::Registers, at: u64, call: Call);
    /// Prepares a run of [`Architecture::BATCH`], which lies at `code`.
    fn prepare_batch(registers: &mut Self::Registers, code: u64, table: u64, count: u64);
    /// Last touch to a table for [`Architecture::BATCH`], which has at least one record.
    fn finish_table(_table: &mut [u8], _count: usize) {}
    /// The result of a system call that has returned: -errno on failure.
    fn result(registers: &Self::Registers) -> i64;
    /// A result that [`Architecture::BATCH`] has stored.
    fn stored_result(stored: u64) -> i64 {
        stored as i64
    }

    /// Adds to the registers of a stop what the thread was seen doing before. Only called where
    /// [`Architecture::WANTS_CALL_IN_PROGRESS`].
    fn remember(_registers: &mut Self::Registers, _before: CallInProgress) {}

    /// The call that a thread makes next, if the instruction at its program counter enters the kernel. Only asked where
    /// [`Architecture::WANTS_CALL_IN_PROGRESS`]: there a thread that had stopped by itself before it was looked at, in a
    /// group stop, tells no more of the call in which it did than this.
    fn about_to_make(_registers: &Self::Registers, _instruction: [u8; 4]) -> Option<Call> {
        None
    }

    /// Bytes of the instruction by which a thread with these registers enters the kernel.
    fn entry_length(_registers: &Self::Registers) -> u64 {
        Self::ENTER_KERNEL.len() as u64
    }

    /// How a stop has interrupted the thread.
    fn interrupted(registers: &Self::Registers) -> Interrupted;
    /// Registers that issue the interrupted call (again, or as another one) when the thread goes on.
    fn reissue(registers: &Self::Registers, call: Call) -> Self::Registers;
    /// Registers that go on after an interrupted call through restart_syscall(2).
    fn restart_block(registers: &Self::Registers) -> Self::Registers;
    /// Registers that let the kernel forget that a system call was in progress.
    fn settled(registers: &Self::Registers) -> Self::Registers;

    /// A call that the thread has just come out of, and its answer, where that is a number of bytes: known where the
    /// registers of a stop still have both.
    fn answered(_registers: &Self::Registers) -> Option<(Call, u64)> {
        None
    }
    /// poll(2), where [`Architecture::code_of_rest`] makes it.
    const POLL: Option<libc::c_long> = None;
    /// Code that makes poll(2), for which all registers are prepared, then `call`, adds `done` to its answer, or answers with
    /// that alone where either fails, and goes on where and with the registers that these would have gone on with. What
    /// poll has to say lies at `told`, 16 bits; with any of `given_up` the call is not made. `None`: not known for this
    /// architecture.
    fn code_of_rest(
        _registers: &Self::Registers,
        _done: u64,
        _call: &Call,
        (_told, _given_up): (u64, u16),
    ) -> Option<Vec<u8>> {
        None
    }

    /// Parts of the state that a process has to ask for (arch_prctl(2), ARCH_REQ_XCOMP_PERM), a bit each.
    const PARTS_TO_ASK_FOR: u64 = 0;
    /// Code that has a thread use such a part, and ends in a breakpoint, if it is in use in an extended register set: the
    /// kernel has no room for the part in a thread that has not.
    fn code_that_uses(_note: u32, _saved: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// Where this machine keeps the parts of extended register sets, if machines differ in that.
    fn layout() -> Vec<Part> {
        Vec::new()
    }
    /// Fits an extended register set, with its parts where they were on the machine that it was taken on, to this machine. `here`: what
    /// a thread has here.
    ///
    /// # Errors
    /// What this processor lacks and was in use.
    fn fit_set(
        _note: u32,
        saved: Vec<u8>,
        _parts: &[Part],
        _here: &[u8],
    ) -> Result<Vec<u8>, LackingFeature> {
        Ok(saved)
    }

    /// Whether system calls are made from within the vdso, whichever they are: a thread that is there could be about to make one
    /// that waits.
    const CALLS_IN_VDSO: bool = false;

    /// Code for the beginning of a function that goes on at another address, with all registers as they are but those
    /// that a call may change. `None`: not known for this architecture.
    fn jump(_target: u64) -> Option<Vec<u8>> {
        None
    }
    /// Code of a function that makes a system call of at most three arguments, its own, and returns the raw answer.
    fn calling(_number: libc::c_long) -> Option<Vec<u8>> {
        None
    }
    /// Code of a function that returns this number.
    fn answering(_number: i16) -> Option<Vec<u8>> {
        None
    }

    /// Whether an extended register set holds a state that has to be set again.
    fn worth_keeping(_note: u32, _bytes: &[u8]) -> bool {
        true
    }

    /// Whether an extended register set, one of [`Self::LOST_BY_CALLS`], holds what a system call would lose.
    fn would_be_lost(_note: u32, _bytes: &[u8]) -> bool {
        false
    }
}
