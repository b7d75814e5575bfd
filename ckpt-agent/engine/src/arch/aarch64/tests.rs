//! What is pure in this architecture, on any machine.

use super::*;

const SVC: u64 = 0xffff_a000_1000;
const STACK: u64 = 0xffff_f000;

/// A thread seen in a call, as it stands before its stop.
fn sleeping(number: i64, arguments: [u64; 6]) -> (Registers, CallInProgress) {
    let before = CallInProgress {
        call: Call { number, arguments },
        stack_pointer: STACK,
        program_counter: SVC + INSTRUCTION,
    };
    let words: Vec<u8> = (0..34u64).flat_map(|word| (word << 32).to_ne_bytes()).collect();
    let mut registers = Registers::from_bytes(&words).unwrap();
    registers.set_call(before.call);
    registers.sp = STACK;
    registers.pc = SVC + INSTRUCTION;
    Aarch64::remember(&mut registers, before);
    (registers, before)
}

/// As do_signal leaves it after -ERESTART*.
fn rewound(number: i64, arguments: [u64; 6]) -> Registers {
    let (mut registers, _) = sleeping(number, arguments);
    registers.pc = SVC;
    registers
}

/// As a call that answers with EINTR leaves it: the first argument is gone.
fn refused(number: i64, arguments: [u64; 6]) -> Registers {
    let (mut registers, _) = sleeping(number, arguments);
    registers.x[0] = -i64::from(libc::EINTR) as u64;
    registers
}

#[test]
fn a_register_set_survives_the_way_through_the_image() {
    let bytes: Vec<u8> = (0..34u64).flat_map(|word| (word * 0x0101_0101).to_ne_bytes()).collect();
    let registers = Aarch64::from_bytes(&bytes).unwrap();
    assert_eq!(registers.x[30], 30 * 0x0101_0101);
    assert_eq!(Aarch64::stack_pointer(&registers), 31 * 0x0101_0101);
    assert_eq!(Aarch64::program_counter(&registers), 32 * 0x0101_0101);
    assert_eq!(registers.pstate, 33 * 0x0101_0101);
    assert_eq!(Aarch64::to_bytes(&registers), bytes);
}

#[test]
fn another_size_is_no_register_set() {
    // A 32-bit thread has 18 words of 32 bits.
    for size in [0, 72, 264, 271, 273, 280] {
        assert_eq!(Aarch64::from_bytes(&vec![0; size]), None, "{size}");
    }
}

#[test]
fn what_was_seen_before_is_not_in_the_image() {
    let registers = rewound(63, [3, 4, 5, 0, 0, 0]);
    let again = Aarch64::from_bytes(&Aarch64::to_bytes(&registers)).unwrap();
    assert_eq!(again, Aarch64::settled(&registers));
    assert_eq!(again.before, None);
}

#[test]
fn a_call_is_prepared() {
    let (mut registers, _) = sleeping(Aarch64::NUMBERS.nanosleep, [1; 6]);
    registers.pstate = 0x6000_0c00;
    let call = Call { number: 222, arguments: [1, 2, 3, 4, 5, 6] };
    Aarch64::prepare_call(&mut registers, 0x7000, call);
    assert_eq!(registers.call(), call);
    assert_eq!(registers.pc, 0x7000);
    assert_eq!(registers.pstate, 0x6000_0000, "no landing pad is asked for");
    assert_eq!(Aarch64::interrupted(&registers), Interrupted::No);
}

#[test]
fn a_rewound_call_is_issued_again_as_it_stands() {
    let registers = rewound(63, [3, 4, 5, 0, 0, 0]);
    let call = Call { number: 63, arguments: [3, 4, 5, 0, 0, 0] };
    assert_eq!(Aarch64::interrupted(&registers), Interrupted::Again(call));
    assert_eq!(Aarch64::reissue(&registers, call), Aarch64::settled(&registers));
}

#[test]
fn a_refused_call_gets_its_first_argument_back() {
    // libc's number, since that is what the list of such calls has.
    let number = Aarch64::NUMBERS.epoll_pwait;
    let arguments = [7, 8, 9, u64::MAX, 0, 8];
    let registers = refused(number, arguments);
    let call = Call { number, arguments };
    assert_eq!(Aarch64::interrupted(&registers), Interrupted::Again(call));
    let again = Aarch64::reissue(&registers, call);
    assert_eq!((again.pc, again.call()), (SVC, call));
    assert_eq!(Aarch64::interrupted(&again), Interrupted::No, "nothing is owed any more");
    // openat(2) answers with EINTR for a real signal alone.
    assert_eq!(Aarch64::interrupted(&refused(56, arguments)), Interrupted::No);
}

#[test]
fn a_thread_that_has_got_on_is_not_interrupted() {
    let arguments = [3, 4, 5, 0, 0, 0];
    let stale: [fn(&mut Registers); 5] = [
        |registers| registers.sp -= 16,
        |registers| registers.pc += INSTRUCTION,
        |registers| registers.x[1] += 1,
        |registers| registers.x[0] += 1,
        |registers| registers.x[8] += 1,
    ];
    for change in stale {
        let mut registers = rewound(63, arguments);
        change(&mut registers);
        assert_eq!(Aarch64::interrupted(&registers), Interrupted::No, "{registers:?}");
        assert_eq!(Aarch64::program_counter(&Aarch64::settled(&registers)), registers.pc);
    }
    let (mut done, _) = sleeping(63, arguments);
    done.x[0] = 5;
    assert_eq!(Aarch64::interrupted(&done), Interrupted::No);
    let unseen = Registers { before: None, ..rewound(Aarch64::NUMBERS.nanosleep, arguments) };
    assert_eq!(Aarch64::interrupted(&unseen), Interrupted::No);
}

