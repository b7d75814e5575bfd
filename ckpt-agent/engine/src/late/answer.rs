//! What is done about each call.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use protocol::cluster::agent::MovedListener;

use super::super::arch::calls;
use super::super::proc::read_text;
use super::super::sys::pidfd::PidFd;
use super::super::sys::poll::poll_one;
use super::super::sys::{abi, sockopt};
use super::super::trace::ProcessMemory;
use super::address_map::{Addresses, Dial};
use super::calls::without_waiting;
use super::filter::Pass;
use super::interfaces;
use super::notify::{Listener, Notification};
use super::serve::Shared;
use super::sockaddr::{self, canonical};

/// TCP_CLOSE (include/net/tcp_states.h): neither connected nor listening.
const CLOSED: u8 = 7;
/// TCP_LISTEN, as /proc/net/tcp shows it.
const LISTENING: &str = "0A";
/// Ports below this one are for those who have a right to them (ip(7)): the init must not lend its own.
const FIRST_FREE_PORT: u16 = 1024;
/// How long a call waits for news that must be on their way.
const NEWS: Duration = Duration::from_millis(500);
/// How long a port is waited for that others of the logical node may have asked for in the same moment. Who does not
/// hear by then takes it: without a coordinator nobody else hears either.
const CLAIM: Duration = Duration::from_secs(3);

/// What becomes of a call.
#[derive(Debug)]
pub enum Verdict {
    /// It goes on in the kernel as it was made.
    GoOn,
    /// It is done.
    Done(Result<i64, Errno>),
    /// It has got this connection from that listening socket.
    Accepted {
        /// The connection.
        socket: OwnedFd,
        /// With SOCK_CLOEXEC.
        close_on_exec: bool,
        /// The listening socket's cookie.
        listener: u64,
    },
    /// It is looked at again.
    Later(Later),
}

/// When a call is looked at again.
#[derive(Debug)]
pub enum Later {
    /// When this listening socket has a connection.
    Readable(OwnedFd),
    /// When the address map has changed, or after so long.
    News(Duration),
}

/// A TCP socket of a process.
struct Target {
    copy: OwnedFd,
    cookie: u64,
    v6: bool,
}

/// Knows what the job's sockets are.
pub struct Answerer {
    pub(super) listener: Arc<Listener>,
    pass: Pass,
    shared: Arc<Shared>,
    /// What has been done for a call whose thread was stopped before it heard of that: it will make the same call
    /// again. By socket and call.
    unheard: HashMap<(u64, libc::c_long), i64>,
    /// Accepted for a call whose thread was stopped, by listening socket.
    unheard_connections: Vec<(u64, OwnedFd)>,
    /// For the next search of a port.
    next_port: u16,
    /// The ports that sockets were bound to, by the family (IPv6 or not) and the port that they are known by.
    given: HashMap<(bool, u16), u16>,
    /// What sockets are to be known by once it is sure that nobody else is, by their cookies.
    claims: HashMap<u64, MovedListener>,
    /// Sockets that are bound for the kernel, although the port by which they were to be known was another's.
    unnamed: HashSet<u64>,
    /// Where the stacks begin of processes that were restored: their children have the same until they execute
    /// another program.
    stacks: HashSet<u64>,
}

impl Answerer {
    pub(super) fn new(
        listener: Arc<Listener>,
        pass: Pass,
        shared: Arc<Shared>,
        stacks: HashSet<u64>,
    ) -> Self {
        Self {
            listener,
            pass,
            shared,
            unheard: HashMap::new(),
            unheard_connections: Vec::new(),
            next_port: 0,
            given: HashMap::new(),
            claims: HashMap::new(),
            unnamed: HashSet::new(),
            stacks,
        }
    }

