//! What stands for a process that lives in another instance: a helper of the tree that never
//! becomes anything else. It forwards signals and the end of the process, by messages over one link
//! for each pair of parent and child that came apart.
//!
//! Side 0 of a link is the stand-in of the child, under the real parent: signals that it gets go to the
//! real child, and it ends as the child has ended. Side 1 is the stand-in of the parent, over the
//! real child: it waits for the child, and signals that it gets go to the real parent. A link that
//! breaks is the end of the child on both sides.
//!
//! Stops by job control are not forwarded. Runs without threads and without allocating.

use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

use super::super::graph::{Pid, RelayEnd, RelayKind};
use super::super::restore::tree::{HelperError, Here, end_with};
use super::super::sys::{prctl, signals};

/// Name (comm) of a stand-in.
pub const NAME: &str = "ckptd-standin";

/// Bytes of a message: kind, signal, whether it carries a value, nothing, status, value.
pub const MESSAGE: usize = 16;
/// struct signalfd_siginfo (signalfd(2)).
const SIGNALFD_INFO: usize = 128;
/// A number that no process has, and that kill(2) and waitid(2) refuse.
const NOBODY: Pid = i32::MAX;
/// CLD_EXITED to CLD_CONTINUED: told by the kernel of a child.
const OF_CHILD: std::ops::RangeInclusive<i32> = 1..=6;

/// What goes over a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// A signal was sent to the stand-in.
    Signal {
        /// Its number.
        signal: i32,
        /// The word that sigqueue(3) gave it.
        value: Option<u64>,
    },
    /// The child has ended, as wait(2) tells it.
    Ended {
        /// The status.
        status: i32,
    },
    /// The parent has ended: init adopts the child.
    Orphaned,
}

impl Message {
    /// First byte of [`Message::Ended`].
    pub const ENDED: u8 = 2;

    /// As bytes.
    pub fn encode(self) -> [u8; MESSAGE] {
        let mut bytes = [0; MESSAGE];
        match self {
            Self::Signal { signal, value } => {
                bytes[..2].copy_from_slice(&[1, signal as u8]);
                bytes[2] = u8::from(value.is_some());
                bytes[8..].copy_from_slice(&value.unwrap_or(0).to_le_bytes());
            }
            Self::Ended { status } => {
                bytes[0] = Self::ENDED;
                bytes[4..8].copy_from_slice(&status.to_le_bytes());
            }
            Self::Orphaned => bytes[0] = 3,
        }
        bytes
    }

    /// From bytes; nothing of what no stand-in sends.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MESSAGE] = bytes.try_into().ok()?;
        let [kind, signal, valued, _, s0, s1, s2, s3, value @ ..] = *bytes;
        match kind {
            1 if (1..=64).contains(&signal) => Some(Self::Signal {
                signal: i32::from(signal),
                value: (valued != 0).then(|| u64::from_le_bytes(value)),
            }),
            Self::ENDED => Some(Self::Ended { status: i32::from_le_bytes([s0, s1, s2, s3]) }),
            3 => Some(Self::Orphaned),
            _ => None,
        }
    }
}

/// A stand-in's end of a link.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
    side: u8,
    parent: Pid,
    child: Pid,
    open: bool,
    /// Tells the end of the child (side 1) or of the parent (side 0).
    watched: Option<OwnedFd>,
}

impl Link {
    /// Over a socket; nothing if the end is not one of a link.
    pub fn new(end: &RelayEnd, socket: OwnedFd) -> Option<Self> {
        let RelayKind::Link { parent, child } = end.kind else { return None };
        Some(Self { socket, side: end.side, parent, child, open: true, watched: None })
    }

    /// The same link for the process that lives by it, which never returns and never drops this one. `here` tells what
    /// recorded numbers are on this machine.
    pub fn in_this_process(&self, here: Here<'_>) -> Self {
        use std::os::fd::FromRawFd;
        // SAFETY: the descriptor stays open: the caller goes on to [`live`], which does not return.
        let socket = unsafe { OwnedFd::from_raw_fd(self.number()) };
        let Self { side, parent, child, .. } = *self;
        // Whom it watches or signals is among those who are here. It must not be another's child.
        let [parent, child] = [parent, child].map(|pid| here(pid).unwrap_or(NOBODY));
        Self { socket, side, parent, child, open: true, watched: None }
    }

    /// Which process has this end.
    pub fn owner(&self) -> Pid {
        if self.side == 0 { self.child } else { self.parent }
    }

    /// The descriptor.
    pub fn number(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn send(&self, message: Message) {
        let bytes = message.encode();
        loop {
            // SAFETY: the kernel reads the bytes, which outlive the call.
            let sent = unsafe {
                libc::send(self.number(), bytes.as_ptr().cast(), MESSAGE, libc::MSG_NOSIGNAL)
            };
            // A link that is broken tells so when it is read.
            if sent >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                return;
            }
        }
    }

