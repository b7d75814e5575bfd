//! The coordinator's own Unix socket, for commands on its machine.

use super::driver::Incoming;
use futures_util::{SinkExt, StreamExt};
use protocol::cluster::agent::JobUser;
use protocol::cluster::client::{Answer, MAX_ASK};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::codec::{Framed, LinesCodec, LinesCodecError};

/// Clients at one time; more wait in the listener's queue.
const MAX_CLIENTS: usize = 256;

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
    let places = Arc::new(Semaphore::new(MAX_CLIENTS));
    let mut number = 0;
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                number += 1;
                let incoming = incoming.clone();
                tokio::spawn(async move {
                    serve(stream, number, &incoming).await;
                    drop(place);
                });
            }
            // Out of descriptors, most likely: others must close some first.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve(stream: UnixStream, number: u64, incoming: &mpsc::Sender<Incoming>) {
    let Ok(peer) = stream.peer_cred() else { return };
    let uid = peer.uid();
    let Ok(user) = tokio::task::spawn_blocking(move || JobUser::of(uid)).await else { return };
    let mut framed = Framed::new(stream, LinesCodec::new_with_max_length(MAX_ASK));
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
                    if framed.send(line).await.is_err() {
                        break;
                    }
                    continue;
                }
                None => break,
            },
            line = framed.next() => match line {
                Some(Ok(line)) => Incoming::ClientLine { number, line },
                Some(Err(LinesCodecError::MaxLineLengthExceeded)) => {
                    refuse(&mut framed).await;
                    break;
                }
                Some(Err(_)) | None => break,
            },
        };
        if incoming.send(event).await.is_err() {
            return;
        }
    }
    // Nobody listens any more when the coordinator itself ends.
    let _ = incoming.send(Incoming::ClientClosed { number }).await;
}

async fn refuse(framed: &mut Framed<UnixStream, LinesCodec>) {
    let reason = format!("read the request: it exceeds the limit of {MAX_ASK} bytes");
    if let Ok(line) = serde_json::to_string(&Answer::Failed { reason, status: 2 }) {
        // It may have gone.
        let _ = framed.send(line).await;
    }
}
