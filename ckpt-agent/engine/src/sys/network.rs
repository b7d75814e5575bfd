//! Sockets in network namespaces other than this process's own. A socket belongs to the namespace that whoever makes it is in
//! (socket(2)), wherever it is bound and connected afterwards. So a child makes them, which is in the namespace and shares
//! this process's table of descriptors; this process need not come back from anywhere, which it might have no right to.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::super::error::{EngineError, Result};
use super::loopback;
use super::pidfd;
use super::related::{GET_USER, related};

/// How long a child may take for an answer: whoever has rights in the namespaces that it is in may stop it.
const PATIENCE_MS: u16 = 10_000;
/// As the first word of a request: the namespace itself.
const NAMESPACE: i32 = -1;
/// Room for the name of a Unix socket.
const UNIX_NAME: usize = 108;

/// The address of a Unix socket by its name: a path may fill all of the room, and has no end then (unix(7)).
///
/// # Errors
/// One that is longer.
pub fn unix_address(name: &[u8]) -> io::Result<SockAddr> {
    use std::os::unix::ffi::OsStrExt;
    if name.len() != UNIX_NAME {
        return SockAddr::unix(std::ffi::OsStr::from_bytes(name));
    }
    let fill = |storage: *mut socket2::SockAddrStorage, length: *mut libc::socklen_t| {
        let address = storage.cast::<libc::sockaddr_un>();
        // SAFETY: the storage is aligned for addresses of every kind, and has been zeroed; `name` is exactly as long as the path
        // that it is copied to.
        unsafe {
            (*address).sun_family = libc::AF_UNIX as libc::sa_family_t;
            let path = (&raw mut (*address).sun_path).cast::<u8>();
            path.copy_from_nonoverlapping(name.as_ptr(), UNIX_NAME);
            *length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        }
        Ok(())
    };
    // SAFETY: `fill` writes an address of AF_UNIX and its length, which is that of the structure.
    unsafe { SockAddr::try_init(fill) }.map(|((), address)| address)
}

/// Family, type and protocol of a socket.
type Request = [i32; 3];

thread_local! {
    static NETWORKS: RefCell<Networks> = const { RefCell::new(Networks { known: BTreeMap::new(), current: None }) };
}

/// Those that this thread knows.
#[derive(Debug)]
struct Networks {
    /// By their places among the job's namespaces.
    known: BTreeMap<u32, Network>,
    /// The one in which sockets are made now; `None`: the thread's own.
    current: Option<u32>,
}

/// While it lives, this thread knows networks of a job's own.
#[derive(Debug)]
pub struct Known(PhantomData<*const ()>);

impl Known {
    /// Begins, with none.
    pub fn begin() -> Self {
        forget();
        Self(PhantomData)
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        forget();
    }
}

fn forget() {
    let known = NETWORKS.with_borrow_mut(|networks| {
        networks.current = None;
        std::mem::take(&mut networks.known)
    });
    // Which waits for children.
    drop(known);
}

/// Adds one.
pub fn add(place: u32, network: Network) {
    let former = NETWORKS.with_borrow_mut(|networks| networks.known.insert(place, network));
    drop(former);
}

/// The places of all.
pub fn places() -> Vec<u32> {
    NETWORKS.with_borrow(|networks| networks.known.keys().copied().collect())
}

/// The one in which sockets are made now.
pub fn current() -> Option<u32> {
    NETWORKS.with_borrow(|networks| networks.current)
}

/// Has sockets made in one of them, or in this thread's own, while `act` runs.
pub fn within<T>(place: Option<u32>, act: impl FnOnce() -> T) -> T {
    struct Back(Option<u32>);
    impl Drop for Back {
        fn drop(&mut self) {
            NETWORKS.with_borrow_mut(|networks| networks.current = self.0);
        }
    }
    let _back =
        Back(NETWORKS.with_borrow_mut(|networks| std::mem::replace(&mut networks.current, place)));
    act()
}

/// A socket of the network of the moment.
///
/// # Errors
/// As socket(2).
pub fn socket(domain: Domain, kind: Type, protocol: Option<Protocol>) -> io::Result<Socket> {
    let Some(place) = current() else { return Socket::new(domain, kind, protocol) };
    let kind = i32::from(kind) | libc::SOCK_CLOEXEC;
    let request = [domain.into(), kind, protocol.map_or(0, i32::from)];
    ask(place, request).map(Socket::from)
}

/// A netlink socket of the network of the moment.
///
/// # Errors
/// As socket(2).
pub fn netlink(protocol: isize) -> io::Result<netlink_sys::Socket> {
    use std::os::fd::IntoRawFd;
    let protocol = i32::try_from(protocol).map_err(io::Error::other)?;
    let made = socket(libc::AF_NETLINK.into(), Type::DGRAM, Some(protocol.into()))?;
    // SAFETY: the descriptor was just made for us alone.
    Ok(unsafe { netlink_sys::Socket::from_raw_fd(made.into_raw_fd()) })
}

