//! The mappings of a process.

use serde::{Deserialize, Serialize};

use super::{BlobId, FileId, InodeId, MemoryPolicy};

/// One mapping: a line of /proc/PID/maps with what smaps adds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// Address behind the last byte.
    pub end: u64,
    /// PROT_READ, PROT_WRITE, PROT_EXEC.
    pub protection: Protection,
    /// MAP_SHARED rather than MAP_PRIVATE.
    pub shared: bool,
    /// What it maps.
    pub backing: Backing,
    /// Flags and advice.
    #[serde(default, skip_serializing_if = "Advice::is_default")]
    pub advice: Advice,
}

impl Area {
    /// Whether it is a mapping of the kernel's own.
    pub fn is_kernels(&self) -> bool {
        matches!(self.backing, Backing::Kernel { .. })
    }

    /// The io_uring whose memory it is.
    pub fn ring(&self) -> Option<FileId> {
        match self.backing {
            Backing::Ring { file, .. } => Some(file),
            _ => None,
        }
    }

    /// Whether it is memory that is neither mapped from a file nor filled: the kernel makes it with what it belongs to.
    pub fn is_shared_with_kernel(&self) -> bool {
        matches!(self.backing, Backing::Ring { .. } | Backing::Aio { .. })
    }
}

/// PROT_* bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Protection(pub u8);

impl Protection {
    /// PROT_READ
    pub const READ: u8 = 1;
    /// PROT_WRITE
    pub const WRITE: u8 = 2;
    /// PROT_EXEC
    pub const EXEC: u8 = 4;

    /// Whether PROT_READ is set.
    pub fn readable(self) -> bool {
        self.0 & Self::READ != 0
    }
    /// Whether PROT_WRITE is set.
    pub fn writable(self) -> bool {
        self.0 & Self::WRITE != 0
    }
}

/// What a mapping shows where it has no private pages of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum Backing {
    /// Zeros.
    Anonymous,
    /// A file that is referred to by its path.
    File {
        /// The file, with what tells whether it has changed since.
        file: MappedFile,
        /// Offset in bytes.
        offset: u64,
        /// Mapped from a description open for reading and writing.
        writable: bool,
    },
    /// An inode that travels in the image.
    Carried {
        /// The inode, among those of the image.
        inode: InodeId,
        /// Offset in bytes.
        offset: u64,
        /// Mapped from a description open for reading and writing.
        writable: bool,
    },
    /// Memory that an io_uring has in common with the kernel.
    Ring {
        /// The ring, among the open files.
        file: FileId,
        /// Which part of it: IORING_OFF_*.
        offset: u64,
    },
    /// The ring of a context of asynchronous input and output (io_setup(2)) in which nothing is in flight.
    Aio {
        /// The program's place in it.
        head: u32,
        /// The kernel's.
        tail: u32,
        /// struct io_event of each that the program has not taken.
        events: BlobId,
    },
    /// A mapping of the kernel's own: [vdso], [vvar], [vvar_vclock].
    Kernel {
        /// Its name in /proc/PID/maps.
        name: String,
    },
}
protocol::tagged!(Backing, "backing");

/// A file known by path, and what must be true of it at restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedFile {
    /// Its path.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// Modification time, ns since 1970.
    pub modified_ns: i64,
    /// The ELF build ID, where the file is ELF and has one (hex).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// BLAKE3 of its content, where that decides (hex).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

/// Flags of a mapping that /proc/PID/smaps tells in VmFlags.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// MAP_GROWSDOWN
    #[serde(default)]
    pub grows_down: bool,
    /// MAP_NORESERVE
    #[serde(default)]
    pub no_reserve: bool,
    /// mlock(2)
    #[serde(default)]
    pub locked: bool,
    /// mlock2(2) with MLOCK_ONFAULT, or mlockall(2) with its like: pages are locked once they are touched.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub locked_on_fault: bool,
    /// mseal(2)
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sealed: bool,
    /// MAP_DROPPABLE: the kernel may take its content away at any time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub droppable: bool,
    /// MAP_HUGETLB: bytes of a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge: Option<u64>,
    /// PR_SET_VMA_ANON_NAME
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Protection key (pkeys(7)).
    #[serde(default, skip_serializing_if = "is_none")]
    pub key: u8,
    /// Where its pages are to be (mbind(2)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<MemoryPolicy>,
    /// Somebody fills its missing pages (userfaultfd(2)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<Watched>,
    /// madvise(2) values to apply, in this order.
    #[serde(default)]
    pub advise: Vec<i32>,
    /// Ranges (start, end) of MADV_GUARD_INSTALL within.
    #[serde(default)]
    pub guards: Vec<(u64, u64)>,
}

/// Memory whose missing pages somebody fills.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// Ranges (start, end) of pages of zeros, which are not missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zeros: Vec<(u64, u64)>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_none(key: &u8) -> bool {
    *key == 0
}

impl Advice {
    /// Nothing to apply.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
