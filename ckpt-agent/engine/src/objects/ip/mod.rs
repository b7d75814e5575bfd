//! Sockets of IP itself (raw(7)), of IPv4 and IPv6: raw ones, and those of ICMP that need no right (icmp(7), "ping").
//!
//! What they have received comes from whoever sent it, and the kernel itself answers what is sent to a raw socket's protocol,
//! so that nothing can be put back: a checkpoint waits until it is read.

mod make;

use std::collections::HashMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use socket2::{Domain, SockRef};

use super::super::error::{EngineError, Refusal, Result};
use super::super::sys::{abi, proc_net, sockopt};
use super::multicast::{self, Membership};
use super::rights::{self, Privileged};
use super::shut::Shut;
use super::socket_options::{Kind, SocketOptions};
use super::{DumpContext, Fate, Found, ObjectKind, Probe, RestoreContext, Saved, unread};

/// A socket of IP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpSocket {
    /// AF_INET6 rather than AF_INET.
    pub v6: bool,
    /// The protocol of a raw socket; none: it is one of ICMP that needs no right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<i32>,
    /// Its address. The port is the identifier of a socket of ICMP, and means nothing of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<SocketAddr>,
    /// What connect(2) was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    /// Options and buffer sizes.
    pub options: SocketOptions,
    /// Multicast groups that it has joined.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Membership>,
    /// What is shut down.
    #[serde(default, skip_serializing_if = "Shut::is_none")]
    pub shut: Shut,
}

impl IpSocket {
    fn kind(&self) -> Kind {
        kind(self.v6, self.raw.is_some())
    }

    /// In messages.
    fn name(&self) -> &'static str {
        name(self.raw.is_some())
    }
}

fn name(raw: bool) -> &'static str {
    if raw { "a raw socket" } else { "an ICMP socket" }
}

fn kind(v6: bool, raw: bool) -> Kind {
    Kind {
        family: if v6 { libc::AF_INET6 } else { libc::AF_INET },
        protocol: if raw { libc::IPPROTO_RAW } else { libc::IPPROTO_ICMP },
    }
}

fn system(call: &'static str, error: std::io::Error) -> EngineError {
    EngineError::system(call, "a socket of IP", error)
}

fn option(probe: &Probe, name: i32) -> Option<i32> {
    sockopt::get_int(&probe.copy, libc::SOL_SOCKET, name).ok()
}

impl ObjectKind for IpSocket {
    const OF_NETWORK: bool = true;

    fn recognise(probe: &Probe) -> bool {
        probe.file_type() == abi::S_IFSOCK
            && matches!(option(probe, libc::SO_DOMAIN), Some(libc::AF_INET | libc::AF_INET6))
            && match option(probe, libc::SO_TYPE) {
                Some(libc::SOCK_RAW) => true,
                Some(libc::SOCK_DGRAM) => matches!(
                    option(probe, libc::SO_PROTOCOL),
                    Some(libc::IPPROTO_ICMP | libc::IPPROTO_ICMPV6)
                ),
                _ => false,
            }
    }

    fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self> {
        let is_raw = option(probe, libc::SO_TYPE) == Some(libc::SOCK_RAW);
        if is_raw {
            rights::must_return(Privileged::Raw, context)?;
        }
        if unread::anything(probe)? {
            return Err(Refusal::passing(
                format!("{} with something that is not read yet", name(is_raw)),
                "it is taken once the program has read it",
            )
            .into());
        }
        let socket = SockRef::from(&probe.copy);
        let v6 = socket.domain().map_err(|error| system("getsockopt", error))? == Domain::IPV6;
        let local = socket.local_addr().map_err(|error| system("getsockname", error))?;
        // A raw socket's port is its protocol.
        let bound = |at: &SocketAddr| match is_raw {
            true => !at.ip().is_unspecified(),
            false => at.port() != 0,
        };
        let protocol = option(probe, libc::SO_PROTOCOL)
            .ok_or_else(|| EngineError::odd("a socket of IP", "no protocol"))?;
        Ok(Self {
            v6,
            raw: is_raw.then_some(protocol),
            local: local.as_socket().filter(bound),
            peer: socket.peer_addr().ok().and_then(|peer| peer.as_socket()),
            options: SocketOptions::read(&probe.copy, kind(v6, is_raw))?,
            groups: Vec::new(),
            shut: Shut::default(),
        })
    }

    fn finish(all: &mut [Found<'_, Self>], context: &mut DumpContext) -> Result<()> {
        // getpeername(2) fails where connect(2) was given no port, as is usual here.
        let peers: HashMap<u32, SocketAddr> = match proc_net::ip_peers() {
            Ok(peers) => peers.into_iter().collect(),
            Err(error) => {
                context.warn(format!(
                    "raw and ICMP sockets can't be looked up ({error}): after a restart they may lack their peers"
                ));
                HashMap::new()
            }
        };
        let groups = multicast::listed();
        if groups.is_none() {
            context.warn(
                "multicast groups can't be read here: raw and ICMP sockets will be members of none after a restart",
            );
        }
        let groups = groups.unwrap_or_default();
        for found in all {
            let inode = found.probe.stat.st_ino as u32;
            found.object.shut =
                Shut::of(found.probe, &HashMap::new()).map_err(|error| system("poll", error))?;
            let local = found.object.local;
            let of_list = || peers.get(&inode).map(|peer| with_scope(*peer, local));
            found.object.peer = found.object.peer.or_else(of_list);
            found.object.groups = multicast::joined(&found.probe.copy, found.object.v6, &groups)?;
        }
        Ok(())
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        make::all(all, context)
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        // Each machine's would receive what comes to that machine.
        Fate::Undivided
    }

    fn wire(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        for saved in all {
            let parked = context.parked(saved.id)?;
            unread::discard(parked).map_err(|error| system("receive", error))?;
        }
        Ok(())
    }
}

/// An address of one link means nothing without the link, which lists do not tell: it is that of the socket's own address.
fn with_scope(peer: SocketAddr, local: Option<SocketAddr>) -> SocketAddr {
    match (peer, local) {
        (SocketAddr::V6(mut peer), Some(SocketAddr::V6(local)))
            if peer.ip().is_unicast_link_local() =>
        {
            peer.set_scope_id(local.scope_id());
            peer.into()
        }
        _ => peer,
    }
}

#[cfg(test)]
mod tests;
