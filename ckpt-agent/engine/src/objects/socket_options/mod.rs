//! Options and buffer sizes of sockets, for all handlers of sockets.
//!
//! Options are kept by name. A restore sets only those whose value differs on the fresh socket:
//! setting a default explicitly is not always without effect (IP_TOS sets the priority too).

mod table;
mod uapi;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use serde::{Deserialize, Serialize};
use socket2::SockRef;

use super::super::error::{EngineError, Refusal, Result};
use super::super::sys::restrained::{OVER_SOCKET_OPTIONS, Restrained};
use super::super::sys::{interface, sockopt};
use table::{FAST_OPEN_KEY, Form, KNOWN, Known, Of, UNCONNECTED};

/// How long a name or structure an option may be.
const LONGEST: usize = 2048;
/// SO_BUF_LOCK: which buffer sizes were set by the program (bits SOCK_SNDBUF_LOCK, SOCK_RCVBUF_LOCK).
pub const SO_BUF_LOCK: i32 = 72;
/// When an option is set on a restored socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before bind(2).
    BeforeBind,
    /// Once it is bound, listening or connected.
    Made,
    /// After its queues are full again and other sockets are bound.
    Last,
}

/// An option's value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OptionValue {
    /// A number.
    Int(i32),
    /// A structure or name as the kernel keeps it.
    Bytes(Vec<u8>),
}

/// Whether an option is among those that are read.
#[cfg(test)]
pub fn reads_option(level: i32, option: i32) -> bool {
    KNOWN.iter().any(|known| (known.level, known.option) == (level, option))
}

/// What kind of socket options are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// AF_*
    pub family: i32,
    /// IPPROTO_* of TCP, UDP and ICMP sockets, IPPROTO_RAW of all raw ones, 0 of others.
    pub protocol: i32,
}

impl Kind {
    fn is_tcp(self) -> bool {
        matches!(self.protocol, libc::IPPROTO_TCP | libc::IPPROTO_MPTCP)
    }

    fn has(self, of: Of) -> bool {
        match of {
            Of::Any => true,
            Of::Unix => self.family == libc::AF_UNIX,
            // IPv6 sockets carry IPv4 options for mapped addresses.
            Of::V4 => matches!(self.family, libc::AF_INET | libc::AF_INET6),
            Of::V6 => self.family == libc::AF_INET6,
            Of::Tcp => self.is_tcp(),
            Of::Udp => matches!(self.protocol, libc::IPPROTO_UDP | libc::IPPROTO_UDPLITE),
            Of::UdpLite => self.protocol == libc::IPPROTO_UDPLITE,
            Of::Raw => self.protocol == libc::IPPROTO_RAW,
            Of::RawV6 => self.protocol == libc::IPPROTO_RAW && self.family == libc::AF_INET6,
            Of::Packet => self.family == libc::AF_PACKET,
            Of::NoTcp => matches!(self.family, libc::AF_INET | libc::AF_INET6) && !self.is_tcp(),
            Of::Netlink => self.family == libc::AF_NETLINK,
            Of::UnixOrNetlink => matches!(self.family, libc::AF_UNIX | libc::AF_NETLINK),
        }
    }
}

/// Options and buffer sizes of one socket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketOptions {
    /// Options by name.
    pub set: BTreeMap<String, OptionValue>,
    /// SO_SNDBUF in bytes, as getsockopt tells it.
    pub send_buffer: i32,
    /// SO_RCVBUF in bytes, as getsockopt tells it.
    pub receive_buffer: i32,
    /// SO_BUF_LOCK: 1 the send buffer's, 2 the receive buffer's size was set by the program. None: the
    /// kernel does not tell (before Linux 5.11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_lock: Option<i32>,
    /// SO_ATTACH_FILTER: the instructions as the kernel keeps them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<u8>,
}

