//! Folders whose whole content belongs to the image, open or not.

use serde::{Deserialize, Serialize};

use super::{BlobId, ExtendedAttribute, InodeId};

/// A folder as it was at the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WholeFolder {
    /// Its path.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// All that was in it, folders before what they hold.
    pub entries: Vec<FolderEntry>,
}

/// A name in a [`WholeFolder`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderEntry {
    /// Its path below the folder.
    pub name: String,
    /// Permission bits.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// Modification time, ns since 1970.
    pub modified_ns: i64,
    /// Extended attributes of a file or folder that nobody had open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<ExtendedAttribute>,
    /// What it was.
    pub kind: EntryKind,
}

/// What a name in a [`WholeFolder`] was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum EntryKind {
    /// A folder.
    Folder,
    /// A file that nobody had open.
    File {
        /// Its bytes.
        content: BlobId,
        /// Its size in bytes.
        size: u64,
        /// Number of its inode.
        number: u64,
        /// When its inode was changed, ns since 1970: together with number and size this tells whether it is still as it
        /// was.
        changed_ns: i64,
    },
    /// A file that is open or mapped.
    Held {
        /// The file's inode, among those of the image.
        inode: InodeId,
    },
    /// One more name of a file.
    Again {
        /// The first, below the folder.
        name: String,
    },
    /// A symbolic link.
    Link {
        /// Where it leads.
        target: String,
    },
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// Something that did not travel, and that a restart leaves alone.
    Left,
}
protocol::tagged!(EntryKind, "kind");
