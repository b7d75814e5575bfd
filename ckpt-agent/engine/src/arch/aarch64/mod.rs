//! 64-bit ARM.
//!
//! What differs from other processors is how an interrupted system call looks to a tracer
//! (arch/arm64/kernel/signal.c, do_signal): when a thread stops, the kernel has already put the
//! first argument back into x0 and moved the program counter to the `svc` again, and NT_ARM_SYSTEM_CALL
//! says "none". A thread that stopped in a call therefore looks like one that is about to make it,
//! and goes on in the right way by itself. Two things are lost: whether the call would have gone on
//! through restart_syscall(2), and the first argument of a call that answers a stop with EINTR. Both
//! come from what /proc/TID/syscall told before the stop.

mod registers;
mod sizes;
#[cfg(test)]
mod tests;

use super::{Architecture, Call, CallInProgress, Interrupted, Numbers, rewound};
pub use registers::Registers;

/// The architecture of phones and many servers.
#[derive(Debug, Clone, Copy)]
pub struct Aarch64;

/// Bytes of every instruction.
const INSTRUCTION: u64 = 4;
/// PSTATE.BTYPE: what kind of indirect branch came last. With anything but 0 the next instruction in
/// a guarded page has to be a landing pad, and ours is none.
const BTYPE: u64 = 0b11 << 10;
/// struct user_sve_header (arch/arm64/include/uapi/asm/ptrace.h), all that there is of a vector mode
/// that is not in use.
const VECTOR_HEADER: usize = 16;
/// Where the flags are in it, and which of them says that registers of the mode follow (SVE_PT_REGS_SVE).
const VECTOR_FLAGS: usize = 12;
const IN_USE: u8 = 1;

// Register sets (include/uapi/linux/elf.h).
const NT_PRFPREG: u32 = 2;
const NT_ARM_TLS: u32 = 0x401;
const NT_ARM_SVE: u32 = 0x405;
const NT_ARM_PACA_KEYS: u32 = 0x407;
const NT_ARM_PACG_KEYS: u32 = 0x408;
const NT_ARM_TAGGED_ADDR_CTRL: u32 = 0x409;
const NT_ARM_PAC_ENABLED_KEYS: u32 = 0x40a;
const NT_ARM_SSVE: u32 = 0x40b;
const NT_ARM_ZA: u32 = 0x40c;
const NT_ARM_ZT: u32 = 0x40d;
const NT_ARM_FPMR: u32 = 0x40e;

impl Architecture for Aarch64 {
    type Registers = Registers;

