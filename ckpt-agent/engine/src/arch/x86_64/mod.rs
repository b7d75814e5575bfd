//! x86-64.

use super::{Architecture, Call, Interrupted, LackingFeature, Numbers, Part, interrupted, xstate};

/// The architecture of PCs.
#[derive(Debug, Clone, Copy)]
pub struct X86_64;

/// General registers (struct user_regs_struct, sys/user.h).
#[derive(Clone, Copy)]
pub struct Registers(libc::user_regs_struct);

impl std::fmt::Debug for Registers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rip {:#x} rsp {:#x} rax {:#x}", self.0.rip, self.0.rsp, self.0.rax)
    }
}

const SIZE: usize = size_of::<libc::user_regs_struct>();
/// orig_rax that says "not in a system call" (arch/x86/kernel/signal.c).
const NO_CALL: u64 = u64::MAX;
const ENTER_LENGTH: u64 = 2;
/// NT_X86_XSTATE
const XSTATE: u32 = 0x202;

/// Clears a tile of AMX, and gives up all of them.
const USE_TILES: [u8; 20 + 64] = {
    const CODE: [u8; 20] = [
        0xc4, 0xe2, 0x78, 0x49, 0x05, 11, 0, 0, 0, // ldtilecfg [rip+11]
        0xc4, 0xe2, 0x7b, 0x49, 0xc0, // tilezero tmm0
        0xc4, 0xe2, 0x78, 0x49, 0xc0, // tilerelease
        0xcc, // int3
    ];
    let mut all = [0; 20 + 64];
    let mut at = 0;
    while at < CODE.len() {
        all[at] = CODE[at];
        at += 1;
    }
    // The configuration: palette 1, and of the first tile 64 bytes in a row and 16 rows.
    all[20] = 1;
    all[20 + 16] = 64;
    all[20 + 48] = 16;
    all
};

impl Architecture for X86_64 {
    type Registers = Registers;