    /// Decides. `waited`: what it waited for has not come.
    pub fn judge(&mut self, call: &Notification, waited: bool) -> Verdict {
        let Some(addresses) = self.shared.busy_addresses() else { return Verdict::GoOn };
        if call.number == libc::SYS_ioctl {
            return self.interfaces(call, &addresses).unwrap_or(Verdict::GoOn);
        }
        // Whatever can't be looked at is the kernel's.
        let Some(target) = target_of(call) else { return Verdict::GoOn };
        if !self.listener.is_valid(call.id) {
            return Verdict::GoOn;
        }
        if let Some(result) = self.unheard.remove(&(target.cookie, call.number)) {
            return Verdict::Done(Ok(result));
        }
        let verdict = match call.number {
            libc::SYS_bind => self.bind(call, &target, &addresses, waited),
            libc::SYS_connect => self.connect(call, &target, &addresses, waited),
            libc::SYS_listen => self.listen(call, &target, &addresses, waited),
            libc::SYS_getsockname => self.tell(call, &target, true),
            libc::SYS_getpeername => self.tell(call, &target, false),
            calls::ACCEPT | libc::SYS_accept4 => self.accept(call, target),
            _ => None,
        };
        verdict.unwrap_or(Verdict::GoOn)
    }

    /// The thread of a call has not heard what was done for it.
    pub fn unheard(&mut self, call: &Notification, result: i64) {
        let remembered = matches!(call.number, libc::SYS_bind | libc::SYS_connect);
        if let Some(target) = target_of(call).filter(|_| remembered) {
            self.unheard.insert((target.cookie, call.number), result);
        }
    }

    /// The thread of a call has not got the connection that was accepted for it.
    pub fn unheard_connection(&mut self, listener: u64, socket: OwnedFd) {
        self.unheard_connections.push((listener, socket));
        self.shared.set_unheard(self.unheard_connections.len());
    }

    fn take_unheard(&mut self, listener: u64) -> Option<OwnedFd> {
        let at = self.unheard_connections.iter().position(|(of, _)| *of == listener)?;
        let (_, socket) = self.unheard_connections.remove(at);
        self.shared.set_unheard(self.unheard_connections.len());
        Some(socket)
    }

    // --- bind ---

    fn bind(
        &mut self,
        call: &Notification,
        target: &Target,
        addresses: &Addresses,
        waited: bool,
    ) -> Option<Verdict> {
        let raw = sockaddr::with_family(read_address(call)?, target.v6);
        let asked = sockaddr::parse(&raw)?;
        let (fd, port) = (target.copy.as_fd(), asked.port());
        if port != 0 && port < FIRST_FREE_PORT {
            return None;
        }
        if let Some(claim) = self.claims.remove(&target.cookie) {
            if claim.logical == asked {
                return Some(self.decide_claim(claim, target, addresses, waited));
            }
            self.give_up(claim, target);
        }
        if port == 0 && self.unnamed.remove(&target.cookie) {
            return Some(Verdict::Done(Ok(0)));
        }
        // The call is made again by a thread that was stopped, and maybe restored, in the middle of it.
        if port != 0 && self.is_bound_as(target, asked) {
            let renamed = self.pass.local(fd).is_ok_and(|local| local.port() != port);
            return match renamed || addresses.away().is_some() || addresses.is_split() {
                true => self.claim(asked, target),
                false => Some(Verdict::Done(Ok(0))),
            };
        }
        let is_held = |here: Option<u16>| here.is_none_or(is_listening);
        if port != 0 && addresses.holders(asked).any(is_held) {
            return Some(Verdict::Done(Err(Errno::EADDRINUSE)));
        }
        let Some(away) = addresses.away() else {
            return self.bind_at_home(&raw, asked, target, addresses);
        };
        let here = away.here(asked.ip());
        if here.is_none() && (away.is_machines_own(asked.ip()) || !self.has_moved(call.tid)) {
            if port != 0 && addresses.is_name_of_home(port) {
                return Some(Verdict::Done(Err(Errno::EADDRINUSE)));
            }
            self.shared.rename(target.cookie, |name| name.plain = true);
            return None;
        }
        if here.is_none() && !asked.ip().is_unspecified() {
            return None;
        }
        // Bound by another process of this instance, and maybe not announced yet.
        if port != 0 && self.is_given(target, port) {
            return Some(Verdict::Done(Err(Errno::EADDRINUSE)));
        }
        // Any port of the logical node's may be somebody else's on this machine, or become so: it is only a name.
        let ip = here.unwrap_or(asked.ip());
        let at = |port| sockaddr::rewrite(&raw, SocketAddr::new(ip, port));
        let bound = match self.unnamed.remove(&target.cookie) {
            true => Ok(()),
            false => self.pass.bind_in(fd, away.source, &mut self.next_port, at),
        };
        if bound.is_ok() && (port != 0 || here.is_some()) {
            let got = self.pass.local(fd).map_or(0, |local| local.port());
            let local = SocketAddr::new(asked.ip(), if port == 0 { got } else { port });
            self.shared.rename(target.cookie, |name| name.local = Some(local));
            if port != 0 {
                self.given.insert((target.v6, port), got);
                return self.claim(asked, target);
            }
        }
        Some(Verdict::Done(bound.map(|()| 0)))
    }