    /// The next message; `Err` at the link's end.
    fn receive(&self) -> Result<Option<Message>, ()> {
        let mut bytes = [0u8; MESSAGE];
        // SAFETY: the kernel writes at most as many bytes as there are.
        let length = unsafe {
            libc::recv(self.number(), bytes.as_mut_ptr().cast(), MESSAGE, libc::MSG_DONTWAIT)
        };
        match usize::try_from(length) {
            Ok(0) => Err(()),
            Ok(length) => Ok(bytes.get(..length).and_then(Message::decode)),
            Err(_) => match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(None),
                _ => Err(()),
            },
        }
    }
}

/// Closes everything but the links, gives up the working directory, and takes the name. Every
/// signal is blocked already.
///
/// # Errors
/// Failed calls.
pub fn prepare(links: &[RawFd]) -> Result<(), HelperError> {
    let mut kept = links.to_vec();
    kept.sort_unstable();
    let mut next: u32 = 0;
    for fd in kept {
        let fd = u32::try_from(fd).map_err(|_| HelperError::system("close_range")(Errno::EBADF))?;
        if fd > next {
            close_range(next, fd - 1)?;
        }
        next = fd + 1;
    }
    close_range(next, u32::MAX)?;
    std::env::set_current_dir("/").map_err(HelperError::system("enter /"))?;
    prctl::set_name(c"ckptd-standin").map_err(HelperError::system("prctl PR_SET_NAME"))
}

/// Makes this process the stand-in of a program in another instance, started from here: `link` is the
/// end of a seqpacket socket pair whose other end the agent has. Standard streams stay open for
/// the dump's sake; the agent has copies and uses them. `far` is a copy of the agent's end: with it the link
/// outlives an agent that dies, and this process waits for what the next one does about it.
///
/// The caller has one thread and nothing left to do.
///
/// # Errors
/// Nothing has changed then but descriptors that may be closed.
pub fn become_remote_shell(
    link: OwnedFd,
    far: Option<OwnedFd>,
) -> Result<std::convert::Infallible, HelperError> {
    let (parent, child) = (nix::unistd::getppid().as_raw(), nix::unistd::getpid().as_raw());
    signals::set_blocked(u64::MAX).map_err(HelperError::system("rt_sigprocmask"))?;
    let far = far.map(IntoRawFd::into_raw_fd);
    let kept: Vec<RawFd> = [0, 1, 2, link.as_raw_fd()].into_iter().chain(far).collect();
    prepare(&kept)?;
    live(vec![Link { socket: link, side: 0, parent, child, open: true, watched: None }])
}

fn close_range(first: u32, last: u32) -> Result<(), HelperError> {
    // SAFETY: closes numbers that this helper does not use any more; owners of theirs are never dropped
    // in it, since it ends by _exit(2).
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    Errno::result(closed).map(drop).map_err(HelperError::system("close_range"))
}

/// Lives as the stand-in, to its end.
pub fn live(mut links: Vec<Link>) -> ! {
    let signals = open_signals();
    for link in &mut links {
        let watched = if link.side == 0 { link.parent } else { link.child };
        link.watched = open_process(watched);
    }
    let mut polled: Vec<libc::pollfd> = Vec::with_capacity(1 + 2 * links.len());
    loop {
        polled.clear();
        polled.push(reading(Some(signals)));
        for link in &links {
            polled.push(reading(link.open.then(|| link.number())));
            polled.push(reading(link.watched.as_ref().map(AsRawFd::as_raw_fd)));
        }
        // SAFETY: the array lives during the call and is as long as told.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, -1) };
        while let Some((signal, value, of_child)) = next_signal(signals) {
            if !of_child {
                forward(&links, Message::Signal { signal, value });
            }
        }
        let has_parent_link = links.iter().any(|link| link.side == 0);
        for link in &mut links {
            serve(link, has_parent_link);
        }
    }
}

fn reading(fd: Option<RawFd>) -> libc::pollfd {
    // A negative number is passed over (poll(2)).
    libc::pollfd { fd: fd.unwrap_or(-1), events: libc::POLLIN, revents: 0 }
}

/// To the process itself over its own link, else over one of its children's.
fn forward(links: &[Link], message: Message) {
    let open = || links.iter().filter(|link| link.open);
    if let Some(link) = open().find(|link| link.side == 0).or_else(|| open().next()) {
        link.send(message);
    }
}

