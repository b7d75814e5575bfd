//! What would catch injected calls on their way into the kernel.

use nix::errno::Errno;

use super::super::super::error::Result;
use super::super::super::graph::Dispatch;
use super::super::ptrace::with_memory;
use super::{Request, StoppedThread, failed};

/// PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG and its counterpart (include/uapi/linux/ptrace.h), since Linux 6.4.
const SET_DISPATCH: Request = 0x4210;
const GET_DISPATCH: Request = 0x4211;

/// struct ptrace_sud_config
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Config {
    mode: u64,
    selector: u64,
    offset: u64,
    length: u64,
}

impl StoppedThread {
    /// Which calls the thread has sent back to itself (PR_SET_SYSCALL_USER_DISPATCH), when it goes on.
    pub fn dispatch(&self) -> Option<Dispatch> {
        self.dispatch
    }

    /// Has it do so from when it goes on.
    ///
    /// # Errors
    /// What the kernel refuses; [`EngineError::Gone`](super::EngineError::Gone).
    pub fn set_dispatch(&mut self, wanted: Dispatch) -> Result<()> {
        self.write_dispatch(wanted)?;
        self.write_dispatch(Dispatch::default())?;
        self.dispatch = Some(wanted);
        Ok(())
    }

    /// Puts it aside: injected calls would be sent back, too.
    ///
    /// # Errors
    /// [`EngineError::Gone`](super::EngineError::Gone).
    pub(super) fn hold_dispatch(&mut self) -> Result<()> {
        let mut found = Config::default();
        // SAFETY: the request writes as many bytes as it is told, the size of `found`, to it.
        let told =
            unsafe { with_memory(GET_DISPATCH, self.tid, size_of::<Config>(), &raw mut found) };
        match told {
            Ok(_) if found.mode == 0 => Ok(()),
            Ok(_) => {
                self.write_dispatch(Dispatch::default())?;
                let Config { mode, selector, offset, length } = found;
                self.dispatch = Some(Dispatch { mode, selector, offset, length });
                Ok(())
            }
            // Older kernels, and processors without it.
            Err(Errno::EIO | Errno::EINVAL) => Ok(()),
            Err(errno) => Err(failed("PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG", self.tid, errno)),
        }
    }

    /// Puts it back.
    ///
    /// # Errors
    /// [`EngineError::Gone`](super::EngineError::Gone).
    pub(super) fn put_dispatch(&mut self) -> Result<()> {
        self.dispatch.take().map_or(Ok(()), |dispatch| self.write_dispatch(dispatch))
    }

    fn write_dispatch(&self, wanted: Dispatch) -> Result<()> {
        let Dispatch { mode, selector, offset, length } = wanted;
        let mut config = Config { mode, selector, offset, length };
        // SAFETY: the request reads as many bytes as it is told, the size of `config`, from it.
        unsafe { with_memory(SET_DISPATCH, self.tid, size_of::<Config>(), &raw mut config) }
            .map(drop)
            .map_err(|errno| failed("PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG", self.tid, errno))
    }
}
