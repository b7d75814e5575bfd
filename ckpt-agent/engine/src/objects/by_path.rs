//! Files that are referred to by their path: found again, checked, and put back to the length
//! that they had.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use protocol::launch::FileCheck;
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Result};
use super::super::file_check;
use super::super::graph::Origin;
use super::super::names;
use super::super::sys::abi;
use super::super::sys::stat::modified_ns;
use super::in_place::InPlace;
use super::{DumpContext, Probe, RestoreContext, paths, reopen};

/// Where names are looked up (hosts(5)): in a cluster each instance has one of its own.
pub const HOSTS: &str = "/etc/hosts";
/// Configuration that each machine has of its own.
const OF_THE_MACHINE: &str = "/etc/";

/// An open file that stays where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByPath {
    /// Its path.
    pub path: String,
    /// File offset, bytes.
    pub offset: u64,
    /// Its size at the checkpoint, bytes.
    pub size: u64,
    /// When it was last modified, ns since 1970.
    pub modified_ns: i64,
    /// BLAKE3 of its content, where that decides (hex).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Its content, where it is written in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place: Option<InPlace>,
}

impl ByPath {
    /// Reads a description of the file at `path`.
    ///
    /// # Errors
    /// What /proc does not tell.
    pub fn dump(probe: &Probe, path: &str, context: &mut DumpContext) -> Result<Self> {
        Ok(Self {
            in_place: InPlace::take(probe, path, context)?,
            path: path.to_owned(),
            offset: probe.info.position()?,
            size: probe.stat.st_size.max(0) as u64,
            modified_ns: modified_ns(&probe.stat),
            hash: None,
        })
    }

    /// Opens the file again. `written`: the job has it open for writing, here or elsewhere, so
    /// that a changed time or a greater length are its own doing.
    ///
    /// # Errors
    /// [`EngineError::Unfit`] where it is missing, shorter, or (only read) another one.
    pub fn restore(
        &self,
        flags: i32,
        written: bool,
        context: &mut RestoreContext,
    ) -> Result<OwnedFd> {
        // What is mapped or written in place has just been put back.
        let back =
            context.put_back.contains(&self.path)
                || context.graph.inodes.iter().any(
                    |inode| matches!(&inode.origin, Origin::Named { path } if *path == self.path),
                );
        if !back {
            self.check(written, context)?;
        }
        let fd = match reopen::open_as_owner(&self.path, flags) {
            Ok(fd) => fd,
            // The restart makes it again.
            Err(Errno::ENOENT) if context.rehearsal && self.in_place.is_some() => {
                self.empty(flags)?
            }
            Err(Errno::ENOENT) if context.force => self.substitute(flags, context)?,
            Err(errno) => {
                return Err(EngineError::Unfit {
                    what: format!("{} cannot be opened ({})", self.path, errno.desc()),
                    way_out: "give back the permission that the job had".to_owned(),
                });
            }
        };
        reopen::seek(fd.as_fd(), self.offset)
            .map_err(|errno| EngineError::system("lseek", &self.path, errno))?;
        Ok(fd)
    }

    fn check(&self, written: bool, context: &mut RestoreContext) -> Result<()> {
        let found = match nix::sys::stat::stat(&*names::path(&self.path)) {
            Ok(found) => found,
            Err(errno) => return self.complain(&format!("is missing ({})", errno.desc()), context),
        };
        if found.st_mode & abi::S_IFMT != abi::S_IFREG {
            return self.complain("is no regular file any more", context);
        }
        // Made anew for each instance by its init, of whoever is where by then.
        if context.cluster && self.path == HOSTS {
            return Ok(());
        }
        let size = found.st_size.max(0) as u64;
        if size < self.size {
            let what = format!("has {size} bytes, {} at the checkpoint", self.size);
            return self.complain(&what, context);
        }
        if written {
            return if size > self.size { self.cut(size, context) } else { Ok(()) };
        }
        if size > self.size {
            let what = format!("has {size} bytes, {} at the checkpoint", self.size);
            return self.complain(&what, context);
        }
        if context.cluster && self.path.starts_with(OF_THE_MACHINE) {
            return Ok(());
        }
        match (context.file_check, &self.hash) {
            (FileCheck::Size, _) => Ok(()),
            (FileCheck::Hash, Some(hash)) => match self.content() {
                Ok(found) if found == *hash => Ok(()),
                Ok(_) => self.complain("has another content than at the checkpoint", context),
                Err(error) => self.complain(&format!("cannot be read ({error})"), context),
            },
            _ if modified_ns(&found) == self.modified_ns => Ok(()),
            _ => self.complain("was modified since the checkpoint", context),
        }
    }

    fn content(&self) -> std::io::Result<String> {
        let fd = reopen::open_as_owner(&self.path, libc::O_RDONLY | libc::O_NONBLOCK)?;
        file_check::hash(&fd.into())
    }

    /// Reads the content of a file that the job only reads, for a restart to compare.
    ///
    /// # Errors
    /// Failed reads.
    pub fn keep_hash(&mut self, probe: &Probe) -> std::io::Result<()> {
        let own = reopen::reopen_as_owner(&probe.copy, libc::O_RDONLY | libc::O_NONBLOCK)?;
        self.hash = Some(file_check::hash(&own.into())?);
        Ok(())
    }