    const NAME: &'static str = "x86_64";
    /// EM_X86_64, 64 bits, little-endian.
    const AUDIT_ARCH: u32 = 0xc000_003e;
    const ENTER_KERNEL: &'static [u8] = &[0x0f, 0x05];
    // rbx: table, r12: count. The kernel clobbers only rax, rcx and r11.
    const BATCH: &'static [u8] = &[
        0x48, 0x8b, 0x03, // again: mov rax, [rbx]
        0x48, 0x8b, 0x7b, 0x08, // mov rdi, [rbx+8]
        0x48, 0x8b, 0x73, 0x10, // mov rsi, [rbx+16]
        0x48, 0x8b, 0x53, 0x18, // mov rdx, [rbx+24]
        0x4c, 0x8b, 0x53, 0x20, // mov r10, [rbx+32]
        0x4c, 0x8b, 0x43, 0x28, // mov r8, [rbx+40]
        0x4c, 0x8b, 0x4b, 0x30, // mov r9, [rbx+48]
        0x0f, 0x05, // syscall
        0x48, 0x89, 0x43, 0x38, // mov [rbx+56], rax
        0x48, 0x83, 0xc3, 0x40, // add rbx, 64
        0x49, 0xff, 0xcc, // dec r12
        0x75, 0xd6, // jnz again
        0xcc, // int3
    ];
    const EXTENDED_SETS: &'static [u32] = &[XSTATE];
    const NUMBERS: Numbers = Numbers {
        restart_syscall: 219,
        nanosleep: 35,
        clock_nanosleep: 230,
        futex: 202,
        poll: Some(7),
        ppoll: 271,
        epoll_wait: Some(232),
        epoll_pwait: 281,
        epoll_pwait2: 441,
        semop: Some(65),
        semtimedop: Some(220),
        ipc: None,
        rt_sigtimedwait: 128,
        io_getevents: 208,
        io_pgetevents: 333,
        of_sockets: &[0, 1, 19, 20, 42, 43, 44, 45, 46, 47, 288, 299, 307],
        wide: None,
    };

    const MODIFY_LDT: Option<libc::c_long> = Some(libc::SYS_modify_ldt);
    const ARCH_PRCTL: Option<libc::c_long> = Some(libc::SYS_arch_prctl);
    const PARTS_TO_ASK_FOR: u64 = 1 << xstate::TILES;

    fn user_top() -> u64 {
        0x7fff_ffff_f000
    }

    fn from_bytes(bytes: &[u8]) -> Option<Registers> {
        if bytes.len() != SIZE {
            return None;
        }
        // SAFETY: the structure is plain integers and the length was checked.
        Some(Registers(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) }))
    }

    fn to_bytes(registers: &Registers) -> Vec<u8> {
        // SAFETY: the structure is 27 integers of 64 bits without padding.
        unsafe { std::slice::from_raw_parts((&raw const registers.0).cast::<u8>(), SIZE) }.to_vec()
    }

    fn program_counter(registers: &Registers) -> u64 {
        registers.0.rip
    }

    fn set_program_counter(registers: &mut Registers, address: u64) {
        registers.0.rip = address;
    }

    fn stack_pointer(registers: &Registers) -> u64 {
        registers.0.rsp
    }

    fn set_stack_pointer(registers: &mut Registers, address: u64) {
        registers.0.rsp = address;
    }

    fn prepare_call(registers: &mut Registers, at: u64, call: Call) {
        let r = &mut registers.0;
        r.rip = at;
        r.rax = call.number as u64;
        r.orig_rax = NO_CALL;
        [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = call.arguments;
    }

    fn prepare_batch(registers: &mut Registers, code: u64, table: u64, count: u64) {
        let r = &mut registers.0;
        r.rip = code;
        r.rbx = table;
        r.r12 = count;
        r.orig_rax = NO_CALL;
    }

    fn result(registers: &Registers) -> i64 {
        registers.0.rax as i64
    }

    fn jump(target: u64) -> Option<Vec<u8>> {
        // jmp [rip+0], and what it reads.
        Some([&[0xff, 0x25, 0, 0, 0, 0], &target.to_le_bytes()[..]].concat())
    }

    fn calling(number: libc::c_long) -> Option<Vec<u8>> {
        // mov eax, number; syscall; ret
        let number = u32::try_from(number).ok()?;
        Some([&[0xb8], &number.to_le_bytes()[..], &[0x0f, 0x05, 0xc3]].concat())
    }

    fn answering(number: i16) -> Option<Vec<u8>> {
        // mov rax, number; ret
        Some([&[0x48, 0xc7, 0xc0], &i32::from(number).to_le_bytes()[..], &[0xc3]].concat())
    }

    fn answered(registers: &Registers) -> Option<(Call, u64)> {
        let r = &registers.0;
        let call =
            Call { number: r.orig_rax as i64, arguments: [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] };
        let done = r.rax as i64;
        (call.number >= 0 && done > 0).then_some((call, r.rax))
    }

    const POLL: Option<libc::c_long> = Some(libc::SYS_poll);

    fn code_of_rest(
        registers: &Registers,
        done: u64,
        call: &Call,
        (told, given_up): (u64, u16),
    ) -> Option<Vec<u8>> {
        let r = &registers.0;
        let done = i32::try_from(done).ok()?.to_le_bytes();
        let number = u32::try_from(call.number).ok()?.to_le_bytes();
        let load = |values: [u64; 6]| -> Vec<u8> {
            // mov rdi, rsi, rdx, r10, r8, r9
            let moves = [
                [0x48, 0xbf],
                [0x48, 0xbe],
                [0x48, 0xba],
                [0x49, 0xba],
                [0x49, 0xb8],
                [0x49, 0xb9],
            ];
            moves
                .iter()
                .zip(values)
                .flat_map(|(mov, value)| [&mov[..], &value.to_le_bytes()].concat())
                .collect()
        };
        // What is left of the call, up to where there is no answer.
        let made = [
            &[0xb8][..],
            &number, // mov eax, number
            &load(call.arguments),
            &[0x0f, 0x05],       // syscall
            &[0x48, 0x85, 0xc0], // test rax, rax
            &[0x79, 0x02],       // jns +2
        ]
        .concat();
        let looked = [
            &[0x48, 0xb8][..],
            &told.to_le_bytes(), // mov rax, told
            &[0x0f, 0xb7, 0x00], // movzx eax, word [rax]
            &[0xa9],
            &u32::from(given_up).to_le_bytes(), // test eax, given_up
            &[0x75, u8::try_from(made.len()).ok()?], // jnz behind it
        ]
        .concat();
        let behind = u8::try_from(looked.len() + made.len()).ok().filter(|far| *far < 0x80)?;
        // Flags are not kept: a call changes them, too (r11 has them), and nobody looks at them behind one.
        let code = [
            &[0x0f, 0x05][..], // syscall: poll
            &[0x85, 0xc0],     // test eax, eax
            &[0x7e, behind],   // jle behind it
            &looked,
            &made,
            &[0x31, 0xc0], // xor eax, eax
            &[0x48, 0x8d, 0x80],
            &done, // lea rax, [rax+done]
            &load([r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]),
            &[0x48, 0xb9],
            &r.rip.to_le_bytes(), // mov rcx, rip: as after a call, which leaves in rcx where it goes on
            &[0xff, 0xe1],        // jmp rcx
        ]
        .concat();
        Some(code)
    }

    fn code_that_uses(note: u32, saved: &[u8]) -> Option<Vec<u8>> {
        (note == XSTATE && xstate::has(saved, xstate::TILES)).then(|| USE_TILES.to_vec())
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
        if note == XSTATE { xstate::fit_here(saved, parts, here) } else { Ok(saved) }
    }

    fn interrupted(registers: &Registers) -> Interrupted {
        let r = &registers.0;
        if (r.orig_rax as i64) < 0 {
            return Interrupted::No;
        }
        let call =
            Call { number: r.orig_rax as i64, arguments: [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] };
        interrupted(call, r.rax as i64, &Self::NUMBERS)
    }

    fn reissue(registers: &Registers, call: Call) -> Registers {
        let mut r = registers.0;
        r.rax = call.number as u64;
        [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = call.arguments;
        r.rip -= ENTER_LENGTH;
        r.orig_rax = NO_CALL;
        Registers(r)
    }

    fn restart_block(registers: &Registers) -> Registers {
        let mut r = registers.0;
        r.rax = libc::SYS_restart_syscall as u64;
        r.rip -= ENTER_LENGTH;
        r.orig_rax = NO_CALL;
        Registers(r)
    }

    fn settled(registers: &Registers) -> Registers {
        let mut r = registers.0;
        r.orig_rax = NO_CALL;
        Registers(r)
    }
}
