//! What keeps a rehearsed restart apart from everything else: it is a restart in each respect, and has no effect.
//!
//! * A network of its own: the loopback interface with all addresses of the machine. Ports that the job has are free there,
//!   and what is sent to others gets no answer.
//! * Every file system is read-only, but for what the image is about to write: folders in which files, FIFOs or sockets are
//!   made get an overlay (the kernel's Documentation/filesystems/overlayfs.rst) whose upper layer is in memory; files that
//!   stay where they are, and are written or locked, get a stand-in of the same size and time mounted over them.
//! * The lowest of priorities, and the first place before the OOM killer.

use crate::sys::standing::acts_for_all;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{File, Metadata, Permissions};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, futimens};
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Result};
use super::super::graph::{Backing, FileId, Origin};
use super::super::names;
use super::super::objects::reopen;
use super::super::objects::{FdInfo, Object, Regular};
use super::super::restore::{Image, Processes};
use super::super::sys::file_user::FileUser;
use super::super::sys::ping_groups::PingGroups;
use super::super::sys::stat::time;
use super::super::sys::{abi, loopback, mounts, schedule};
use super::UserOrder;
use super::namespaces::PASSING;
use super::world::World;

/// Nice value: one part in ten of what a rank gets that is busy on the same core.
const NICE: i32 = 10;
/// The first to be killed for want of memory.
const FIRST_VICTIM: &str = "1000";
/// Folders that belong to jobs as a whole.
const SESSION: [&str; 2] = ["/tmp", "/dev/shm"];
/// More addresses than these a machine's sockets are hardly bound to.
const MOST_ADDRESSES: usize = 1000;

/// Whose restart is rehearsed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rehearsal {
    /// That of a job of one machine.
    Job,
    /// That of an instance, whose connections to others lead to stand-ins.
    Instance(Box<RehearsedInstance>),
}

/// What an instance of a cluster's job is, beside its image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RehearsedInstance {
    /// The host name inside: the logical node's.
    pub host_name: String,
    /// Content of /etc/hosts inside; empty: the machine's.
    pub hosts: String,
    /// The user whom a root agent runs the job for; `None`: the agent's own.
    pub user: Option<UserOrder>,
    /// Whether late connections are watched.
    pub watch: bool,
    /// Files that travel beside the image, are not where they belong, and would be put there before a restore.
    pub own_files: Vec<OwnFile>,
}

/// A file that a restore finds where it belongs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnFile {
    /// Its path.
    pub path: PathBuf,
    /// Its size, bytes.
    pub size: u64,
    /// When it was last modified, ns since 1970.
    pub modified_ns: i64,
    /// Its permissions.
    pub mode: u32,
}

impl Rehearsal {
    pub(super) fn own_files(&self) -> &[OwnFile] {
        match self {
            Self::Job => &[],
            Self::Instance(instance) => &instance.own_files,
        }
    }
}

/// Puts a stand-in where a file belongs, with the rights of the job's user: its content is read by nobody before the job
/// runs. Where that can't be, it is missing at a restore, too, which says so.
fn put_own_files(files: &[OwnFile], user: Option<&UserOrder>) -> Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let acting = user.map(|user| FileUser::begin(user.uid, user.gid, &user.groups));
    let _acting = acting.transpose()?;
    for file in files {
        let put = || -> std::io::Result<()> {
            if let Some(folder) = file.path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let made = File::options().write(true).create_new(true).open(&file.path)?;
            made.set_len(file.size)?;
            made.set_permissions(Permissions::from_mode(file.mode & 0o1777))?;
            let time = time(file.modified_ns);
            Ok(futimens(&made, &time, &time)?)
        };
        let _ = put();
    }
    Ok(())
}

/// What is known before the machine's namespaces are left.
#[derive(Debug)]
pub struct Surroundings {
    addresses: Vec<IpAddr>,
    ping: Option<PingGroups>,
    /// The caller is one of them.
    may_ping: bool,
}