    fn is_bound_as(&self, target: &Target, asked: SocketAddr) -> bool {
        let fd = target.copy.as_fd();
        let local = self.pass.local(fd).ok().filter(|local| local.port() != 0);
        let known = local
            .map(|local| self.shared.name(target.cookie, Some(local), None).local.unwrap_or(local));
        known == Some(asked) && tcp_state(fd) == Some(CLOSED)
    }

    /// Processes of one logical node on several machines may ask for the same port at the same time. Each says so to
    /// all; the coordinator puts what they say in an order, and the first one has it.
    fn claim(&mut self, asked: SocketAddr, target: &Target) -> Option<Verdict> {
        let fd = target.copy.as_fd();
        let v6_only = target.v6 && is_v6_only(fd);
        let actual = self.pass.local(fd).ok()?;
        let claim = MovedListener { logical: asked, actual, v6_only, plain: false };
        self.shared.claim(claim, |port| self.is_bound(target.v6, port));
        self.claims.insert(target.cookie, claim);
        Some(Verdict::Later(Later::News(CLAIM)))
    }

    fn decide_claim(
        &mut self,
        claim: MovedListener,
        target: &Target,
        addresses: &Addresses,
        waited: bool,
    ) -> Verdict {
        match addresses.is_first(claim, |port| self.is_bound(target.v6, port)) {
            Some(true) => Verdict::Done(Ok(0)),
            Some(false) => {
                self.give_up(claim, target);
                Verdict::Done(Err(Errno::EADDRINUSE))
            }
            None if waited => Verdict::Done(Ok(0)),
            None => {
                self.claims.insert(target.cookie, claim);
                Verdict::Later(Later::News(CLAIM))
            }
        }
    }

    /// A socket cannot be bound again: for the kernel it keeps its port, by which nobody knows it.
    fn give_up(&mut self, claim: MovedListener, target: &Target) {
        self.shared.withdraw(claim);
        self.shared.rename(target.cookie, |name| name.local = None);
        self.given.remove(&(target.v6, claim.logical.port()));
        self.unnamed.insert(target.cookie);
    }

    /// Whether a port by which a socket would be known is that of another one, as the kernel sees it (SO_REUSEADDR,
    /// socket(7)).
    fn is_given(&self, target: &Target, port: u16) -> bool {
        let Some(actual) = self.given.get(&(target.v6, port)) else { return false };
        let reuses = sockopt::get_int(&target.copy, libc::SOL_SOCKET, libc::SO_REUSEADDR);
        // What is left of it are connections.
        let is_rest = || {
            let sockets = sockets_at(*actual);
            !sockets.is_empty() && sockets.iter().all(|(state, _)| state != LISTENING)
        };
        let shares = reuses.is_ok_and(|reuses| reuses != 0) && is_rest();
        !shares && self.is_bound(target.v6, *actual)
    }

