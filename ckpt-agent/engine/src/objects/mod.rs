//! One handler per kind of kernel object that a descriptor can hold: its dump and its restore
//! side by side in one file. To add a kind, write its file and name it in [`object_kinds!`] below.
//!
//! A dump goes through three calls: [`ObjectKind::recognise`] finds the handler, [`ObjectKind::dump`] reads one
//! open file description, and [`ObjectKind::finish`] sees all descriptions of the kind together
//! (pairs of sockets, both ends of pipes) while the whole job still stands still. Whatever a
//! dump takes out of an object (bytes of a terminal, a full socket) it must have put back when
//! `finish` returns, on every path: the job goes on with the very same objects.
//!
//! A restore makes all descriptions of a kind at once ([`ObjectKind::restore`]), each handed to
//! [`RestoreContext::park`]; when every handler is done, [`ObjectKind::wire`] ties descriptions to each
//! other (epoll). Access flags, owners and locks are put on by the caller.

mod aside;
mod by_path;
mod carried;
mod changed;
mod console_terminal;
mod context;
mod families;
pub mod in_place;
pub mod interconnect;
mod multicast;
mod nsfile;
mod other_name;
pub(super) mod paths;
mod pipe_content;
mod pipe_slots;
mod private_pipe;
mod probe;
mod removed;
pub(super) mod reopen;
mod rights;
mod shown;
mod shut;
mod socket_options;
#[cfg(test)]
mod testing;
mod unread;

pub use super::graph::StdioRole;
pub use by_path::HOSTS;
pub use console_terminal::{ConsoleTerminal, StrangersTerminal};
pub use context::{
    BlobData, BlobSource, Console, DumpContext, Extent, External, HeldRelay, RestoreContext,
};
pub use directory::{give_mode, removed as removed_directory};
pub use epoll::OfSignals;
pub use io_uring::{MOST_GROUPS, Ring};
pub use mounted_file::open_within;
pub use mqueue::{Notification, both_ways};
pub use pidfd::{INIT, ProcessDescriptor};
pub use pipe::Pipe;
pub use probe::{FdInfo, Probe};
pub use procfile::{ProcessFile, check_device};
pub use pty::{ControllingTerminal, Side as TerminalSide, Terminal, controlling_terminals};
pub use regular::Regular;
pub use removed::{give_removed_modes, make_removed};
pub use shown::Shown;
#[cfg(test)]
pub(crate) use socket_options::reads_option;
pub use tcp::{OuterSocket, PeerEnd as TcpPeer, TcpState, Widened, outer_sockets};
pub use timerfd::settle as settle_timers;
pub use unix::{Message as UnixMessage, UnixKind, UnixLink, UnixSocket, in_flight};
pub use userfault::{Userfault, is_watched, is_write_watched};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tracing::debug_span;

use super::doing::{self, Thing};
use super::error::Result;
use super::graph::{FileId, InodeId, OpenFile, Pid};
use super::job_init::stages::{self, Stage};
use path::PathOnly;

/// One open file description that a dump has found.
#[derive(Debug)]
pub struct Found<'a, T> {
    /// Its index in the graph.
    pub id: FileId,
    /// Access mode and status flags.
    pub flags: i32,
    /// The network namespace of the job's own that it is dealt with in.
    pub network: Option<u32>,
    /// What [`ObjectKind::dump`] made of it; `finish` may complete it.
    pub object: &'a mut T,
    /// How it was found.
    pub probe: &'a Probe,
}

/// One open file description that a restore has to make.
#[derive(Debug, Clone, Copy)]
pub struct Saved<'a, T> {
    /// Its index in the graph.
    pub id: FileId,
    /// Flags, owner, locks.
    pub file: &'a OpenFile,
    /// What its kind has saved of it.
    pub object: &'a T,
}

/// What can be done with a description that processes of several parts of an instance hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is opened again in each part, or comes apart into ends with a relay in between.
    Again,
    /// Nothing: its holders stay together.
    Undivided,
}

/// A kind of kernel object.
pub trait ObjectKind: Sized {
    /// Whether those of each network are dealt with by themselves, since nothing leads from one to another.
    const OF_NETWORK: bool = false;

    /// Whether the description that `probe` shows is of this kind. Kinds are asked in order.
    fn recognise(probe: &Probe) -> bool;

