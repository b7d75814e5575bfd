//! Local descriptor tables: segments that a process of x86 has made for itself (modify_ldt(2)), as emulators of older
//! systems do. Only the process itself can read its table.

use super::arch::{Architecture, Current};
use super::error::{EngineError, Result};
use super::graph::{from_hex, to_hex};
use super::sys::trial::Call;
use super::trace::{Remote, Scratch};

/// Bytes of a descriptor, and how many a table has at most (arch/x86/include/uapi/asm/ldt.h).
const ENTRY: usize = 8;
const MOST: usize = 8192;
/// Operations of modify_ldt(2): reading, and writing in full.
const READ: u64 = 0;
const WRITE: u64 = 0x11;

/// The table of a process, as it lies in the kernel's memory; empty: it has none.
///
/// # Errors
/// The process's end.
pub fn read(remote: &mut Remote<'_>) -> Result<String> {
    let Some(call) = Current::MODIFY_LDT.filter(|_| Call::ModifyLdt.may_be_made()) else {
        return Ok(String::new());
    };
    let at = remote.scratch_data()?;
    if remote.raw(call, &[READ, at, ENTRY as u64])? <= 0 {
        return Ok(String::new());
    }
    let length = remote.raw(call, &[READ, at, (MOST * ENTRY) as u64])?;
    let length = remote.checked("modify_ldt", length)? as usize;
    let mut bytes = vec![0; length.min(MOST * ENTRY)];
    remote.memory().read(at, &mut bytes)?;
    let used =
        bytes.chunks(ENTRY).rposition(|entry| entry != [0; ENTRY]).map_or(0, |last| last + 1);
    bytes.truncate(used * ENTRY);
    Ok(to_hex(&bytes))
}

/// Gives a process its table.
///
/// # Errors
/// Damage; a machine that has no such tables; failed calls.
pub fn put(remote: &mut Remote<'_>, scratch: Scratch, table: &str) -> Result<()> {
    if table.is_empty() {
        return Ok(());
    }
    let bytes = from_hex(table)?;
    if bytes.len() > MOST * ENTRY || bytes.len() % ENTRY != 0 {
        return Err(EngineError::Damaged("a local descriptor table of an odd size".into()));
    }
    let Some(call) = Current::MODIFY_LDT.filter(|_| Call::ModifyLdt.may_be_made()) else {
        return Err(EngineError::Unfit {
            what: "the job uses segments of its own (modify_ldt), which this machine has not"
                .into(),
            way_out: "restart it where modify_ldt(2) may be called".into(),
        });
    };
    for (number, entry) in (0u32..).zip(bytes.chunks(ENTRY)).filter(|(_, one)| *one != [0; ENTRY]) {
        let word = |at: usize| entry[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        let words = [&[number][..], &described(word(0), word(4))].concat();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        remote.memory().write(scratch.data(), &bytes)?;
        let arguments = [WRITE, scratch.data(), bytes.len() as u64];
        remote.call("modify_ldt", call, &arguments)?;
    }
    Ok(())
}

/// What struct user_desc says of a descriptor behind its number: base, limit, flags (arch/x86/include/asm/desc.h,
/// fill_ldt).
fn described(low: u32, high: u32) -> [u32; 3] {
    let bit = |at: u32| high >> at & 1;
    let base = low >> 16 | (high & 0xff) << 16 | high & 0xff00_0000;
    let limit = low & 0xffff | high & 0x000f_0000;
    let flags = bit(22)                 // seg_32bit
        | (high >> 10 & 3) << 1         // contents
        | (bit(9) ^ 1) << 3             // read_exec_only
        | bit(23) << 4                  // limit_in_pages
        | (bit(15) ^ 1) << 5            // seg_not_present
        | bit(20) << 6                  // useable
        | bit(21) << 7; // lm
    [base, limit, flags]
}

#[cfg(test)]
mod tests {
    use super::described;

    #[test]
    fn descriptors_of_the_kernel() {
        // Base 0x12345678, limit 0xfffff pages, data that can be written, 32 bits, useable.
        assert_eq!(described(0x5678_ffff, 0x12df_f334), [0x1234_5678, 0x000f_ffff, 0b0101_0001],);
        // Not present, code that can't be read, bytes.
        assert_eq!(described(0x0000_0fff, 0x0040_7900), [0, 0x0fff, 0b0010_1101]);
    }
}