    /// Whether anybody has this port: who is bound and does not listen is in no list of the kernel's.
    fn is_bound(&self, v6: bool, port: u16) -> bool {
        let domain = if v6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
        let any: IpAddr =
            if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let address = sockaddr::encode(v6, SocketAddr::new(any, port));
        let probe = socket(domain, SockType::Stream, SockFlag::SOCK_CLOEXEC, None);
        let (Some(address), Ok(probe)) = (address, probe) else { return false };
        if v6 && sockopt::set_int(&probe, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1).is_err() {
            return false;
        }
        self.pass.bind(probe.as_fd(), &address) == Err(Errno::EADDRINUSE)
    }

    /// A port that a logical node has which was brought here is free for the one whose machine this is.
    fn bind_at_home(
        &mut self,
        raw: &[u8],
        asked: SocketAddr,
        target: &Target,
        addresses: &Addresses,
    ) -> Option<Verdict> {
        let (split, guests) = (addresses.is_split(), addresses.is_guests_port(asked.port()));
        if asked.port() == 0 || !(split || guests) {
            return None;
        }
        if self.is_given(target, asked.port()) {
            return Some(Verdict::Done(Err(Errno::EADDRINUSE)));
        }
        let fd = target.copy.as_fd();
        let mut renamed = self.unnamed.remove(&target.cookie);
        let mut bound = if renamed { Ok(()) } else { self.pass.bind(fd, raw) };
        if bound == Err(Errno::EADDRINUSE) && guests && !is_own_port(asked.port()) {
            let any = sockaddr::rewrite(raw, SocketAddr::new(asked.ip(), 0))?;
            bound = self.pass.bind(fd, &any);
            renamed = bound.is_ok();
        }
        if renamed {
            self.shared.rename(target.cookie, |name| name.local = Some(asked));
            let got = self.pass.local(fd).map_or(0, |local| local.port());
            self.given.insert((target.v6, asked.port()), got);
        }
        if bound.is_ok() && (split || renamed) {
            return self.claim(asked, target);
        }
        Some(Verdict::Done(bound.map(|()| 0)))
    }

    /// Whether a thread's process has come from another machine, or descends from one that has: it knows the addresses
    /// of its logical node. One that has executed a program since sees those of the machine.
    fn has_moved(&self, tid: i32) -> bool {
        let text = read_text(&format!("/proc/{tid}/stat")).ok().flatten();
        text.as_deref().and_then(start_of_stack).is_some_and(|stack| self.stacks.contains(&stack))
    }

    // --- connect ---

    fn connect(
        &mut self,
        call: &Notification,
        target: &Target,
        addresses: &Addresses,
        waited: bool,
    ) -> Option<Verdict> {
        let raw = read_address(call)?;
        let asked = sockaddr::parse(&raw)?;
        let fd = target.copy.as_fd();
        // On its way, connected or listening: the kernel says so, or waits.
        if tcp_state(fd)? != CLOSED {
            return None;
        }
        let to = match addresses.dial(asked) {
            Dial::AsAsked => None,
            Dial::To(to) => Some(to),
            Dial::Unsure(_) if !waited => return Some(Verdict::Later(Later::News(NEWS))),
            Dial::Unsure(to) => Some(to).filter(|to| *to != canonical(asked)),
        };
        self.shared.forget_peer(target.cookie);
        if !asked.ip().to_canonical().is_loopback() {
            self.say_who_calls(call, target, addresses);
        }
        let to = to?;
        let address = sockaddr::rewrite(&raw, to)?;
        self.shared.rename(target.cookie, |name| name.peer = Some(asked));
        let is_patient = !is_non_blocking(fd)?;
        Some(match without_waiting(fd, || self.pass.connect(fd, &address)) {
            Ok(()) => Verdict::Done(Ok(0)),
            // The kernel lets the process wait for a connection that is under way, whatever address it names
            // (net/ipv4/af_inet.c, __inet_stream_connect).
            Err(Errno::EINPROGRESS) if is_patient => Verdict::GoOn,
            Err(errno) => Verdict::Done(Err(errno)),
        })
    }

