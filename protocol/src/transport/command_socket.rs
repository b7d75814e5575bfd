//! The Unix socket at which a coordinator, an agent or a job's launcher takes commands: lines of
//! [`crate::cluster::client`], whose meaning is the listener's affair.

use super::{LineError, Lines, LongLines, Place, PlaceLimits, Places};
use crate::cluster::client::{Answer, MAX_ANSWER, MAX_ASK};
use crate::durable::remove_if_there;
use std::fs::{self, Permissions};
use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

/// Clients at one time. Some places are for the listener's own user and root alone.
const CLIENTS: PlaceLimits = PlaceLimits { all: 256, each: 96, kept: 32 };

/// Bytes that may wait for a client that does not read.
const MAX_WAITING: usize = 64 * 1024 * 1024;

/// Who may connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// All users of this machine; what each may do is decided by who they are.
    Everybody,
    /// The listener's own user, and root.
    Owner,
}

/// What clients do.
#[derive(Debug)]
pub enum ClientEvent {
    /// One has connected.
    Opened {
        /// Its number, which no other client of this socket has.
        number: u64,
        /// Its user, as the kernel says (SO_PEERCRED, unix(7)).
        uid: u32,
        /// The way back.
        answers: AnswerQueue,
    },
    /// One has said a line.
    Line {
        /// Its number.
        number: u64,
        /// The line, without its newline.
        line: String,
    },
    /// One has gone, or was left.
    Closed {
        /// Its number.
        number: u64,
    },
}

/// What waits to be read by a client, bounded. When it is dropped, what is queued is sent, and the connection closed.
#[derive(Debug, Clone)]
pub struct AnswerQueue {
    lines: UnboundedSender<String>,
    waiting: Arc<AtomicUsize>,
    /// Told whenever a line has been written.
    written: Arc<Notify>,
}

impl AnswerQueue {
    /// Waits until the client has read what it was sent, but for so many bytes; false if it has gone.
    pub async fn drained_to(&self, bytes: usize) -> bool {
        loop {
            let written = self.written.notified();
            if self.waiting.load(Ordering::Acquire) <= bytes {
                return !self.lines.is_closed();
            }
            tokio::select! {
                () = written => {}
                () = self.lines.closed() => return false,
            }
        }
    }

    /// Queues a line; false if the client has gone, is too slow, or the line is longer than it would take.
    #[must_use]
    pub fn put(&self, line: String) -> bool {
        let length = line.len();
        if length > MAX_ANSWER || self.waiting.fetch_add(length, Ordering::Relaxed) > MAX_WAITING {
            return false;
        }
        self.lines.send(line).is_ok()
    }

    /// Queues an answer; as [`AnswerQueue::put`].
    #[must_use]
    pub fn answer(&self, answer: &Answer) -> bool {
        self.put(answer.line())
    }
}

/// A socket for commands.
#[derive(Debug)]
pub struct CommandSocket {
    listener: UnixListener,
    audience: Audience,
}

impl CommandSocket {
    /// Makes the socket, in the place of one that a dead listener has left. The caller sees to it that there is no
    /// living one.
    ///
    /// # Errors
    /// As unlink(2), bind(2), chmod(2).
    pub fn bind(path: &Path, audience: Audience) -> io::Result<Self> {
        let mode = match audience {
            Audience::Everybody => 0o666,
            Audience::Owner => 0o600,
        };
        Ok(Self { listener: bind(path, mode)?, audience })
    }

    /// Takes clients until `end` comes, and lets those that are there go on until they close or are left.
    /// `tell` is given what they do; false: nobody listens to them any more.
    pub async fn serve<F, Told>(self, tell: F, end: impl Future<Output = ()>)
    where
        F: Fn(ClientEvent) -> Told + Clone + Send + Sync + 'static,
        Told: Future<Output = bool> + Send + 'static,
    {
        let places = Places::new(CLIENTS);
        let long = LongLines::default();
        let own = nix::unistd::geteuid().as_raw();
        let mut clients = JoinSet::new();
        let mut number = 0;
        tokio::pin!(end);
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                Some(_) = clients.join_next() => continue,
                () = &mut end => break,
            };
            let Ok((stream, _)) = accepted else {
                // Out of descriptors, most likely: others must close some first.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let Ok(uid) = stream.peer_cred().map(|peer| peer.uid()) else { continue };
            let known = uid == 0 || uid == own;
            if self.audience == Audience::Owner && !known {
                continue;
            }
            let Some(place) = places.enter(uid, known) else {
                tracing::debug!(uid, "too many connections: one more is closed");
                continue;
            };
            number += 1;
            let client = Client { number, uid, long: long.clone(), tell: tell.clone() };
            clients.spawn(async move {
                tokio::select! {
                    () = client.converse(stream, &place) => {}
                    () = place.lost() => {}
                }
                (client.tell)(ClientEvent::Closed { number: client.number }).await
            });
        }
        drop(self.listener);
        while clients.join_next().await.is_some() {}
    }
}