    /// Reads one open file description.
    ///
    /// # Errors
    /// A [`super::Refusal`] where it can't be checkpointed; failed system calls.
    fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self>;

    /// Sees all descriptions of the kind together, with every process of the job stopped.
    ///
    /// # Errors
    /// As [`ObjectKind::dump`].
    fn finish(_all: &mut [Found<'_, Self>], _context: &mut DumpContext) -> Result<()> {
        Ok(())
    }

    /// Sees all descriptions of the kind once more when every instance of the job has answered that
    /// nothing of its own is under way any more: for what may still arrive until then.
    ///
    /// # Errors
    /// As [`ObjectKind::dump`].
    fn late(_all: &mut [Found<'_, Self>], _context: &mut DumpContext) -> Result<()> {
        Ok(())
    }

    /// Makes the descriptions and parks them.
    ///
    /// # Errors
    /// [`super::EngineError::Unfit`] where this machine or its files do not fit; failed system calls.
    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()>;

    /// What can be done with a description of this kind, opened with these flags, that processes on several machines
    /// hold.
    fn when_divided(&self, flags: i32) -> Fate;

    /// Ties descriptions to each other once those of all kinds are parked.
    ///
    /// # Errors
    /// As [`ObjectKind::restore`].
    fn wire(_all: &[Saved<'_, Self>], _context: &mut RestoreContext) -> Result<()> {
        Ok(())
    }
}

/// Descriptions by the network namespaces of the job's own that they are dealt with in, those of the job's first.
fn by_network<T>(
    all: Vec<T>,
    network: impl Fn(&T) -> Option<u32>,
) -> BTreeMap<Option<u32>, Vec<T>> {
    let mut parts: BTreeMap<Option<u32>, Vec<T>> = BTreeMap::new();
    for one in all {
        parts.entry(network(&one)).or_default().push(one);
    }
    parts
}

/// Ties descriptions to those that refer to processes, once these are there.
///
/// # Errors
/// As [`ObjectKind::wire`].
pub fn wire_late(files: &[OpenFile], context: &mut RestoreContext<'_>) -> Result<()> {
    let all = Object::epoll(files, context);
    epoll::wire_late(&all, context)
}

/// Registrations in epoll instances that a holder has to make, since they are about its signals.
pub fn registrations_of_signals<'g>(
    files: &'g [OpenFile],
    context: &mut RestoreContext<'_>,
) -> Vec<OfSignals<'g>> {
    let all = Object::epoll(files, context);
    epoll::of_signals(&all, context)
}

/// What has been told of edge-triggered registrations before is not told again.
///
/// # Errors
/// As [`ObjectKind::wire`].
pub fn quieten(files: &[OpenFile], context: &mut RestoreContext<'_>) -> Result<()> {
    let all = Object::epoll(files, context);
    epoll::quieten(&all, context)
}

/// What has to be done once nothing of a restore touches files any more.
///
/// # Errors
/// A watched file that is not there; failed calls.
pub fn watch_again(files: &[OpenFile], context: &mut RestoreContext<'_>) -> Result<()> {
    let all = Object::inotify(files, context);
    inotify::watch_again(&all, context)?;
    let all = Object::fanotify(files, context);
    fanotify::watch_again(&all, context)
}

impl Object {
    /// The carried inode that it is open on.
    pub fn carried_inode(&self) -> Option<InodeId> {
        match self {
            Self::PathOnly(PathOnly::Carried(carried))
            | Self::Regular(Regular::Carried(carried)) => Some(carried.inode),
            _ => None,
        }
    }

    /// Forgets its other end and its content: for a copy that nobody knows of, held apart from the others.
    /// Pipes and sockets only; everything else is made as it is.
    pub fn become_idle(&mut self) {
        match self {
            Self::Pipe(pipe) => pipe.become_idle(),
            Self::UnixSocket(socket) => socket.become_idle(),
            Self::TcpSocket(socket) => socket.become_idle(),
            _ => {}
        }
    }

    /// The process or thread that a descriptor refers to, for descriptors that can be made only once that is there; `Some(None)`:
    /// it has ended.
    pub fn process(&self) -> Option<Option<Pid>> {
        match self {
            Self::ProcessDescriptor(descriptor) => Some(descriptor.pid),
            Self::ProcessFile(file) => Some(file.pid),
            _ => None,
        }
    }

