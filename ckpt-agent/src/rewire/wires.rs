//! Connections of jobs that are being made, from both sides.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::expected::Expected;
use super::{RewireError, WireOrder, handshake, join};

/// How long somebody who connects may take to prove who it is.
const INTRODUCTION_LIMIT: Duration = Duration::from_secs(5);
/// How many may be about to introduce themselves; peers that are turned away come again.
const MOST_UNKNOWN: usize = 512;

/// Who is waited for, and what makes connections; one serves all restores of an agent. Somebody else listens, and hands
/// over what comes.
#[derive(Debug)]
pub struct Wires {
    expected: Arc<Expected>,
    unknown: Semaphore,
}

/// Why somebody who has connected is dropped.
#[derive(Debug, thiserror::Error)]
pub enum Stranger {
    /// Others have not proved who they are either.
    #[error("there are too many connections of jobs already that have proved nothing")]
    TooMany,
    /// No order is for its pair, or not yet, or it has proved nothing: what it learns is the same.
    #[error("it is not the other end of any connection of a job that is waited for")]
    Unknown,
    /// It said too little.
    #[error("it did not prove within {} s which connection of a job it is the other end of", INTRODUCTION_LIMIT.as_secs())]
    Silent,
    /// It has gone.
    #[error("a job's connection: {0}")]
    Broken(#[from] io::Error),
}

impl Default for Wires {
    fn default() -> Self {
        Self { expected: Arc::default(), unknown: Semaphore::new(MOST_UNKNOWN) }
    }
}

impl Wires {
    /// Takes a connection that begins with [`MARK`](super::MARK), and hands it to the order that waits for it. Run it in a task of its
    /// own: whoever has connected may be slow.
    ///
    /// # Errors
    /// Where nothing waits for it; it is closed then, without a word.
    pub async fn admit(&self, stream: TcpStream) -> Result<(), Stranger> {
        let _place = self.unknown.try_acquire().map_err(|_| Stranger::TooMany)?;
        let introduced = timeout(INTRODUCTION_LIMIT, self.introduce(stream));
        let (arrived, stream) = introduced.await.map_err(|_| Stranger::Silent)??;
        // Who waited may have given up in this very moment.
        let _ = arrived.send(stream);
        Ok(())
    }

    async fn introduce(
        &self,
        mut stream: TcpStream,
    ) -> Result<(oneshot::Sender<TcpStream>, TcpStream), Stranger> {
        let (name, nonce) = handshake::hear(&mut stream).await?.ok_or(Stranger::Unknown)?;
        let (number, pair) = self.expected.find(name).ok_or(Stranger::Unknown)?;
        if !handshake::challenge(&mut stream, &pair, nonce).await? {
            return Err(Stranger::Unknown);
        }
        let arrived = self.expected.claim(number).ok_or(Stranger::Unknown)?;
        Ok((arrived, stream))
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
                    let awaited = self.expected.add(&order.pair);
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