/// A file of /proc/net of the network of the moment.
pub fn file(name: &str) -> String {
    let of_child = |networks: &Networks| Some(networks.known.get(&networks.current?)?.child);
    match NETWORKS.with_borrow(of_child) {
        Some(child) => format!("/proc/{child}/net/{name}"),
        None => format!("/proc/self/net/{name}"),
    }
}

/// A descriptor of one of them, as in /proc/PID/ns.
///
/// # Errors
/// It can't be opened.
pub fn namespace(place: u32) -> io::Result<OwnedFd> {
    ask(place, [NAMESPACE, 0, 0])
}

fn ask(place: u32, request: Request) -> io::Result<OwnedFd> {
    NETWORKS.with_borrow(|networks| match networks.known.get(&place) {
        Some(network) => network.ask(request),
        None => Err(io::Error::other("no such network is known")),
    })
}

/// A child that makes sockets in a network.
#[derive(Debug)]
pub struct Network {
    child: Pid,
    /// Where it is asked; `None` once it has failed to answer: what comes later would be taken for another answer.
    requests: RefCell<Option<OwnedFd>>,
    /// Its end is told here. The other end of `requests` is in the table that both share, and does not tell of it.
    process: OwnedFd,
    /// The child's end, in the table that both share.
    _answers: OwnedFd,
}

impl Network {
    /// In the one that a process is in.
    ///
    /// # Errors
    /// It can't be entered; no process.
    pub fn of_process(pid: i32) -> Result<Self> {
        let path = format!("/proc/{pid}/ns/net");
        let failed = |error| EngineError::system("open", path.as_str(), error);
        let namespace = File::open(&path).map_err(failed)?;
        let users = related(&namespace, GET_USER)?;
        let (namespace, users) = (namespace.as_raw_fd(), users.as_raw_fd());
        let started = Self::start(|| enter(namespace, users));
        started.map_err(|error| EngineError::system("setns", path.as_str(), error))
    }

    /// In a new one. The caller has one thread. `change`: what the child does to itself before it makes sockets.
    ///
    /// # Errors
    /// It can't be made; no process.
    pub fn new(loopback_up: bool, change: impl Fn() -> io::Result<()>) -> Result<Self> {
        let started = Self::start(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)?;
            if loopback_up {
                loopback::bring_up()?;
            }
            change()
        });
        started.map_err(|error| EngineError::system("unshare", "a network namespace", error))
    }

    fn start(begin: impl Fn() -> io::Result<()>) -> io::Result<Self> {
        let (requests, answers) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        let parent = std::process::id() as i32;
        let flags = libc::c_long::from(libc::CLONE_FILES | libc::SIGCHLD);
        let none: libc::c_long = 0;
        // SAFETY: without CLONE_VM the child has memory of its own, and goes on with this stack. It makes nothing but what
        // a process with one thread may, and where this process has others, nothing but system calls; it leaves by _exit.
        let child = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
        if child < 0 {
            return Err(io::Error::last_os_error());
        }
        if child == 0 {
            die_with(parent);
            serve(answers.as_raw_fd(), begin(), parent);
            // SAFETY: ends this process without running anything of its parent's.
            unsafe { libc::_exit(0) }
        }
        let child = Pid::from_raw(child as i32);
        let process = match pidfd::open(child.as_raw(), 0) {
            Ok(process) => process,
            Err(error) => {
                end(child);
                return Err(io::Error::other(error));
            }
        };
        let requests = RefCell::new(Some(requests));
        let network = Self { child, requests, process, _answers: answers };
        match network.answer() {
            Ok(0) => Ok(network),
            Ok(number) => Err(io::Error::from_raw_os_error(-number)),
            Err(error) => Err(error),
        }
    }

    fn ask(&self, request: Request) -> io::Result<OwnedFd> {
        let mut bytes = [0; size_of::<Request>()];
        for (part, number) in bytes.chunks_exact_mut(4).zip(request) {
            part.copy_from_slice(&number.to_ne_bytes());
        }
        let flags = nix::sys::socket::MsgFlags::MSG_NOSIGNAL;
        {
            let requests = self.requests.borrow();
            let requests = requests.as_ref().ok_or_else(over)?;
            nix::sys::socket::send(requests.as_raw_fd(), &bytes, flags)?;
        }
        match self.answer()? {
            number if number < 0 => Err(io::Error::from_raw_os_error(-number)),
            // SAFETY: the child just made this descriptor for us alone, in the table that both share.
            number => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
        }
    }

    fn answer(&self) -> io::Result<i32> {
        let answer = self.next_answer();
        if answer.is_err() {
            self.requests.replace(None);
        }
        answer
    }

    fn next_answer(&self) -> io::Result<i32> {
        let requests = self.requests.borrow();
        let requests = requests.as_ref().ok_or_else(over)?;
        loop {
            let mut ready = [
                PollFd::new(requests.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.process.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut ready, PollTimeout::from(PATIENCE_MS)) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(0) => return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
                // What it has answered before its end counts.
                Ok(_) if ready[0].any() == Some(true) => break,
                Ok(_) => return Err(over()),
            }
        }
        let mut number = [0; 4];
        match nix::sys::socket::recv(
            requests.as_raw_fd(),
            &mut number,
            nix::sys::socket::MsgFlags::empty(),
        )? {
            4 => Ok(i32::from_ne_bytes(number)),
            _ => Err(over()),
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        end(self.child);
    }
}

