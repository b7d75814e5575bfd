//! What is pure in this architecture, on any machine.

use super::*;

const SVC: u64 = 0x0001_0400;

/// A thread seen in a call, as do_signal leaves it: the first argument is back, it stands at its `svc`.
fn rewound(number: i64, arguments: [u64; 6], thumb: bool) -> Registers {
    let length = if thumb { 2 } else { 4 };
    let before = CallInProgress {
        call: Call { number, arguments },
        stack_pointer: 0xfffe_0000,
        program_counter: SVC + length,
    };
    let words: Vec<u8> = (0..18u32).flat_map(|word| (word << 16).to_ne_bytes()).collect();
    let mut registers = Arm::from_bytes(&words).unwrap();
    registers.set_call(before.call);
    registers.words[SP] = 0xfffe_0000;
    registers.words[PC] = SVC as u32;
    registers.words[CPSR] = 0x10 | if thumb { THUMB } else { 0 };
    Arm::remember(&mut registers, before);
    registers
}

#[test]
fn a_register_set_survives_the_way_through_the_image() {
    let bytes: Vec<u8> = (0..18u32).flat_map(|word| (word * 0x0101_0101).to_ne_bytes()).collect();
    let registers = Arm::from_bytes(&bytes).unwrap();
    assert_eq!(Arm::program_counter(&registers), 15 * 0x0101_0101);
    assert_eq!(Arm::to_bytes(&registers), bytes);
    // A 64-bit thread's.
    assert_eq!(Arm::from_bytes(&[0; 272]), None);
}

#[test]
fn a_call_is_made_again_in_its_own_instruction_set() {
    for thumb in [false, true] {
        let registers = rewound(3, [1, 2, 3, 4, 5, 6], thumb);
        let Interrupted::Again(call) = Arm::interrupted(&registers) else { panic!("{thumb}") };
        let again = Arm::reissue(&registers, call);
        assert_eq!(Arm::program_counter(&again), SVC);
        assert_eq!(again.words[CPSR] & THUMB != 0, thumb);
        assert_eq!(again.words[7], 3);
    }
}

#[test]
fn a_sleep_goes_on_by_its_restart_block() {
    for (number, arguments, has) in [
        (162, [1, 2, 0, 0, 0, 0], true),
        (168, [1, 2, 1000, 0, 0, 0], true),
        (336, [1, 2, 3, 0, 0, 0], false),
        (407, [1, 0, 3, 4, 0, 0], true),
        (407, [1, 1, 3, 4, 0, 0], false),
        (422, [1, 128, 3, 4, 0, 0], true),
        (422, [1, 128, 3, 0, 0, 0], false),
    ] {
        let found = Arm::interrupted(&rewound(number, arguments, true));
        assert_eq!(matches!(found, Interrupted::RestartBlock(_)), has, "{number} {arguments:?}");
    }
}

#[test]
fn a_call_that_answered_eintr_gets_its_first_argument_back() {
    let mut registers = rewound(252, [7, 2, 3, 4, 5, 6], true);
    registers.words[0] = -libc::EINTR as u32;
    registers.words[PC] = SVC as u32 + 2;
    let Interrupted::Again(call) = Arm::interrupted(&registers) else { panic!("not seen") };
    assert_eq!(call.arguments[0], 7);
    assert_eq!(Arm::program_counter(&Arm::reissue(&registers, call)), SVC);
}

#[test]
fn injected_code_is_arm_code() {
    let mut registers = rewound(3, [0; 6], true);
    registers.words[CPSR] |= IF_THEN;
    Arm::prepare_batch(&mut registers, 0x1000, 0x2000, 3);
    assert_eq!(registers.words[CPSR], 0x10);
    assert_eq!((registers.words[8], registers.words[9]), (0x2000, 3));
}

#[test]
fn what_comes_next_is_told_by_the_instruction() {
    // svc #0, and a Thumb one with the start of the next instruction; not: udf #16, bx lr.
    for (thumb, svc, other) in
        [(false, 0xef00_0000u32, 0xe7f0_01f0u32), (true, 0xe8bd_df00, 0xe8bd_4770)]
    {
        let registers = Arm::settled(&rewound(283, [3, 4, 16, 0, 0, 0], thumb));
        let next = |code: u32| Arm::about_to_make(&registers, code.to_le_bytes());
        assert_eq!(next(svc), Some(registers.call()), "{thumb}");
        assert_eq!(next(other), None, "{thumb}");
        let other = Call { number: 158, arguments: [0; 6] };
        let again = Arm::reissue(&registers, other);
        assert_eq!((Arm::program_counter(&again), again.call()), (SVC, other));
    }
}
