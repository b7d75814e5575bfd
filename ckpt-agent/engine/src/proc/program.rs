//! Which processor a process's program is for (elf(5)).

use std::fs::File;
use std::io::Read;

use super::super::arch::{Architecture, Current};
use super::super::error::{EngineError, Refusal, Result};
use super::read_text;

/// Offset of e_machine, and bytes up to its end.
const MACHINE: usize = 18;
const HEAD: usize = 20;
/// EM_* of the program that this is: the kernel makes its AUDIT_ARCH_* from it (linux/audit.h).
const OWN: u16 = (Current::AUDIT_ARCH & 0xffff) as u16;

/// Refuses a process whose program is for another processor, or for the other width of this one: its registers and
/// system calls are not those that this program knows.
///
/// # Errors
/// The refusal, with the process's number for the job. A process that has ended is none.
pub fn must_be_own(pid: i32) -> Result<()> {
    let mut head = [0; HEAD];
    let read = File::open(format!("/proc/{pid}/exe")).and_then(|mut exe| exe.read_exact(&mut head));
    // A process that is ending has no program any more.
    if read.is_err() {
        return Ok(());
    }
    let Some(found) = foreign(&head) else { return Ok(()) };
    let status = read_text(&format!("/proc/{pid}/status"))?.unwrap_or_default();
    let word = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_ascii_whitespace().last()).unwrap_or_default().to_owned()
    };
    Err(EngineError::RefusedProcess {
        pid: word("NSpid:").parse().unwrap_or(pid),
        comm: word("Name:"),
        refusal: Refusal::new(
            format!("is a program for {found}, and this ckptd is one for {}", Current::NAME),
            format!("run the job with a ckptd that is built for {found}"),
        ),
    })
}

/// The processor of an ELF file that is not this program's.
fn foreign(head: &[u8; HEAD]) -> Option<String> {
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    let machine = u16::from_ne_bytes([head[MACHINE], head[MACHINE + 1]]);
    if machine == OWN {
        return None;
    }
    Some(match machine {
        3 => "x86".to_owned(),
        40 => "arm".to_owned(),
        62 => "x86_64".to_owned(),
        183 => "aarch64".to_owned(),
        other => format!("processor {other} (elf(5), e_machine)"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(machine: u16) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(b"\x7fELF");
        head[MACHINE..].copy_from_slice(&machine.to_ne_bytes());
        head
    }

    #[test]
    fn its_own_program_is_its_own() {
        must_be_own(std::process::id() as i32).unwrap();
        assert_eq!(foreign(&head(OWN)), None);
    }

    #[test]
    fn others_are_named() {
        let other = if OWN == 40 { (3, "x86") } else { (40, "arm") };
        assert_eq!(foreign(&head(other.0)).as_deref(), Some(other.1));
        assert!(foreign(&head(9999)).is_some_and(|text| text.contains("9999")));
        assert_eq!(foreign(&[0; HEAD]), None);
    }
}
