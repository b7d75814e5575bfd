//! What is done about each call.

mod bind;
mod sockets;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use protocol::cluster::agent::MovedListener;

use crate::arch::calls;
use crate::late::address_map::{Addresses, Dial};
use crate::late::calls::without_waiting;
use crate::late::filter::Pass;
use crate::late::interfaces;
use crate::late::notify::{Listener, Notification};
use crate::late::serve::Shared;
use crate::late::sockaddr::{self, canonical};
use crate::proc::read_text;
use crate::sys::poll::poll_one;
use crate::trace::ProcessMemory;

use self::sockets::{
    CLOSED, Target, copy_of, is_non_blocking, read_address, start_of_stack, target_of, tcp_state,
};
pub use self::sockets::{cookie_of, is_v6_only};

/// How long a call waits for news that must be on their way.
const NEWS: Duration = Duration::from_millis(500);

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
