//! Unix sockets (unix(7)): stream, datagram and seqpacket.
//!
//! Queues are peeked message by message and never consumed. SO_PEERCRED names the process that has made the connection: at
//! a restore a child of the init's does so under that number (`made_by`). Of a listening socket it is who has called
//! listen(2), which the process does once more at its restore.

mod bound;
mod folder;
mod made_by;
mod peers;
mod queue;
mod restore;
mod senders;
#[cfg(test)]
mod tests;
mod urgent;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use socket2::{SockAddr, SockRef};

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::{BlobId, FileId, Pid, RelayEnd};
use super::super::names;
use super::super::proc::root_directory;
use super::super::sys::{abi, network, sockopt};
use super::shown::Shown;
use super::socket_options::{Kind, SocketOptions};
use super::{DumpContext, External, Fate, Found, ObjectKind, Probe, RestoreContext, Saved};

/// Options of Unix sockets.
const KIND: Kind = Kind { family: libc::AF_UNIX, protocol: 0 };

/// How queues are looked at.
const FLAGS: i32 = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
/// More than this in one queue is not believed.
const MOST_BYTES: usize = 1 << 30;

/// A Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnixSocket {
    /// SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET.
    pub variety: UnixKind,
    /// What it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// What it is connected to.
    pub link: UnixLink,
    /// Its peer's process (SO_PEERCRED), if that is still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_process: Option<Pid>,
    /// Options and buffer sizes.
    pub options: SocketOptions,
    /// What its program has not read: one entry per message, of a stream one in all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub received: Vec<Message>,
    /// Reading is shut down (by either side).
    #[serde(default)]
    pub shut_read: bool,
    /// Writing is shut down (by either side).
    #[serde(default)]
    pub shut_write: bool,
}

/// Types of Unix sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnixKind {
    /// SOCK_STREAM
    Stream,
    /// SOCK_DGRAM
    Datagram,
    /// SOCK_SEQPACKET
    Sequence,
}

/// An address.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Name {
    /// sun_path as it was given to bind(2); an abstract name begins with a zero byte.
    pub bytes: Vec<u8>,
    /// Of a relative path: the working directory of the process that was found with the socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// A path that still leads to the file that the socket was bound to.
    #[serde(default)]
    pub exists: bool,
    /// That file, as the kernel's list of sockets numbers it: sockets that were bound to one path one after the other
    /// are told apart by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_to: Option<u32>,
    /// Where that file is now, if it was renamed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<String>,
    /// The folder that the path leads to is gone as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub folder_gone: bool,
    /// Of that socket: user, group, mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<(u32, u32, u32)>,
    /// Of an abstract name: the network namespace of the job's own in which it is one, as a place among its namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<u32>,
}

/// What a Unix socket is connected to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum UnixLink {
    /// Nothing.
    None,
    /// listen(2)
    Listening {
        /// Its backlog.
        backlog: i32,
        /// Who has called it, if that process still has the socket.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Pid>,
    },
    /// A socket of the job; of a datagram socket, maybe one way only.
    Socket {
        /// The open file description of the socket.
        file: FileId,
    },
    /// Waits to be accepted.
    Waiting {
        /// At which listening socket.
        listener: FileId,
        /// Place in its queue.
        place: u32,
        /// Which process has it, and most likely connected it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Pid>,
    },
    /// Its peer is an agent's, for another instance.
    Relay {
        /// Which relay.
        end: RelayEnd,
    },
    /// The peer has closed, or is outside of the job.
    Gone {
        /// The next call is told ECONNRESET.
        reset: bool,
    },
}
protocol::tagged!(UnixLink, "link");

/// A message in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Its bytes.
    pub bytes: BlobId,
    /// sun_path of its sender, if that had a name (datagrams).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Vec<u8>>,
    /// The open file descriptions that come with it (SCM_RIGHTS).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileId>,
    /// The process that has sent it, where its receiver wants to know (SO_PASSCRED) and that is still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Pid>,
    /// It is the stream's urgent byte (MSG_OOB).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub urgent: bool,
}

