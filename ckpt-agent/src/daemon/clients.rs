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

use nix::unistd::Uid;
use protocol::cluster::agent::JobUser;
use protocol::cluster::client::{Answer, MAX_ANSWER, MAX_ASK};
use protocol::transport::{Lines, LongLines, Place, PlaceLimits, Places};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::event::{Event, Events};

/// Name of the socket in the agent's folder.
pub const SOCKET: &str = "agent.sock";
/// Clients at a time. Some places are for this user and root alone.
const CLIENTS: PlaceLimits = PlaceLimits { all: 256, each: 96, kept: 32 };
/// Bytes that may wait for a client that does not read.
const MOST_WAITING: usize = 64 * 1024 * 1024;

/// What local clients do.
#[derive(Debug)]
pub enum ClientEvent {
    /// One has connected.
    Opened {
        /// Its number.
        client: u64,
        /// Its user.
        user: JobUser,
        /// Where answers go.
        answers: Answers,
    },
    /// One has sent a line.
    Line {
        /// Which.
        client: u64,
        /// The line.
        line: String,
    },
    /// One has gone.
    Closed {
        /// Which.
        client: u64,
    },
}

/// The way to a client.
#[derive(Debug, Clone)]
pub struct Answers {
    lines: UnboundedSender<String>,
    waiting: Arc<AtomicUsize>,
}

impl Answers {
    /// Says why nothing is done. Dropped after it, the conversation ends.
    pub fn refuse(&self, reason: &str) {
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
    open: HashMap<u64, (u32, Answers)>,
}

impl Clients {
    /// One of that user's has connected.
    pub fn add(&mut self, client: u64, uid: u32, answers: Answers) {
        self.open.insert(client, (uid, answers));
    }

    /// The number of its user, while it is there.
    pub fn user(&self, client: u64) -> Option<u32> {
        self.open.get(&client).map(|(uid, _)| *uid)
    }

    /// One has gone. Whether it was known.
    pub fn remove(&mut self, client: u64) -> bool {
        self.open.remove(&client).is_some()
    }

    /// An answer, or the end of the conversation.
    pub fn answer(&mut self, client: u64, line: Option<String>) {
        let Some(line) = line else {
            self.open.remove(&client);
            return;
        };
        let Some((_, answers)) = self.open.get(&client) else { return };
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
pub fn listen(dir: &Path, events: Events) -> io::Result<()> {
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
            let (long, events) = (long.clone(), events.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = serve(stream, (number, uid), long, &place, &events) => {}
                    () = place.lost() => {}
                }
                events.tell(Event::Client(ClientEvent::Closed { client: number }));
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
    events: &Events,
) {
    let Ok(user) = tokio::task::spawn_blocking(move || JobUser::of(uid)).await else { return };
    let (read, write) = stream.into_split();
    let (lines, answers) = unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let way = Answers { lines, waiting: waiting.clone() };
    events.tell(Event::Client(ClientEvent::Opened { client, user, answers: way }));
    tokio::select! {
        () = listen_to(Lines::new(read, uid, long, MAX_ASK), client, place, events) => {}
        () = answer_to(write, answers, &waiting) => {}
    }
}

async fn listen_to(
    mut lines: Lines<OwnedReadHalf>,
    client: u64,
    place: &Place<u32>,
    events: &Events,
) {
    while let Ok(Some(line)) = lines.next().await {
        place.settle();
        events.tell(Event::Client(ClientEvent::Line { client, line }));
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
