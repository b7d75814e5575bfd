//! The extended registers of x86, as NT_X86_XSTATE tells them (Intel's manual, volume 1, chapter 13, standard form): legacy registers,
//! a header with a bit for each component in use, and the components. Where a component lies differs between makes of processors, and
//! machines that have more of them tell more bytes: so a set that was taken on one machine is laid out anew on another one.

use std::sync::OnceLock;

use super::{LackingFeature, Part};

/// Legacy registers; the last 48 bytes tell what the machine has (struct _fpx_sw_bytes).
const LEGACY: usize = 512;
const SOFTWARE: usize = 464;
/// Legacy registers and the header.
const HEADER_END: usize = 576;
/// x87 and SSE registers are in the legacy part.
const FIRST_PART: u32 = 2;

/// Tiles of AMX, which 64-bit programs alone can use.
#[cfg(target_arch = "x86_64")]
pub const TILES: u32 = 18;

/// Whether a component is in use.
#[cfg(target_arch = "x86_64")]
pub fn has(set: &[u8], number: u32) -> bool {
    word(set, LEGACY).is_some_and(|in_use| in_use & (1 << number) != 0)
}

/// What components are called.
const NAMES: [(u32, &str); 9] = [
    (2, "AVX"),
    (3, "MPX"),
    (4, "MPX"),
    (5, "AVX-512"),
    (6, "AVX-512"),
    (7, "AVX-512"),
    (9, "protection keys"),
    (17, "AMX"),
    (18, "AMX"),
];

/// Where this machine keeps its components (CPUID leaf 0xD).
#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
pub fn layout() -> Vec<Part> {
    #[cfg(target_arch = "x86")]
    use std::arch::x86::{__cpuid, __cpuid_count};
    #[cfg(target_arch = "x86_64")]
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const LEAF: u32 = 0xd;
    #[allow(unused_unsafe, reason = "the functions were unsafe in older releases of Rust")]
    // SAFETY: every processor that runs Linux today has CPUID, and it only reads.
    let (highest, supported, parts): (u32, u64, Vec<[u32; 3]>) = unsafe {
        let highest = __cpuid(0).eax;
        if highest < LEAF {
            return Vec::new();
        }
        let main = __cpuid_count(LEAF, 0);
        let parts = (FIRST_PART..63)
            .map(|number| {
                let part = __cpuid_count(LEAF, number);
                [number, part.ebx, part.eax]
            })
            .collect();
        (highest, u64::from(main.edx) << 32 | u64::from(main.eax), parts)
    };
    debug_assert!(highest >= LEAF);
    let is_there = |[number, offset, size]: &[u32; 3]| {
        supported & (1 << number) != 0 && *offset != 0 && *size != 0
    };
    let part = |[number, offset, size]: [u32; 3]| Part { number, offset, size };
    parts.into_iter().filter(is_there).map(part).collect()
}

/// A machine that has none of them; this is compiled there for its tests.
#[cfg(not(any(target_arch = "x86_64", target_arch = "x86")))]
pub fn layout() -> Vec<Part> {
    Vec::new()
}

/// Lays a set out as this machine has it.
///
/// # Errors
/// As [`fit`].
pub fn fit_here(saved: Vec<u8>, parts: &[Part], here: &[u8]) -> Result<Vec<u8>, LackingFeature> {
    // CPUID is slow where a hypervisor answers it, and threads are many.
    static OWN: OnceLock<Vec<Part>> = OnceLock::new();
    // Without a layout the image is older than layouts are told, and of a machine like this one.
    if parts.is_empty() {
        return Ok(saved);
    }
    let own = OWN.get_or_init(layout);
    if parts == own && saved.len() == here.len() {
        return Ok(saved);
    }
    fit(&saved, parts, here, own)
}

/// Lays a set out as this machine has it: `saved` with the components of `parts`; `here`: the set of any thread here, with components of
/// `own`.
///
/// # Errors
/// What is in use and not here.
fn fit(saved: &[u8], parts: &[Part], here: &[u8], own: &[Part]) -> Result<Vec<u8>, LackingFeature> {
    let Some(in_use) = word(saved, LEGACY) else { return Err(LackingFeature("XSAVE".to_owned())) };
    let (Some(there), true) = (word(here, SOFTWARE), here.len() >= HEADER_END) else {
        return Err(LackingFeature("XSAVE".to_owned()));
    };
    let mut set = vec![0; here.len()];
    set[..HEADER_END].copy_from_slice(&saved[..HEADER_END]);
    set[SOFTWARE..LEGACY].copy_from_slice(&here[SOFTWARE..LEGACY]);
    let mut kept = in_use & 0b11;
    for number in (FIRST_PART..63).filter(|number| in_use & (1 << number) != 0) {
        let find = |all: &[Part]| all.iter().find(|part| part.number == number).copied();
        let from = find(parts).and_then(|part| saved.get(part.range()));
        let to = find(own).filter(|_| there & (1 << number) != 0);
        let to = to.and_then(|part| set.get_mut(part.range()));
        match (from, to) {
            (Some(from), Some(to)) if from.len() == to.len() => {
                to.copy_from_slice(from);
                kept |= 1 << number;
            }
            // As if it had never been used.
            (Some(from), None) if from.iter().all(|byte| *byte == 0) => {}
            _ => return Err(LackingFeature(name(number))),
        }
    }
    set[LEGACY..LEGACY + 8].copy_from_slice(&kept.to_le_bytes());
    Ok(set)
}

