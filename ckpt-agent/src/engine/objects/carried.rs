//! Descriptions of files whose content travels in the image.

use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Result};
use super::super::graph::InodeId;
use super::super::inodes;
use super::{DumpContext, Probe, RestoreContext, reopen};

/// An open file of which the image holds the content: a memfd, a deleted file, or one in a
/// session directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// The content.
    pub inode: InodeId,
    /// File offset, bytes.
    pub offset: u64,
}

impl Carried {
    /// Reads a description. `named`: it has a path that leads to it.
    ///
    /// # Errors
    /// As [`inodes::take`].
    pub fn dump(probe: &Probe, context: &mut DumpContext, named: bool) -> Result<Self> {
        let inode = inodes::take_probe(context, probe, named)?;
        Ok(Self { inode, offset: probe.info.position()? })
    }

    /// Opens the inode that was made from the image.
    ///
    /// # Errors
    /// Failed system calls, [`EngineError::Damaged`].
    pub fn restore(&self, flags: i32, context: &RestoreContext) -> Result<std::os::fd::OwnedFd> {
        let what = || format!("a file of the image (inode {})", self.inode.0);
        let fd = reopen::reopen(context.inode(self.inode)?, flags)
            .map_err(|errno| EngineError::system("open", what(), errno))?;
        if flags & libc::O_PATH == 0 {
            reopen::seek(fd.as_fd(), self.offset)
                .map_err(|errno| EngineError::system("lseek", what(), errno))?;
        }
        Ok(fd)
    }
}
