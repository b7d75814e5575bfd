//! The coordinator's own Unix socket, for commands on its machine.

use super::driver::Incoming;
use protocol::cluster::agent::JobUser;
use protocol::cluster::client::{Answer, MAX_ASK};
use protocol::transport::{LineError, Lines, LongLines, Place, PlaceLimits, Places};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

/// Clients at one time. Some places are for this user and root alone.
const CLIENTS: PlaceLimits = PlaceLimits { all: 256, each: 96, kept: 32 };

/// Bytes that may wait to be read by a client.
const MAX_WAITING: usize = 64 * 1024 * 1024;

/// What waits to be read by a client, bounded. Dropped: what is queued is sent, and the connection
/// closed.
#[derive(Debug)]
pub struct LineQueue {
    lines: mpsc::UnboundedSender<String>,
    waiting: Arc<AtomicUsize>,
}

impl LineQueue {
    /// Queues a line; false if the client is gone or too slow.
    #[must_use]
    pub fn put(&self, line: String) -> bool {
        let length = line.len();
        if self.waiting.fetch_add(length, Ordering::Relaxed) > MAX_WAITING {
            return false;
        }
        self.lines.send(line).is_ok()
    }
}

/// Makes the socket. The caller holds the lock of the folder, so one that is there is a dead
/// one's. Everybody may connect: who that is, the kernel says.
///
/// # Errors
/// Where it can't be made.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Takes clients for ever.
pub async fn listen(listener: UnixListener, incoming: mpsc::Sender<Incoming>) {
    let places = Places::new(CLIENTS);
    let long = LongLines::default();
    let own = nix::unistd::geteuid().as_raw();
    let mut number = 0;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(uid) = stream.peer_cred().map(|peer| peer.uid()) else { continue };
                let Some(place) = places.enter(uid, uid == 0 || uid == own) else {
                    tracing::debug!(uid, "too many connections: one more is closed");
                    continue;
                };
                number += 1;
                let (incoming, long) = (incoming.clone(), long.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = serve(stream, (number, uid), long, &place, &incoming) => {}
                        () = place.lost() => {}
                    }
                    // Nobody listens any more when the coordinator itself ends.
                    let _ = incoming.send(Incoming::ClientClosed { number }).await;
                });
            }
            // Out of descriptors, most likely: others must close some first.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve(
    stream: UnixStream,
    (number, uid): (u64, u32),
    long: LongLines,
    place: &Place<u32>,
    incoming: &mpsc::Sender<Incoming>,
) {
    let Ok(user) = tokio::task::spawn_blocking(move || JobUser::of(uid)).await else { return };
    let (reading, mut writing) = stream.into_split();
    let mut asked = Lines::new(reading, uid, long, MAX_ASK);
    let (lines, mut queued) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let queue = LineQueue { lines, waiting: Arc::clone(&waiting) };
    if incoming.send(Incoming::ClientOpened { number, user, queue }).await.is_err() {
        return;
    }
    loop {
        let event = tokio::select! {
            line = queued.recv() => match line {
                Some(line) => {
                    waiting.fetch_sub(line.len(), Ordering::Relaxed);
                    if send(&mut writing, line).await.is_err() {
                        break;
                    }
                    continue;
                }
                None => break,
            },
            line = asked.next() => match line {
                Ok(Some(line)) => {
                    place.secure();
                    Incoming::ClientLine { number, line }
                }
                Ok(None) | Err(LineError::Io(_)) => break,
                Err(error) => {
                    refuse(&mut writing, &error).await;
                    break;
                }
            },
        };
        if incoming.send(event).await.is_err() {
            return;
        }
    }
}

async fn send(writing: &mut OwnedWriteHalf, mut line: String) -> io::Result<()> {
    line.push('\n');
    writing.write_all(line.as_bytes()).await
}

async fn refuse(writing: &mut OwnedWriteHalf, error: &LineError) {
    let reason = error.to_string();
    if let Ok(line) = serde_json::to_string(&Answer::Failed { reason, status: 2 }) {
        // It may have gone.
        let _ = send(writing, line).await;
    }
}
