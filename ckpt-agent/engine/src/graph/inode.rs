//! Inodes whose content travels in the image: shared memory, deleted files, and files of the
//! job's session directories.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{BlobId, ExtendedAttribute};

/// Index of a [`CarriedInode`] in the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InodeId(pub u32);

/// A file or memory object that is rebuilt from the image, however many descriptors and
/// mappings share it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CarriedInode {
    /// How it came to be and how it is made again.
    pub origin: Origin,
    /// Its size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// User and group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<(u32, u32)>,
    /// Modification time, ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_ns: Option<i64>,
    /// When it was last read, ns since 1970; none: taken for the time of its modification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accessed_ns: Option<i64>,
    /// Number of the inode: programs may know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// The job never writes to it: it is mapped privately, a program or a library. One that is still
    /// there is taken as it is.
    #[serde(default)]
    pub read_only: bool,
    /// Of one that has its name: further ones, hard links by which the job has it open, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
    /// Its extended attributes, where they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Vec<ExtendedAttribute>>,
    /// Of one without a name: code of it is mapped, so that it needs a place from which code may run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executed: bool,
    /// Memory of huge pages (hugetlbfs): bytes of a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge: Option<u64>,
    /// Its bytes.
    pub content: BlobId,
}

/// What kind of inode it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum Origin {
    /// memfd_create(2).
    Memfd {
        /// The name given to memfd_create, without "memfd:".
        name: String,
        /// F_GET_SEALS.
        seals: i32,
    },
    /// mmap(2) with MAP_SHARED|MAP_ANONYMOUS: shared by fork.
    Anonymous,
    /// Unlinked while it was open or mapped.
    Deleted {
        /// The path that it had.
        path: String,
        /// It was made without a name (O_TMPFILE), and may be given one.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        nameless: bool,
    },
    /// A file of a session directory that still has its name.
    Named {
        /// Its path.
        path: String,
    },
    /// shmget(2). What maps it has attached it (shmat(2)).
    Segment {
        /// Its number.
        number: i32,
        /// Its key; 0: none.
        key: i32,
        /// User and group that made it.
        creator: (u32, u32),
        /// IPC_RMID: it ends with its last holder.
        marked: bool,
        /// SHM_LOCK.
        locked: bool,
        /// The IPC namespace that it is in, among those of the image; none: the job's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<u32>,
    },
}
protocol::tagged!(Origin, "origin");

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memfd { name, .. } => write!(f, "memfd {name}"),
            Self::Anonymous => write!(f, "shared memory"),
            Self::Deleted { path, .. } | Self::Named { path } => write!(f, "{path}"),
            Self::Segment { number, .. } => write!(f, "shared memory segment {number}"),
        }
    }
}