/// Copies of all descriptors that are under way to a socket, in their order.
///
/// # Errors
/// Failed system calls.
pub fn in_flight(socket: &UnixSocket, probe: &Probe, shown: &Shown) -> Result<Vec<OwnedFd>> {
    match socket.link {
        UnixLink::Listening { .. } => Ok(Vec::new()),
        _ => queue::in_flight(probe, socket.variety, shown),
    }
}

/// sun_path without padding: empty where there is no name.
fn path_bytes(address: &SockAddr) -> Option<Vec<u8>> {
    if let Some(name) = address.as_abstract_namespace() {
        let mut bytes = vec![0];
        bytes.extend_from_slice(name);
        return Some(bytes);
    }
    address.as_pathname().map(|path| path.as_os_str().as_bytes().to_vec())
}

fn refused(probe: &Probe, what: impl Into<String>, way_out: &str) -> EngineError {
    EngineError::from(Refusal::new(what, way_out)).at(probe.pid, &probe.comm, probe.fd)
}

/// A refusal of something that goes away by itself.
fn soon(probe: &Probe, what: impl Into<String>, way_out: &str) -> EngineError {
    EngineError::from(Refusal::passing(what, way_out)).at(probe.pid, &probe.comm, probe.fd)
}

fn system(call: &'static str, error: impl Into<std::io::Error>) -> EngineError {
    EngineError::system(call, "a Unix socket", error)
}

impl UnixSocket {
    /// Whether its program asks who has sent what it reads (SO_PASSCRED).
    pub fn asks_for_senders(&self) -> bool {
        self.options.number("pass_credentials") != 0
    }

    /// As if it had never been connected or bound.
    pub(super) fn become_idle(&mut self) {
        self.name = None;
        self.link = UnixLink::None;
        self.peer_process = None;
        self.received = Vec::new();
        self.shut_read = false;
        self.shut_write = false;
    }
}

impl ObjectKind for UnixSocket {
    fn recognise(probe: &Probe) -> bool {
        probe.file_type() == abi::S_IFSOCK
            && sockopt::get_int(&probe.copy, libc::SOL_SOCKET, libc::SO_DOMAIN)
                .is_ok_and(|domain| domain == libc::AF_UNIX)
    }

    fn dump(probe: &Probe, _context: &mut DumpContext) -> Result<Self> {
        let option = |name| {
            sockopt::get_int(&probe.copy, libc::SOL_SOCKET, name)
                .map_err(|error| system("getsockopt", error))
        };
        let kind = match option(libc::SO_TYPE)? {
            libc::SOCK_STREAM => UnixKind::Stream,
            libc::SOCK_DGRAM => UnixKind::Datagram,
            libc::SOCK_SEQPACKET => UnixKind::Sequence,
            other => return Err(EngineError::odd("SO_TYPE of a Unix socket", other.to_string())),
        };
        let own = SockRef::from(&probe.copy)
            .local_addr()
            .map_err(|error| system("getsockname", error))?;
        let name = path_bytes(&own).filter(|bytes| !bytes.is_empty());
        if name.as_ref().is_some_and(|name| name.first() == Some(&b'/')) && is_below(probe) {
            // Whether it was bound there, or before, is not told: one restore would put its file at another place.
            let what = "a Unix socket with an absolute path, in a process with a root directory of its own";
            return Err(Refusal::new(what, "bind it to a relative path").into());
        }
        Ok(Self {
            variety: kind,
            name: name.map(|bytes| named(bytes, probe)),
            peer_process: None,
            // Completed by `finish`; the backlog by the kernel's list of sockets.
            link: match option(libc::SO_ACCEPTCONN)? {
                0 => UnixLink::None,
                _ => UnixLink::Listening { backlog: 0, by: None },
            },
            options: SocketOptions::read(&probe.copy, KIND)?,
            received: Vec::new(),
            shut_read: false,
            shut_write: false,
        })
    }

