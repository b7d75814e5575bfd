//! Tells connections apart by their first byte.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use protocol::transport::{
    Arrival, PeerDoor, PlaceLimits, Places, Refusals, TransportError, source,
};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

use crate::rewire::{MARK, Stranger, Wires};

/// How long somebody who connects may take to send the first byte. What follows has limits of its own.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);

/// Connections at a time over which nothing has come yet. A restart makes hundreds between two machines at once; where
/// the oldest has to go, it comes again. Some are for addresses alone from which members have come.
const SILENT: PlaceLimits = PlaceLimits { all: 512, each: 256, kept: 128 };

/// Agents and coordinators that have proved who they are, and wait to be served.
const WAITING: usize = 16;

/// All that a connection can be for.
#[derive(Debug)]
pub struct Doors {
    peers: PeerDoor,
    arrivals: Sender<Arrival>,
    wires: Arc<Wires>,
    silent: Places<IpAddr>,
    silence_limit: Duration,
    refusals: Refusals,
    /// Peers that come before their order is known here are refused, too, and come again: counted apart, or nothing would
    /// be said of others.
    strangers: Refusals,
}

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("it closed the connection without a word")]
    Closed,
    #[error("it said nothing within {} s", .0.as_secs_f64())]
    Silent(Duration),
    #[error("it had said nothing when others came, and went to make room")]
    Pushed,
    #[error("there are too many connections already over which nothing has come")]
    Full,
    #[error("receive: {0}")]
    Broken(#[from] io::Error),
    #[error(transparent)]
    Peer(#[from] TransportError),
    #[error(transparent)]
    Wire(#[from] Stranger),
}

impl Doors {
    /// Agents and coordinators go to the receiver, and connections of jobs to whoever of `wires` waits for them.
    #[must_use]
    pub fn new(peers: PeerDoor, wires: Arc<Wires>) -> (Self, Receiver<Arrival>) {
        let (arrivals, receiver) = channel(WAITING);
        let doors = Self {
            peers,
            arrivals,
            wires,
            silent: Places::new(SILENT),
            silence_limit: SILENCE_LIMIT,
            refusals: Refusals::default(),
            strangers: Refusals::default(),
        };
        (doors, receiver)
    }

    /// The same with another limit until the first byte, and so many connections that have not sent it.
    #[cfg(test)]
    pub(super) fn with_limits(mut self, silence: Duration, places: PlaceLimits) -> Self {
        self.silence_limit = silence;
        self.silent = Places::new(places);
        self
    }

    /// Takes a connection to where it belongs.
    pub(super) async fn enter(self: Arc<Self>, stream: TcpStream, remote: SocketAddr) {
        match self.lead(stream, remote).await {
            Ok(()) => {}
            Err(Refused::Wire(error)) => self.strangers.tell(remote, &error),
            Err(error) => self.refusals.tell(remote, &error),
        }
    }

    async fn lead(&self, stream: TcpStream, remote: SocketAddr) -> Result<(), Refused> {
        match self.first_byte(&stream, remote.ip()).await? {
            MARK => self.wires.admit(stream).await?,
            // Who speaks no TLS is told so there.
            _ => {
                let arrival = self.peers.admit(stream).await?;
                // Nobody serves any more: the connection closes.
                let _ = self.arrivals.send(arrival).await;
            }
        }
        Ok(())
    }

    /// The first byte, which stays to be read.
    async fn first_byte(&self, stream: &TcpStream, from: IpAddr) -> Result<u8, Refused> {
        let known = self.peers.knows(from);
        let place = self.silent.enter(source(from), known).ok_or(Refused::Full)?;
        let mut first = [0];
        let length = tokio::select! {
            peeked = timeout(self.silence_limit, stream.peek(&mut first)) => {
                peeked.map_err(|_| Refused::Silent(self.silence_limit))??
            }
            () = place.lost() => return Err(Refused::Pushed),
        };
        if length == 0 { Err(Refused::Closed) } else { Ok(first[0]) }
    }
}
