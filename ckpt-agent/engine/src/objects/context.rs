//! What handlers share during a dump and during a restore.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use protocol::cluster::agent::MovedListener;
use protocol::launch::FileCheck;

use super::super::aio::settle;
use super::super::demand::Feeder;
use super::super::dump::{Networks, Places};
use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::{
    BlobId, CarriedInode, FileId, Graph, InodeId, Origin, OuterEnd, Pid, RelayEnd, RelayKind,
    StdioRole, Watched,
};
use super::super::inodes::ahead::{Copies, Taken};
use super::super::inodes::copying::{Bytes, Copying};
use super::super::job_init::UserOrder;
use super::super::late::{Connecting, Installed, NamedSocket, Names};
use super::super::leases::Leased;
use super::super::names;
use super::super::split::{Part, Realisation};
use super::super::sys::file_user::FileUser;
use super::super::sys::huge_memory;
use super::super::sys::network;
use super::super::sys::stat::identity;
use super::super::sys::tty;
use super::super::tracking::Tracking;
use super::console_terminal::ConsoleTerminal;
use super::io_uring::Rings;
use super::reopen;
use super::shown::Shown;
use super::tcp::{Asking, Widened};

/// What to do with connections to outside of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum External {
    /// Restored as reset by the peer, and said.
    #[default]
    Warn,
    /// Refused at the checkpoint.
    Fail,
}

/// Bytes for the image, held from the freeze until they are written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlobData {
    /// Length in bytes. What no extent covers reads as zeros.
    pub length: u64,
    /// Parts that have content, ascending, without overlap.
    pub extents: Vec<Extent>,
}

/// A part of a [`BlobData`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// Offset of its first byte in the blob.
    pub offset: u64,
    /// Its bytes.
    pub bytes: Bytes,
}

impl From<Vec<u8>> for BlobData {
    fn from(bytes: Vec<u8>) -> Self {
        let length = bytes.len() as u64;
        let extents = match bytes.is_empty() {
            true => Vec::new(),
            false => vec![Extent { offset: 0, bytes: bytes.into() }],
        };
        Self { length, extents }
    }
}

