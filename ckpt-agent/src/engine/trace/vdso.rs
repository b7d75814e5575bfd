//! The code that the kernel maps into every process: the vdso (vdso(7)), and on 32-bit ARM a page of signal trampolines.

use super::super::arch::{Architecture, Current};
use super::super::error::{EngineError, Result};
use super::super::proc::Mapping;
use super::{ProcessMemory, find_kernel_entry};

/// Name of the vdso's mapping.
const VDSO: &str = "[vdso]";

/// A process's vdso, and the code by which calls can enter the kernel.
#[derive(Debug, Clone)]
pub struct Vdso {
    entry_at: u64,
    entry: Vec<u8>,
    hash: String,
    image: Option<(u64, Vec<u8>)>,
}

impl Vdso {
    /// Reads it; `mappings` are those of the process.
    ///
    /// # Errors
    /// [`EngineError::NotUnderstood`] where the process has none; [`EngineError::Gone`].
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
            EngineError::odd(format!("process {pid}"), format!("no {}", Current::ENTRY_MAPPING))
        })?;
        // Kernels without a vdso for 32-bit programs all have the same trampolines.
        let image = match Current::ENTRY_MAPPING {
            VDSO => Some((entry_at, entry.clone())),
            _ => read(VDSO)?,
        };
        let bytes = image.as_ref().map_or(&entry, |(_, bytes)| bytes);
        let hash = blake3::hash(bytes).to_hex().to_string();
        Ok(Self { entry_at, entry, hash, image })
    }

    /// Its bytes; `None`: the kernel has none for these programs.
    pub fn image(&self) -> Option<&[u8]> {
        self.image.as_ref().map(|(_, bytes)| bytes.as_slice())
    }

    /// Whether an address is in it.
    pub fn has(&self, address: u64) -> bool {
        let end = |at: u64, bytes: &[u8]| at + bytes.len() as u64;
        self.image.as_ref().is_some_and(|(at, bytes)| (*at..end(*at, bytes)).contains(&address))
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
        self.hash.clone()
    }
}
