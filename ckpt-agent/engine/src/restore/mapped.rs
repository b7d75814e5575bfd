//! Files that areas map: opened once in the init, inherited by all helpers under parked numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use protocol::launch::FileCheck;

use super::super::dump::build_id;
use super::super::error::{EngineError, Result};
use super::super::file_check;
use super::super::graph::{
    Area, Backing, CarriedInode, InodeId, MappedFile, Origin, Pid, ProcessImage,
};
use super::super::inodes::{self, segments};
use super::super::objects::{RestoreContext, reopen};
use super::super::sys::memory_map::{self, Means};
use super::super::sys::stat::modified_ns_of;
use super::identity::Identity;
use super::image::{Image, Processes};
use super::vdso::ForeignVdso;

/// What /proc shows behind the path of a file that is deleted.
pub const GONE: &str = " (deleted)";

/// What is mapped, and whether from a description that can be written through.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    File { path: String, writable: bool },
    Inode { inode: u32, writable: bool },
}

/// Descriptors to map from.
#[derive(Debug)]
pub struct MappedFiles {
    files: BTreeMap<Key, OwnedFd>,
    executables: BTreeMap<String, OwnedFd>,
    /// SysV segments, which are attached by number: number and size in bytes.
    segments: BTreeMap<InodeId, (i32, u64)>,
    /// Likewise those in IPC namespaces of processes' own, which are attached there.
    inner_segments: BTreeMap<InodeId, (i32, u64)>,
    /// How processes can be told what they are.
    means: Means,
    /// Whether this kernel has MAP_DROPPABLE.
    can_drop: bool,
    /// Where they can't: what each of them keeps of itself, and its length.
    identities: BTreeMap<Pid, (OwnedFd, u64)>,
    /// The vdso that the job's processes know, where it is not this kernel's.
    foreign: Option<ForeignVdso>,
}

fn key(backing: &Backing) -> Option<Key> {
    match backing {
        Backing::File { file, writable, .. } => {
            Some(Key::File { path: file.path.clone(), writable: *writable })
        }
        Backing::Carried { inode, writable, .. } => {
            Some(Key::Inode { inode: inode.0, writable: *writable })
        }
        Backing::Anonymous
        | Backing::Ring { .. }
        | Backing::Aio { .. }
        | Backing::Kernel { .. } => None,
    }
}

impl MappedFiles {
    /// Opens all files that the image's areas map, and the executables.
    ///
    /// # Errors
    /// [`EngineError::Unfit`] where a file is missing or another one.
    pub fn open(
        image: &Image,
        processes: &Processes,
        foreign: Option<ForeignVdso>,
        context: &mut RestoreContext,
    ) -> Result<Self> {
        let inodes = &image.graph.inodes;
        let is_inner = |id: &InodeId| segments::namespace_of(&inodes[id.0 as usize]).is_some();
        let (inner_segments, segments) =
            segments::known(inodes).into_iter().partition(|(id, _)| is_inner(id));
        let mut found = Self {
            files: BTreeMap::new(),
            executables: BTreeMap::new(),
            segments,
            inner_segments,
            means: memory_map::means(),
            can_drop: memory_map::can_drop(),
            identities: BTreeMap::new(),
            foreign,
        };
        for process in processes.values() {
            for area in &process.areas {
                let Some(key) = key(&area.backing) else { continue };
                if found.files.contains_key(&key)
                    || found.is_segment(area)
                    || found.is_inner_segment(area)
                {
                    continue;
                }
                let fd = match &area.backing {
                    Backing::File { file, writable, .. } => open_named(file, *writable, context)?,
                    Backing::Carried { inode, writable, .. } => {
                        open_inode(*inode, area.shared && *writable, context)?
                    }
                    _ => continue,
                };
                let fd = context.lift(fd)?;
                found.files.insert(key, fd);
            }
        }
        found.open_executables(processes, context)?;
        if found.means == Means::Nothing {
            for (pid, process) in processes {
                let (fd, length) = Identity::of(process).file()?;
                found.identities.insert(*pid, (context.lift(fd)?, length));
            }
        }
        Ok(found)
    }