/// State of a dump that handlers read and add to.
#[derive(Debug, Default)]
pub struct DumpContext {
    /// Bytes to store after the job has been resumed; a [`BlobId`] is an index here.
    pub blobs: Vec<BlobData>,
    /// Every descriptor of the job, by (process as this machine numbers it, descriptor). Filled
    /// by the collector before [`super::Object::finish_all`]: handlers whose objects refer to
    /// others find them here.
    pub descriptors: BTreeMap<(i32, i32), FileId>,
    /// Job numbers of all processes in the dump, by this machine's numbers.
    pub pids: BTreeMap<i32, Pid>,
    /// The process to which orphans of the job fall, as this machine numbers it.
    pub init: Option<i32>,
    /// Sessions and process groups of strangers, as this machine numbers them, that have members in the job, and which
    /// process of the job leads those in its own after a restart.
    pub led: BTreeMap<i32, Pid>,
    /// Inodes that belong to the launcher's side of the standard streams: (device, inode) of the pipe
    /// or of the terminal's slave, and which stream it is.
    pub stdio: HashMap<(u64, u64), StdioRole>,
    /// Descriptions under way in Unix sockets, by the inodes of these, in their order.
    pub in_flight: HashMap<(u64, u64), Vec<FileId>>,
    /// Empty messages in the queues of Unix and UDP sockets that are not shown again.
    pub shown: Shown,
    /// Copies of those that no process holds.
    pub held: Vec<OwnedFd>,
    /// Relays of which the agent holds a side here.
    pub relays: Vec<HeldRelay>,
    /// The terminal that the job was started from.
    pub terminal: Option<ConsoleTerminal>,
    /// Whether strangers hold the other sides of its standard streams, who go on with them.
    pub is_adopted: bool,
    /// Directories whose files travel with the job (/tmp, /dev/shm, $TMPDIR).
    pub session_directories: Vec<PathBuf>,
    /// How many bytes of files go into the image at most.
    pub files_limit: u64,
    /// How many have.
    pub files_taken: u64,
    /// By what a restart tells changed files.
    pub file_check: FileCheck,
    /// What to do with connections to outside.
    pub external: External,
    /// The job has no IPC namespace of its own: queues and segments are the machine's.
    pub shares_ipc: bool,
    /// The IPC namespaces of processes, as this machine numbers them, that are in one of their own.
    pub ipc_namespaces: BTreeMap<i32, u32>,
    /// The job's network namespaces.
    pub networks: Option<Networks>,
    /// The device of the job's /proc, where there are PID namespaces of its own: another one shows other processes.
    pub proc_device: Option<u64>,
    /// Where processes have mounts of their own: where files are found among the job's.
    pub places: Option<Arc<Places>>,
    /// The job has other instances: a connection to outside of this one may lead to one of them.
    pub cluster: bool,
    /// Addresses of the machines that the job runs on; empty: not known.
    pub machines: BTreeSet<IpAddr>,
    /// What single TCP sockets are called.
    pub names: Names,
    /// Receive buffers that are larger than they were until [`super::ObjectKind::late`].
    pub widened: Vec<Widened>,
    /// What is known once a socket was met that is being connected, by networks of the job's own.
    pub asking: BTreeMap<Option<u32>, Asking>,
    /// Memory whose missing pages somebody fills, of each process that has a userfaultfd, as this machine numbers it:
    /// first addresses.
    pub watched: HashMap<i32, Vec<(u64, Watched)>>,
    /// The io_urings of the job.
    pub rings: Rings,
    /// Its contexts of asynchronous input and output.
    pub aio: settle::Contexts,
    /// File systems of huge pages that the job sees: device, and bytes of a page.
    pub huge_mounts: HashMap<u64, u64>,
    /// Lines for the user about things that are restored differently.
    pub warnings: Vec<String>,
    /// Inodes that travel; an [`InodeId`] is an index here.
    pub inodes: Vec<CarriedInode>,
    /// (device, inode) of those already taken.
    pub inode_index: HashMap<(u64, u64), InodeId>,
    /// How files and shared memory are copied.
    pub copying: Copying,
    /// The user with whose rights files are opened that the job does not have open for reading; `None`: this
    /// process's own.
    pub user: Option<UserOrder>,
    /// (device, inode) of files that are written in place, and their content, where it travels.
    pub in_place: HashMap<(u64, u64), Option<BlobId>>,
    /// Contents of files that were read before the job stood.
    pub copies: Copies,
    /// Files with leases, which must not be opened.
    pub leased: Leased,
    /// Files whose content is in the image, for the next time that files are read ahead.
    pub seen: Taken,
    /// What is known of pages that were not written since earlier checkpoints.
    pub tracking: Tracking,
}

/// A side of a relay in an agent's hands during a dump.
#[derive(Debug)]
pub struct HeldRelay {
    /// Which relay, and which side.
    pub end: RelayEnd,
    /// fstat(2) of the agent's descriptor: device and inode.
    pub inode: (u64, u64),
    /// A copy of the agent's descriptor where it is a terminal's: of a pipe it would keep an end open.
    pub terminal: Option<OwnedFd>,
}

impl HeldRelay {
    /// Of the agent's descriptor.
    ///
    /// # Errors
    /// Failed system calls.
    pub fn of(end: RelayEnd, fd: impl AsFd) -> Result<Self> {
        let stat = nix::sys::stat::fstat(fd.as_fd())
            .map_err(|errno| EngineError::system("fstat", "an end of a relay", errno))?;
        let terminal = match end.kind {
            RelayKind::TerminalMaster | RelayKind::TerminalSlave => {
                let copy = fd.as_fd().try_clone_to_owned();
                Some(copy.map_err(|error| EngineError::system("dup", "a terminal", error))?)
            }
            _ => None,
        };
        Ok(Self { end, inode: identity(&stat), terminal })
    }

    /// N of /dev/pts/N.
    pub fn terminal_index(&self) -> Option<u32> {
        let terminal = self.terminal.as_ref()?;
        match self.end.kind {
            RelayKind::TerminalMaster => tty::master_index(terminal).ok(),
            _ => tty::device(terminal).ok().map(|(_, minor)| minor),
        }
    }
}

impl DumpContext {
    /// Relays whose native object has this inode.
    pub fn relays_of(&self, inode: (u64, u64)) -> Vec<RelayEnd> {
        let found = self.relays.iter().filter(|held| {
            let others = matches!(held.end.kind, RelayKind::Descriptor { .. });
            held.inode == inode && !others
        });
        found.map(|held| held.end.clone()).collect()
    }

