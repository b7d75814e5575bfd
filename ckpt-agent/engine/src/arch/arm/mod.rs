//! 32-bit ARM (armv7, EABI, hard float), as a guest of a 64-bit kernel.
//!
//! An interrupted system call looks to a tracer as on 64-bit ARM (see there): the kernel has put the first argument
//! back and moved the program counter to the `svc` again before the thread stops. Programs are in one of two
//! instruction sets, which a bit of CPSR tells.
//!
//! Injected calls enter the kernel through the page of signal trampolines, which is there with every kernel; the vdso is
//! not. The immediate value of that `svc` means nothing to the EABI.

#[cfg(test)]
mod tests;

use super::{
    Architecture, Call, CallInProgress, Interrupted, Numbers, WIDE, narrow_answer, rewound,
};

/// The architecture of phones of before, and of small computers.
#[derive(Debug, Clone, Copy)]
pub struct Arm;

/// Words of struct pt_regs (arch/arm/include/uapi/asm/ptrace.h): r0 to r15, cpsr, orig_r0.
const WORDS: usize = 18;
const SP: usize = 13;
const PC: usize = 15;
const CPSR: usize = 16;
const ORIGINAL_R0: usize = 17;

/// CPSR.T: the Thumb instruction set.
const THUMB: u32 = 1 << 5;
/// CPSR.IT: conditions of the next instructions of a Thumb block.
const IF_THEN: u32 = 0x0600_fc00;
/// Where the kernel keeps its helpers for user space, which cannot be unmapped.
const VECTORS: u64 = 0xffff_0000;

// Register sets (include/uapi/linux/elf.h).
const NT_ARM_VFP: u32 = 0x400;
const NT_ARM_TLS: u32 = 0x401;
/// __ARM_NR_set_tls
const SET_TLS: i64 = 0x000f_0005;

/// General registers, and what is known of the system call in which they were caught.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    words: [u32; WORDS],
    /// The call in which the thread was seen before it stopped. Not part of the register set.
    before: Option<CallInProgress>,
}

impl std::fmt::Debug for Registers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let w = &self.words;
        write!(
            f,
            "pc {:#x} sp {:#x} r0 {:#x} r7 {:#x} cpsr {:#x}",
            w[PC], w[SP], w[0], w[7], w[CPSR]
        )
    }
}

impl Registers {
    fn call(&self) -> Call {
        let [a, b, c, d, e, f, _, number, ..] = self.words;
        Call { number: number.into(), arguments: [a, b, c, d, e, f].map(u64::from) }
    }

    fn set_call(&mut self, call: Call) {
        for (register, argument) in self.words.iter_mut().zip(call.arguments) {
            *register = argument as u32;
        }
        self.words[7] = call.number as u32;
        self.words[ORIGINAL_R0] = self.words[0];
        self.before = None;
    }

    /// Bytes of the `svc` that the thread has made.
    fn instruction(&self) -> u64 {
        if self.words[CPSR] & THUMB == 0 { 4 } else { 2 }
    }

    fn run_arm_code(&mut self, address: u64) {
        self.words[PC] = address as u32;
        self.words[CPSR] &= !(THUMB | IF_THEN);
    }
}

impl Architecture for Arm {
    type Registers = Registers;

