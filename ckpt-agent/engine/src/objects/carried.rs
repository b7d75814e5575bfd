//! Descriptions of files whose content travels in the image.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::stat::fstat;
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Result};
use super::super::graph::InodeId;
use super::super::inodes;
use super::super::sys::stat::is_same_file;
use super::{DumpContext, Probe, RestoreContext, reopen};

/// An open file of which the image holds the content: a memfd, a deleted file, or one in a
/// session directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// The content.
    pub inode: InodeId,
    /// File offset, bytes.
    pub offset: u64,
    /// The name by which it was opened, where that is not the inode's first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Carried {
    /// Reads a description. `named`: it has a path that leads to it.
    ///
    /// # Errors
    /// As [`inodes::take`].
    pub fn dump(probe: &Probe, context: &mut DumpContext, named: bool) -> Result<Self> {
        let inode = inodes::take_probe(context, probe, named)?;
        let known = context.inodes.get(inode.0 as usize);
        let further = known.is_some_and(|known| known.links.contains(&probe.link));
        let name = (named && further).then(|| probe.link.clone());
        Ok(Self { inode, offset: probe.info.position()?, name })
    }

    /// Opens the inode that was made from the image.
    ///
    /// # Errors
    /// Failed system calls, [`EngineError::Damaged`].
    pub fn restore(&self, flags: i32, context: &RestoreContext) -> Result<OwnedFd> {
        let what = || format!("a file of the image (inode {})", self.inode.0);
        let inode = context.inode(self.inode)?;
        let fd = match self.name.as_ref().and_then(|name| by_name(name, flags, inode)) {
            Some(fd) => fd,
            None => reopen::reopen(inode, flags)
                .map_err(|errno| EngineError::system("open", what(), errno))?,
        };
        if flags & libc::O_PATH == 0 {
            reopen::seek(fd.as_fd(), self.offset)
                .map_err(|errno| EngineError::system("lseek", what(), errno))?;
        }
        Ok(fd)
    }
}

/// The file by one of its names, if that leads to it.
fn by_name(name: &str, flags: i32, inode: BorrowedFd<'_>) -> Option<OwnedFd> {
    let fd = reopen::open(name, flags | libc::O_NONBLOCK).ok()?;
    reopen::set_status(fd.as_fd(), flags).ok()?;
    is_same_file(&fstat(&fd).ok()?, &fstat(inode).ok()?).then_some(fd)
}
