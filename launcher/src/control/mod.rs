//! The Unix socket in a running job's folder.

mod client;
mod server;

pub use client::{AskError, ask, ask_beginning};
pub use server::{Asked, Server};

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The socket's name in the job's folder.
const SOCKET: &str = "socket";

/// A way to a job's socket that fits into an address of 108 bytes (unix(7)), however long the
/// folder's path is: through this process's own descriptor of the folder.
struct ShortPath {
    _folder: File,
    path: PathBuf,
}

impl ShortPath {
    fn of(job_dir: &Path) -> io::Result<Self> {
        let folder = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_PATH | nix::libc::O_DIRECTORY)
            .open(job_dir)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()));
        Ok(Self { _folder: folder, path })
    }
}