    fn complain(&self, what: &str, context: &mut RestoreContext) -> Result<()> {
        if context.force {
            context.warn(format!("{} {what}; restored all the same, as --force says", self.path));
            return Ok(());
        }
        Err(EngineError::Unfit {
            what: format!("{} {what}", self.path),
            way_out: "put back the file that the job had, or use --force".to_owned(),
        })
    }

    /// Puts the file back to its recorded length, and its tail into a file of its own.
    pub(super) fn cut(&self, size: u64, context: &mut RestoreContext) -> Result<()> {
        if context.rehearsal {
            // The restart keeps what is written until then.
            return Ok(());
        }
        let failed = |error| EngineError::system("put back the length of", &self.path, error);
        let file = reopen::open_as_owner(&self.path, libc::O_RDWR);
        let file = std::fs::File::from(file.map_err(|errno| failed(errno.into()))?);
        let mut number = 0;
        let (tail, to) = paths::first_free(&format!("{}.ckptd-tail", self.path), |_| {
            number += 1;
            let name = format!("{}.ckptd-tail-{number}", self.path);
            match std::fs::File::options().write(true).create_new(true).open(names::path(&name)) {
                Ok(to) => Ok((name, to)),
                Err(error) => Err(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))),
            }
        })
        .map(|(_, made)| made)
        .map_err(|errno| failed(errno.into()))?;
        let copied = copy_range(&file, self.size, size, &to).and_then(|()| to.sync_all());
        if let Err(error) = copied {
            let _ = std::fs::remove_file(names::path(&tail));
            return Err(failed(error));
        }
        file.set_len(self.size).map_err(failed)?;
        context.warn(format!(
            "{} was put back to its {} bytes of the checkpoint; the {} bytes written since are in \
             {tail}",
            self.path,
            self.size,
            size - self.size
        ));
        Ok(())
    }

    /// An empty file that has no name.
    fn empty(&self, flags: i32) -> Result<OwnedFd> {
        let failed = |errno| EngineError::system("make", &self.path, errno);
        let name = std::ffi::CString::new("missing").unwrap_or_default();
        let made = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
        let empty = nix::sys::memfd::memfd_create(name.as_c_str(), made).map_err(failed)?;
        reopen::reopen(&empty, flags).map_err(failed)
    }

    /// With --force, in place of a missing file: an empty one for writing, and for reading one
    /// that has no name.
    fn substitute(&self, flags: i32, context: &mut RestoreContext) -> Result<OwnedFd> {
        let failed = |error| EngineError::system("make", &self.path, error);
        if !reopen::writable(flags) {
            context.warn(format!("{} is missing: the job reads an empty file", self.path));
            return self.empty(flags);
        }
        std::fs::File::options()
            .write(true)
            .create_new(true)
            .open(names::path(&self.path))
            .and_then(|file| file.set_len(self.size))
            .map_err(failed)?;
        context.warn(format!("{} was missing: made again, filled with zeros", self.path));
        reopen::open(&self.path, flags).map_err(|errno| failed(errno.into()))
    }
}

/// Copies bytes `start` to `end` to the start of another file.
fn copy_range(
    from: &std::fs::File,
    start: u64,
    end: u64,
    to: &std::fs::File,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut at = start;
    while at < end {
        let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        let count = from.read_at(buffer.get_mut(..want).unwrap_or_default(), at)?;
        if count == 0 {
            break;
        }
        to.write_all_at(buffer.get(..count).unwrap_or_default(), at - start)?;
        at += count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::graph::Graph;
    use super::super::testing::{Kept, dump};
    use super::*;

    fn opened(
        graph: &Graph,
        cluster: bool,
        path: &str,
        longer: u64,
        later: i64,
    ) -> Result<OwnedFd> {
        let stat = nix::sys::stat::stat(path).unwrap();
        let file = ByPath {
            path: path.to_owned(),
            offset: 0,
            size: stat.st_size as u64 + longer,
            modified_ns: modified_ns(&stat) - later,
            hash: None,
            in_place: None,
        };
        let kept = Kept(Vec::new());
        let mut context = RestoreContext::new(graph, &kept, false, 512);
        context.cluster = cluster;
        file.restore(libc::O_RDONLY, false, &mut context)
    }

    #[test]
    fn names_of_hosts_are_each_instances_own() {
        let graph = dump(&[]).graph();
        assert!(opened(&graph, true, HOSTS, 99, 1).is_ok());
        assert!(opened(&graph, false, HOSTS, 0, 1).is_err());
    }

    #[test]
    fn configuration_is_as_old_as_its_machine_likes() {
        let graph = dump(&[]).graph();
        let passwd = "/etc/passwd";
        assert!(opened(&graph, true, passwd, 0, 1).is_ok());
        assert!(opened(&graph, true, passwd, 99, 0).is_err());
        assert!(opened(&graph, false, passwd, 0, 1).is_err());
        assert!(opened(&graph, false, passwd, 0, 0).is_ok());
    }
}