    /// The relay of a terminal.
    pub fn terminal_relay(&self, index: u32) -> Option<&HeldRelay> {
        self.relays.iter().find(|held| held.terminal_index() == Some(index))
    }

    /// Does something about sockets of a network namespace of the job's own, from which nothing leads to other instances;
    /// `None`: of the job's.
    pub fn within<T>(&mut self, network: Option<u32>, act: impl FnOnce(&mut Self) -> T) -> T {
        within(self, |context| &mut context.cluster, network, act)
    }

    /// Keeps bytes for the image.
    pub fn keep(&mut self, bytes: Vec<u8>) -> BlobId {
        self.keep_blob(BlobData::from(bytes))
    }

    /// Keeps the content of a file, holes left out, for the image.
    pub fn keep_blob(&mut self, blob: BlobData) -> BlobId {
        self.blobs.push(blob);
        BlobId((self.blobs.len() - 1) as u32)
    }

    /// Opens once more, for reading, what the job has open without the right to read it: with its user's rights.
    ///
    /// # Errors
    /// A refusal where the user may not read it.
    pub fn open_to_read(&self, fd: impl AsFd, path: &str) -> Result<OwnedFd> {
        let _acting = self.act_as_user()?;
        let flags = libc::O_RDONLY | libc::O_NOATIME | libc::O_NONBLOCK;
        reopen::reopen_as_owner(fd, flags).map_err(|errno| {
            let what = format!("the job's user may not read {path} ({})", errno.desc());
            Refusal::new(what, "close it while checkpoints are taken, or let the user read it")
                .into()
        })
    }

    /// While the guard lives, this thread opens files with the rights of the job's user.
    ///
    /// # Errors
    /// Failed system calls.
    pub fn act_as_user(&self) -> Result<Option<FileUser>> {
        let user = self.user.as_ref();
        user.map(|user| FileUser::begin(user.uid, user.gid, &user.groups)).transpose()
    }

    /// Does something with a file, and where this process may not, once more with the rights of the job's user: whoever acts for all
    /// users has no rights over some file systems (NFS, FUSE). The user's rights last as long as the guard.
    ///
    /// # Errors
    /// The user's rights can't be taken on. The inner one is that of what is done.
    pub fn for_user<T>(
        &self,
        act: impl Fn() -> io::Result<T>,
    ) -> Result<(Option<FileUser>, io::Result<T>)> {
        let done = act();
        match done.as_ref().err().map(io::Error::kind) {
            Some(io::ErrorKind::PermissionDenied) if self.user.is_some() => {
                let acting = self.act_as_user()?;
                Ok((acting, act()))
            }
            _ => Ok((None, done)),
        }
    }

    /// The folder from which this process reaches what a process's paths lead to, as they stand in the image.
    pub fn root_of(&self, host_pid: i32) -> String {
        let of_process = || format!("/proc/{host_pid}/root");
        self.places.as_ref().map_or_else(of_process, |places| places.root())
    }

    /// Processes that hold a description, as this machine numbers them, ascending.
    pub fn holders(&self, file: FileId) -> Vec<i32> {
        let all = self.descriptors.iter().filter(|(_, id)| **id == file);
        let pids: BTreeSet<i32> = all.map(|((pid, _), _)| *pid).collect();
        pids.into_iter().collect()
    }

    /// Adds a line for the user.
    pub fn warn(&mut self, line: impl Into<String>) {
        self.warnings.push(line.into());
    }

    /// Whether so many more bytes of files may go into the image; then they count as taken.
    pub fn has_room_for(&mut self, bytes: u64) -> bool {
        let wanted = self.files_taken.saturating_add(bytes);
        let fits = wanted <= self.files_limit;
        if fits {
            self.files_taken = wanted;
        }
        fits
    }

    /// Bytes of a page of what lies on a device, where these are huge ones.
    pub fn huge_page_on(&self, device: u64) -> Option<u64> {
        huge_memory::page_on(device).or_else(|| self.huge_mounts.get(&device).copied())
    }

    /// Whether a path lies in a directory whose files travel with the job.
    pub fn is_session_file(&self, path: &str) -> bool {
        self.session_directories.iter().any(|directory| names::path(path).starts_with(directory))
    }
}

