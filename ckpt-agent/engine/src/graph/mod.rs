//! A checkpoint as a graph: processes and kernel objects, and who holds what. Nothing in it
//! names a physical machine. Written as graph.json and one PROCESS.json per process.

mod area;
mod attributes;
mod blob;
mod extended;
mod file;
mod folder;
mod hex;
mod inode;
mod ipc;
mod mounts;
mod namespaces;
pub mod offer;
mod pid;
mod process;
mod relay;
mod sandbox;
mod sharing;
mod stdio;
mod timer;
mod window;

pub use area::{Advice, Area, Backing, MappedFile, Protection, Watched};
pub(crate) use attributes::is_zero;
pub use attributes::{Dispatch, MemoryPolicy, ProcessAttributes, Schedule, ThreadAttributes};
pub use blob::{Blob, BlobId, Span};
pub use extended::ExtendedAttribute;
pub use file::{
    Descriptor, FileId, Inside, LeaseBreak, Lock, LockKind, OpenFile, Owner, OwnerKind,
};
pub use folder::{EntryKind, FolderEntry, WholeFolder};
pub use hex::{from_hex, from_sparse_hex, to_hex, to_sparse_hex};
pub use inode::{CarriedInode, InodeId, Origin};
pub use ipc::{IpcIdentity, IpcObjects, SemaphoreSet, SemaphoreUndo, SysvQueue};
pub use mounts::{MountSource, MountedContent, MountedEntry, OwnMount};
pub use namespaces::{IdRange, NamespaceContent, OwnNamespace, TIME_OF_CHILDREN};
pub use offer::Offer;
pub use pid::Pid;
pub use process::{
    Clocks, Credentials, Directories, IntervalTimer, NumbersInside, PendingSignal, ProcessImage,
    ProcessNode, ProcessState, RegisteredRing, ResourceLimit, RobustList, Rseq, SignalAction,
    SignalStack, StoppedChild, ThreadImage,
};
pub use relay::{OuterEnd, RelayEnd, RelayKind, RelayState, RemoteShell};
pub use sandbox::{Sandbox, SandboxFilter};
pub use sharing::Sharing;
pub use stdio::StdioRole;
pub use timer::PosixTimer;
pub use window::{StoredWindow, WINDOW_PAGES, too_short};

use serde::{Deserialize, Serialize};

use protocol::launch::Kept;

use super::arch::Part;
use super::objects::Object;

/// Version of graph.json and PROCESS.json. An older one is read, a newer one refused. Since 2, zeros in extended registers
/// are counted; since 3, some pages of a window may be taken from an older chunk; since 4, processes may have another one's
/// memory, and threads directories of their own.
pub const GRAPH_VERSION: u32 = 4;
/// The version of what has nothing that an earlier ckptd would overlook.
const PLAIN_VERSION: u32 = 3;

/// The version to write: with such sharers or threads, or without.
pub fn version_of(has_sharers: bool) -> u32 {
    if has_sharers { GRAPH_VERSION } else { PLAIN_VERSION }
}

/// Everything of a checkpoint but the memory of its processes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Graph {
    /// [`GRAPH_VERSION`] of the writer.
    pub version: u32,
    /// Architecture as Rust names it (`x86_64`, `aarch64`).
    pub architecture: String,
    /// Bytes per page.
    pub page_size: u64,
    /// Clocks at the moment of the freeze, as the job saw them.
    pub clocks: Clocks,
    /// BLAKE3 of the vdso's bytes: another kernel has another one.
    pub vdso: String,
    /// These bytes, for a restart under another kernel; `None`: that is not known for this architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vdso_image: Option<BlobId>,
    /// Where the machine keeps the parts of extended register sets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layout: Vec<Part>,
    /// What processors its programs began on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offers: Vec<Offer>,
    /// The process whose end is the job's end; 0: it is not of this instance.
    #[serde(default)]
    pub root: Pid,
    /// The init's number, where the job has no PID namespace, so that it is another than 1; 0: it has one. It is 1
    /// everywhere else in the graph.
    #[serde(default)]
    pub init: Pid,
    /// All processes, parents before their children.
    pub processes: Vec<ProcessNode>,
    /// Open file descriptions; a [`FileId`] is an index here.
    pub files: Vec<OpenFile>,
    /// Inodes whose content travels; an [`InodeId`] is an index here.
    pub inodes: Vec<CarriedInode>,
    /// In-flight bytes and file contents; a [`BlobId`] is an index here.
    pub blobs: Vec<Blob>,
    /// Folders whose whole content belongs to the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<WholeFolder>,
    /// What of the file system belongs to the job.
    #[serde(default)]
    pub kept: Kept,
    /// SysV semaphores and message queues.
    #[serde(default, skip_serializing_if = "IpcObjects::is_empty")]
    pub ipc: IpcObjects,
    /// What processes share with their parents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sharing: Vec<Sharing>,
    /// Namespaces that processes have made for themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<OwnNamespace>,
    /// Relays of which the instance has a side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<RelayState>,
    /// Stand-ins with standard streams.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remote_shells: Vec<RemoteShell>,
}

impl Graph {
    /// The object of an open file description, if the index is within the graph.
    pub fn object(&self, id: FileId) -> Option<&Object> {
        self.files.get(id.0 as usize).map(|file| &file.object)
    }

    /// The IPC namespace of a process, where that is its own, and its place.
    pub fn own_ipc_of(&self, image: &ProcessImage) -> Option<(u32, &NamespaceContent)> {
        let places = image.namespaces.iter();
        let all = places.filter_map(|place| {
            let one = self.namespaces.get(*place as usize)?;
            Some((*place, &one.content))
        });
        let mut all = all.filter(|(_, content)| content.flag() == libc::CLONE_NEWIPC);
        all.next()
    }

    /// Whether the launcher holds the master of one of its terminals: the one that the job was started from.
    pub fn has_console_terminal(&self) -> bool {
        self.files.iter().any(|file| match &file.object {
            Object::Terminal(terminal) => terminal.pair.as_ref().is_some_and(|pair| pair.console),
            _ => false,
        })
    }
}
