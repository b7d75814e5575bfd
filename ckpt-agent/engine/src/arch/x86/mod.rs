//! 32-bit x86 (i686), on its own kernel or as a guest of x86-64's.
//!
//! Calls are made by `int 0x80`. A program that enters through the vdso (sysenter, syscall) comes back
//! behind the `int 0x80` that lies there (arch/x86/entry/vdso/vdso32/system_call.S), so that one which is to be
//! made again is made by that.

#[cfg(test)]
mod tests;

use super::{
    Architecture, Call, Interrupted, LackingFeature, Numbers, Part, WIDE, interrupted,
    narrow_answer, xstate,
};

/// The architecture of old PCs, and of old programs on new ones.
#[derive(Debug, Clone, Copy)]
pub struct X86;

/// Words of struct user_regs_struct (arch/x86/include/asm/user_32.h).
const WORDS: usize = 17;
/// orig_eax that says "not in a system call".
const NO_CALL: u32 = u32::MAX;
/// Bytes of `int 0x80`.
const ENTER_LENGTH: u32 = 2;
/// Where user space ends under a 64-bit kernel (arch/x86/include/asm/page_64_types.h, IA32_PAGE_OFFSET), and under a
/// 32-bit one as most are built.
const TOP_AS_GUEST: u64 = 0xffff_e000;
const TOP: u64 = 0xc000_0000;

// Register sets (include/uapi/linux/elf.h).
const NT_386_TLS: u32 = 0x200;
const NT_X86_XSTATE: u32 = 0x202;

/// General registers.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs, reason = "they have the processor's names")]
pub struct Registers {
    pub ebx: u32,
    pub ecx: u32,
    pub edx: u32,
    pub esi: u32,
    pub edi: u32,
    pub ebp: u32,
    pub eax: u32,
    pub ds: u32,
    pub es: u32,
    pub fs: u32,
    pub gs: u32,
    pub orig_eax: u32,
    pub eip: u32,
    pub cs: u32,
    pub eflags: u32,
    pub esp: u32,
    pub ss: u32,
}

impl std::fmt::Debug for Registers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "eip {:#x} esp {:#x} eax {:#x}", self.eip, self.esp, self.eax)
    }
}

impl Registers {
    fn arguments(&self) -> [u64; 6] {
        [self.ebx, self.ecx, self.edx, self.esi, self.edi, self.ebp].map(u64::from)
    }

    /// Sets number and arguments of the next call.
    fn set_call(&mut self, call: Call) {
        self.eax = call.number as u32;
        [self.ebx, self.ecx, self.edx, self.esi, self.edi, self.ebp] =
            call.arguments.map(|argument| argument as u32);
        self.orig_eax = NO_CALL;
    }
}

impl Architecture for X86 {
    type Registers = Registers;

