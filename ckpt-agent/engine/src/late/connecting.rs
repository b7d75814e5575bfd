//! Connections that were being made at the checkpoint: they ask again, whoever they asked for, wherever that is now.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;

use super::address_map::{Addresses, Dial};
use super::answer::cookie_of;
use super::calls::without_waiting;
use super::filter::Pass;
use super::names::{Name, NamedSocket};
use super::sockaddr::{self, canonical};

/// A restored socket that is to ask when all of the job is there.
#[derive(Debug)]
pub struct Connecting {
    /// A copy of the job's descriptor.
    pub fd: OwnedFd,
    /// AF_INET6 rather than AF_INET.
    pub v6: bool,
    /// What the job calls its own address.
    pub local: Option<SocketAddr>,
    /// What the job calls whom it asks.
    pub peer: SocketAddr,
    /// As in [`Name`].
    pub plain: bool,
}

impl Connecting {
    /// Asks, and does not wait for an answer. `next_port`: for the search of a port. The name that the socket has from
    /// now on.
    ///
    /// # Errors
    /// The network is not there; the program is not told.
    pub(super) fn ask(
        &self,
        pass: Pass,
        addresses: &Addresses,
        next_port: &mut u16,
    ) -> Result<Option<NamedSocket>, Errno> {
        let fd = self.fd.as_fd();
        let to = match addresses.dial(self.peer) {
            Dial::AsAsked => self.peer,
            Dial::To(to) | Dial::Unsure(to) => to,
        };
        let moved =
            addresses.away().filter(|_| !self.plain && !to.ip().to_canonical().is_loopback());
        let any: IpAddr =
            if self.v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        // Where it can't be bound so, it asks from where it can.
        let _ = match (moved, self.local) {
            (Some(away), _) => pass.bind_in(fd, away.source, next_port, |port| {
                sockaddr::encode(self.v6, SocketAddr::new(any, port))
            }),
            (None, Some(local)) => sockaddr::encode(self.v6, local)
                .map_or(Err(Errno::EADDRNOTAVAIL), |local| pass.bind(fd, &local)),
            (None, None) => Ok(()),
        };
        let address = sockaddr::encode(self.v6, to).ok_or(Errno::EAFNOSUPPORT)?;
        match without_waiting(fd, || pass.connect(fd, &address)) {
            // What the kernel answers at once it tells the program as well.
            Ok(()) | Err(Errno::EINPROGRESS | Errno::ECONNREFUSED) => {}
            Err(errno) => return Err(errno),
        }
        let local = pass.local(fd).ok();
        let name = Name {
            local: self.local.filter(|known| Some(canonical(*known)) != local.map(canonical)),
            peer: Some(self.peer).filter(|peer| canonical(*peer) != canonical(to)),
            plain: self.plain,
        };
        let cookie = cookie_of(fd).filter(|_| name != Name::default());
        Ok(cookie.map(|cookie| NamedSocket { cookie, name }))
    }
}

/// Those of a job whose calls nobody watches. How many can't ask.
pub fn ask_all(sockets: Vec<Connecting>) -> usize {
    let addresses = Addresses::default();
    let ask = |socket: &Connecting| socket.ask(Pass::unneeded(), &addresses, &mut 0);
    sockets.iter().filter(|socket| ask(socket).is_err()).count()
}
