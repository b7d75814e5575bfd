//! Descriptions of files whose content travels in the image.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::stat::fstat;
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::InodeId;
use super::super::inodes;
use super::super::sys::protected;
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
        if let Some(attribute) = protected::attribute(probe.copy.as_fd()).filter(|_| named) {
            let what =
                format!("{} is {attribute}: a restart could not put its content back", probe.link);
            let way_out = "have it outside of the directories whose files travel, or without that";
            return Err(Refusal::new(what, way_out).into());
        }
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
        let inode = context.inode(self.inode)?;
        let fd = match self.name.as_ref().and_then(|name| by_name(name, flags, inode)) {
            Some(fd) => fd,
            None => reopen::reopen(inode, flags)
                .map_err(|errno| EngineError::system("open", self.shown(), errno))?,
        };
        self.place(fd, flags)
    }

    /// Whether the description may be the one that memfd_create(2) made.
    pub fn may_be_original(&self, flags: i32, context: &RestoreContext) -> bool {
        context.is_memfd(self.inode)
            && flags & libc::O_ACCMODE == libc::O_RDWR
            && reopen::writable(flags)
    }

    /// The description that memfd_create(2) has made in this restore. It does not count as open for writing, so that the
    /// file can be executed, as one that is opened under its path can't (ETXTBSY; mm/memfd.c makes it without
    /// get_write_access()).
    ///
    /// # Errors
    /// As [`restore`](Self::restore).
    pub fn original(&self, flags: i32, context: &RestoreContext) -> Result<OwnedFd> {
        let fd = context.inode(self.inode)?.try_clone_to_owned();
        let fd = fd.map_err(|error| EngineError::system("fcntl", self.shown(), error))?;
        self.place(fd, flags)
    }

    fn shown(&self) -> String {
        format!("a file of the image (inode {})", self.inode.0)
    }

    fn place(&self, fd: OwnedFd, flags: i32) -> Result<OwnedFd> {
        if flags & libc::O_PATH == 0 {
            reopen::seek(fd.as_fd(), self.offset)
                .map_err(|errno| EngineError::system("lseek", self.shown(), errno))?;
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