    /// A process that has moved connects from a port by which it is known.
    fn say_who_calls(&mut self, call: &Notification, target: &Target, addresses: &Addresses) {
        // One that has not moved is known by the addresses that it has.
        let Some(source) = addresses.away().map(|away| away.source) else { return };
        let fd = target.copy.as_fd();
        if !self.pass.local(fd).is_ok_and(|local| local.port() == 0) {
            return;
        }
        if !self.has_moved(call.tid) {
            self.shared.rename(target.cookie, |name| name.plain = true);
            return;
        }
        let any: IpAddr = match target.v6 {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        };
        // Where it fails it connects from where it can.
        let _ = self.pass.bind_in(fd, source, &mut self.next_port, |port| {
            sockaddr::encode(target.v6, SocketAddr::new(any, port))
        });
    }

    // --- listen ---

    fn listen(
        &mut self,
        call: &Notification,
        target: &Target,
        addresses: &Addresses,
        waited: bool,
    ) -> Option<Verdict> {
        let fd = target.copy.as_fd();
        if let Err(errno) = self.pass.listen(fd, call.arguments[1] as i32) {
            return Some(Verdict::Done(Err(errno)));
        }
        let actual = self.pass.local(fd).ok()?;
        let name = self.shared.name(target.cookie, Some(actual), None);
        let logical = name.local.unwrap_or(actual);
        let has_moved = logical.port() != actual.port();
        if has_moved || addresses.away().is_some() || addresses.is_split() {
            let v6_only = target.v6 && is_v6_only(fd);
            let listener = MovedListener { logical, actual, v6_only, plain: name.plain };
            self.shared.announce(listener);
            // Before anybody can hear of it in another way.
            if (has_moved || addresses.is_split()) && !waited && !addresses.has(listener) {
                return Some(Verdict::Later(Later::News(NEWS)));
            }
        }
        Some(Verdict::Done(Ok(0)))
    }

    // --- names ---

    fn tell(&self, call: &Notification, target: &Target, own: bool) -> Option<Verdict> {
        let fd = target.copy.as_fd();
        let local = self.pass.local(fd).ok();
        let peer = if own { None } else { Some(self.pass.peer(fd).ok()?) };
        let name = self.shared.name(target.cookie, local, peer);
        let told = if own { name.local } else { name.peer }?;
        self.write_address(call, [1, 2], target.v6, told)?;
        Some(Verdict::Done(Ok(0)))
    }

    /// Writes an address where the call wants it: pointer and pointer to the length are these arguments.
    fn write_address(
        &self,
        call: &Notification,
        [address, length]: [usize; 2],
        v6: bool,
        told: SocketAddr,
    ) -> Option<()> {
        let bytes = sockaddr::encode(v6, told)?;
        let mut memory = ProcessMemory::of(call.tid);
        let mut room = [0; 4];
        memory.read(call.arguments[length], &mut room).ok()?;
        let room = usize::try_from(i32::from_ne_bytes(room)).ok()?;
        if !self.listener.is_valid(call.id) {
            return None;
        }
        memory.write(call.arguments[address], bytes.get(..room).unwrap_or(&bytes)).ok()?;
        memory.write(call.arguments[length], &(bytes.len() as u32).to_ne_bytes()).ok()
    }

    // --- interfaces ---

    fn interfaces(&self, call: &Notification, addresses: &Addresses) -> Option<Verdict> {
        let away = addresses.away().filter(|_| self.has_moved(call.tid))?;
        let copy = copy_of(call)?;
        let mut memory = ProcessMemory::of(call.tid);
        let argument = call.arguments[2];
        if call.arguments[1] as u32 == interfaces::ADDRESS {
            let mut entry = [0; interfaces::ENTRY];
            memory.read(argument, &mut entry).ok()?;
            if let Err(errno) = self.pass.interface_address(copy.as_fd(), &mut entry) {
                return Some(Verdict::Done(Err(errno)));
            }
            interfaces::translate(&mut entry, &away);
            if !self.listener.is_valid(call.id) {
                return None;
            }
            memory.write(argument, &entry).ok()?;
            return Some(Verdict::Done(Ok(0)));
        }
        let mut configuration = [0; 2 * size_of::<usize>()];
        memory.read(argument, &mut configuration).ok()?;
        let room = interfaces::room(&configuration)?;
        let mut entries = match self.pass.list_interfaces(copy.as_fd(), room.length) {
            Ok(entries) => entries,
            Err(errno) => return Some(Verdict::Done(Err(errno))),
        };
        interfaces::translate(&mut entries, &away);
        if !self.listener.is_valid(call.id) {
            return None;
        }
        memory.write(room.at, &entries).ok()?;
        memory.write(argument, &(entries.len() as i32).to_ne_bytes()).ok()?;
        Some(Verdict::Done(Ok(0)))
    }