/// The launcher's side of the job's standard streams, for those that a restore makes.
#[derive(Debug, Default)]
pub struct Console {
    /// Master of the terminal.
    pub terminal: Option<OwnedFd>,
    /// End into which the launcher writes.
    pub stdin: Option<OwnedFd>,
    /// End from which the launcher reads.
    pub stdout: Option<OwnedFd>,
    /// End from which the launcher reads.
    pub stderr: Option<OwnedFd>,
}

/// Reads blobs out of the image.
pub trait BlobSource {
    /// All bytes of a blob.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] where a chunk's hash is wrong.
    fn read(&self, graph: &Graph, id: BlobId) -> Result<Vec<u8>>;

    /// Writes a blob to a file from offset 0, leaving holes where it is zero, and sets the length.
    ///
    /// # Errors
    /// As [`BlobSource::read`]; failed writes.
    fn copy_to(&self, graph: &Graph, id: BlobId, to: BorrowedFd<'_>) -> Result<()>;

    /// Hands over the parts of a blob that have content: offset and bytes.
    ///
    /// # Errors
    /// As [`BlobSource::read`]; what `each` returns.
    fn for_each_span(
        &self,
        graph: &Graph,
        id: BlobId,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()>;
}

/// A removed directory that is so again. It gets its mode last: that may forbid what opens and enters it.
#[derive(Debug)]
pub struct Remade {
    /// O_PATH.
    pub folder: OwnedFd,
    /// Permission bits, and those of the group and of restricted deletion (sticky).
    pub mode: u32,
}

/// A removed directory: the path that it had, and the number of its inode at the checkpoint.
pub type Removed = (String, u64);

/// State of a restore that handlers read and add to. Lives in the job's init, single-threaded.
pub struct RestoreContext<'a> {
    /// The checkpoint.
    pub graph: &'a Graph,
    blobs: &'a dyn BlobSource,
    parked: BTreeMap<FileId, OwnedFd>,
    awaiting: BTreeMap<FileId, OwnedFd>,
    /// Files that are opened again among other mounts.
    early: BTreeMap<FileId, OwnedFd>,
    inodes: BTreeMap<InodeId, OwnedFd>,
    /// The launcher's ends of standard streams, filled by the handlers that make them.
    pub console: Console,
    /// Which part of the instance is made; all of it where there is none.
    pub part: Option<Part>,
    /// Ends of relays for the agent, filled by the handlers that make them.
    pub outer: Vec<(OuterEnd, OwnedFd)>,
    /// Restore in spite of files that have changed.
    pub force: bool,
    /// By what those are told.
    pub file_check: FileCheck,
    /// Lowest descriptor number that no process of the job uses: temporary numbers below it are free
    /// in the init, numbers from it on hold parked descriptions.
    pub first_free: i32,
    /// From which number on descriptions are parked: a lower one where the limit leaves no room for all of them beside
    /// the job's own numbers.
    pub park_from: i32,
    /// The job has other instances.
    pub cluster: bool,
    /// The user with whose rights files are opened and made; `None`: this process's own.
    pub user: Option<UserOrder>,
    /// Connected sockets for [`super::outer_sockets`], made and filled by the agents.
    pub connections: BTreeMap<FileId, OwnedFd>,
    /// Listening TCP sockets: where they are.
    pub moved: Vec<MovedListener>,
    /// What single TCP sockets are called.
    pub names: Vec<NamedSocket>,
    /// Connections that were being made, for when all of the job is there.
    pub connecting: Vec<Connecting>,
    /// Other parts of the instance are on this machine as well.
    pub crowded: bool,
    /// What fills memory while the job runs; `None`: all is filled before.
    pub feeder: Option<Feeder>,
    /// What is made is never to run: it stays the first to be killed for want of memory.
    pub rehearsal: bool,
    /// Late connections are to be watched.
    pub watch: bool,
    /// They are.
    pub watched: Option<Installed>,
    /// How long ports of connections that have ended are waited for, all together; none: nothing has been in the way yet.
    pub ports_until: Option<Instant>,
    /// Connections that come from another address than before: that one, and the one now.
    pub other_ports: Vec<(SocketAddr, Option<SocketAddr>)>,
    /// Paths of files whose content was put back.
    pub put_back: BTreeSet<String>,
    /// Network namespaces of the job's own in which sockets were made, by their places.
    pub networks: BTreeMap<u32, OwnedFd>,
    /// Directories that were removed at the checkpoint, and are so again.
    pub removed: BTreeMap<Removed, Remade>,
    /// Lines for the user.
    pub warnings: Vec<String>,
}

/// Does something with a context about sockets of a network of the job's own: of those the job has no other instances.
fn within<C, T>(
    context: &mut C,
    cluster: impl Fn(&mut C) -> &mut bool,
    network: Option<u32>,
    act: impl FnOnce(&mut C) -> T,
) -> T {
    if network.is_none() {
        return act(context);
    }
    let before = std::mem::take(cluster(context));
    let done = network::within(network, || act(context));
    *cluster(context) = before;
    done
}

impl<'a> RestoreContext<'a> {
    /// As [`DumpContext::within`].
    pub fn within<T>(&mut self, network: Option<u32>, act: impl FnOnce(&mut Self) -> T) -> T {
        within(self, |context| &mut context.cluster, network, act)
    }

