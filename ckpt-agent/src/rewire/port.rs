//! Where connections of peers arrive.

use protocol::task;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::expected::Expected;
use super::secret::LENGTH;
use super::{RewireError, WireOrder, family, join};

/// How long somebody who connects may take to say the secret.
const INTRODUCTION_LIMIT: Duration = Duration::from_secs(5);
/// How many may be about to introduce themselves; peers that are turned away come again.
const MOST_UNKNOWN: usize = 512;
/// Pause after a failed accept(2): no descriptors left, most often.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listening socket for connections of jobs; one serves all restores of an agent.
#[derive(Debug)]
pub struct WirePort {
    address: SocketAddr,
    expected: Arc<Expected>,
    accepting: JoinHandle<()>,
}

impl WirePort {
    /// Listens on an address; port 0: any.
    ///
    /// # Errors
    /// [`RewireError::Listen`].
    pub async fn bind(address: SocketAddr) -> Result<Self, RewireError> {
        let failed = |source| RewireError::Listen { address, source };
        let listener = family::listen(address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let address = SocketAddr::new(address.ip().to_canonical(), bound.port());
        let expected = Arc::new(Expected::default());
        let accepting = task::spawn(accept(listener, expected.clone()));
        Ok(Self { address, expected, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes all connections of a plan at once and fills their receive queues. The sockets come back in
    /// the plan's order, in blocking mode, with nothing read from them that belongs to the job.
    ///
    /// # Errors
    /// The first connection that fails; all others are closed then.
    pub async fn connect(
        &self,
        plan: Vec<WireOrder>,
        deadline: Instant,
    ) -> Result<Vec<std::net::TcpStream>, RewireError> {
        let count = plan.len();
        let mut work = JoinSet::new();
        for (index, order) in plan.into_iter().enumerate() {
            let peer = match order.role {
                super::Role::Passive => {
                    let awaited = self.expected.add(&order.secret);
                    Some(awaited.ok_or(RewireError::Twice { index })?)
                }
                super::Role::Active { .. } => None,
            };
            work.spawn(async move { (index, join::connect(index, order, peer, deadline).await) });
        }
        let mut done: Vec<Option<std::net::TcpStream>> = (0..count).map(|_| None).collect();
        while let Some(finished) = work.join_next().await {
            let (index, result) = finished.map_err(|error| RewireError::Broken {
                index: count,
                source: std::io::Error::other(error),
            })?;
            if let Some(place) = done.get_mut(index) {
                *place = Some(result?);
            }
        }
        Ok(done.into_iter().flatten().collect())
    }
}

impl Drop for WirePort {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, expected: Arc<Expected>) {
    let unknown = Arc::new(Semaphore::new(MOST_UNKNOWN));
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("wire port: accept failed: {error}");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = unknown.clone().try_acquire_owned() else {
            tracing::warn!("wire port: {from} turned away, too many unknown connections");
            continue;
        };
        let expected = expected.clone();
        task::spawn(async move {
            match timeout(INTRODUCTION_LIMIT, introduce(stream, &expected)).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => tracing::warn!("wire port: {from} dropped, unknown secret"),
                Ok(Err(error)) => tracing::warn!("wire port: {from} dropped: {error}"),
                Err(_) => tracing::warn!("wire port: {from} dropped, it said no secret in time"),
            }
            drop(permit);
        });
    }
}

/// Whether it was a peer that is waited for.
async fn introduce(mut stream: TcpStream, expected: &Expected) -> std::io::Result<bool> {
    let mut said = [0; LENGTH];
    stream.read_exact(&mut said).await?;
    let Some(peer) = expected.claim(&said) else { return Ok(false) };
    stream.write_all(&peer.secret.answer()).await?;
    // Who waited may have given up in this very moment.
    let _ = peer.arrived.send(stream);
    Ok(true)
}