impl Part {
    fn range(&self) -> std::ops::Range<usize> {
        let (offset, size) = (self.offset as usize, self.size as usize);
        offset..offset.saturating_add(size)
    }
}

fn word(set: &[u8], at: usize) -> Option<u64> {
    set.get(HEADER_END - 1)?;
    Some(u64::from_le_bytes(set.get(at..at + 8)?.try_into().ok()?))
}

fn name(number: u32) -> String {
    let known = NAMES.iter().find(|(of, _)| *of == number);
    known.map_or_else(|| format!("XSAVE component {number}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As of an Intel processor with AVX-512 and protection keys, and of an AMD one with AVX and protection keys.
    const LARGE: [Part; 5] = [
        Part { number: 2, offset: 576, size: 256 },
        Part { number: 5, offset: 1088, size: 64 },
        Part { number: 6, offset: 1152, size: 512 },
        Part { number: 7, offset: 1664, size: 1024 },
        Part { number: 9, offset: 2688, size: 8 },
    ];
    const SMALL: [Part; 2] =
        [Part { number: 2, offset: 576, size: 256 }, Part { number: 9, offset: 832, size: 8 }];

    fn set(length: usize, parts: &[Part], in_use: &[u32]) -> Vec<u8> {
        let mut set = vec![0; length];
        let all = |numbers: &[u32]| numbers.iter().fold(0b11_u64, |all, number| all | 1 << number);
        let there: Vec<u32> = parts.iter().map(|part| part.number).collect();
        set[..16].fill(0x33);
        set[SOFTWARE..SOFTWARE + 8].copy_from_slice(&all(&there).to_le_bytes());
        set[LEGACY..LEGACY + 8].copy_from_slice(&all(in_use).to_le_bytes());
        for part in parts.iter().filter(|part| in_use.contains(&part.number)) {
            set[part.range()].fill(part.number as u8);
        }
        set
    }

    #[test]
    fn components_are_found_where_the_machine_has_them() {
        let here = set(840, &SMALL, &[]);
        let fitted = fit(&set(2696, &LARGE, &[2, 9]), &LARGE, &here, &SMALL).unwrap();
        assert_eq!(fitted, set(840, &SMALL, &[2, 9]));
        let back = fit(&fitted, &SMALL, &set(2696, &LARGE, &[5]), &LARGE).unwrap();
        assert_eq!(back, set(2696, &LARGE, &[2, 9]));
    }

    #[test]
    fn what_is_in_use_and_not_there_is_named() {
        let here = set(840, &SMALL, &[]);
        let used = set(2696, &LARGE, &[2, 6]);
        assert_eq!(fit(&used, &LARGE, &here, &SMALL), Err(LackingFeature(name(6))));
        // The processor does not always notice that registers are empty again.
        let mut cleared = used;
        cleared[LARGE[2].range()].fill(0);
        assert_eq!(fit(&cleared, &LARGE, &here, &SMALL).unwrap(), set(840, &SMALL, &[2]));
        assert!(fit(&[0; 100], &LARGE, &here, &SMALL).is_err());
        assert!(fit(&cleared, &LARGE, &[], &SMALL).is_err());
        // An image that lies about where its components are.
        let beyond = [Part { number: 2, offset: u32::MAX, size: u32::MAX }];
        assert!(fit(&cleared, &beyond, &here, &SMALL).is_err());
    }

    #[test]
    fn a_set_of_this_machine_stays_what_it_is() {
        let own = layout();
        let length = own.iter().map(|part| part.range().end).max().unwrap_or(HEADER_END);
        let numbers: Vec<u32> = own.iter().map(|part| part.number).collect();
        let saved = set(length, &own, &numbers);
        assert_eq!(fit(&saved, &own, &saved, &own).unwrap(), saved);
    }
}