    /// Whether it can be made only once there are processes.
    pub fn is_made_late(&self) -> bool {
        match self {
            Self::Ring(ring) => ring.is_polled(),
            Self::Userfault(_) => true,
            other => other.process().is_some(),
        }
    }

    /// Whether it can be made only once the mounts of the job's own are there.
    pub fn is_made_with_mounts(&self) -> bool {
        matches!(self, Self::MountedFile(_))
    }

    /// Whether it is opened by its path, and can be so among other mounts, too.
    pub fn opens_inside(&self) -> bool {
        self.is_place() || matches!(self, Self::Regular(_) | Self::MountedFile(_))
    }

    /// Whether it is a socket.
    pub fn is_socket(&self) -> bool {
        matches!(
            self,
            Self::TcpSocket(_)
                | Self::UdpSocket(_)
                | Self::IpSocket(_)
                | Self::PacketSocket(_)
                | Self::NetlinkSocket(_)
                | Self::UnixSocket(_)
        )
    }

    /// Whether other files are reached from it.
    pub fn is_place(&self) -> bool {
        matches!(self, Self::Directory(_) | Self::PathOnly(_))
    }

    /// What is at the other end of a TCP connection.
    pub fn tcp_peer(&self) -> Option<TcpPeer> {
        match self {
            Self::TcpSocket(socket) => socket.connection().map(|connection| connection.end),
            _ => None,
        }
    }
}

/// Declares the kinds, in the order in which they are asked: the enum [`Object`] and its dispatch.
macro_rules! object_kinds {
    ($($(#[$doc:meta])* $variant:ident => $module:ident,)*) => {
        $(mod $module;)*

        /// What an open file description is open on.
        #[derive(Debug, Clone, Serialize, Deserialize)]
        #[serde(remote = "Self", rename_all = "snake_case")]
        pub enum Object {
            $($(#[$doc])* $variant($module::$variant),)*
        }
        protocol::tagged!(Object, "kind");

        impl Object {
            /// The kind's name in words for listings.
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$variant(_) => stringify!($module),)* }
            }

            /// As [`ObjectKind::when_divided`].
            pub fn when_divided(&self, flags: i32) -> Fate {
                match self { $(Self::$variant(object) => object.when_divided(flags),)* }
            }

            /// Finds the kind of a description and dumps it.
            ///
            /// # Errors
            /// A refusal where no handler knows it, else as [`ObjectKind::dump`].
            pub fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self> {
                $(if <$module::$variant as ObjectKind>::recognise(probe) {
                    return Ok(Self::$variant(<$module::$variant as ObjectKind>::dump(probe, context)?));
                })*
                Err(probe.unknown().into())
            }

            /// Runs [`ObjectKind::finish`] of every kind over the descriptions found.
            ///
            /// # Errors
            /// As [`ObjectKind::finish`], with the holder of the first description of the kind named.
            pub fn finish_all(
                files: &mut [OpenFile],
                probes: &[Probe],
                context: &mut DumpContext,
            ) -> Result<()> {
                $({
                    let mut all: Vec<Found<'_, $module::$variant>> = Vec::new();
                    for (index, (file, probe)) in files.iter_mut().zip(probes).enumerate() {
                        let (flags, network) = (file.flags, file.network);
                        if let Self::$variant(object) = &mut file.object {
                            let network = network.filter(|_| <$module::$variant>::OF_NETWORK);
                            all.push(Found { id: FileId(index as u32), flags, network, object, probe });
                        }
                    }
                    if !all.is_empty() {
                        let (kind, count) = (stringify!($module), all.len());
                        let _resting = debug_span!("rest", kind, count).entered();
                        doing::begin("bringing to rest", Thing::Objects { kind, count });
                        for (network, mut all) in by_network(all, |found| found.network) {
                            context.within(network, |context| {
                                <$module::$variant as ObjectKind>::finish(&mut all, context)
                            })?;
                        }
                    }
                })*
                Ok(())
            }

            /// Runs [`ObjectKind::late`] of every kind over the descriptions found.
            ///
            /// # Errors
            /// As [`ObjectKind::late`].
            pub fn late_all(
                files: &mut [OpenFile],
                probes: &[Probe],
                context: &mut DumpContext,
            ) -> Result<()> {
                $({
                    let mut all: Vec<Found<'_, $module::$variant>> = Vec::new();
                    for (index, (file, probe)) in files.iter_mut().zip(probes).enumerate() {
                        let (flags, network) = (file.flags, file.network);
                        if let Self::$variant(object) = &mut file.object {
                            let network = network.filter(|_| <$module::$variant>::OF_NETWORK);
                            all.push(Found { id: FileId(index as u32), flags, network, object, probe });
                        }
                    }
                    if !all.is_empty() {
                        let (kind, count) = (stringify!($module), all.len());
                        let _resting = debug_span!("rest again", kind, count).entered();
                        doing::begin("bringing to rest", Thing::Objects { kind, count });
                        for (network, mut all) in by_network(all, |found| found.network) {
                            context.within(network, |context| {
                                <$module::$variant as ObjectKind>::late(&mut all, context)
                            })?;
                        }
                    }
                })*
                Ok(())
            }

            /// Makes all descriptions, kind by kind, then ties them together.
            ///
            /// # Errors
            /// As [`ObjectKind::restore`] and [`ObjectKind::wire`].
            pub fn restore_all(files: &[OpenFile], context: &mut RestoreContext) -> Result<()> {
                $({
                    let all = Self::$module(files, context);
                    if !all.is_empty() {
                        let (kind, count) = (stringify!($module).into(), all.len());
                        let _making = stages::begin(Stage::Objects { kind, count });
                        for (network, all) in by_network(all, |saved| {
                            saved.file.network.filter(|_| <$module::$variant>::OF_NETWORK)
                        }) {
                            context.within(network, |context| {
                                <$module::$variant as ObjectKind>::restore(&all, context)
                            })?;
                        }
                    }
                })*
                $({
                    let all = Self::$module(files, context);
                    if !all.is_empty() {
                        let (kind, count) = (stringify!($module).into(), all.len());
                        let _tying = stages::begin(Stage::Wire { kind, count });
                        <$module::$variant as ObjectKind>::wire(&all, context)?;
                    }
                })*
                Ok(())
            }

            $(fn $module<'f>(
                files: &'f [OpenFile],
                context: &RestoreContext,
            ) -> Vec<Saved<'f, $module::$variant>> {
                files.iter().enumerate().filter_map(|(index, file)| match &file.object {
                    Self::$variant(object) => Some(Saved { id: FileId(index as u32), file, object }),
                    _ => None,
                }).filter(|saved| context.needs(saved.id)).collect()
            })*
        }
    };
}