impl SocketOptions {
    /// Reads all known options.
    ///
    /// # Errors
    /// Buffer sizes cannot be read; a refusal where the socket has an eBPF program.
    pub fn read(socket: impl AsFd, kind: Kind) -> Result<Self> {
        let socket = socket.as_fd();
        if kind.protocol == libc::IPPROTO_TCP {
            refuse_upper_layer(socket)?;
            refuse_saved_syn(socket)?;
        }
        let connected = kind.is_tcp() && SockRef::from(&socket).peer_addr().is_ok();
        let mut set = BTreeMap::new();
        for known in KNOWN.iter().filter(|known| kind.has(known.of)) {
            // Kernels without an option, and options of other families, are no error.
            if connected && UNCONNECTED.contains(&known.name) {
                continue;
            }
            if let Some(value) = read_one(socket, known) {
                set.insert(known.name.to_owned(), value);
            }
        }
        if set.get("fast_open").is_none_or(|length| *length == OptionValue::Int(0)) {
            set.remove(FAST_OPEN_KEY);
        }
        let size = |name| {
            sockopt::get_int(socket, libc::SOL_SOCKET, name)
                .map_err(|error| EngineError::system("getsockopt", "a socket's buffer size", error))
        };
        Ok(Self {
            set,
            send_buffer: size(libc::SO_SNDBUF)?,
            receive_buffer: size(libc::SO_RCVBUF)?,
            buffer_lock: sockopt::get_int(socket, libc::SOL_SOCKET, SO_BUF_LOCK).ok(),
            filter: filter(socket)?,
        })
    }

    /// Sets the options of one moment; what this machine does not allow comes back as their names.
    pub fn apply(&self, socket: impl AsFd, kind: Kind, moment: Moment) -> Vec<&'static str> {
        let Ok(_restrained) = Restrained::further(OVER_SOCKET_OPTIONS) else {
            return vec!["all options"];
        };
        let socket = socket.as_fd();
        let mut failed = Vec::new();
        if moment == Moment::Last && !self.filter.is_empty() {
            // Before it is locked.
            if sockopt::attach_filter(socket, &self.filter).is_err() {
                failed.push("filter");
            }
        }
        for known in KNOWN.iter().filter(|known| known.is_set_at(moment) && kind.has(known.of)) {
            let Some(wanted) = self.set.get(known.name) else { continue };
            if read_one(socket, known).as_ref() == Some(wanted) {
                continue;
            }
            let done = set_one(socket, known, wanted);
            if done.is_err() {
                failed.push(known.name);
            }
        }
        failed
    }

    /// A number by name, 0 where it is not known.
    pub fn number(&self, name: &str) -> i32 {
        match self.set.get(name) {
            Some(OptionValue::Int(value)) => *value,
            _ => 0,
        }
    }

    /// As they were for a bind to a port that others are bound to as well: who shares it may have cleared SO_REUSEPORT
    /// afterwards, and it is put back to what it was by [`Moment::Last`].
    pub fn for_shared_port(&self) -> Self {
        let mut options = self.clone();
        options.set.insert("reuse_port".to_owned(), OptionValue::Int(1));
        options
    }

    /// All but one.
    pub fn without(mut self, name: &str) -> Self {
        self.set.remove(name);
        self
    }

    /// One alone, if it is set.
    pub fn only(&self, name: &str) -> Self {
        let mut only = Self::default();
        only.set.extend(
            self.set.get_key_value(name).map(|(name, value)| (name.clone(), value.clone())),
        );
        only
    }

    /// Those of a listener that its connections start with, but for what would be in the way of connections that are made
    /// before their clients have their own options.
    pub fn for_inheritance(&self) -> Self {
        let mut options = Self { filter: Vec::new(), ..self.clone() };
        let later = ["reuse_address", "reuse_port", "free_bind", "lock_filter", "least_ttl"];
        let slow = ["v6_least_hops", "defer_accept", "fast_open", FAST_OPEN_KEY, "transmit_delay"];
        for name in later.into_iter().chain(slow) {
            options.set.remove(name);
        }
        options
    }

    /// Without those that only sockets without a connection have.
    pub fn for_connection(&self) -> Self {
        let mut options = self.clone();
        for name in UNCONNECTED {
            options.set.remove(name);
        }
        options
    }

    /// Sets both buffer sizes to what they were.
    pub fn apply_buffers(&self, socket: impl AsFd) {
        set_send_buffer(&socket, self.send_buffer);
        set_receive_buffer(&socket, self.receive_buffer);
    }

    /// Lets the kernel go on tuning the sizes that the program had not set itself.
    pub fn apply_buffer_lock(&self, socket: impl AsFd) {
        if let Some(lock) = self.buffer_lock {
            // Before Linux 5.11 sizes stay as they are, which costs throughput only.
            let _ = sockopt::set_int(socket, libc::SOL_SOCKET, SO_BUF_LOCK, lock);
        }
    }

    /// Whether the program set the receive buffer's size itself.
    pub fn receive_buffer_locked(&self) -> bool {
        self.buffer_lock.is_some_and(|lock| lock & 2 != 0)
    }
}

/// Sets SO_SNDBUF to what getsockopt shall tell, past the machine's limit where that is allowed.
pub fn set_send_buffer(socket: impl AsFd, bytes: i32) {
    set_buffer(socket.as_fd(), libc::SO_SNDBUF, libc::SO_SNDBUFFORCE, bytes);
}

