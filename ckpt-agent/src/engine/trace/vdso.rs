//! The code that the kernel maps into every process (vdso(7)).

use super::super::error::{EngineError, Result};
use super::super::proc::Mapping;
use super::{ProcessMemory, find_kernel_entry};

/// A process's vdso.
#[derive(Debug)]
pub struct Vdso {
    start: u64,
    bytes: Vec<u8>,
}

impl Vdso {
    /// Reads it; `mappings` are those of the process.
    ///
    /// # Errors
    /// [`EngineError::NotUnderstood`] where the process has none; [`EngineError::Gone`].
    pub fn of(pid: i32, mappings: &[Mapping]) -> Result<Self> {
        let vdso = mappings
            .iter()
            .find(|mapping| mapping.name == "[vdso]")
            .ok_or_else(|| EngineError::odd(format!("process {pid}"), "no vdso"))?;
        let mut bytes = vec![0; vdso.length() as usize];
        ProcessMemory::of(pid).read(vdso.start, &mut bytes)?;
        Ok(Self { start: vdso.start, bytes })
    }

    /// The address of an instruction in it that enters the kernel.
    ///
    /// # Errors
    /// [`EngineError::NotUnderstood`] where there is none.
    pub fn kernel_entry(&self) -> Result<u64> {
        find_kernel_entry(self.start, &self.bytes)
    }

    /// BLAKE3 of its bytes, in hexadecimal: another kernel has another.
    pub fn hash(&self) -> String {
        blake3::hash(&self.bytes).to_hex().to_string()
    }
}
