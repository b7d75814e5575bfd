//! The sandbox of a stopped thread (seccomp(2)), which takes CAP_SYS_ADMIN to look at and to suspend.

use nix::errno::Errno;

use super::super::super::error::Result;
use super::super::ptrace::with_memory;
use super::{Request, StoppedThread};

/// PTRACE_SECCOMP_GET_FILTER (include/uapi/linux/ptrace.h)
const GET_FILTER: Request = 0x420c;
/// PTRACE_SECCOMP_GET_METADATA
const GET_METADATA: Request = 0x420d;
/// PTRACE_O_SUSPEND_SECCOMP
pub(super) const SUSPEND: i32 = 1 << 21;
/// BPF_MAXINSNS
const LONGEST: usize = 4096;

/// struct seccomp_metadata
#[repr(C)]
struct Metadata {
    filter: u64,
    flags: u64,
}

impl StoppedThread {
    /// The instructions of one of the thread's filters, struct sock_filter each; 0 is the oldest.
    ///
    /// # Errors
    /// As ptrace(2): EACCES without the right, or where this process has a sandbox itself.
    pub fn filter(&self, index: u32) -> nix::Result<Vec<u8>> {
        let mut instructions = vec![[0u8; 8]; LONGEST];
        // SAFETY: the request writes at most as many instructions as a filter may have, 8 bytes each.
        let count = unsafe {
            with_memory(GET_FILTER, self.tid, index as usize, instructions.as_mut_ptr())
        }?;
        instructions.truncate(usize::try_from(count).map_err(|_| Errno::EINVAL)?);
        Ok(instructions.concat())
    }

    /// SECCOMP_FILTER_FLAG_* of one of its filters, as far as they outlive its making.
    ///
    /// # Errors
    /// As [`StoppedThread::filter`].
    pub fn filter_flags(&self, index: u32) -> nix::Result<u64> {
        let mut found = Metadata { filter: index.into(), flags: 0 };
        // SAFETY: the request reads and writes as many bytes as it is told, the size of `found`.
        unsafe {
            with_memory(GET_METADATA, self.tid, size_of::<Metadata>(), &raw mut found)?;
        }
        Ok(found.flags)
    }

    /// Until the thread is let go, no call that it makes is filtered.
    ///
    /// # Errors
    /// EPERM without the right, or where this process has a sandbox itself; [`EngineError::Gone`](super::EngineError::Gone).
    pub fn suspend_sandbox(&mut self) -> Result<()> {
        self.suspended = true;
        self.set_options(0).inspect_err(|_| self.suspended = false)
    }

    /// What was made by this thread, and attached, is under the same options.
    pub(in super::super) fn inherit_suspension(&mut self, parent: &Self) {
        self.suspended = parent.suspended;
    }
}
