//! One connection, from either side.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::expected::Awaited;
use super::{RewireError, Role, WireOrder, exchange, family, handshake};

/// Limit for one attempt: a SYN that was lost is sent again after one second.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(4);
/// Between two attempts: the peer's agent may not have its orders yet.
const PAUSE: Duration = Duration::from_millis(25);

/// Makes and fills one connection. `peer`: for the passive side.
pub(super) async fn connect(
    index: usize,
    order: WireOrder,
    peer: Option<Awaited>,
    deadline: Instant,
) -> Result<std::net::TcpStream, RewireError> {
    let stream = match (order.role, peer) {
        (Role::Active { to }, _) => seek(index, to, &order, deadline).await?,
        (Role::Passive, Some(mut peer)) => match timeout_at(deadline, peer.arrives()).await {
            Ok(Some(stream)) => stream,
            _ => return Err(RewireError::Late { index, last: "nobody came".into() }),
        },
        (Role::Passive, None) => return Err(RewireError::Twice { index }),
    };
    family::make(&stream, order.v6).map_err(|source| RewireError::Broken { index, source })?;
    exchange::fill(index, stream, &order.queue, order.shut_write, deadline).await
}

/// Connects as often as it takes.
async fn seek(
    index: usize,
    to: SocketAddr,
    order: &WireOrder,
    deadline: Instant,
) -> Result<TcpStream, RewireError> {
    let mut last = "no time for an attempt".to_owned();
    loop {
        let attempt = timeout(ATTEMPT_LIMIT, introduce(to, order));
        match timeout_at(deadline, attempt).await {
            Ok(Ok(Ok(stream))) => return Ok(stream),
            Ok(Ok(Err(error))) => last = format!("{to}: {error}"),
            Ok(Err(_)) => last = format!("{to} did not answer"),
            Err(_) => return Err(RewireError::Late { index, last }),
        }
        sleep(PAUSE).await;
    }
}

async fn introduce(to: SocketAddr, order: &WireOrder) -> io::Result<TcpStream> {
    let mut stream = family::connect(to, order.v6).await?;
    handshake::call(&mut stream, &order.pair).await?;
    Ok(stream)
}