/// Everything that a link has to say, and the end of the process at its near end.
fn serve(link: &mut Link, has_parent_link: bool) {
    while link.open {
        match link.receive() {
            Ok(Some(message)) => obey(link, message, has_parent_link),
            Ok(None) => break,
            Err(()) => {
                link.open = false;
                if link.side == 0 {
                    end(libc::SIGKILL);
                }
                send_signal(link.child, libc::SIGKILL, None);
            }
        }
    }
    if !link.watched.as_ref().is_some_and(is_ready) {
        return;
    }
    if link.side == 0 {
        link.send(Message::Orphaned);
        end(0);
    }
    if let Some(status) = wait_for(link.child) {
        link.watched = None;
        link.send(Message::Ended { status });
        link.open = false;
    }
}

fn obey(link: &mut Link, message: Message, has_parent_link: bool) {
    match (link.side, message) {
        (0, Message::Ended { status }) => end(status),
        (0, Message::Signal { signal, value }) => send_signal(link.parent, signal, value),
        (1, Message::Signal { signal, value }) => send_signal(link.child, signal, value),
        (1, Message::Orphaned) => {
            link.open = false;
            // Its own end comes over its own link, if it has one.
            if !has_parent_link {
                end(0);
            }
        }
        _ => {}
    }
}

fn open_signals() -> RawFd {
    let all = u64::MAX;
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the mask is the kernel's 64 bits and outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_signalfd4, -1, &raw const all, 8, flags) };
    fd as RawFd
}

/// The next signal: number, value if sigqueue(3) sent it, whether the kernel tells of a child.
fn next_signal(fd: RawFd) -> Option<(i32, Option<u64>, bool)> {
    let mut info = [0u8; SIGNALFD_INFO];
    // SAFETY: the kernel writes at most as many bytes as there are.
    let length = unsafe { libc::read(fd, info.as_mut_ptr().cast(), SIGNALFD_INFO) };
    if length != SIGNALFD_INFO as isize {
        return None;
    }
    let word = |at: usize| {
        let mut word = [0u8; 4];
        word.copy_from_slice(&info[at..at + 4]);
        i32::from_ne_bytes(word)
    };
    let (signal, code) = (word(0), word(8));
    let mut value = [0u8; 8];
    // ssi_ptr (struct signalfd_siginfo).
    value.copy_from_slice(&info[48..56]);
    let queued = (code == libc::SI_QUEUE).then(|| u64::from_ne_bytes(value));
    Some((signal, queued, OF_CHILD.contains(&code) && signal != 0))
}

fn open_process(pid: Pid) -> Option<OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    // SAFETY: the kernel has just made this descriptor for us alone.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

fn is_ready(fd: &OwnedFd) -> bool {
    let mut polled = reading(Some(fd.as_raw_fd()));
    // SAFETY: one live pollfd, and a count of one.
    unsafe { libc::poll(&raw mut polled, 1, 0) > 0 }
}

fn wait_for(child: Pid) -> Option<i32> {
    let mut status = 0;
    // SAFETY: the status outlives the call.
    let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG | libc::__WALL) };
    (ended == child).then_some(status)
}

fn send_signal(pid: Pid, signal: i32, value: Option<u64>) {
    let Some(value) = value else {
        // SAFETY: takes numbers only; the process cannot have been replaced by another: it is a child
        // that only this process waits for, or the parent, whose end is looked at first.
        unsafe { libc::kill(pid, signal) };
        return;
    };
    // siginfo_t: number, errno, code, padding, then pid, uid, value.
    let mut info = [0u8; SIGNALFD_INFO];
    info[..4].copy_from_slice(&signal.to_ne_bytes());
    info[8..12].copy_from_slice(&libc::SI_QUEUE.to_ne_bytes());
    info[16..20].copy_from_slice(&(std::process::id() as i32).to_ne_bytes());
    info[24..32].copy_from_slice(&value.to_ne_bytes());
    // SAFETY: the kernel reads 128 bytes, which outlive the call.
    unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, pid, signal, info.as_ptr()) };
}

/// Ends as the process has ended.
fn end(status: i32) -> ! {
    let signal = status & 0x7f;
    for other in 1..=signals::LAST {
        if other != signal && ![libc::SIGKILL, libc::SIGSTOP].contains(&other) {
            // SAFETY: SIG_IGN has no handler.
            let _ = unsafe { signals::set_action(other, signals::IGNORE) };
        }
    }
    if signal != 0 && signal != libc::SIGKILL {
        // SAFETY: SIG_DFL has no handler.
        let _ = unsafe { signals::set_action(signal, signals::DEFAULT) };
    }
    let _ = signals::set_blocked(0);
    let _ = end_with(status & 0xffff);
    // SAFETY: ends the process at once, as a forked child should.
    unsafe { libc::_exit(125) }
}
