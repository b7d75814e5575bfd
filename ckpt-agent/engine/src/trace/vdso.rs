//! The code that the kernel maps into every process: the vdso (vdso(7)), and on 32-bit ARM a page of signal trampolines.

use super::super::arch::{Architecture, Current};
use super::super::error::{Refusal, Result};
use super::super::proc::Mapping;
use super::{ProcessMemory, find_kernel_entry};

/// Name of the vdso's mapping.
const VDSO: &str = "[vdso]";

/// A process's vdso, and the code by which calls can enter the kernel.
#[derive(Debug, Clone)]
pub struct Vdso {
    entry_at: u64,
    entry: Vec<u8>,
    /// The vdso, where calls enter the kernel elsewhere.
    apart: Option<(u64, Vec<u8>)>,
}

impl Vdso {
    /// Reads it; `mappings` are those of the process.
    ///
    /// # Errors
    /// A refusal where the process has none; [`EngineError::Gone`].
    pub fn of(pid: i32, mappings: &[Mapping]) -> Result<Self> {
        let read = |name: &str| -> Result<Option<(u64, Vec<u8>)>> {
            let Some(mapping) = mappings.iter().find(|mapping| mapping.name == name) else {
                return Ok(None);
            };
            let mut bytes = vec![0; mapping.length() as usize];
            ProcessMemory::of(pid).read(mapping.start, &mut bytes)?;
            Ok(Some((mapping.start, bytes)))
        };
        let (entry_at, entry) = read(Current::ENTRY_MAPPING)?.ok_or_else(|| {
            let what = format!(
                "has no {}, whose code makes the calls for a checkpoint",
                Current::ENTRY_MAPPING
            );
            Refusal::new(what, "have the program keep that mapping of the kernel's")
        })?;
        let apart = match Current::ENTRY_MAPPING {
            VDSO => None,
            _ => read(VDSO)?,
        };
        Ok(Self { entry_at, entry, apart })
    }

    fn placed(&self) -> Option<(u64, &[u8])> {
        match Current::ENTRY_MAPPING {
            VDSO => Some((self.entry_at, &self.entry)),
            _ => self.apart.as_ref().map(|(at, bytes)| (*at, bytes.as_slice())),
        }
    }

    /// Its bytes; `None`: the kernel has none for these programs.
    pub fn image(&self) -> Option<&[u8]> {
        self.placed().map(|(_, bytes)| bytes)
    }

    /// Whether an address is in it.
    pub fn has(&self, address: u64) -> bool {
        self.placed().is_some_and(|(at, bytes)| (at..at + bytes.len() as u64).contains(&address))
    }

    /// The address of an instruction in it that enters the kernel.
    ///
    /// # Errors
    /// [`EngineError::NotUnderstood`] where there is none.
    pub fn kernel_entry(&self) -> Result<u64> {
        find_kernel_entry(self.entry_at, &self.entry)
    }

    /// BLAKE3 of its bytes, in hexadecimal: another kernel has another.
    pub fn hash(&self) -> String {
        // Kernels without a vdso for 32-bit programs all have the same trampolines.
        blake3::hash(self.image().unwrap_or(&self.entry)).to_hex().to_string()
    }
}
