//! What is pure in this architecture, on any machine.

use super::*;

/// A thread that stands behind its `int 0x80`.
fn in_call(number: u32, result: i32) -> Registers {
    let words: Vec<u8> = (1..=17u32).flat_map(u32::to_ne_bytes).collect();
    let mut registers = X86::from_bytes(&words).unwrap();
    (registers.orig_eax, registers.eax, registers.eip) = (number, result as u32, 0x1002);
    registers
}

#[test]
fn a_register_set_survives_the_way_through_the_image() {
    let bytes: Vec<u8> = (0..17u32).flat_map(|word| (word * 0x0101_0101).to_ne_bytes()).collect();
    let registers = X86::from_bytes(&bytes).unwrap();
    assert_eq!(X86::program_counter(&registers), 12 * 0x0101_0101);
    assert_eq!(X86::stack_pointer(&registers), 15 * 0x0101_0101);
    assert_eq!(X86::to_bytes(&registers), bytes);
    // A 64-bit thread's.
    assert_eq!(X86::from_bytes(&[0; 216]), None);
}

#[test]
fn an_interrupted_call_is_made_again() {
    let registers = in_call(3, -512);
    let Interrupted::Again(call) = X86::interrupted(&registers) else { panic!("not seen") };
    assert_eq!(call, Call { number: 3, arguments: [1, 2, 3, 4, 5, 6] });
    let again = X86::reissue(&registers, call);
    assert_eq!((again.eip, again.eax, again.orig_eax), (0x1000, 3, NO_CALL));
    let registers = in_call(162, -516);
    assert!(matches!(X86::interrupted(&registers), Interrupted::RestartBlock(_)));
    let again = X86::restart_block(&registers);
    assert_eq!((again.eip, again.eax, again.ebx), (0x1000, 0, 1));
    assert_eq!(X86::interrupted(&in_call(u32::MAX, -512)), Interrupted::No);
    assert_eq!(X86::interrupted(&in_call(3, 512)), Interrupted::No);
}

#[test]
fn a_semaphore_waited_for_through_ipc_is_waited_for_again() {
    let mut registers = in_call(117, -libc::EINTR);
    registers.ebx = 1;
    assert!(matches!(X86::interrupted(&registers), Interrupted::Again(_)));
    // msgrcv
    registers.ebx = 12;
    assert_eq!(X86::interrupted(&registers), Interrupted::No);
}

#[test]
fn addresses_are_no_errors() {
    let mut registers = in_call(192, 0);
    for (eax, result) in [(0xf7d0_0000u32, 0xf7d0_0000i64), (0xffff_fff4, -12), (0x1000, 0x1000)] {
        registers.eax = eax;
        assert_eq!(X86::result(&registers), result);
        assert_eq!(X86::stored_result(eax.into()), result);
    }
}

#[test]
fn the_count_travels_with_the_table() {
    let mut table = vec![0; 128];
    X86::finish_table(&mut table, 2);
    assert_eq!(table[..8], [0, 0, 0, 0, 2, 0, 0, 0]);
}

#[test]
fn a_sleep_goes_on_with_a_wide_timespec() {
    let numbers = X86::NUMBERS;
    let sleep = Call { number: 162, arguments: [0x1000, 0, 9, 9, 9, 9] };
    let on = numbers.with_timespec(sleep, 0, 0x2000);
    assert_eq!(on, Call { number: 407, arguments: [1, 0, 0x2000, 0, 0, 0] });
    let semaphores = Call { number: 117, arguments: [4, 7, 1, 0, 0x3000, 0x1000] };
    let on = numbers.with_timespec(semaphores, 5, 0x2000);
    assert_eq!(on, Call { number: 420, arguments: [7, 0x3000, 1, 0x2000, 0, 0] });
    let futex = Call { number: 240, arguments: [1, 128, 3, 0x1000, 0, 0] };
    let on = numbers.with_timespec(futex, 3, 0x2000);
    assert_eq!(on, Call { number: 422, arguments: [1, 128, 3, 0x2000, 0, 0] });
}

#[test]
fn the_top_is_told_from_the_stack() {
    assert_eq!(top_above(0xbfff_0000), 0xc000_0000);
    assert_eq!(top_above(0xffab_0000), 0xffff_e000);
}