impl Surroundings {
    /// Of this machine, for a rehearsal that is about to begin. Lowers the caller's priority.
    ///
    /// # Errors
    /// Where jobs have no namespaces.
    pub fn look(world: World) -> Result<Self> {
        if world == World::Machine {
            return Err(EngineError::NotRehearsable("jobs have no namespaces here".to_owned()));
        }
        schedule::be_nice(NICE);
        // Without /proc more than this is amiss.
        let _ = std::fs::write("/proc/self/oom_score_adj", FIRST_VICTIM);
        let interfaces = nix::ifaddrs::getifaddrs()
            .map_err(|errno| EngineError::system("getifaddrs", "this machine", errno))?;
        let addresses = interfaces.filter_map(|interface| {
            let address = interface.address?;
            match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(v4), _) => Some(IpAddr::V4(v4.ip())),
                (_, Some(v6)) => Some(IpAddr::V6(v6.ip())),
                _ => None,
            }
        });
        let own = |address: &IpAddr| !address.is_loopback();
        let addresses: BTreeSet<IpAddr> = addresses.filter(own).take(MOST_ADDRESSES).collect();
        let ping = PingGroups::here();
        let may_ping = ping.is_some_and(PingGroups::has_any_own);
        Ok(Self { addresses: addresses.into_iter().collect(), ping, may_ping })
    }

    /// Makes the network ready, in the namespaces that have been entered.
    ///
    /// # Errors
    /// Failed system calls.
    pub fn rebuild(&self) -> Result<()> {
        loopback::prepare(&self.addresses)
            .map_err(|error| EngineError::NotRehearsable(format!("no network for it: {error}")))?;
        let set = self.ping.map_or(Ok(()), PingGroups::set);
        if set.is_err() && self.may_ping {
            // Others are not known in a user namespace. Where it can't be set at all, ICMP sockets are told to be lacking.
            let _ = PingGroups::own().set();
        }
        Ok(())
    }
}

/// Makes everything that is mounted read-only, for the caller's mount namespace. To be called before it mounts anything.
///
/// # Errors
/// Before Linux 5.12.
pub fn seal_mounts() -> Result<()> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(|errno| EngineError::system("mount", "/ as private", errno))?;
    mounts::make_read_only(Path::new("/")).map_err(|errno| {
        EngineError::NotRehearsable(format!("mounts can't be made read-only ({})", errno.desc()))
    })
}

/// What a restore of an image writes to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Places {
    /// Folders in which something is made; whether that can't be done without.
    folders: BTreeMap<PathBuf, bool>,
    /// Files and FIFOs that are found by their path.
    found: BTreeSet<PathBuf>,
}

impl Places {
    fn of(image: &Image, processes: &Processes, own_files: &[OwnFile]) -> Self {
        let mut places = Self::default();
        own_files.iter().for_each(|file| places.made(&file.path, true));
        for folder in SESSION {
            places.folders.insert(folder.into(), false);
        }
        for folder in &image.graph.folders {
            // Missing ones are made.
            places.folders.insert(names::path(&folder.path).into_owned(), true);
        }
        for inode in &image.graph.inodes {
            match &inode.origin {
                // Nothing can be laid over a hugetlbfs: there a rehearsal does without the name.
                Origin::Named { path } => places.made(&names::path(path), inode.huge.is_none()),
                Origin::Deleted { path, .. } => places.made(&names::path(path), false),
                _ => {}
            }
            inode.links.iter().for_each(|link| places.made(&names::path(link), true));
        }
        let locked = locked(image, processes);
        for (index, file) in image.graph.files.iter().enumerate() {
            let is_locked = locked.contains(&FileId(index as u32));
            match &file.object {
                Object::Regular(Regular::ByPath(by_path))
                    if is_locked || reopen::writable(file.flags) =>
                {
                    places.found.insert(names::path(&by_path.path).into_owned());
                }
                Object::Directory(folder) => {
                    places.made(&names::path(&folder.path), false);
                    if is_locked {
                        places.folders.insert(names::path(&folder.path).into_owned(), true);
                    }
                }
                Object::Fifo(fifo) => {
                    places.made(&names::path(&fifo.path), fifo.session);
                    places.found.insert(names::path(&fifo.path).into_owned());
                }
                Object::UnixSocket(socket) => {
                    let name = socket.name.as_ref().filter(|name| name.bytes.first() != Some(&0));
                    if let Some(name) = name {
                        let folder = names::path(name.directory.as_deref().unwrap_or("/"));
                        places.made(&folder.join(OsStr::from_bytes(&name.bytes)), true);
                    }
                }
                _ => {}
            }
        }
        for area in processes.values().flat_map(|process| &process.areas) {
            if let Backing::File { file, writable: true, .. } = &area.backing {
                places.found.insert(names::path(&file.path).into_owned());
            }
        }
        // What is made again comes to lie in the upper layer of its folder, where a mount point would be in its way.
        for inode in image.graph.inodes.iter().filter(|inode| inode.huge.is_none()) {
            if let Origin::Named { path } = &inode.origin {
                places.found.remove(&*names::path(path));
            }
        }
        places
    }