    /// A context with nothing parked.
    pub fn new(graph: &'a Graph, blobs: &'a dyn BlobSource, force: bool, first_free: i32) -> Self {
        Self {
            graph,
            blobs,
            parked: BTreeMap::new(),
            awaiting: BTreeMap::new(),
            early: BTreeMap::new(),
            inodes: BTreeMap::new(),
            console: Console::default(),
            part: None,
            outer: Vec::new(),
            force,
            file_check: graph.kept.file_check,
            first_free,
            park_from: first_free,
            cluster: false,
            user: None,
            connections: BTreeMap::new(),
            moved: Vec::new(),
            names: Vec::new(),
            connecting: Vec::new(),
            crowded: false,
            feeder: None,
            rehearsal: false,
            watch: false,
            watched: None,
            ports_until: None,
            other_ports: Vec::new(),
            put_back: BTreeSet::new(),
            networks: BTreeMap::new(),
            removed: BTreeMap::new(),
            warnings: Vec::new(),
        }
    }

    /// Whether a description is made here.
    pub fn needs(&self, id: FileId) -> bool {
        self.part.as_ref().is_none_or(|part| part.files.contains_key(&id))
    }

    /// Whether an inode is made here.
    pub fn needs_inode(&self, id: InodeId) -> bool {
        self.part.as_ref().is_none_or(|part| part.inodes.contains(&id))
    }

    /// What the agent is to hold of an object, and whether this is the object's home. `recorded`: its
    /// relays from before.
    pub fn legs(&self, id: FileId, recorded: &[RelayEnd]) -> (Vec<RelayEnd>, bool) {
        match self.part.as_ref().and_then(|part| part.files.get(&id)) {
            Some(Realisation::Relays { legs, home }) => {
                (legs.iter().map(|leg| leg.end.clone()).collect(), *home)
            }
            _ => (recorded.to_vec(), true),
        }
    }

    /// Keeps an end of a relay for the agent.
    ///
    /// # Errors
    /// As [`RestoreContext::lift`].
    pub fn hand_out(&mut self, end: RelayEnd, fd: OwnedFd) -> Result<()> {
        let fd = self.lift(fd)?;
        self.outer.push((OuterEnd::Relay(end), fd));
        Ok(())
    }

    /// Ends that name processes name them as they are numbered here.
    pub fn renumber_ends(&mut self, here: impl Fn(Pid) -> Option<Pid>) {
        for (end, _) in &mut self.outer {
            if let OuterEnd::Relay(end) = end {
                end.kind = end.kind.renumbered(&here);
            }
        }
    }

    /// All bytes of a blob.
    ///
    /// # Errors
    /// [`EngineError::Damaged`].
    pub fn blob(&self, id: BlobId) -> Result<Vec<u8>> {
        self.blobs.read(self.graph, id)
    }

    /// Writes a blob into a file, with holes where it is zero, and sets the file's length.
    ///
    /// # Errors
    /// As [`BlobSource::copy_to`].
    pub fn copy_blob(&self, id: BlobId, to: BorrowedFd<'_>) -> Result<()> {
        self.blobs.copy_to(self.graph, id, to)
    }

    /// Hands over the parts of a blob that have content: offset and bytes.
    ///
    /// # Errors
    /// As [`BlobSource::for_each_span`].
    pub fn for_each_span(
        &self,
        id: BlobId,
        mut each: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.blobs.for_each_span(self.graph, id, &mut each)
    }

    /// Hands over a finished open file description, moved out of the way of the job's numbers.
    ///
    /// # Errors
    /// Failed fcntl(2): the limit of open files is too low.
    pub fn park(&mut self, id: FileId, fd: OwnedFd) -> Result<()> {
        let parked = Self::move_up(fd, self.park_from)?;
        self.parked.insert(id, parked);
        Ok(())
    }

