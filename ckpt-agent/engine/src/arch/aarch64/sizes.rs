//! Sizes that programs ask the processor for, and that are part of what they were made for: the block that one instruction clears
//! (by which the GNU C library chooses its memset when a program begins), and the length of vectors.

use std::collections::BTreeSet;

/// DCZID_EL0.DZP: clearing blocks is not permitted.
const PROHIBITED: u64 = 1 << 4;
/// DCZID_EL0.BS: binary logarithm of the block's words of 4 bytes.
const BLOCK: u64 = 0xf;
/// PR_SVE_SET_VL and PR_SVE_GET_VL, and the part of their answer that is the length in bytes (linux/prctl.h).
const SET_LENGTH: libc::c_int = 50;
const GET_LENGTH: libc::c_int = 51;
const LENGTH: libc::c_int = 0xffff;
/// All lengths are multiples of the shortest (Documentation/arch/arm64/sve.rst, SVE_VL_MIN and the architecture's longest).
const SHORTEST: libc::c_ulong = 16;
const LONGEST: libc::c_ulong = 256;

/// What a machine has of them, named like features.
pub fn offered() -> Vec<String> {
    cleared().map(block).into_iter().chain(lengths().into_iter().map(vector)).collect()
}

/// Whether a program that begins here has nothing to do with it: vectors of other lengths than those it is given.
pub fn is_an_alternative(feature: &str) -> bool {
    let own = length(GET_LENGTH, 0).map(vector);
    feature.starts_with(VECTOR) && own.is_some_and(|own| own != feature)
}

const VECTOR: &str = "sve-";

fn vector(bytes: u32) -> String {
    format!("{VECTOR}{}", bytes * 8)
}

fn block(bytes: u64) -> String {
    format!("zva-{bytes}")
}

/// Bytes that `dc zva` clears.
#[cfg(target_arch = "aarch64")]
fn cleared() -> Option<u64> {
    let register: u64;
    // SAFETY: every program may read this register (Arm Architecture Reference Manual, DCZID_EL0); nothing else is touched.
    unsafe {
        std::arch::asm!("mrs {}, dczid_el0", out(reg) register, options(nomem, nostack, preserves_flags));
    }
    block_of(register)
}

/// Where other processors' tests look at this module.
#[cfg(not(target_arch = "aarch64"))]
fn cleared() -> Option<u64> {
    None
}

fn block_of(register: u64) -> Option<u64> {
    (register & PROHIBITED == 0).then(|| 4 << (register & BLOCK))
}

/// Lengths of vectors that there are, in bytes. A thread of its own tries them: they are set for the one that asks.
fn lengths() -> BTreeSet<u32> {
    let tried = || {
        let steps = (SHORTEST..=LONGEST).step_by(SHORTEST as usize);
        steps.filter_map(|wanted| length(SET_LENGTH, wanted)).collect()
    };
    std::thread::spawn(tried).join().unwrap_or_default()
}

fn length(request: libc::c_int, wanted: libc::c_ulong) -> Option<u32> {
    // SAFETY: both requests take a number and touch no memory; setting makes the calling thread's vector registers zero beyond
    // 128 bits, which nothing of this program uses across a call.
    let answer = unsafe { libc::prctl(request, wanted, 0, 0, 0) };
    u32::try_from(answer & LENGTH).ok().filter(|length| answer >= 0 && *length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_in_words() {
        assert_eq!(block_of(4), Some(64));
        assert_eq!(block_of(6), Some(256));
        assert_eq!(block_of(4 | PROHIBITED), None);
    }

    #[test]
    fn a_program_has_one_length() {
        let all = offered();
        let vectors = all.iter().filter(|name| name.starts_with(VECTOR));
        let own = vectors.clone().filter(|name| !is_an_alternative(name)).count();
        assert_eq!(own, usize::from(vectors.count() > 0), "{all:?}");
    }
}
