//! Register sets (ptrace(2), PTRACE_GETREGSET).

use super::super::ptrace::with_memory;
use super::{StoppedThread, failed};
use crate::arch::{Architecture, Current, Registers};
use crate::error::{EngineError, Refusal, Result};
use crate::proc::{innermost_number, status_of};
use crate::sys::abi::PtraceRequest;

const NT_PRSTATUS: usize = 1;
/// Largest register set that is read: AMX tiles need 8 KiB and some.
pub const LARGEST_SET: usize = 64 * 1024;
/// PTRACE_GET_THREAD_AREA (arch/arm/include/uapi/asm/ptrace.h)
const GET_THREAD_AREA: PtraceRequest = 22;

impl StoppedThread {
    /// Registers as they are now.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn registers(&self) -> Result<Registers> {
        registers(self.tid)
    }

    /// Sets registers now.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn set_registers(&self, registers: &Registers) -> Result<()> {
        self.set_register_set(NT_PRSTATUS as u32, &Current::to_bytes(registers))
    }

    /// A register set by its note type (NT_*).
    ///
    /// # Errors
    /// EINVAL or ENODEV where the machine lacks it; [`EngineError::Gone`].
    pub fn register_set(&self, note: u32) -> Result<Vec<u8>> {
        let kept = self.kept.iter().flatten().find(|(kept, _)| *kept == note);
        kept.map_or_else(|| register_set(self.tid, note), |(_, bytes)| Ok(bytes.clone()))
    }

    /// A register set, if this machine has it.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn register_set_if_any(&self, note: u32) -> Result<Option<Vec<u8>>> {
        match self.register_set(note) {
            Err(EngineError::System { source, .. })
                if matches!(source.raw_os_error(), Some(libc::EINVAL | libc::ENODEV)) =>
            {
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// Before system calls are injected: what they lose of the registers and of pending signals is kept until the thread
    /// goes on.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn keep_from_calls(&mut self) -> Result<()> {
        if self.kept.is_some() {
            return Ok(());
        }
        self.leave_sequence()?;
        self.hold_dispatch()?;
        self.hold_traps()?;
        let mut kept = Vec::new();
        for &note in Current::LOST_BY_CALLS {
            let bytes = self.register_set_if_any(note)?;
            kept.extend(
                bytes
                    .filter(|bytes| Current::would_be_lost(note, bytes))
                    .map(|bytes| (note, bytes)),
            );
        }
        self.kept = Some(kept);
        Ok(())
    }

    /// What was kept belongs to nobody any more: the thread gets the registers of another one.
    pub fn drop_kept(&mut self) {
        self.kept = Some(Vec::new());
    }

    /// Sets an extended register set, with which the thread goes on whatever calls are injected until then.
    ///
    /// # Errors
    /// As [`StoppedThread::set_register_set`].
    pub fn set_for_good(&mut self, note: u32, bytes: Vec<u8>) -> Result<()> {
        self.set_register_set(note, &bytes)?;
        if Current::LOST_BY_CALLS.contains(&note) {
            let kept = self.kept.get_or_insert_default();
            kept.retain(|(kept, _)| *kept != note);
            if Current::would_be_lost(note, &bytes) {
                kept.push((note, bytes));
            }
        }
        Ok(())
    }

    /// Sets a register set.
    ///
    /// # Errors
    /// EINVAL where the machine's set is of another form; [`EngineError::Gone`].
    pub fn set_register_set(&self, note: u32, bytes: &[u8]) -> Result<()> {
        let mut vector =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: the request reads the bytes that `vector` names, and writes the length to `vector`.
        unsafe { with_memory(libc::PTRACE_SETREGSET, self.tid, note as usize, &raw mut vector) }
            .map(drop)
            .map_err(|errno| failed("PTRACE_SETREGSET", self.tid, errno))
    }
}

pub(super) fn register_set(tid: i32, note: u32) -> Result<Vec<u8>> {
    if Current::SET_TLS.is_some_and(|(thread_pointer, _)| thread_pointer == note) {
        let mut pointer = 0usize;
        // SAFETY: the request writes one word to `pointer`.
        return unsafe { with_memory(GET_THREAD_AREA, tid, 0, &raw mut pointer) }
            .map(|_| pointer.to_ne_bytes().to_vec())
            .map_err(|errno| failed("PTRACE_GET_THREAD_AREA", tid, errno));
    }
    let mut buffer = vec![0u8; if note as usize == NT_PRSTATUS { 1024 } else { LARGEST_SET }];
    let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: the request writes to the buffer that `vector` names, and the length to `vector`.
    unsafe { with_memory(libc::PTRACE_GETREGSET, tid, note as usize, &raw mut vector) }
        .map_err(|errno| failed("PTRACE_GETREGSET", tid, errno))?;
    buffer.truncate(vector.iov_len);
    Ok(buffer)
}

pub(super) fn registers(tid: i32) -> Result<Registers> {
    let bytes = register_set(tid, NT_PRSTATUS as u32)?;
    Current::from_bytes(&bytes).ok_or_else(|| of_another_size(tid, bytes.len()))
}

/// The kernel shows registers as the code has them that runs: of a program of 64 bits those of 32 while it runs such code.
fn of_another_size(tid: i32, bytes: usize) -> EngineError {
    let odd = || EngineError::odd("register set size", bytes.to_string());
    if bytes >= size_of::<Registers>() {
        return odd();
    }
    let Ok(status) = status_of(tid) else { return odd() };
    let what = "runs code of 32 bits, in a program of 64, or under a ckptd of 64";
    let way_out = "run it under a ckptd of 32 bits, or without such code";
    EngineError::from(Refusal::new(what, way_out)).of(innermost_number(&status), &status.name)
}