    /// Parks a placeholder for what can be made only once the processes are there: a socket, by which each holder
    /// gets the real one in the end.
    ///
    /// # Errors
    /// Failed system calls.
    pub fn await_process(&mut self, id: FileId) -> Result<()> {
        use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
        let (kind, flags) = (SockType::SeqPacket, SockFlag::SOCK_CLOEXEC);
        let (own, holders) = socketpair(AddressFamily::Unix, kind, None, flags)
            .map_err(|errno| EngineError::system("socketpair", "a placeholder", errno))?;
        let own = self.lift(own)?;
        self.awaiting.insert(id, own);
        self.park(id, holders)
    }

    /// Parks a placeholder for a file that is open, to be opened again among other mounts.
    ///
    /// # Errors
    /// As [`RestoreContext::await_process`].
    pub fn open_later(&mut self, id: FileId) -> Result<()> {
        let none = || EngineError::Damaged(format!("open file {} was never made", id.0));
        let early = self.parked.remove(&id).ok_or_else(none)?;
        self.early.insert(id, early);
        self.await_process(id)
    }

    /// Whether a description has such a placeholder.
    pub fn is_opened_later(&self, id: FileId) -> bool {
        let file = self.graph.files.get(id.0 as usize);
        file.is_some_and(|file| file.inside.is_some()) && self.awaiting.contains_key(&id)
    }

    /// Takes the file that such a placeholder stands for, as it was opened at first.
    pub fn opened_early(&mut self, id: FileId) -> Option<OwnedFd> {
        self.early.remove(&id)
    }

    /// The other end of a placeholder.
    pub fn awaiting(&self, id: FileId) -> Option<BorrowedFd<'_>> {
        self.awaiting.get(&id).map(AsFd::as_fd)
    }

    /// Moves a descriptor to a number that no process of the job uses.
    ///
    /// # Errors
    /// Failed fcntl(2).
    pub fn lift(&self, fd: OwnedFd) -> Result<OwnedFd> {
        Self::move_up(fd, self.first_free)
    }

    fn move_up(fd: OwnedFd, lowest: i32) -> Result<OwnedFd> {
        use std::os::fd::{AsRawFd, FromRawFd};
        if fd.as_raw_fd() >= lowest {
            return Ok(fd);
        }
        let high = nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(lowest)).map_err(
            |errno| EngineError::system("fcntl", format!("F_DUPFD from {lowest} on"), errno),
        )?;
        // SAFETY: fcntl just returned this number for us alone.
        Ok(unsafe { OwnedFd::from_raw_fd(high) })
    }

    /// A parked description.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] where the image refers to one that no room has made.
    pub fn parked(&self, id: FileId) -> Result<BorrowedFd<'_>> {
        self.parked
            .get(&id)
            .map(AsFd::as_fd)
            .ok_or_else(|| EngineError::Damaged(format!("open file {} was never made", id.0)))
    }

    /// A descriptor (read and write) of an inode that travels in the image.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] where there is no such inode.
    pub fn inode(&self, id: InodeId) -> Result<BorrowedFd<'_>> {
        self.inodes
            .get(&id)
            .map(AsFd::as_fd)
            .ok_or_else(|| EngineError::Damaged(format!("inode {} was never made", id.0)))
    }

    /// Whether an inode was made by memfd_create(2), and is again.
    pub fn is_memfd(&self, id: InodeId) -> bool {
        let inode = self.graph.inodes.get(id.0 as usize);
        inode.is_some_and(|inode| matches!(inode.origin, Origin::Memfd { .. }))
    }

    /// Closes the descriptors of inodes that travel in the image: nothing is made of them any more.
    pub fn drop_inodes(&mut self) {
        self.inodes.clear();
    }

    /// Registers the descriptor of an inode made from the image.
    ///
    /// # Errors
    /// As [`RestoreContext::lift`].
    pub fn add_inode(&mut self, id: InodeId, fd: OwnedFd) -> Result<()> {
        let high = self.lift(fd)?;
        self.inodes.insert(id, high);
        Ok(())
    }

    /// Adds a line for the user.
    pub fn warn(&mut self, line: impl Into<String>) {
        self.warnings.push(line.into());
    }
}
