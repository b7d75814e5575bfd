//! Commands on this node, at the agent's Unix socket: their lines go to the coordinator, its answers come
//! back. Nothing is understood here.

use std::collections::HashMap;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ckpt_node::Event;
use nix::unistd::Uid;
use protocol::cluster::agent::JobUser;
use protocol::cluster::client::{Answer, MAX_ANSWER, MAX_ASK};
use protocol::transport::{Lines, LongLines, Place, PlaceLimits, Places};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::report::{Report, Reports};

/// Name of the socket in the agent's folder.
pub const SOCKET: &str = "agent.sock";
/// Clients at a time. Some places are for this user and root alone.
const CLIENTS: PlaceLimits = PlaceLimits { all: 256, each: 96, kept: 32 };
/// Bytes that may wait for a client that does not read.
const MOST_WAITING: usize = 64 * 1024 * 1024;

/// The way to a client.
#[derive(Debug, Clone)]
pub struct Answers {
    lines: UnboundedSender<String>,
    waiting: Arc<AtomicUsize>,
}

impl Answers {
    /// Says why nothing is done. Dropped after it, the conversation ends.
    fn refuse(&self, reason: &str) {
        let answer = Answer::Failed { reason: reason.to_owned(), status: 125 };
        let Ok(line) = serde_json::to_string(&answer) else { return };
        self.waiting.fetch_add(line.len(), Ordering::Relaxed);
        // It may have gone.
        let _ = self.lines.send(line);
    }
}

/// All clients.
#[derive(Debug, Default)]
pub struct Clients {
    open: HashMap<u64, Answers>,
}

impl Clients {
    /// One has connected.
    pub fn add(&mut self, client: u64, answers: Answers) {
        self.open.insert(client, answers);
    }

    /// One has gone.
    pub fn remove(&mut self, client: u64) {
        self.open.remove(&client);
    }

    /// Says why nothing is done for a client, and ends the conversation.
    pub fn refuse(&mut self, client: u64, reason: &str) {
        if let Some(answers) = self.open.remove(&client) {
            answers.refuse(reason);
        }
    }

    /// An answer, or the end of the conversation.
    pub fn answer(&mut self, client: u64, line: Option<String>) {
        let Some(line) = line else {
            self.open.remove(&client);
            return;
        };
        let Some(answers) = self.open.get(&client) else { return };
        let waiting = answers.waiting.fetch_add(line.len(), Ordering::Relaxed) + line.len();
        if line.len() > MAX_ANSWER || waiting > MOST_WAITING || answers.lines.send(line).is_err() {
            tracing::warn!(client, "a local client does not read its answers and is left");
            self.open.remove(&client);
        }
    }

    /// The coordinator is gone: so are all conversations.
    pub fn close_all(&mut self) {
        self.open.clear();
    }
}

/// Listens. The socket is for everybody where this agent runs jobs of several users, that is as root; what
/// each may do is for the coordinator to say.
///
/// # Errors
/// As bind(2).
pub fn listen(dir: &Path, reports: Reports) -> io::Result<()> {
    let path = dir.join(SOCKET);
    let listener = bind(&path, if Uid::effective().is_root() { 0o666 } else { 0o600 })?;
    let (places, long) = (Places::new(CLIENTS), LongLines::default());
    let own = Uid::effective().as_raw();
    tokio::spawn(async move {
        let mut number = 0;
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let Ok(uid) = stream.peer_cred().map(|peer| peer.uid()) else { continue };
            let Some(place) = places.enter(uid, uid == 0 || uid == own) else {
                tracing::debug!(uid, "too many connections: one more is closed");
                continue;
            };
            number += 1;
            let (long, reports) = (long.clone(), reports.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = serve(stream, (number, uid), long, &place, &reports) => {}
                    () = place.lost() => {}
                }
                reports.tell(Report::ClientClosed(number));
            });
        }
    });
    Ok(())
}

/// Binds a Unix socket in the place of one that an agent before has left.
///
/// # Errors
/// As bind(2).
pub fn bind(path: &Path, mode: u32) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok(listener)
}

async fn serve(
    stream: UnixStream,
    (client, uid): (u64, u32),
    long: LongLines,
    place: &Place<u32>,
    reports: &Reports,
) {
    let Ok(user) = tokio::task::spawn_blocking(move || JobUser::of(uid)).await else { return };
    let (read, write) = stream.into_split();
    let (lines, answers) = unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let way = Answers { lines, waiting: waiting.clone() };
    reports.tell(Report::ClientOpened { client, user, answers: way });
    tokio::select! {
        () = listen_to(Lines::new(read, uid, long, MAX_ASK), client, place, reports) => {}
        () = answer_to(write, answers, &waiting) => {}
    }
}

async fn listen_to(
    mut lines: Lines<OwnedReadHalf>,
    client: u64,
    place: &Place<u32>,
    reports: &Reports,
) {
    while let Ok(Some(line)) = lines.next().await {
        place.secure();
        reports.event(Event::ClientLine { client, line });
    }
}

async fn answer_to(
    mut write: OwnedWriteHalf,
    mut answers: UnboundedReceiver<String>,
    waiting: &AtomicUsize,
) {
    while let Some(mut line) = answers.recv().await {
        let length = line.len();
        line.push('\n');
        if write.write_all(line.as_bytes()).await.is_err() {
            return;
        }
        waiting.fetch_sub(length, Ordering::Relaxed);
    }
    let _ = write.shutdown().await;
}
