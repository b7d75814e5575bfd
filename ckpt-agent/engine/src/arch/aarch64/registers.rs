//! The general registers of 64-bit ARM.

use super::super::{Call, CallInProgress};

/// Words of struct user_pt_regs (arch/arm64/include/uapi/asm/ptrace.h): x0 to x30, sp, pc, pstate.
const WORDS: usize = 34;
const SIZE: usize = WORDS * size_of::<u64>();

/// General registers, and what is known of the system call in which they were caught.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    /// x0 to x30.
    pub x: [u64; 31],
    /// The stack pointer.
    pub sp: u64,
    /// The program counter.
    pub pc: u64,
    /// Flags and mode.
    pub pstate: u64,
    /// The call in which the thread was seen before it stopped. Not part of the register set.
    pub before: Option<CallInProgress>,
}

impl std::fmt::Debug for Registers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pc {:#x} sp {:#x} x0 {:#x} x8 {:#x}", self.pc, self.sp, self.x[0], self.x[8])
    }
}

impl Registers {
    /// Registers from a register set of exactly the right size; 32-bit threads have another one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != SIZE {
            return None;
        }
        let mut words = [0u64; WORDS];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(size_of::<u64>())) {
            *word = u64::from_ne_bytes(chunk.try_into().ok()?);
        }
        let [x @ .., sp, pc, pstate] = words;
        Some(Self { x, sp, pc, pstate, before: None })
    }

    /// The register set.
    pub fn to_bytes(self) -> Vec<u8> {
        let rest = [self.sp, self.pc, self.pstate];
        self.x.iter().chain(&rest).flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// What an `svc` with these registers asks for.
    pub fn call(&self) -> Call {
        let [a, b, c, d, e, f, _, _, number, ..] = self.x;
        Call { number: number as i64, arguments: [a, b, c, d, e, f] }
    }

    /// Sets what the next `svc` asks for.
    pub fn set_call(&mut self, call: Call) {
        self.x[..6].copy_from_slice(&call.arguments);
        self.x[8] = call.number as u64;
        self.before = None;
    }
}