    // --- accept ---

    fn accept(&mut self, call: &Notification, target: Target) -> Option<Verdict> {
        let flags = if call.number == libc::SYS_accept4 { call.arguments[3] as i32 } else { 0 };
        let fd = target.copy.as_fd();
        let socket = match self.take_unheard(target.cookie) {
            Some(socket) => socket,
            None => {
                let ready = poll_one(fd, libc::POLLIN, Duration::ZERO).ok()?;
                if ready & libc::POLLIN == 0 && ready != 0 {
                    return None;
                }
                match self.pass.accept(fd, flags & libc::SOCK_NONBLOCK) {
                    Ok(socket) => socket,
                    Err(Errno::EAGAIN) if is_non_blocking(fd)? => {
                        return Some(Verdict::Done(Err(Errno::EAGAIN)));
                    }
                    Err(Errno::EAGAIN) => {
                        return Some(Verdict::Later(Later::Readable(target.copy)));
                    }
                    Err(errno) => return Some(Verdict::Done(Err(errno))),
                }
            }
        };
        let close_on_exec = flags & libc::SOCK_CLOEXEC != 0;
        let plain = self.shared.name(target.cookie, None, None).plain;
        if let Some(cookie) = cookie_of(socket.as_fd()).filter(|_| plain) {
            self.shared.rename(cookie, |name| name.plain = true);
        }
        // A peer that has gone again has no address any more: the kernel would tell its old one.
        if let (Ok(peer), Some(cookie)) =
            (self.pass.peer(socket.as_fd()), cookie_of(socket.as_fd()))
        {
            let name = self.shared.name(cookie, None, Some(peer));
            self.write_address(call, [1, 2], target.v6, name.peer.unwrap_or(peer));
        }
        Some(Verdict::Accepted { close_on_exec, listener: target.cookie, socket })
    }
}

/// A copy of the descriptor that a call is about.
fn copy_of(call: &Notification) -> Option<OwnedFd> {
    let process = PidFd::open(call.tid).or_else(|error| {
        let status = read_text(&format!("/proc/{}/status", call.tid)).ok().flatten();
        let leader = status.as_deref().and_then(thread_group);
        leader.map_or(Err(error), PidFd::open)
    });
    process.ok()?.descriptor(call.arguments[0] as i32).ok()
}

fn target_of(call: &Notification) -> Option<Target> {
    let copy = copy_of(call)?;
    let option = |name| sockopt::get_int(&copy, libc::SOL_SOCKET, name).ok();
    let v6 = match option(libc::SO_DOMAIN)? {
        libc::AF_INET => false,
        libc::AF_INET6 => true,
        _ => return None,
    };
    if option(libc::SO_PROTOCOL)? != libc::IPPROTO_TCP {
        return None;
    }
    let cookie = cookie_of(copy.as_fd())?;
    Some(Target { copy, cookie, v6 })
}

/// Field 28 of /proc/PID/stat (proc(5)).
fn start_of_stack(stat: &str) -> Option<u64> {
    let stack = stat.rsplit_once(") ")?.1.split_ascii_whitespace().nth(25)?.parse().ok()?;
    // 0 and 1 are told to those who may not know.
    Some(stack).filter(|stack| *stack > 1)
}

/// Whether anybody on this machine listens at that port.
fn is_listening(port: u16) -> bool {
    sockets_at(port).iter().any(|(state, _)| state == LISTENING)
}

