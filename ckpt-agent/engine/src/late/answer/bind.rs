//! bind(2): which port a socket gets in the kernel, and by which one it is known.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use protocol::cluster::agent::MovedListener;

use super::sockets::{
    CLOSED, LISTENING, Target, is_listening, is_own_port, is_v6_only, read_address, sockets_at,
    tcp_state,
};
use super::{Answerer, Later, Verdict};
use crate::late::address_map::Addresses;
use crate::late::notify::Notification;
use crate::late::sockaddr;
use crate::sys::sockopt;

/// Ports below this one are for those who have a right to them (ip(7)): the init must not lend its own.
const FIRST_FREE_PORT: u16 = 1024;
/// How long a port is waited for that others of the logical node may have asked for in the same moment. Who does not
/// hear by then takes it: without a coordinator nobody else hears either.
const CLAIM: Duration = Duration::from_secs(3);

impl Answerer {
    pub(super) fn bind(
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
}
