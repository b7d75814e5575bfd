//! Restartable sequences (rseq(2)) of a stopped thread.

use super::super::super::arch::{Architecture, Current};
use super::super::super::error::Result;
use super::super::memory::ProcessMemory;
use super::StoppedThread;

impl StoppedThread {
    /// A thread inside of a restartable sequence goes on at the sequence's abort handler, as it would after a context switch.
    /// To be called before any call is injected: on the way out of one the kernel finds the thread outside of its sequence, and
    /// forgets it.
    ///
    /// # Errors
    /// [`super::EngineError::Gone`].
    pub(super) fn leave_sequence(&mut self) -> Result<()> {
        let (address, ..) = self.rseq()?;
        if address == 0 {
            return Ok(());
        }
        let mut memory = ProcessMemory::of(self.tid);
        // struct rseq: cpu_id_start u32, cpu_id u32, rseq_cs u64. What cannot be read is the kernel's to punish.
        let mut pointer = [0; 8];
        if memory.read(address.wrapping_add(8), &mut pointer).is_err() {
            return Ok(());
        }
        let sequence = u64::from_ne_bytes(pointer);
        // struct rseq_cs: version u32, flags u32, start_ip u64, post_commit_offset u64, abort_ip u64.
        let mut fields = [[0; 8]; 4];
        if sequence == 0 || memory.read(sequence, fields.as_flattened_mut()).is_err() {
            return Ok(());
        }
        let [_, start, length, abort] = fields.map(u64::from_ne_bytes);
        if Current::program_counter(&self.entry).wrapping_sub(start) < length {
            Current::set_program_counter(&mut self.entry, abort);
            self.set_resume(self.entry);
        }
        Ok(())
    }
}
