//! What is mounted in a mount namespace of a job's own.

use serde::{Deserialize, Serialize};

/// A mount, in the order in which they are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnMount {
    /// Mount point, as the namespace sees it.
    pub at: String,
    /// Which folder or file of its file system is seen there.
    pub root: String,
    /// Type of the file system.
    pub file_system: String,
    /// What it was mounted from, of one that is made; empty: as its type is called.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// Its own options, as mountinfo tells them.
    pub options: String,
    /// Where it comes from.
    pub source: MountSource,
}

impl OwnMount {
    /// Most of one namespace.
    pub const MOST: usize = 1000;
}

/// Where a mount comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum MountSource {
    /// There already: it came with a copy of what the job has mounted.
    Along {
        /// Its options are others than there.
        changed: bool,
    },
    /// A copy of what the job's own mount namespace shows at a path.
    Bound {
        /// The path.
        path: String,
        /// With all mounts below it.
        recursive: bool,
    },
    /// A file system made for it.
    Made {
        /// Options of the file system.
        data: String,
        /// What is in it, parents first, beginning with its root.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        entries: Vec<MountedEntry>,
    },
}
protocol::tagged!(MountSource, "from");

/// A file in a file system in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountedEntry {
    /// Its path below the root; empty: the root itself.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// User and group, where these are not those of whoever has made the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<(u32, u32)>,
    /// When it was last modified, ns since 1970.
    pub modified_ns: i64,
    /// What it is.
    pub content: MountedContent,
}

impl MountedEntry {
    /// Most of one file system.
    pub const MOST: usize = 4096;
    /// Most bytes in all of its files.
    pub const MOST_BYTES: usize = 1 << 20;
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum MountedContent {
    /// A folder.
    Directory,
    /// A regular file.
    File {
        /// Its bytes, hex.
        bytes: String,
    },
    /// A symbolic link.
    Link {
        /// Where it leads.
        to: String,
    },
}
protocol::tagged!(MountedContent, "kind");
