//! Commands on this node, at the agent's Unix socket: their lines go to the coordinator, its answers come
//! back. Nothing is understood here.

use std::collections::HashMap;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::unistd::Uid;
use protocol::cluster::agent::JobUser;
use protocol::cluster::client::{Answer, MAX_ANSWER, MAX_ASK};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::event::{Event, Events};

/// Name of the socket in the agent's folder.
pub const SOCKET: &str = "agent.sock";
/// Clients at a time.
const MOST: usize = 256;
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
    open: HashMap<u64, Answers>,
}

impl Clients {
    /// One has connected.
    pub fn add(&mut self, client: u64, answers: Answers) {
        self.open.insert(client, answers);
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
pub fn listen(dir: &Path, events: Events) -> io::Result<()> {
    let path = dir.join(SOCKET);
    let listener = bind(&path, if Uid::effective().is_root() { 0o666 } else { 0o600 })?;
    let count = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        let mut number = 0;
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            };
            if count.load(Ordering::Relaxed) >= MOST {
                continue;
            }
            number += 1;
            count.fetch_add(1, Ordering::Relaxed);
            let (count, events) = (count.clone(), events.clone());
            tokio::spawn(async move {
                serve(stream, number, &events).await;
                count.fetch_sub(1, Ordering::Relaxed);
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

/// The user at the other side of a socket.
///
/// # Errors
/// As getsockopt(2).
async fn user_of(stream: &UnixStream) -> io::Result<JobUser> {
    let uid = stream.peer_cred()?.uid();
    tokio::task::spawn_blocking(move || JobUser::of(uid)).await.map_err(io::Error::other)
}

async fn serve(stream: UnixStream, client: u64, events: &Events) {
    let Ok(user) = user_of(&stream).await else { return };
    let (read, write) = stream.into_split();
    let (lines, answers) = unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let way = Answers { lines, waiting: waiting.clone() };
    events.tell(Event::Client(ClientEvent::Opened { client, user, answers: way }));
    tokio::select! {
        () = listen_to(read, client, events) => {}
        () = answer_to(write, answers, &waiting) => {}
    }
    events.tell(Event::Client(ClientEvent::Closed { client }));
}

async fn listen_to(read: OwnedReadHalf, client: u64, events: &Events) {
    let mut reader = BufReader::new(read);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut reader).take(MAX_ASK as u64 + 1);
        match limited.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if line.pop() != Some(b'\n') {
            return;
        }
        let Ok(line) = String::from_utf8(line) else { return };
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