/// Sets SO_RCVBUF to what getsockopt shall tell, past the machine's limit where that is allowed.
pub fn set_receive_buffer(socket: impl AsFd, bytes: i32) {
    set_buffer(socket.as_fd(), libc::SO_RCVBUF, libc::SO_RCVBUFFORCE, bytes);
}

fn set_buffer(socket: BorrowedFd<'_>, plain: i32, force: i32, bytes: i32) {
    if sockopt::get_int(socket, libc::SOL_SOCKET, plain).is_ok_and(|now| now == bytes) {
        return;
    }
    // The kernel doubles what it is given (socket(7)). A smaller size than wished for only means
    // less room, which the refill of the queues finds out.
    let half = bytes / 2;
    if sockopt::set_int(socket, libc::SOL_SOCKET, force, half).is_err() {
        let _ = sockopt::set_int(socket, libc::SOL_SOCKET, plain, half);
    }
}

/// The socket's filter, if it has one.
fn filter(socket: BorrowedFd<'_>) -> Result<Vec<u8>> {
    match sockopt::filter(socket) {
        Ok(program) => Ok(program),
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => Err(Refusal::new(
            "the socket has an eBPF program for a filter, which cannot be read",
            "detach it while checkpoints are taken",
        )
        .into()),
        // Of no other kind of socket is there one.
        Err(_) => Ok(Vec::new()),
    }
}

/// A protocol above TCP (TLS in the kernel, for one) has keys and numbers of its own.
fn refuse_upper_layer(socket: BorrowedFd<'_>) -> Result<()> {
    let name = sockopt::get_bytes(socket, libc::IPPROTO_TCP, uapi::TCP_ULP, LONGEST);
    let name = name.unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    match name.trim_end_matches('\0') {
        "" => Ok(()),
        name => Err(Refusal::new(
            format!("a TCP connection whose bytes go through \"{name}\" in the kernel (TCP_ULP)"),
            "close it while checkpoints are taken",
        )
        .into()),
    }
}

/// A first packet that was kept (TCP_SAVE_SYN) is told once; the kernel tells how long it is without giving it
/// (net/ipv4/tcp.c, do_tcp_getsockopt).
fn refuse_saved_syn(socket: BorrowedFd<'_>) -> Result<()> {
    let asked = sockopt::get_bytes(socket, libc::IPPROTO_TCP, uapi::TCP_SAVED_SYN, 0);
    match asked {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(Refusal::passing(
            "a TCP connection whose first packet is kept and not read yet (TCP_SAVE_SYN)",
            "it is read soon (TCP_SAVED_SYN): try again",
        )
        .into()),
        _ => Ok(()),
    }
}

fn read_one(socket: BorrowedFd<'_>, known: &Known) -> Option<OptionValue> {
    let number = || sockopt::get_int(socket, known.level, known.option).ok();
    let of_interface = |index: i32| match interface::name(index as u32) {
        Some(name) if index != 0 => OptionValue::Bytes(name.into_bytes()),
        _ => OptionValue::Int(index),
    };
    match known.form {
        Form::Bytes => sockopt::get_bytes(socket, known.level, known.option, LONGEST)
            .ok()
            .map(OptionValue::Bytes),
        Form::Int => number().map(OptionValue::Int),
        Form::Interface => number().map(of_interface),
        Form::SwappedInterface => number().map(i32::from_be).map(of_interface),
    }
}

fn set_one(socket: BorrowedFd<'_>, known: &Known, wanted: &OptionValue) -> std::io::Result<()> {
    let value = match (known.form, wanted) {
        (Form::Int | Form::Bytes, OptionValue::Bytes(value)) => {
            return sockopt::set_bytes(socket, known.level, known.option, value);
        }
        (_, OptionValue::Bytes(name)) => {
            interface::index(std::str::from_utf8(name).unwrap_or_default())? as i32
        }
        (_, OptionValue::Int(value)) => *value,
    };
    let swapped = known.form == Form::SwappedInterface;
    let value = if swapped { value.to_be() } else { value };
    sockopt::set_int(socket, known.level, known.option, value)
}

/// Addresses that several of these sockets are bound to. The same port of another family is not shared: while
/// SO_REUSEPORT is set without need, another part of a job that is restored on this machine could take the port, too.
pub fn shared_addresses(bound: impl Iterator<Item = SocketAddr>) -> BTreeSet<SocketAddr> {
    let mut seen = BTreeSet::new();
    bound.filter(|address| address.port() != 0 && !seen.insert(*address)).collect()
}
