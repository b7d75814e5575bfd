//! What sockets belong to.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::super::super::error::{EngineError, Refusal, Result};
use super::super::super::sys::network::{self, Network};
use super::super::super::sys::related::related;
use super::super::super::sys::sockopt;
use super::super::super::sys::stat::identity;
use super::WAY_OUT;

/// SIOCGSKNS (include/uapi/linux/sockios.h): the network namespace of a socket.
const GET_NETWORK: u64 = 0x894c;

/// SO_NETNS_COOKIE (include/uapi/asm-generic/socket.h), since Linux 5.14: a number of a socket's network namespace.
const NETWORK_COOKIE: i32 = 71;

/// Most network namespaces of the job's own in which sockets are.
pub const MOST_NETWORKS: usize = 64;

/// The network namespaces of a job.
#[derive(Debug)]
pub struct Networks {
    /// The kernel's number of the job's.
    pub home: u64,
    /// Those of its own by their numbers: their places, and a process that is in each, as this machine numbers it.
    pub own: BTreeMap<u64, (u32, i32)>,
    /// Places of those whose loopback device is down.
    pub down: BTreeSet<u32>,
    /// Whether a restart may make them before the processes, with the rights of the job's init.
    pub may_be_made: bool,
    /// Places of those in which sockets were met.
    pub used: BTreeSet<u32>,
    /// The cookie of the job's, where the kernel tells it: by that, sockets of the job's are known with one call.
    pub cookie: Option<u64>,
}

/// The cookie of this thread's network namespace, where that has this number, and the kernel tells it.
pub(super) fn own_cookie(home: u64) -> Option<u64> {
    let own = std::fs::metadata("/proc/thread-self/ns/net").ok()?.ino();
    let socket = Socket::new(Domain::UNIX, Type::DGRAM, None).ok()?;
    cookie_of(&socket).filter(|_| own == home)
}

fn cookie_of(socket: impl AsFd) -> Option<u64> {
    let found = sockopt::get_bytes(socket, libc::SOL_SOCKET, NETWORK_COOKIE, size_of::<u64>());
    Some(u64::from_ne_bytes(found.ok()?.try_into().ok()?))
}

impl Networks {
    /// The place of the network namespace of the job's own in which a socket was made; `None`: it was made in the job's. From
    /// then on the thread's [`network`] knows it.
    ///
    /// # Errors
    /// A refusal of those that can't be made again or looked into, without the names of process and descriptor.
    pub fn of_socket(&mut self, socket: impl AsFd) -> Result<Option<u32>> {
        let cookie = self.cookie.and_then(|home| Some((home, cookie_of(&socket)?)));
        match cookie {
            Some((home, own)) if home == own => return Ok(None),
            // Nobody has left the job's network.
            None if self.own.is_empty() => return Ok(None),
            _ => {}
        }
        let number = match related(&socket, GET_NETWORK) {
            Ok(of_socket) => {
                let found = nix::sys::stat::fstat(&of_socket);
                let found =
                    found.map_err(|errno| EngineError::system("fstat", "a namespace", errno));
                Some(identity(&found?).1)
            }
            // Who has no rights over the namespace gets no answer: then it is not one that a process of the job is in.
            Err(_) => None,
        };
        if number == Some(self.home) || number.is_none() && cookie.is_none() {
            return Ok(None);
        }
        let refused = |why: &str| {
            let what = format!("a socket in a network namespace {why}");
            Err(EngineError::from(Refusal::new(what, WAY_OUT)))
        };
        let own = number.and_then(|number| self.own.get(&number)).copied();
        let Some((place, pid)) = own else {
            // Whoever is called by path gets a socket of the caller's network (net/unix/af_unix.c, unix_stream_connect). It
            // means something for abstract names alone.
            if is_unix_without_abstract_name(&socket) {
                return Ok(None);
            }
            return refused("in which no process of the job is");
        };
        if !self.may_be_made {
            return refused("of the job's own, which a restart may not make before its processes");
        }
        if self.used.len() == MOST_NETWORKS && !self.used.contains(&place) {
            return refused("of the job's own, beyond the first 64");
        }
        if self.used.insert(place) {
            match Network::of_process(pid) {
                Ok(found) => network::add(place, found),
                Err(error) => {
                    return refused(&format!(
                        "of the job's own, which can't be looked into ({error})"
                    ));
                }
            }
        }
        Ok(Some(place))
    }
}

fn is_unix_without_abstract_name(socket: impl AsFd) -> bool {
    let socket = SockRef::from(&socket);
    let is_abstract = |address: std::io::Result<SockAddr>| {
        address.is_ok_and(|address| address.as_abstract_namespace().is_some())
    };
    socket.local_addr().is_ok_and(|own| own.domain() == Domain::UNIX)
        && !is_abstract(socket.local_addr())
        && !is_abstract(socket.peer_addr())
}
