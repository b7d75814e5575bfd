//! O_PATH descriptors: a place in the file tree, not an open file.

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Refusal, Result};
use super::super::inodes;
use super::super::names;
use super::super::sys::abi;
use super::carried::Carried;
use super::directory::Directory;
use super::{DumpContext, Fate, ObjectKind, Probe, RestoreContext, Saved, paths};

/// A place in the file tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum PathOnly {
    /// A directory.
    Directory(Directory),
    /// A file that travels in the image.
    Carried(Carried),
    /// A symbolic link that is deleted.
    GoneLink {
        /// The path that it had.
        path: String,
        /// Where it leads.
        target: String,
    },
    /// Anything else that has a path.
    Named {
        /// Its path.
        path: String,
        /// S_IFMT part of its mode: a symbolic link is opened itself.
        file_type: u32,
    },
}
protocol::tagged!(PathOnly, "place");

impl PathOnly {
    fn open(&self, flags: i32, context: &RestoreContext) -> Result<OwnedFd> {
        let (path, file_type) = match self {
            Self::Directory(directory) => return directory.open(flags, context),
            Self::Carried(file) => return file.restore(flags, context),
            Self::GoneLink { path, target } => return gone_link(path, target),
            Self::Named { path, file_type } => (path, *file_type),
        };
        let unfit = |what: String| EngineError::Unfit {
            what: format!("{path} {what}"),
            way_out: "put back the file that the job had".to_owned(),
        };
        let open_flags =
            nix::fcntl::OFlag::from_bits_retain(libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC);
        let fd = nix::fcntl::open(&*names::path(path), open_flags, nix::sys::stat::Mode::empty())
            .map_err(|errno| unfit(format!("cannot be opened ({})", errno.desc())))?;
        let found = nix::sys::stat::fstat(&fd)
            .map_err(|errno| EngineError::system("fstat", path, errno))?;
        if found.st_mode & abi::S_IFMT != file_type {
            return Err(unfit("is of another kind than at the checkpoint".to_owned()));
        }
        Ok(fd)
    }
}

/// A symbolic link that is removed already, as that of this path was.
fn gone_link(path: &str, target: &str) -> Result<OwnedFd> {
    let failed = |errno| EngineError::system("make the symbolic link", path, errno);
    let here = nix::fcntl::AT_FDCWD;
    let make =
        |name: &str| nix::unistd::symlinkat(&*names::path(target), here, &*names::path(name));
    let (made, ()) = paths::first_free(path, make)
        .or_else(|_| paths::first_free("/tmp/ckptd-link", make))
        .map_err(failed)?;
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let flags = nix::fcntl::OFlag::from_bits_retain(flags);
    let fd = nix::fcntl::open(&*names::path(&made), flags, nix::sys::stat::Mode::empty());
    nix::unistd::unlink(&*names::path(&made)).map_err(failed)?;
    fd.map_err(failed)
}

impl ObjectKind for PathOnly {
    fn recognise(probe: &Probe) -> bool {
        probe.flags & libc::O_PATH != 0
    }

    fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self> {
        let exists = paths::leads_to_place_for_user(probe, context)?;
        let travels = context.is_session_file(&probe.link)
            && !inodes::belongs_to_another(probe.host_pid, probe.stat.st_uid);
        match probe.file_type() {
            _ if !probe.link.starts_with('/') => Err(probe.unknown().into()),
            abi::S_IFDIR => Directory::of(probe, context).map(Self::Directory),
            abi::S_IFREG if !exists || travels => {
                Carried::dump(probe, context, exists).map(Self::Carried)
            }
            abi::S_IFLNK if !exists => {
                let target = nix::fcntl::readlinkat(&probe.copy, "")
                    .map_err(|errno| EngineError::system("readlink", &probe.link, errno))?;
                let path = paths::without_mark(&probe.link).to_owned();
                Ok(Self::GoneLink { path, target: names::text(target) })
            }
            file_type if exists => Ok(Self::Named { path: probe.link.clone(), file_type }),
            _ => Err(Refusal::new(
                format!("{} is an O_PATH descriptor of something without a path", probe.link),
                "close it while checkpoints are taken",
            )
            .into()),
        }
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        for saved in all {
            let fd = saved.object.open(saved.file.flags, context)?;
            context.park(saved.id, fd)?;
        }
        Ok(())
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Again
    }
}