/// Binds a Unix socket in the place of one that a dead listener has left.
///
/// # Errors
/// As unlink(2), bind(2), chmod(2).
pub fn bind(path: &Path, mode: u32) -> io::Result<UnixListener> {
    remove_if_there(path)?;
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok(listener)
}

struct Client<F> {
    number: u64,
    uid: u32,
    long: LongLines,
    tell: F,
}

impl<F, Told> Client<F>
where
    F: Fn(ClientEvent) -> Told,
    Told: Future<Output = bool>,
{
    async fn converse(&self, stream: UnixStream, place: &Place<u32>) {
        let (reading, mut writing) = stream.into_split();
        let lines = Lines::new(reading, self.uid, self.long.clone(), MAX_ASK);
        let (queue, queued) = unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let written = Arc::new(Notify::new());
        let answers = AnswerQueue {
            lines: queue,
            waiting: Arc::clone(&waiting),
            written: Arc::clone(&written),
        };
        let opened = ClientEvent::Opened { number: self.number, uid: self.uid, answers };
        if !(self.tell)(opened).await {
            return;
        }
        let refused = tokio::select! {
            refused = self.listen(lines, place) => refused,
            () = write(&mut writing, queued, &waiting, &written) => None,
        };
        if let Some(refused) = refused {
            let answer = Answer::Failed { reason: refused.to_string(), status: 2 };
            // It may have gone.
            let _ = send(&mut writing, answer.line()).await;
        }
    }

    /// Passes lines on, to the end or to one that is refused.
    async fn listen(
        &self,
        mut lines: Lines<OwnedReadHalf>,
        place: &Place<u32>,
    ) -> Option<LineError> {
        loop {
            let line = match lines.next().await {
                Ok(Some(line)) => line,
                Ok(None) | Err(LineError::Io(_)) => return None,
                Err(error) => return Some(error),
            };
            place.secure();
            if !(self.tell)(ClientEvent::Line { number: self.number, line }).await {
                return None;
            }
        }
    }
}

/// Writes answers until there are no more to come.
async fn write(
    writing: &mut OwnedWriteHalf,
    mut queued: UnboundedReceiver<String>,
    waiting: &AtomicUsize,
    written: &Notify,
) {
    while let Some(line) = queued.recv().await {
        let length = line.len();
        if send(writing, line).await.is_err() {
            return;
        }
        waiting.fetch_sub(length, Ordering::AcqRel);
        written.notify_waiters();
    }
    let _ = writing.shutdown().await;
}

async fn send(writing: &mut OwnedWriteHalf, mut line: String) -> io::Result<()> {
    line.push('\n');
    writing.write_all(line.as_bytes()).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn lines_go_in_answers_come_back_and_the_last_ones_are_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let socket = CommandSocket::bind(&path, Audience::Owner).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let (sender, mut events) = unbounded_channel();
        let (end, ended) = oneshot::channel();
        let tell = move |event| std::future::ready(sender.send(event).is_ok());
        let serving = tokio::spawn(socket.serve(tell, async { drop(ended.await) }));

        let client = UnixStream::connect(&path).await.unwrap();
        let (reading, mut writing) = client.into_split();
        writing.write_all(b"hello\nthere\n").await.unwrap();
        let Some(ClientEvent::Opened { number, uid, answers }) = events.recv().await else {
            panic!("it has not connected")
        };
        assert_eq!(uid, nix::unistd::geteuid().as_raw());
        for expected in ["hello", "there"] {
            let event = events.recv().await;
            let is_it = matches!(&event, Some(ClientEvent::Line { number: of, line })
                if *of == number && line == expected);
            assert!(is_it, "{event:?}");
        }
        assert!(!answers.put("x".repeat(MAX_ANSWER + 1)));
        assert!(answers.put("one".into()) && answers.put("two".into()));
        drop(answers);
        end.send(()).unwrap();
        let mut read = String::new();
        BufReader::new(reading).read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "one\ntwo\n");
        assert!(matches!(events.recv().await, Some(ClientEvent::Closed { .. })));
        serving.await.unwrap();
        assert!(UnixStream::connect(&path).await.is_err());
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_refused_with_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let socket = CommandSocket::bind(&path, Audience::Everybody).unwrap();
        let (sender, mut events) = unbounded_channel();
        let tell = move |event| std::future::ready(sender.send(event).is_ok());
        tokio::spawn(socket.serve(tell, std::future::pending()));
        let mut client = UnixStream::connect(&path).await.unwrap();
        let line = "x".repeat(super::super::MAX_FIRST + 1);
        client.write_all(line.as_bytes()).await.unwrap();
        let mut answer = String::new();
        BufReader::new(client).read_line(&mut answer).await.unwrap();
        assert!(answer.contains("failed") && answer.contains("1024"), "{answer}");
        assert!(matches!(events.recv().await, Some(ClientEvent::Opened { .. })));
        assert!(matches!(events.recv().await, Some(ClientEvent::Closed { .. })));
    }
}