    fn open_executables(
        &mut self,
        processes: &Processes,
        context: &mut RestoreContext,
    ) -> Result<()> {
        for process in processes.values() {
            let path = &process.executable.path;
            if self.executables.contains_key(path) {
                continue;
            }
            match open_named(&process.executable, false, context) {
                Ok(fd) => drop(self.executables.insert(path.clone(), context.lift(fd)?)),
                // All its pages are in the image, and most often the file is, too; else the name in /proc is lost.
                Err(_) if path.ends_with(GONE) => {
                    if let Some(inode) = gone_program(process, context) {
                        let fd = open_inode(inode, false, context)?;
                        self.executables.insert(path.clone(), context.lift(fd)?);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether the area is attached, not mapped.
    pub fn is_segment(&self, area: &Area) -> bool {
        match area.backing {
            Backing::Carried { inode, .. } => self.segments.contains_key(&inode),
            _ => false,
        }
    }

    /// Whether the area is attached once its process is in its IPC namespace.
    pub fn is_inner_segment(&self, area: &Area) -> bool {
        match area.backing {
            Backing::Carried { inode, .. } => self.inner_segments.contains_key(&inode),
            _ => false,
        }
    }

    /// SysV segments in IPC namespaces of processes' own.
    pub fn inner_segments(&self) -> &BTreeMap<InodeId, (i32, u64)> {
        &self.inner_segments
    }

    /// SysV segments by inode: number and size in bytes.
    pub fn segments(&self) -> &BTreeMap<InodeId, (i32, u64)> {
        &self.segments
    }

    /// The descriptor to map an area from; `None` for anonymous memory.
    ///
    /// # Errors
    /// [`EngineError::Damaged`].
    pub fn of(&self, area: &Area) -> Result<Option<BorrowedFd<'_>>> {
        use std::os::fd::AsFd;
        let Some(key) = key(&area.backing) else { return Ok(None) };
        match self.files.get(&key) {
            Some(fd) => Ok(Some(fd.as_fd())),
            None => Err(EngineError::Damaged(format!("nothing to map at {:#x}", area.start))),
        }
    }

    /// The vdso that the job's processes know, where it is not this kernel's.
    pub fn foreign_vdso(&self) -> Option<&ForeignVdso> {
        self.foreign.as_ref()
    }

    /// Whether this kernel has MAP_DROPPABLE.
    pub fn can_drop(&self) -> bool {
        self.can_drop
    }

    /// How processes can be told what they are.
    pub fn means(&self) -> Means {
        self.means
    }

    /// What a process keeps of itself, to be mapped from there, and its length; `None`: the kernel keeps it.
    pub fn identity(&self, pid: Pid) -> Option<(BorrowedFd<'_>, u64)> {
        use std::os::fd::AsFd;
        self.identities.get(&pid).map(|(fd, length)| (fd.as_fd(), *length))
    }

    /// An executable, where its file is there.
    pub fn program(&self, path: &str) -> Option<BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        self.executables.get(path).map(AsFd::as_fd)
    }

    /// The descriptor of an executable, -1 where its file is gone.
    pub fn executable(&self, path: &str) -> i32 {
        self.executables.get(path).map_or(-1, AsRawFd::as_raw_fd)
    }
}

/// The file of a process's executable, where it is deleted and travels with the image, because it is mapped.
fn gone_program(process: &ProcessImage, context: &RestoreContext) -> Option<InodeId> {
    let path = process.executable.path.strip_suffix(GONE)?;
    let carried = process.areas.iter().filter_map(|area| match area.backing {
        Backing::Carried { inode, .. } => Some(inode),
        _ => None,
    });
    carried.into_iter().find(|id| match context.graph.inodes.get(id.0 as usize) {
        Some(CarriedInode { origin: Origin::Deleted { path: own, .. }, .. }) => own == path,
        Some(CarriedInode { origin: Origin::Memfd { name, .. }, .. }) => {
            path.strip_prefix("/memfd:") == Some(name)
        }
        _ => false,
    })
}

/// Of a memfd that is written to it is the description that memfd_create(2) has made: one that is opened for writing under its
/// path would keep it from being executed for as long as it is mapped.
fn open_inode(inode: InodeId, writable: bool, context: &RestoreContext) -> Result<OwnedFd> {
    if writable && context.is_memfd(inode) {
        let original = context.inode(inode)?.try_clone_to_owned();
        return original.map_err(|error| EngineError::system("fcntl", "a memfd", error));
    }
    let flags = if writable { libc::O_RDWR } else { libc::O_RDONLY };
    reopen::reopen(context.inode(inode)?, flags | libc::O_CLOEXEC)
        .map_err(|error| EngineError::odd("carried inode", error.to_string()))
}

fn open_named(file: &MappedFile, writable: bool, context: &mut RestoreContext) -> Result<OwnedFd> {
    let failed = |error: std::io::Error| EngineError::Unfit {
        what: format!("{} cannot be opened ({error})", file.path),
        way_out: "put it back where it was".into(),
    };
    // A FIFO that lies there now would be waited for (fifo(7)). Whoever maps a file does not notice the flag.
    let access = if writable { libc::O_RDWR } else { libc::O_RDONLY };
    let opened = reopen::open_as_owner(&file.path, access | libc::O_NONBLOCK);
    let opened = std::fs::File::from(opened.map_err(|errno| failed(errno.into()))?);
    let metadata = opened.metadata().map_err(failed)?;
    let same_size = metadata.size() == file.size;
    let unchanged = same_size
        && match (context.file_check, &file.hash) {
            (FileCheck::Size, _) => true,
            (FileCheck::Hash, Some(hash)) => {
                metadata.is_file() && file_check::hash(&opened).is_ok_and(|found| found == *hash)
            }
            _ => modified_ns_of(&metadata) == file.modified_ns,
        };
    // A file of a session directory has just been made from the image.
    let carried = context
        .graph
        .inodes
        .iter()
        .any(|inode| matches!(&inode.origin, Origin::Named { path } if *path == file.path));
    let device = !metadata.is_file();
    if unchanged || carried || device {
        return Ok(opened.into());
    }
    let by_content = context.file_check == FileCheck::Hash && file.hash.is_some();
    let same_build = same_size
        && !by_content
        && file.build_id.is_some()
        && build_id(&file.path) == file.build_id;
    if same_build {
        return Ok(opened.into());
    }
    if context.force {
        context.warn(format!("{} has changed since the checkpoint; mapped as it is", file.path));
        return Ok(opened.into());
    }
    Err(EngineError::Unfit {
        what: format!("{} has changed since the checkpoint", file.path),
        way_out: "put the old one back, or use --force".into(),
    })
}

/// Inodes of programs are mapped for execution and named as executables: nobody may hold them open
/// for writing then (execve(2), ETXTBSY). Replaces the writing descriptors of those that nobody
/// writes to. What has no name, and is nobody's executable, stays open for writing: it may have to be sealed.
///
/// # Errors
/// Failed opens.
pub fn release_programs(processes: &Processes, context: &mut RestoreContext) -> Result<()> {
    let written: BTreeSet<InodeId> = processes
        .values()
        .flat_map(|process| &process.areas)
        .filter(|area| area.shared)
        .filter_map(|area| match area.backing {
            Backing::Carried { inode, writable: true, .. } => Some(inode),
            _ => None,
        })
        .collect();
    let gone: BTreeSet<InodeId> =
        processes.values().filter_map(|process| gone_program(process, context)).collect();
    for (index, inode) in context.graph.inodes.iter().enumerate() {
        let id = InodeId(index as u32);
        if !context.needs_inode(id) || segments::number_of(inode).is_some() {
            continue;
        }
        // A memfd may have to be sealed.
        let is_free = match inode.origin {
            Origin::Named { .. } => true,
            Origin::Deleted { .. } => gone.contains(&id),
            _ => false,
        };
        if is_free && inode.mode & 0o111 != 0 && !written.contains(&id) {
            // PR_SET_MM_MAP asks for the right to execute, which else comes last.
            let mode = (inode.mode & inodes::KEPT_MODE) as libc::mode_t;
            let mode = nix::sys::stat::Mode::from_bits_truncate(mode);
            // An unchanged one has it, and may be another user's.
            let _ = nix::sys::stat::fchmod(context.inode(id)?, mode);
            let reading = open_inode(id, false, context)?;
            context.add_inode(id, reading)?;
        }
    }
    Ok(())
}