    /// Something is made under that name.
    fn made(&mut self, path: &Path, needed: bool) {
        if let Some(folder) = path.parent() {
            *self.folders.entry(folder.to_owned()).or_default() |= needed;
        }
    }

    /// The folders as they are here: those that are not there yet stand for the one in which they are made. What is within
    /// another one is left out if `whole`; in a user namespace it is not, since folders of others above it can't be
    /// copied into an upper layer there.
    fn resolve(&mut self, whole: bool) {
        let mut there: BTreeMap<PathBuf, bool> = BTreeMap::new();
        for (folder, needed) in std::mem::take(&mut self.folders) {
            let found = folder.ancestors().find_map(|at| std::fs::canonicalize(at).ok());
            let found = found.filter(|found| found.is_dir() && found.parent().is_some());
            if let Some(found) = found {
                *there.entry(found).or_default() |= needed;
            }
        }
        if !whole {
            self.folders = there;
            return;
        }
        // A folder comes before what is in it.
        for (folder, needed) in there {
            match self.folders.iter_mut().find(|(outer, _)| folder.starts_with(outer)) {
                Some((_, outer)) => *outer |= needed,
                None => drop(self.folders.insert(folder, needed)),
            }
        }
    }
}

/// Descriptions with locks of any kind: a lock of the same file would be in the way, or would be the live job's.
fn locked(image: &Image, processes: &Processes) -> BTreeSet<FileId> {
    let of_description = image.graph.files.iter().enumerate();
    let mut locked: BTreeSet<FileId> = of_description
        .filter(|(_, file)| !file.locks.is_empty())
        .map(|(index, _)| FileId(index as u32))
        .collect();
    for process in processes.values() {
        for (fd, _) in &process.locks {
            let of_process = process.descriptors.iter().find(|descriptor| descriptor.fd == *fd);
            locked.extend(of_process.map(|descriptor| descriptor.file));
        }
    }
    locked
}

/// Puts something else in the place of all that the restore of the image writes to, or that is put in place before.
///
/// # Errors
/// Where that can't be done here.
pub fn shield(
    image: &Image,
    processes: &Processes,
    own_files: &[OwnFile],
    user: Option<&UserOrder>,
) -> Result<()> {
    let mut places = Places::of(image, processes, own_files);
    places.resolve(acts_for_all());
    let mut mounted = mounted();
    let options = Some("mode=0700,size=100%");
    let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    // It needs a place only until all of it is mounted where it belongs.
    mount(Some("tmpfs"), PASSING, Some("tmpfs"), safe, options).map_err(|errno| {
        EngineError::NotRehearsable(format!("no memory for its files ({})", errno.desc()))
    })?;
    let shielded = shield_all(&places, &mut mounted);
    let left = nix::unistd::chdir("/");
    umount2(PASSING, MntFlags::MNT_DETACH)
        .map_err(|errno| EngineError::system("umount", PASSING, errno))?;
    left.map_err(|errno| EngineError::system("chdir", "/", errno))?;
    shielded?;
    put_own_files(own_files, user)
}

fn shield_all(places: &Places, mounted: &mut Vec<PathBuf>) -> Result<()> {
    // The innermost first: an overlay over another one would be one too many in a container.
    for (number, (folder, needed)) in places.folders.iter().rev().enumerate() {
        let layers = Path::new(PASSING).join(format!("folder-{number}"));
        match overlay(folder, &layers, mounted) {
            Ok(()) => {
                mounted.push(folder.clone());
                mounted.sort();
            }
            Err(error) if *needed => {
                let folder = folder.display();
                return Err(EngineError::NotRehearsable(format!(
                    "{folder} can't be kept apart ({error})"
                )));
            }
            // It is read-only.
            Err(_) => {}
        }
    }
    for (number, path) in places.found.iter().enumerate() {
        let stand_in = Path::new(PASSING).join(format!("file-{number}"));
        // What is not there, the restore says.
        let Ok(path) = std::fs::canonicalize(path) else { continue };
        cover(&path, &stand_in).map_err(|error| {
            EngineError::NotRehearsable(format!("{} can't be kept apart ({error})", path.display()))
        })?;
    }
    Ok(())
}