fn over() -> io::Error {
    io::Error::from_raw_os_error(libc::EPIPE)
}

/// Ends a child, which holds nothing that would be lost, and may have been stopped by others.
fn end(child: Pid) {
    let _ = nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL);
    while waitpid(child, Some(WaitPidFlag::__WALL)) == Err(Errno::EINTR) {}
}

/// Has this process end with its parent, unless that has ended already.
fn die_with(parent: i32) {
    // SAFETY: take numbers only.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::getppid() != parent {
            libc::_exit(0);
        }
    }
}

/// Enters a namespace, by the rights of this process, else by those in the user namespace that it belongs to. Nothing but
/// system calls: this process had other threads.
fn enter(namespace: RawFd, users: RawFd) -> io::Result<()> {
    let entered = |fd, kind| {
        // SAFETY: takes numbers only.
        Errno::result(unsafe { libc::setns(fd, kind) }).map(drop)
    };
    if entered(namespace, libc::CLONE_NEWNET).is_ok() {
        return Ok(());
    }
    // Root of that one must not look into this process.
    // SAFETY: takes numbers only.
    Errno::result(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) })?;
    entered(users, libc::CLONE_NEWUSER)?;
    // SAFETY: takes numbers only.
    Errno::result(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) })?;
    entered(namespace, libc::CLONE_NEWNET)?;
    Ok(())
}

/// Answers with how it went to begin, then each request with a descriptor, or an error below zero. Runs in the child alone:
/// nothing but system calls.
fn serve(answers: RawFd, begun: io::Result<()>, parent: i32) {
    // A change of credentials has forgotten it.
    die_with(parent);
    let errno = |error: &io::Error| -error.raw_os_error().unwrap_or(libc::EIO);
    let mut answer = begun.as_ref().map_or_else(errno, |()| 0);
    loop {
        let bytes = answer.to_ne_bytes();
        // SAFETY: as many bytes are read as the array has.
        let sent =
            unsafe { libc::send(answers, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        let mut request: Request = [0; 3];
        // SAFETY: at most as many bytes are written as the array has.
        let received =
            unsafe { libc::recv(answers, request.as_mut_ptr().cast(), size_of::<Request>(), 0) };
        if sent < 0 || usize::try_from(received) != Ok(size_of::<Request>()) {
            return;
        }
        let [family, kind, protocol] = request;
        // SAFETY: numbers, and a text that ends with a zero.
        let made = unsafe {
            match family {
                NAMESPACE => {
                    let path = c"/proc/self/ns/net".as_ptr();
                    libc::open(path, libc::O_RDONLY | libc::O_CLOEXEC)
                }
                _ => libc::socket(family, kind, protocol),
            }
        };
        answer = if made < 0 { -Errno::last_raw() } else { made };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    /// Its own network, as the kernel names it.
    fn own() -> String {
        std::fs::read_link("/proc/thread-self/ns/net").unwrap().display().to_string()
    }

    fn name_of(place: u32) -> String {
        let namespace = namespace(place).unwrap();
        let path = format!("/proc/self/fd/{}", namespace.as_raw_fd());
        std::fs::read_link(path).unwrap().display().to_string()
    }

    #[test]
    fn sockets_are_made_in_another_network() {
        let _known = Known::begin();
        let Ok(network) = Network::new(true, || Ok(())) else { return };
        add(7, network);
        assert_eq!(places(), [7]);
        assert_ne!(name_of(7), own());
        let at: SocketAddr = "127.0.0.1:7".parse().unwrap();
        let listens = || {
            let made = socket(Domain::IPV4, Type::STREAM, None)?;
            made.bind(&at.into()).and_then(|()| made.listen(1)).map(|()| made)
        };
        let listener = within(Some(7), listens).unwrap();
        assert_eq!(current(), None);
        let client = socket(Domain::IPV4, Type::STREAM, None).unwrap();
        assert!(client.connect(&at.into()).is_err());
        let client = within(Some(7), || socket(Domain::IPV4, Type::STREAM, None)).unwrap();
        client.connect(&at.into()).unwrap();
        listener.accept().unwrap();
        let listed = within(Some(7), super::super::sock_diag::tcp_sockets).unwrap();
        assert!(listed.iter().any(|entry| entry.local == at), "{listed:?}");
    }

    #[test]
    fn what_can_not_be_made_is_told() {
        let _known = Known::begin();
        let Ok(network) = Network::of_process(std::process::id() as i32) else { return };
        add(1, network);
        assert_eq!(name_of(1), own());
        let error = within(Some(1), || socket(Domain::from(9999), Type::STREAM, None)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EAFNOSUPPORT));
        assert!(within(Some(2), || socket(Domain::IPV4, Type::STREAM, None)).is_err());
    }
}