    const NAME: &'static str = "aarch64";
    /// EM_AARCH64, 64 bits, little-endian.
    const AUDIT_ARCH: u32 = 0xc000_00b7;
    const ENTER_KERNEL: &'static [u8] = &0xd400_0001u32.to_le_bytes();
    const CODE_ALIGNMENT: usize = INSTRUCTION as usize;
    // x19: table, x20: count. The kernel clobbers only x0.
    const BATCH: &'static [u8] = &[
        0x68, 0x02, 0x40, 0xf9, // again: ldr x8, [x19]
        0x60, 0x86, 0x40, 0xa9, // ldp x0, x1, [x19, #8]
        0x62, 0x8e, 0x41, 0xa9, // ldp x2, x3, [x19, #24]
        0x64, 0x96, 0x42, 0xa9, // ldp x4, x5, [x19, #40]
        0x01, 0x00, 0x00, 0xd4, // svc #0
        0x60, 0x1e, 0x00, 0xf9, // str x0, [x19, #56]
        0x73, 0x02, 0x01, 0x91, // add x19, x19, #64
        0x94, 0x06, 0x00, 0xf1, // subs x20, x20, #1
        0x01, 0xff, 0xff, 0x54, // b.ne again
        0x00, 0x00, 0x20, 0xd4, // brk #0
    ];
    // The vector registers overlap: what is wider, and what belongs to the mode in use, comes later and
    // prevails. ZT exists only while ZA does.
    const EXTENDED_SETS: &'static [u32] = &[
        NT_PRFPREG,
        NT_ARM_TLS,
        NT_ARM_SVE,
        NT_ARM_SSVE,
        NT_ARM_ZA,
        NT_ARM_ZT,
        NT_ARM_FPMR,
        NT_ARM_PACA_KEYS,
        NT_ARM_PACG_KEYS,
        NT_ARM_PAC_ENABLED_KEYS,
        NT_ARM_TAGGED_ADDR_CTRL,
    ];
    // Documentation/arch/arm64/sve.rst and sme.rst, "System call behaviour": the vectors beyond 128 bits and the predicates
    // of a thread that enters the kernel by a call are unspecified, and streaming mode is left. ZA and ZT are preserved.
    const LOST_BY_CALLS: &'static [u32] = &[NT_ARM_SVE, NT_ARM_SSVE];
    const WANTS_CALL_IN_PROGRESS: bool = true;
    // include/uapi/asm-generic/unistd.h
    const NUMBERS: Numbers = Numbers {
        restart_syscall: 128,
        nanosleep: 101,
        clock_nanosleep: 115,
        futex: 98,
        poll: None,
        ppoll: 73,
        epoll_wait: None,
        epoll_pwait: 22,
        epoll_pwait2: 441,
        semop: Some(193),
        semtimedop: Some(192),
        ipc: None,
        rt_sigtimedwait: 137,
        io_getevents: 4,
        io_pgetevents: 292,
        of_sockets: &[63, 64, 65, 66, 202, 203, 206, 207, 211, 212, 242, 243, 269],
        wide: None,
    };
    const CODE_IS_CACHED: bool = true;

    fn unnamed_features() -> Vec<String> {
        sizes::offered()
    }

    fn is_an_alternative(feature: &str) -> bool {
        sizes::is_an_alternative(feature)
    }

    fn user_top() -> u64 {
        top_above(stack_address())
    }

    fn from_bytes(bytes: &[u8]) -> Option<Registers> {
        Registers::from_bytes(bytes)
    }

    fn to_bytes(registers: &Registers) -> Vec<u8> {
        registers.to_bytes()
    }

    fn program_counter(registers: &Registers) -> u64 {
        registers.pc
    }

    fn set_program_counter(registers: &mut Registers, address: u64) {
        registers.pc = address;
        registers.pstate &= !BTYPE;
    }

    fn stack_pointer(registers: &Registers) -> u64 {
        registers.sp
    }

    fn set_stack_pointer(registers: &mut Registers, address: u64) {
        registers.sp = address;
    }

    fn prepare_call(registers: &mut Registers, at: u64, call: Call) {
        Self::set_program_counter(registers, at);
        registers.set_call(call);
    }

    fn prepare_batch(registers: &mut Registers, code: u64, table: u64, count: u64) {
        Self::set_program_counter(registers, code);
        registers.x[19] = table;
        registers.x[20] = count;
        registers.before = None;
    }

    fn result(registers: &Registers) -> i64 {
        registers.x[0] as i64
    }

    fn remember(registers: &mut Registers, before: CallInProgress) {
        registers.before = Some(before);
    }

    fn about_to_make(registers: &Registers, instruction: [u8; 4]) -> Option<Call> {
        (instruction.as_slice() == Self::ENTER_KERNEL).then(|| registers.call())
    }

    fn interrupted(registers: &Registers) -> Interrupted {
        let Some(before) = registers.before else { return Interrupted::No };
        let entered = before.program_counter.wrapping_sub(INSTRUCTION);
        rewound::<Self>(registers, registers.call(), before, entered)
    }

    fn reissue(registers: &Registers, call: Call) -> Registers {
        let mut again = *registers;
        if let Some(before) = registers.before {
            // Whether the kernel has moved it there already or not.
            Self::set_program_counter(&mut again, before.program_counter.wrapping_sub(INSTRUCTION));
        }
        again.set_call(call);
        again
    }

    fn restart_block(registers: &Registers) -> Registers {
        Self::reissue(registers, Call { number: Self::NUMBERS.restart_syscall, ..registers.call() })
    }

    fn settled(registers: &Registers) -> Registers {
        Registers { before: None, ..*registers }
    }

    fn jump(target: u64) -> Option<Vec<u8>> {
        // ldr x16, 8 bytes on; br x16, which may land where calls may; what was loaded.
        Some([code(&[0x5800_0050, 0xd61f_0200]), target.to_le_bytes().to_vec()].concat())
    }

    fn calling(number: libc::c_long) -> Option<Vec<u8>> {
        // mov x8, number; svc #0; ret
        let number = u32::from(u16::try_from(number).ok()?);
        Some(code(&[0xd280_0008 | number << 5, 0xd400_0001, 0xd65f_03c0]))
    }

    fn answering(number: i16) -> Option<Vec<u8>> {
        // mov x0, number (movn where it is negative); ret
        let (set, value) = if number < 0 { (0x9280_0000, !number) } else { (0xd280_0000, number) };
        Some(code(&[set | u32::from(value.unsigned_abs()) << 5, 0xd65f_03c0]))
    }

    /// A vector mode that is not in use reads as a bare header, and writing that would switch to it.
    fn worth_keeping(note: u32, bytes: &[u8]) -> bool {
        !matches!(note, NT_ARM_SVE | NT_ARM_SSVE | NT_ARM_ZA) || bytes.len() > VECTOR_HEADER
    }

    fn would_be_lost(note: u32, bytes: &[u8]) -> bool {
        Self::worth_keeping(note, bytes)
            && bytes.get(VECTOR_FLAGS).is_some_and(|flags| flags & IN_USE != 0)
    }
}

/// Instructions as they lie in memory.
fn code(instructions: &[u32]) -> Vec<u8> {
    instructions.iter().flat_map(|instruction| instruction.to_le_bytes()).collect()
}

/// One past the highest address that a process can map, from an address on the stack, which lies
/// within 16 GiB of it (arch/arm64/include/asm/elf.h, STACK_RND_MASK). Kernels are built for 36, 39,
/// 42, 47 or 48 bits; where there are 52, mappings above the 48th are made on demand only.
fn top_above(stack: u64) -> u64 {
    const WIDTHS: [u32; 5] = [36, 39, 42, 47, 48];
    WIDTHS.iter().map(|bits| 1 << bits).find(|top| stack < *top).unwrap_or(1 << 48)
}

fn stack_address() -> u64 {
    // SAFETY: getauxval only reads what the kernel has put above this process's first stack frame.
    unsafe { libc::getauxval(libc::AT_RANDOM) }
}