/// Mount points, parents before what is below them. Those are left out over which, or above which, something else is mounted:
/// nobody reaches them.
fn mounted() -> Vec<PathBuf> {
    let mounts = procfs::process::Process::myself().and_then(|own| own.mountinfo());
    let mounts = mounts.into_iter().flat_map(|mounts| mounts.0);
    let reached = mounts.filter(|mount| mount_at(&mount.mount_point) == Some(mount.mnt_id as u64));
    let mut points: Vec<PathBuf> = reached.map(|mount| mount.mount_point).collect();
    points.sort();
    points.dedup();
    points
}

/// The number of the mount that a path leads to.
fn mount_at(path: &Path) -> Option<u64> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path).ok()?;
    FdInfo::of_own(file.as_fd()).ok()?.number("mnt_id", 10).ok()
}

/// Lays an upper layer over a folder; what is mounted below it stays.
fn overlay(folder: &Path, layers: &Path, mounted: &[PathBuf]) -> std::io::Result<()> {
    let (upper, work) = (layers.join("upper"), layers.join("work"));
    std::fs::create_dir_all(&upper)?;
    std::fs::create_dir(&work)?;
    resemble(&upper, &std::fs::metadata(folder)?)?;
    let mut below: Vec<(&PathBuf, OwnedFd)> = Vec::new();
    for point in mounted.iter().filter(|point| *point != folder && point.starts_with(folder)) {
        if !below.iter().any(|(outer, _)| point.starts_with(outer)) {
            below.push((point, mounts::copy_tree(point)?));
        }
    }
    // By the working directory: its name may hold what separates options.
    nix::unistd::chdir(folder)?;
    let plain = format!("lowerdir=.,upperdir={},workdir={}", upper.display(), work.display());
    let for_users = format!("{plain},userxattr");
    let lay = |options: &str| {
        let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("overlay"), folder, Some("overlay"), safe, Some(options))
    };
    // Without attributes of users (tmpfs before Linux 6.6) there is little that it can't do.
    let laid = match lay(&for_users) {
        Err(Errno::EINVAL | Errno::EOPNOTSUPP) => lay(&plain),
        laid => laid,
    };
    nix::unistd::chdir("/")?;
    laid?;
    for (point, tree) in below {
        mounts::mount_tree(&tree, point)?;
    }
    Ok(())
}

/// Mounts a stand-in over a file: as large and as old, without its content, which nobody reads before the job runs.
fn cover(path: &Path, stand_in: &Path) -> std::io::Result<()> {
    let found = std::fs::metadata(path)?;
    let kind = found.mode() & abi::S_IFMT;
    if kind == abi::S_IFIFO {
        nix::unistd::mkfifo(stand_in, Mode::S_IRUSR | Mode::S_IWUSR)?;
        resemble(stand_in, &found)?;
    } else if kind == abi::S_IFREG {
        let file = File::options().write(true).create_new(true).open(stand_in)?;
        file.set_len(found.len())?;
        resemble(stand_in, &found)?;
        file.set_modified(found.modified()?)?;
    } else {
        return Ok(());
    }
    let none = None::<&str>;
    Ok(mount(Some(stand_in), path, none, MsFlags::MS_BIND, none)?)
}

/// Gives it the permissions of another, and its owner as far as that is allowed.
fn resemble(path: &Path, other: &Metadata) -> std::io::Result<()> {
    let _ = std::os::unix::fs::chown(path, Some(other.uid()), Some(other.gid()));
    std::fs::set_permissions(path, Permissions::from_mode(other.mode() & 0o7777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_within_others_are_left_out() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        for name in ["a/b", "ab"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        let mut places = Places::default();
        places.made(&at("a/b/missing/deep/file"), true);
        places.made(&at("a/file"), false);
        places.made(&at("ab/file"), false);
        places.made(Path::new("/file"), true);
        places.resolve(true);
        let base = std::fs::canonicalize(base.path()).unwrap();
        let wanted = [(base.join("a"), true), (base.join("ab"), false)];
        assert_eq!(places.folders, BTreeMap::from(wanted));
    }
}