// Asked in this order at a dump, made in this order at a restore.
object_kinds! {
    /// Files of a tmpfs that processes have mounted for themselves
    MountedFile => mounted_file,
    /// Files of /proc that show a process
    ProcessFile => procfile,
    /// open(2) with O_PATH
    PathOnly => path,
    /// eventfd(2)
    EventCounter => eventfd,
    /// timerfd_create(2)
    Timer => timerfd,
    /// signalfd(2)
    SignalReader => signalfd,
    /// inotify(7)
    Inotify => inotify,
    /// fanotify(7)
    Fanotify => fanotify,
    /// pidfd_open(2)
    ProcessDescriptor => pidfd,
    /// epoll(7)
    Epoll => epoll,
    /// io_uring_setup(2)
    Ring => io_uring,
    /// userfaultfd(2)
    Userfault => userfault,
    /// Maps of bpf(2)
    BpfMap => bpf,
    /// pipe(2)
    Pipe => pipe,
    /// mkfifo(3)
    Fifo => fifo,
    /// Pseudoterminals
    Terminal => pty,
    /// TCP over IPv4 and IPv6
    TcpSocket => tcp,
    /// UDP over IPv4 and IPv6
    UdpSocket => udp,
    /// Raw sockets of IPv4 and IPv6, and ICMP sockets
    IpSocket => ip,
    /// Packet sockets
    PacketSocket => packet,
    /// Netlink sockets
    NetlinkSocket => netlink,
    /// POSIX message queues
    MessageQueue => mqueue,
    /// /dev/null and its kin
    Device => device,
    /// Files of /proc and /sys
    PseudoFile => pseudo,
    /// Directories
    Directory => directory,
    /// Regular files
    Regular => regular,
    // The last to be made: any of the others may be under way in one.
    /// Unix sockets
    UnixSocket => unix,
}