fn thread_group(status: &str) -> Option<i32> {
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// IPV6_V6ONLY (ipv6(7)) of an AF_INET6 socket.
pub fn is_v6_only(fd: BorrowedFd<'_>) -> bool {
    sockopt::get_int(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY).is_ok_and(|only| only != 0)
}

/// SO_COOKIE. `None`: no socket.
pub fn cookie_of(fd: BorrowedFd<'_>) -> Option<u64> {
    let bytes = sockopt::get_bytes(fd, libc::SOL_SOCKET, abi::SO_COOKIE, 8).ok()?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

fn tcp_state(fd: BorrowedFd<'_>) -> Option<u8> {
    sockopt::get_bytes(fd, libc::IPPROTO_TCP, libc::TCP_INFO, 8).ok()?.first().copied()
}

fn is_non_blocking(fd: BorrowedFd<'_>) -> Option<bool> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let flags = fcntl(fd, FcntlArg::F_GETFL).ok()?;
    Some(OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK))
}

/// The address that bind or connect names.
fn read_address(call: &Notification) -> Option<Vec<u8>> {
    let length = usize::try_from(call.arguments[2] as i32).ok()?;
    let mut bytes = vec![0; length.min(sockaddr::LONGEST)];
    ProcessMemory::of(call.tid).read(call.arguments[1], &mut bytes).ok()?;
    Some(bytes)
}

/// Whether a process of this instance has a socket bound to that port.
fn is_own_port(port: u16) -> bool {
    let inodes: Vec<String> =
        sockets_at(port).into_iter().map(|(_, inode)| format!("socket:[{inode}]")).collect();
    let numbers = |path: &str| -> Vec<String> {
        std::fs::read_dir(path)
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
            .collect()
    };
    let own = std::process::id().to_string();
    !inodes.is_empty()
        && numbers("/proc").iter().filter(|pid| **pid != own).any(|pid| {
            let folder = format!("/proc/{pid}/fd");
            numbers(&folder).iter().any(|fd| {
                std::fs::read_link(format!("{folder}/{fd}"))
                    .is_ok_and(|link| inodes.iter().any(|inode| link.as_os_str() == inode.as_str()))
            })
        })
}

/// State and inode of all sockets at a port of this machine.
fn sockets_at(port: u16) -> Vec<(String, String)> {
    ["/proc/self/net/tcp", "/proc/self/net/tcp6"]
        .iter()
        .filter_map(|path| read_text(path).ok().flatten())
        .flat_map(|text| text.lines().filter_map(|line| socket_at(line, port)).collect::<Vec<_>>())
        .collect()
}

/// State and inode in a line of /proc/net/tcp whose socket has that port (proc(5)).
fn socket_at(line: &str, port: u16) -> Option<(String, String)> {
    let mut words = line.split_ascii_whitespace();
    let (_, local) = words.nth(1)?.rsplit_once(':')?;
    let at = u16::from_str_radix(local, 16).ok()?;
    let state = words.nth(1)?;
    let inode = words.nth(5)?;
    (at == port && inode != "0").then(|| (state.to_owned(), inode.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_socket_in_the_kernels_list() {
        let line = "   0: 0100007F:1DB0 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1 0000000000000000 100 0 0 10 0";
        assert_eq!(socket_at(line, 7600), Some((LISTENING.to_owned(), "12345".to_owned())));
        assert_eq!(socket_at(line, 7601), None);
        assert_eq!(socket_at("  sl  local_address rem_address   st", 7600), None);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_listening(port));
        drop(listener);
        assert!(!is_listening(port));
    }

    #[test]
    fn finds_the_start_of_the_stack() {
        let own = read_text("/proc/self/stat").unwrap().unwrap();
        let stack = start_of_stack(&own).unwrap();
        let maps = read_text("/proc/self/maps").unwrap().unwrap();
        let line = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        let (from, rest) = line.split_once('-').unwrap();
        let to = rest.split_once(' ').unwrap().0;
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        assert!((number(from)..number(to)).contains(&stack));
    }

    #[test]
    fn finds_the_process_of_a_thread() {
        assert_eq!(thread_group("Name:\tx\nTgid:\t17\nPid:\t18\n"), Some(17));
    }
}