    const NAME: &'static str = "arm";
    /// EM_ARM, little-endian.
    const AUDIT_ARCH: u32 = 0x4000_0028;
    // arch/arm64/kernel/signal32.c and vdso.c: mov r7, #119; svc #119. What is wanted is the second.
    const ENTER_KERNEL: &'static [u8] = &0xef00_0077u32.to_le_bytes();
    const ENTRY_MAPPING: &'static str = "[sigpage]";
    const CODE_ALIGNMENT: usize = 4;
    // r8: table, r9: count. The kernel clobbers only r0.
    const BATCH: &'static [u8] = &[
        0x00, 0x70, 0x98, 0xe5, // again: ldr r7, [r8]
        0x08, 0x00, 0x98, 0xe5, // ldr r0, [r8, #8]
        0x10, 0x10, 0x98, 0xe5, // ldr r1, [r8, #16]
        0x18, 0x20, 0x98, 0xe5, // ldr r2, [r8, #24]
        0x20, 0x30, 0x98, 0xe5, // ldr r3, [r8, #32]
        0x28, 0x40, 0x98, 0xe5, // ldr r4, [r8, #40]
        0x30, 0x50, 0x98, 0xe5, // ldr r5, [r8, #48]
        0x00, 0x00, 0x00, 0xef, // svc #0
        0x38, 0x00, 0x88, 0xe5, // str r0, [r8, #56]
        0x40, 0x80, 0x88, 0xe2, // add r8, r8, #64
        0x01, 0x90, 0x59, 0xe2, // subs r9, r9, #1
        0xf3, 0xff, 0xff, 0x1a, // bne again
        0xf0, 0x01, 0xf0, 0xe7, // udf #16: the kernel's breakpoint
    ];
    const EXTENDED_SETS: &'static [u32] = &[NT_ARM_VFP, NT_ARM_TLS];
    const WANTS_CALL_IN_PROGRESS: bool = true;
    // arch/arm/tools/syscall.tbl
    const NUMBERS: Numbers = Numbers {
        restart_syscall: 0,
        nanosleep: 162,
        clock_nanosleep: 265,
        futex: 240,
        poll: Some(168),
        ppoll: 336,
        epoll_wait: Some(252),
        epoll_pwait: 346,
        epoll_pwait2: 441,
        semop: Some(298),
        semtimedop: Some(312),
        ipc: None,
        rt_sigtimedwait: 177,
        io_getevents: 245,
        io_pgetevents: 399,
        of_sockets: &[3, 4, 145, 146, 283, 285, 290, 292, 296, 297, 365, 366, 374, 417],
        wide: Some(WIDE),
    };
    const SET_TLS: Option<(u32, i64)> = Some((NT_ARM_TLS, SET_TLS));
    const CODE_IS_CACHED: bool = true;

    fn user_top() -> u64 {
        VECTORS
    }

    fn from_bytes(bytes: &[u8]) -> Option<Registers> {
        if bytes.len() != WORDS * size_of::<u32>() {
            return None;
        }
        let mut words = [0u32; WORDS];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(size_of::<u32>())) {
            *word = u32::from_ne_bytes(chunk.try_into().ok()?);
        }
        Some(Registers { words, before: None })
    }

    fn to_bytes(registers: &Registers) -> Vec<u8> {
        registers.words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn program_counter(registers: &Registers) -> u64 {
        registers.words[PC].into()
    }

    fn set_program_counter(registers: &mut Registers, address: u64) {
        registers.words[PC] = address as u32 & !1;
        registers.words[CPSR] &= !IF_THEN;
    }

    fn stack_pointer(registers: &Registers) -> u64 {
        registers.words[SP].into()
    }

    fn set_stack_pointer(registers: &mut Registers, address: u64) {
        registers.words[SP] = address as u32;
    }

    fn prepare_call(registers: &mut Registers, at: u64, call: Call) {
        registers.run_arm_code(at);
        registers.set_call(call);
    }

    fn prepare_batch(registers: &mut Registers, code: u64, table: u64, count: u64) {
        registers.run_arm_code(code);
        registers.words[8] = table as u32;
        registers.words[9] = count as u32;
        registers.before = None;
    }

    fn result(registers: &Registers) -> i64 {
        narrow_answer(registers.words[0].into())
    }

    fn stored_result(stored: u64) -> i64 {
        narrow_answer(stored)
    }

    fn remember(registers: &mut Registers, before: CallInProgress) {
        registers.before = Some(before);
    }

    fn about_to_make(registers: &Registers, instruction: [u8; 4]) -> Option<Call> {
        let [low, high, _, condition] = instruction;
        let is_one = match registers.words[CPSR] & THUMB {
            0 => condition == 0xef,
            // Of two bytes; the lower one is the immediate value.
            _ => high == 0xdf && low == 0,
        };
        is_one.then(|| registers.call())
    }

    fn entry_length(registers: &Registers) -> u64 {
        registers.instruction()
    }

    fn interrupted(registers: &Registers) -> Interrupted {
        let Some(before) = registers.before else { return Interrupted::No };
        let entered = before.program_counter.wrapping_sub(registers.instruction());
        rewound::<Self>(registers, registers.call(), before, entered)
    }

    fn reissue(registers: &Registers, call: Call) -> Registers {
        let mut again = *registers;
        if let Some(before) = registers.before {
            // Whether the kernel has moved it there already or not.
            let entered = before.program_counter.wrapping_sub(registers.instruction());
            Self::set_program_counter(&mut again, entered);
        }
        again.set_call(call);
        again
    }

    fn restart_block(registers: &Registers) -> Registers {
        let number = Self::NUMBERS.restart_syscall;
        Self::reissue(registers, Call { number, ..registers.call() })
    }

    fn settled(registers: &Registers) -> Registers {
        Registers { before: None, ..*registers }
    }
}