#[test]
fn sleeps_go_on_through_the_restart_block() {
    let numbers = Aarch64::NUMBERS;
    let wait = libc::FUTEX_WAIT as u64;
    let bitset =
        (libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u64;
    let lock = libc::FUTEX_LOCK_PI as u64;
    let absolute = libc::TIMER_ABSTIME as u64;
    let cases = [
        (numbers.nanosleep, [1, 2, 0, 0, 0, 0], true),
        (numbers.clock_nanosleep, [1, 0, 3, 4, 0, 0], true),
        (numbers.clock_nanosleep, [1, absolute, 3, 4, 0, 0], false),
        (numbers.futex, [1, wait, 0, 4, 0, 0], true),
        (numbers.futex, [1, bitset, 0, 4, 0, 0], true),
        (numbers.futex, [1, wait, 0, 0, 0, 0], false),
        (numbers.futex, [1, lock, 0, 4, 0, 0], false),
        (numbers.restart_syscall, [1, 2, 0, 0, 0, 0], true),
        (63, [1, 2, 3, 4, 0, 0], false),
    ];
    for (number, arguments, through_block) in cases {
        let registers = rewound(number, arguments);
        let call = Call { number, arguments };
        let expected =
            if through_block { Interrupted::RestartBlock(call) } else { Interrupted::Again(call) };
        assert_eq!(Aarch64::interrupted(&registers), expected);
    }
    let registers = rewound(Aarch64::NUMBERS.nanosleep, [1, 2, 0, 0, 0, 0]);
    let on = Aarch64::restart_block(&registers);
    assert_eq!((on.pc, on.x[8], on.x[0]), (SVC, 128, 1));
}

#[test]
fn a_vector_mode_not_in_use_is_left_out() {
    for note in [NT_ARM_SVE, NT_ARM_SSVE, NT_ARM_ZA] {
        assert!(!Aarch64::worth_keeping(note, &[0; VECTOR_HEADER]));
        assert!(Aarch64::worth_keeping(note, &[0; VECTOR_HEADER + 16]));
    }
    assert!(Aarch64::worth_keeping(NT_ARM_TLS, &[0; 8]));
}

#[test]
fn a_call_loses_vectors_that_are_in_use() {
    let mut set = [0; VECTOR_HEADER + 16];
    assert!(!Aarch64::would_be_lost(NT_ARM_SVE, &set));
    set[VECTOR_FLAGS] = IN_USE;
    for note in Aarch64::LOST_BY_CALLS {
        assert!(Aarch64::would_be_lost(*note, &set));
        assert!(!Aarch64::would_be_lost(*note, &set[..VECTOR_HEADER]));
    }
}

#[test]
fn the_top_is_found_for_every_width() {
    for bits in [36, 39, 42, 47, 48] {
        assert_eq!(top_above((1 << bits) - 0x4000), 1 << bits);
        assert_eq!(top_above((1 << bits) - (8 << 30)), 1 << bits);
    }
    assert_eq!(top_above(1 << 51), 1 << 48);
}

#[test]
fn the_stub_is_what_an_assembler_makes_of_its_source() {
    let source = include_str!("batch.s");
    let Some(assembled) = assemble(source) else {
        eprintln!("no assembler for this architecture: the stub's bytes are not compared");
        return;
    };
    assert_eq!(assembled, [Aarch64::BATCH, Aarch64::ENTER_KERNEL].concat());
}

/// The machine code of a source; `None` where there are no binutils of the architecture.
fn assemble(source: &str) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    std::fs::write(file("batch.s"), source).unwrap();
    let prefix = if cfg!(target_arch = "aarch64") { "" } else { "aarch64-linux-gnu-" };
    let assembler = std::process::Command::new(format!("{prefix}as"))
        .args([file("batch.s"), "-o".into(), file("batch.o")])
        .status();
    if !assembler.is_ok_and(|status| status.success()) {
        return None;
    }
    let copied = std::process::Command::new(format!("{prefix}objcopy"))
        .args(["-O", "binary", "-j", ".text"])
        .args([file("batch.o"), file("batch.bin")])
        .status();
    assert!(copied.unwrap().success());
    Some(std::fs::read(file("batch.bin")).unwrap())
}

#[test]
fn what_comes_next_is_told_by_the_instruction() {
    let registers = rewound(203, [3, 4, 16, 0, 0, 0]);
    let settled = Aarch64::settled(&registers);
    assert_eq!(
        Aarch64::about_to_make(&settled, 0xd400_0001u32.to_le_bytes()),
        Some(registers.call())
    );
    // brk #0
    assert_eq!(Aarch64::about_to_make(&settled, 0xd420_0000u32.to_le_bytes()), None);
    // Another call in its place is made by the same instruction.
    let other = Call { number: 124, arguments: [0; 6] };
    let again = Aarch64::reissue(&settled, other);
    assert_eq!((again.pc, again.call()), (SVC, other));
}