    fn finish(all: &mut [Found<'_, Self>], context: &mut DumpContext) -> Result<()> {
        peers::find(all, context)?;
        for found in all {
            if matches!(found.object.link, UnixLink::Listening { .. }) {
                continue;
            }
            found.object.received = queue::peek(found.probe, found.object.variety, context)?;
        }
        Ok(())
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        restore::restore(all, context)
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Undivided
    }
}

/// Whether the process that was found with a socket has another root directory than the job.
fn is_below(probe: &Probe) -> bool {
    root_directory(probe.host_pid).is_ok_and(|root| root.is_some())
}

/// A name with what is needed to bind to it again.
fn named(bytes: Vec<u8>, probe: &Probe) -> Name {
    let mut name = Name { bytes, ..Name::default() };
    if name.bytes.first() == Some(&0) {
        name.network = network::current();
        return name;
    }
    if Path::new(OsStr::from_bytes(&name.bytes)).is_relative() {
        let directory = std::fs::read_link(format!("/proc/{}/cwd", probe.host_pid)).ok();
        name.directory = directory.map(names::text);
    }
    let path = seen(&name, probe);
    name.folder_gone = path.parent().is_some_and(|folder| {
        std::fs::metadata(folder).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    });
    if let Some(meta) = at_path(&name, probe) {
        name.exists = true;
        name.owner = Some(owner(&meta));
    }
    name
}

fn owner(meta: &Metadata) -> (u32, u32, u32) {
    (meta.uid(), meta.gid(), meta.mode() & 0o7777)
}

/// The socket that a name leads to now, as the process sees it: the job has mounts of its own.
fn at_path(name: &Name, probe: &Probe) -> Option<Metadata> {
    std::fs::symlink_metadata(seen(name, probe)).ok().filter(|meta| meta.file_type().is_socket())
}

fn seen(name: &Name, probe: &Probe) -> PathBuf {
    let path = Path::new(OsStr::from_bytes(&name.bytes));
    let path =
        name.directory.as_ref().map_or_else(|| path.to_owned(), |at| names::path(at).join(path));
    match path.strip_prefix("/") {
        Ok(below) => Path::new(&format!("/proc/{}/root", probe.host_pid)).join(below),
        Err(_) => Path::new(&format!("/proc/{}/cwd", probe.host_pid)).join(path),
    }
}

impl Name {
    /// Compares what the name leads to with the file that the socket was bound to. `others`: the files of all sockets.
    fn identify(
        &mut self,
        bound_to: Option<u32>,
        probe: &Probe,
        others: &HashSet<u32>,
        context: &DumpContext,
    ) {
        self.bound_to = bound_to.filter(|_| self.bytes.first() != Some(&0));
        self.look_elsewhere(probe, context);
        self.check(probe, others);
        if let Some(own) = self.bound_to.filter(|_| !self.exists) {
            if let Some((path, meta)) = folder::moved(&seen(self, probe), own, probe) {
                self.moved = Some(path);
                self.owner = Some(owner(&meta));
            }
        }
    }

    fn check(&mut self, probe: &Probe, others: &HashSet<u32>) {
        // What is not there any more can't be another's file.
        let Some(own) = self.bound_to.filter(|_| self.exists) else { return };
        let Some(there) = at_path(self, probe).map(|meta| meta.ino() as u32) else { return };
        // Overlays may show other numbers than the kernel's list: there only another socket's file is told for sure.
        let sure = || {
            let folder = seen(self, probe).parent().map(nix::sys::statfs::statfs);
            let overlay = nix::sys::statfs::OVERLAYFS_SUPER_MAGIC;
            folder.is_some_and(|found| found.is_ok_and(|found| found.filesystem_type() != overlay))
        };
        if there != own && (others.contains(&there) || sure()) {
            self.exists = false;
            self.owner = None;
        }
    }

    /// A relative path that does not lead to the socket from where its process is now.
    fn look_elsewhere(&mut self, probe: &Probe, context: &DumpContext) {
        let is_own = |meta: &Metadata, own| meta.ino() as u32 == own;
        let Some(own) = self.bound_to.filter(|_| self.directory.is_some()) else { return };
        if at_path(self, probe).is_some_and(|meta| is_own(&meta, own)) {
            return;
        }
        if let Some(folder) = folder::of(self, own, probe, context) {
            self.directory = Some(names::text(folder));
            if let Some(meta) = at_path(self, probe) {
                self.exists = true;
                self.owner = Some(owner(&meta));
            }
        }
    }
}
