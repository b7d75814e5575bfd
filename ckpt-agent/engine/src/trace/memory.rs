//! Reading and writing another process's memory.

use std::fs::File;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;

use super::super::arch::{Architecture, Current};
use super::super::error::{EngineError, Result};

/// Reads as many bytes as are readable in one go (process_vm_readv(2)).
///
/// # Errors
/// EFAULT where the first page is not readable.
pub fn read_memory(pid: i32, address: u64, into: &mut [u8]) -> nix::Result<usize> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: into.len() };
    // SAFETY: the local vector describes `into`; the remote one is checked by the kernel.
    let read = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    Errno::result(read).map(|count| count as usize)
}

/// Writes as many bytes as are writable in one go (process_vm_writev(2)).
///
/// # Errors
/// EFAULT where the first page is not writable.
pub fn write_memory(pid: i32, address: u64, from: &[u8]) -> nix::Result<usize> {
    let local = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: from.len() };
    // SAFETY: the local vector describes `from`, which is only read; the remote one is checked by
    // the kernel.
    let written = unsafe { libc::process_vm_writev(pid, &local, 1, &remote, 1, 0) };
    Errno::result(written).map(|count| count as usize)
}

/// The memory of a process, with /proc/PID/mem for what process_vm_readv refuses: pages without
/// PROT_READ or PROT_WRITE.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: i32,
    file: Option<File>,
    /// Whether pages are read without being pinned.
    unpinned: bool,
}

impl ProcessMemory {
    /// Of the process with this number on this machine.
    pub fn of(pid: i32) -> Self {
        Self { pid, file: None, unpinned: false }
    }

    /// Of a process that has its pages in common with another until one of the two writes. What
    /// process_vm_readv(2) reads it pins, and a page is copied before it is pinned (Linux 5.19 and later,
    /// FAULT_FLAG_UNSHARE): reading all would double the memory. Reading /proc/PID/mem copies nothing.
    pub fn of_copy(pid: i32) -> Self {
        Self { pid, file: None, unpinned: true }
    }

    fn file(&mut self) -> Result<&File> {
        let path = format!("/proc/{}/mem", self.pid);
        if self.file.is_none() {
            let file = File::options()
                .read(true)
                .write(true)
                .open(&path)
                .map_err(|error| EngineError::system("open", path, error))?;
            self.file = Some(file);
        }
        self.file.as_ref().ok_or(EngineError::Gone(self.pid))
    }

    /// Fills `into` from `address` on.
    ///
    /// # Errors
    /// Where nothing is mapped.
    pub fn read(&mut self, address: u64, into: &mut [u8]) -> Result<()> {
        let mut done = 0;
        // Where that file is not to be had, the other way is better than none.
        let unpinned = self.unpinned && self.file().is_ok();
        while !unpinned && done < into.len() {
            match read_memory(self.pid, address + done as u64, &mut into[done..]) {
                Ok(count) if count > 0 => done += count,
                Ok(_) | Err(Errno::EFAULT | Errno::EINTR) => break,
                Err(Errno::ESRCH) => return Err(EngineError::Gone(self.pid)),
                Err(errno) => {
                    return Err(EngineError::system(
                        "process_vm_readv",
                        format!("process {} at {:#x}", self.pid, address + done as u64),
                        errno,
                    ));
                }
            }
        }
        if done < into.len() {
            let pid = self.pid;
            self.file()?.read_exact_at(&mut into[done..], address + done as u64).map_err(
                |error| {
                    EngineError::system(
                        "read",
                        format!("memory of process {pid} at {address:#x}"),
                        error,
                    )
                },
            )?;
        }
        Ok(())
    }

    /// Writes code that is mapped already: by way of /proc/PID/mem, which tells the processor of it where its
    /// caches do not see that by themselves (include/asm-generic/cacheflush.h, copy_to_user_page).
    ///
    /// # Errors
    /// Where nothing is mapped.
    pub fn write_code(&mut self, address: u64, from: &[u8]) -> Result<()> {
        if !Current::CODE_IS_CACHED {
            return self.write(address, from);
        }
        let pid = self.pid;
        self.file()?.write_all_at(from, address).map_err(|error| {
            EngineError::system("write", format!("memory of process {pid} at {address:#x}"), error)
        })
    }

    /// Writes all of `from` at `address`.
    ///
    /// # Errors
    /// Where nothing is mapped.
    pub fn write(&mut self, address: u64, from: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < from.len() {
            match write_memory(self.pid, address + done as u64, &from[done..]) {
                Ok(count) if count > 0 => done += count,
                Ok(_) | Err(Errno::EFAULT | Errno::EINTR) => break,
                Err(Errno::ESRCH) => return Err(EngineError::Gone(self.pid)),
                Err(errno) => {
                    return Err(EngineError::system(
                        "process_vm_writev",
                        format!("process {} at {:#x}", self.pid, address + done as u64),
                        errno,
                    ));
                }
            }
        }
        if done < from.len() {
            let pid = self.pid;
            self.file()?.write_all_at(&from[done..], address + done as u64).map_err(|error| {
                EngineError::system(
                    "write",
                    format!("memory of process {pid} at {address:#x}"),
                    error,
                )
            })?;
        }
        Ok(())
    }
}
