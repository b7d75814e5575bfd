//! The one port at which other machines reach this agent, so that a firewall has one to let through.
//!
//! * `doors`: what a connection is for, by its first byte, and how many may not have sent it;
//! * here: where the port is. It is at one address of this machine, that by which the agent reaches its coordinator, and
//!   moves with it.

mod doors;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use protocol::task;
use protocol::transport::DEFAULT_AGENT_PORT;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::rewire;

pub use doors::Doors;

/// Pause after a failed accept(2): no descriptors left, most often.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where the user wants the port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The address at which it listens, and by which others are told of it; one that means all of the machine's
    /// addresses leaves the second to the connection to the coordinator. None: the address of that connection.
    pub host: Option<IpAddr>,
    /// The port, 0 any free one. None: [`DEFAULT_AGENT_PORT`], and any free one where somebody else has that.
    pub port: Option<u16>,
}

/// It can't listen there.
#[derive(Debug, thiserror::Error)]
#[error("listen for other machines at {address}: {source}{}", way_out(source))]
pub struct PortError {
    /// The address asked for.
    pub address: SocketAddr,
    /// The kernel's answer.
    #[source]
    pub source: io::Error,
}

fn way_out(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::AddrInUse => "; give another port by --port, 0 for any",
        ErrorKind::AddrNotAvailable => "; --listen must be an address of this machine",
        _ => "",
    }
}

/// The port.
#[derive(Debug)]
pub struct Port {
    wanted: Wanted,
    doors: Arc<Doors>,
    open: Option<Open>,
}

/// A socket that listens, until it is dropped.
#[derive(Debug)]
struct Open {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Port {
    /// One that is nowhere yet.
    #[must_use]
    pub fn new(wanted: Wanted, doors: Arc<Doors>) -> Self {
        Self { wanted, doors, open: None }
    }

    /// Listens at this address of the machine, unless the user wants another one, and nowhere else from then on; where
    /// others reach it. Within a tokio run time.
    ///
    /// # Errors
    /// Where the address or the port can't be had. It stays where it was, then.
    pub fn open_at(&mut self, local: IpAddr) -> Result<SocketAddr, PortError> {
        let local = local.to_canonical();
        let host = self.wanted.host.map_or(local, |host| host.to_canonical());
        let port = match &self.open {
            Some(open) if open.address.ip() == host => open.address.port(),
            before => {
                let before = before.as_ref().map(|open| open.address.port());
                let (listener, address) = self.bind(host, before)?;
                let accepting = task::spawn(accept(listener, self.doors.clone()));
                tracing::info!("other machines' agents are expected at {address}");
                self.open = Some(Open { address, accepting });
                address.port()
            }
        };
        Ok(SocketAddr::new(if host.is_unspecified() { local } else { host }, port))
    }

    /// `before`: the port that it had at another address.
    fn bind(
        &self,
        host: IpAddr,
        before: Option<u16>,
    ) -> Result<(TcpListener, SocketAddr), PortError> {
        let (preferred, last) = match self.wanted.port {
            None => ([Some(DEFAULT_AGENT_PORT), before], 0),
            Some(0) => ([before, None], 0),
            Some(port) => ([None, None], port),
        };
        for port in preferred.into_iter().flatten() {
            match listen(SocketAddr::new(host, port)) {
                Err(PortError { source, .. }) if source.kind() == ErrorKind::AddrInUse => {
                    tracing::warn!(
                        "somebody else has port {port} of {host}: this agent takes another one, which firewalls have to \
                         let through; --port names one"
                    );
                }
                done => return done,
            }
        }
        listen(SocketAddr::new(host, last))
    }
}

fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), PortError> {
    let failed = |source| PortError { address, source };
    let listener = rewire::listen(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, SocketAddr::new(address.ip(), bound.port())))
}

async fn accept(listener: TcpListener, doors: Arc<Doors>) {
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => drop(task::spawn(doors.clone().enter(stream, remote))),
            Err(error) => {
                // Such as too many open files: others may end meanwhile.
                tracing::warn!("failed to accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// This machine's address on the way to the first of these, HOST:PORT, to which there is one. Nothing is sent.
#[must_use]
pub fn address_towards(destinations: &[String]) -> Option<IpAddr> {
    destinations.iter().filter_map(|text| text.parse::<SocketAddr>().ok()).find_map(|to| {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip())
    })
}