    const NAME: &'static str = "x86";
    /// EM_386, little-endian.
    const AUDIT_ARCH: u32 = 0x4000_0003;
    // The end of __kernel_vsyscall: int 0x80; pop ebp; pop edx; pop ecx; ret.
    const ENTER_KERNEL: &'static [u8] = &[0xcd, 0x80, 0x5d, 0x5a, 0x59, 0xc3];
    // __kernel_vsyscall is there.
    const CALLS_IN_VDSO: bool = true;
    // A call takes all registers but esp, which points to the table. The count travels in the upper half of
    // the numbers; the kernel gives back all but eax.
    const BATCH: &'static [u8] = &[
        0x8b, 0x04, 0x24, // again: mov eax, [esp]
        0x8b, 0x5c, 0x24, 0x08, // mov ebx, [esp+8]
        0x8b, 0x4c, 0x24, 0x10, // mov ecx, [esp+16]
        0x8b, 0x54, 0x24, 0x18, // mov edx, [esp+24]
        0x8b, 0x74, 0x24, 0x20, // mov esi, [esp+32]
        0x8b, 0x7c, 0x24, 0x28, // mov edi, [esp+40]
        0x8b, 0x6c, 0x24, 0x30, // mov ebp, [esp+48]
        0xcd, 0x80, // int 0x80
        0x89, 0x44, 0x24, 0x38, // mov [esp+56], eax
        0x8b, 0x4c, 0x24, 0x04, // mov ecx, [esp+4]
        0x83, 0xc4, 0x40, // add esp, 64
        0x49, // dec ecx
        0x74, 0x06, // jz done
        0x89, 0x4c, 0x24, 0x04, // mov [esp+4], ecx
        0xeb, 0xcf, // jmp again
        0xcc, // done: int3
    ];
    /// The thread pointer is a segment of the TLS set, which must be there before the register that selects it.
    const EXTENDED_SETS: &'static [u32] = &[NT_386_TLS, NT_X86_XSTATE];
    // arch/x86/entry/syscalls/syscall_32.tbl
    const NUMBERS: Numbers = Numbers {
        restart_syscall: 0,
        nanosleep: 162,
        clock_nanosleep: 267,
        futex: 240,
        poll: Some(168),
        ppoll: 309,
        epoll_wait: Some(256),
        epoll_pwait: 319,
        epoll_pwait2: 441,
        semop: None,
        semtimedop: None,
        ipc: Some(117),
        rt_sigtimedwait: 177,
        io_getevents: 247,
        io_pgetevents: 385,
        of_sockets: &[3, 4, 145, 146, 102, 337, 345, 362, 364, 369, 370, 371, 372, 417],
        wide: Some(WIDE),
    };

    /// modify_ldt(2), by its number (arch/x86/entry/syscalls/syscall_32.tbl): tests of other processors build this, too.
    const MODIFY_LDT: Option<libc::c_long> = Some(123);

    fn user_top() -> u64 {
        // SAFETY: getauxval only reads what the kernel has put above this process's first stack frame.
        let stack = unsafe { libc::getauxval(libc::AT_RANDOM) } as u64;
        top_above(stack)
    }

    fn from_bytes(bytes: &[u8]) -> Option<Registers> {
        if bytes.len() != WORDS * size_of::<u32>() {
            return None;
        }
        let mut words = [0u32; WORDS];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(size_of::<u32>())) {
            *word = u32::from_ne_bytes(chunk.try_into().ok()?);
        }
        let [ebx, ecx, edx, esi, edi, ebp, eax, ds, es, fs, gs, orig_eax, eip, cs, eflags, esp, ss] =
            words;
        Some(Registers {
            ebx,
            ecx,
            edx,
            esi,
            edi,
            ebp,
            eax,
            ds,
            es,
            fs,
            gs,
            orig_eax,
            eip,
            cs,
            eflags,
            esp,
            ss,
        })
    }

    fn to_bytes(registers: &Registers) -> Vec<u8> {
        let r = registers;
        [
            r.ebx, r.ecx, r.edx, r.esi, r.edi, r.ebp, r.eax, r.ds, r.es, r.fs, r.gs, r.orig_eax,
            r.eip, r.cs, r.eflags, r.esp, r.ss,
        ]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect()
    }

    fn program_counter(registers: &Registers) -> u64 {
        registers.eip.into()
    }

    fn set_program_counter(registers: &mut Registers, address: u64) {
        registers.eip = address as u32;
    }

    fn stack_pointer(registers: &Registers) -> u64 {
        registers.esp.into()
    }

    fn set_stack_pointer(registers: &mut Registers, address: u64) {
        registers.esp = address as u32;
    }

    fn prepare_call(registers: &mut Registers, at: u64, call: Call) {
        registers.eip = at as u32;
        registers.set_call(call);
    }

    fn prepare_batch(registers: &mut Registers, code: u64, table: u64, _count: u64) {
        registers.eip = code as u32;
        registers.esp = table as u32;
        registers.orig_eax = NO_CALL;
    }

    fn finish_table(table: &mut [u8], count: usize) {
        if let Some(upper_half) = table.get_mut(4..8) {
            upper_half.copy_from_slice(&(count as u32).to_ne_bytes());
        }
    }

    fn result(registers: &Registers) -> i64 {
        narrow_answer(registers.eax.into())
    }

    fn stored_result(stored: u64) -> i64 {
        narrow_answer(stored)
    }

    fn layout() -> Vec<Part> {
        xstate::layout()
    }

    fn fit_set(
        note: u32,
        saved: Vec<u8>,
        parts: &[Part],
        here: &[u8],
    ) -> Result<Vec<u8>, LackingFeature> {
        if note == NT_X86_XSTATE { xstate::fit_here(saved, parts, here) } else { Ok(saved) }
    }

    fn interrupted(registers: &Registers) -> Interrupted {
        if (registers.orig_eax as i32) < 0 {
            return Interrupted::No;
        }
        let call = Call { number: registers.orig_eax.into(), arguments: registers.arguments() };
        interrupted(call, (registers.eax as i32).into(), &Self::NUMBERS)
    }

    fn reissue(registers: &Registers, call: Call) -> Registers {
        let mut again = *registers;
        again.set_call(call);
        again.eip = again.eip.wrapping_sub(ENTER_LENGTH);
        again
    }

    fn restart_block(registers: &Registers) -> Registers {
        let call = Call { number: Self::NUMBERS.restart_syscall, arguments: registers.arguments() };
        Self::reissue(registers, call)
    }

    fn settled(registers: &Registers) -> Registers {
        Registers { orig_eax: NO_CALL, ..*registers }
    }
}

/// One past the highest address that a process can map, from an address on the stack.
fn top_above(stack: u64) -> u64 {
    if stack < TOP { TOP } else { TOP_AS_GUEST }
}
