//! Half closes, ends and resets of connections that are made anew and filled.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::FileId;
use super::super::super::sys::sockopt;
use super::widened::{Widened, tell_of_room};
use super::{PeerEnd, Saved, TcpSocket, TcpState, make};

/// Limit for a reset or the end of a connection to cross the loopback.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// After this long a receiver gets more room.
const ROOM_AFTER: Duration = Duration::from_millis(4);
/// Limit for bytes to arrive, from the last that has.
const ROOM_LIMIT: Duration = Duration::from_millis(300);

/// Descriptors made, by the graph's number.
pub(super) type Made = BTreeMap<FileId, OwnedFd>;

/// The far end, of ours, of a connection whose peer is gone.
pub(super) fn closed_peer_of(closed_peers: &[(FileId, OwnedFd)], of: FileId) -> Option<&OwnedFd> {
    closed_peers.iter().find(|(id, _)| *id == of).map(|(_, fd)| fd)
}

/// Half closes, ends and resets, now that nothing is to be sent any more.
pub(super) fn close(
    all: &[&Saved<'_, TcpSocket>],
    made: &Made,
    closed_peers: Vec<(FileId, OwnedFd)>,
) -> Result<()> {
    let mut resets = BTreeSet::new();
    for saved in all {
        let Some(fd) = made.get(&saved.id) else { continue };
        match &saved.object.state {
            TcpState::Connected(connection) => {
                // Of a peer that has said its last word only the end is missing.
                let apart = match connection.end {
                    PeerEnd::Outside => !connection.peer_shut,
                    PeerEnd::Socket { .. } | PeerEnd::Waiting { .. } => {
                        closed_peer_of(&closed_peers, saved.id).is_some()
                    }
                    _ => false,
                };
                if apart {
                    resets.insert(saved.id);
                } else if connection.shut_write {
                    shut(fd, std::net::Shutdown::Write)?;
                }
                if connection.shut_read {
                    shut(fd, std::net::Shutdown::Read)?;
                }
            }
            TcpState::Closed { reset: true, .. } => {
                resets.insert(saved.id);
            }
            TcpState::Closed { reset: false, .. } => shut(fd, std::net::Shutdown::Write)?,
            _ => {}
        }
    }
    for (of, closed_peer) in closed_peers {
        let resets = resets.contains(&of);
        let arrived = everything_arrives(made.get(&of), &closed_peer)?;
        if !arrived && resets {
            return Err(EngineError::TooLong {
                what: "bytes in flight to arrive".into(),
                limit_ms: CLOSE_LIMIT.as_millis() as u64,
            });
        }
        if resets {
            SockRef::from(&closed_peer)
                .set_linger(Some(Duration::ZERO))
                .map_err(|error| EngineError::system("setsockopt", "SO_LINGER", error))?;
        }
        // What its receiver has no room for, the kernel goes on sending.
        drop(closed_peer);
        if let (Some(fd), true) = (made.get(&of), arrived) {
            make::wait_until_told(fd, CLOSE_LIMIT)?;
        }
    }
    Ok(())
}

/// Gives a receiver room for all that was sent to it, and waits until it is there; false if it does not come.
fn everything_arrives(receiver: Option<&OwnedFd>, sender: &OwnedFd) -> Result<bool> {
    let mut room = None;
    let (began, mut moved, mut before) = (Instant::now(), Instant::now(), 0);
    loop {
        let left = sockopt::unacknowledged(sender)
            .map_err(|error| EngineError::system("ioctl SIOCOUTQ", "a TCP socket", error))?;
        if left == 0 {
            return Ok(true);
        }
        if left != before {
            (before, moved) = (left, Instant::now());
        }
        if moved.elapsed() > ROOM_LIMIT && began.elapsed() > CLOSE_LIMIT {
            return Ok(false);
        }
        if let (Some(receiver), true) = (receiver, began.elapsed() > ROOM_AFTER) {
            if room.is_none() {
                room = Widened::new(receiver)?;
            }
            tell_of_room(receiver);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn shut(fd: &OwnedFd, how: std::net::Shutdown) -> Result<()> {
    SockRef::from(fd)
        .shutdown(how)
        .map_err(|error| EngineError::system("shut down", "a TCP connection", error))
}

/// Of connections that the agents have made: they cannot tell reading that is shut down to each other.
pub(super) fn shut_reading(
    all: &[Saved<'_, TcpSocket>],
    made: &Made,
    handed_over: &BTreeSet<FileId>,
) -> Result<()> {
    for saved in all.iter().filter(|saved| handed_over.contains(&saved.id)) {
        if saved.object.connection().is_some_and(|connection| connection.shut_read) {
            made.get(&saved.id).map_or(Ok(()), |fd| shut(fd, std::net::Shutdown::Read))?;
        }
    }
    Ok(())
}
