//! One connection. Ten thousand of them must not cost much: a header's room, and a payload's while it comes.

use super::network::{Network, v4};
use super::owner::{Owners, is_own};
use crate::machine::{Connection, Peer};
use crate::wire::{HEADER, Kind, Message};
use protocol::task;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

/// How long a program may take to say what it is: on a machine with far more to do than it can, seconds.
const GREETING: Duration = Duration::from_secs(30);

/// The most bytes that may wait for a peer that does not read.
const MAX_PENDING: usize = 8 * 1024 * 1024;

/// What a connection tells.
#[derive(Debug)]
pub enum Arrival {
    /// Its first message.
    Opened {
        /// The connection.
        connection: Connection,
        /// From where.
        remote: Peer,
        /// The message.
        message: Message,
        /// The way to it.
        link: Arc<Link>,
    },
    /// A further message.
    Message {
        /// The connection.
        connection: Connection,
        /// The message.
        message: Message,
    },
    /// It is gone.
    Closed {
        /// The connection.
        connection: Connection,
    },
}

/// The way to a peer.
#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    /// What the kernel has not taken yet.
    pending: Mutex<VecDeque<u8>>,
    wake: Notify,
    closing: AtomicBool,
    done: AtomicBool,
}

impl Link {
    fn pending(&self) -> MutexGuard<'_, VecDeque<u8>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends, without waiting for the peer.
    pub fn send(&self, bytes: &[u8]) {
        let mut pending = self.pending();
        let mut rest = bytes;
        while pending.is_empty() && !rest.is_empty() {
            match self.stream.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What is wrong with it, its task finds out.
                Err(_) => break,
            }
        }
        if rest.is_empty() {
            return;
        }
        if pending.len() + rest.len() > MAX_PENDING {
            pending.clear();
            self.closing.store(true, Ordering::Relaxed);
        } else {
            pending.extend(rest);
        }
        drop(pending);
        self.wake.notify_one();
    }

    /// Closes it, once all is sent.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Whether it is closed.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    /// Writes what waits; whether all is written.
    fn flush(&self) -> io::Result<bool> {
        let mut pending = self.pending();
        while !pending.is_empty() {
            let (first, _) = pending.as_slices();
            match self.stream.try_write(first) {
                Ok(written) => drop(pending.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        *pending = VecDeque::new();
        Ok(true)
    }
}

/// What has come of a message.
#[derive(Default)]
struct Partial {
    header: Vec<u8>,
    message: Option<(Message, usize)>,
}

/// How a read went.
enum Came {
    /// A whole message.
    Message(Message),
    /// Nothing more for now.
    Nothing,
    /// The peer has closed it, or it is broken.
    End,
    /// What came is no message.
    Wrong(String),
}

impl Partial {
    fn read(&mut self, stream: &TcpStream) -> Came {
        loop {
            let wanted = match &self.message {
                None => HEADER - self.header.len(),
                Some((message, length)) => length - message.payload.len(),
            };
            if wanted == 0 {
                if let Some((message, _)) = self.message.take() {
                    return Came::Message(message);
                }
                let Ok(header) = <&[u8; HEADER]>::try_from(self.header.as_slice()) else {
                    return Came::End;
                };
                match Message::decode(header) {
                    Ok(decoded) => self.message = Some(decoded),
                    Err(error) => return Came::Wrong(error.to_string()),
                }
                self.header = Vec::new();
                continue;
            }
            let mut room = [0; 4096];
            let room = &mut room[..wanted.min(4096)];
            match stream.try_read(room) {
                Ok(0) => return Came::End,
                Ok(count) => match &mut self.message {
                    None => self.header.extend_from_slice(&room[..count]),
                    Some((message, _)) => message.payload.extend_from_slice(&room[..count]),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Came::Nothing,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Came::End,
            }
        }
    }
}

/// Accepts connections for ever.
pub async fn listen(listener: TcpListener, allow: Vec<Network>, arrivals: mpsc::Sender<Arrival>) {
    let owners = Owners::open();
    let mut connection = 0;
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => {
                let Some(address) = admitted(remote.ip(), &allow) else {
                    tracing::warn!(
                        "DMTCP: {} was turned away: --dmtcp-allow does not name its network",
                        remote.ip()
                    );
                    continue;
                };
                let is_here = is_own(remote.ip());
                let owner = stream
                    .local_addr()
                    .ok()
                    .filter(|_| is_here)
                    .and_then(|own| owners.owner(own, remote));
                if is_here && owner.is_none() {
                    tracing::warn!(
                        "DMTCP: {remote} was turned away: it had gone, or nobody has it"
                    );
                    continue;
                }
                let remote = Peer { address, owner };
                connection += 1;
                task::spawn(serve(stream, connection, remote, arrivals.clone()));
            }
            // Out of descriptors, most likely: others must close some first.
            Err(error) => {
                tracing::warn!("DMTCP: a connection can't be accepted: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn admitted(remote: IpAddr, allow: &[Network]) -> Option<Ipv4Addr> {
    let remote = v4(remote)?;
    let named = allow.iter().any(|network| network.contains(remote));
    (remote.is_loopback() || named).then_some(remote)
}

async fn serve(
    stream: TcpStream,
    connection: Connection,
    remote: Peer,
    arrivals: mpsc::Sender<Arrival>,
) {
    // Messages are small, and each is waited for.
    let _ = stream.set_nodelay(true);
    let link = Arc::new(Link {
        stream,
        pending: Mutex::default(),
        wake: Notify::new(),
        closing: AtomicBool::new(false),
        done: AtomicBool::new(false),
    });
    let mut partial = Partial::default();
    let greeting = tokio::time::timeout(GREETING, Box::pin(first(&link, &mut partial))).await;
    match greeting {
        Ok(Came::Message(message)) => {
            let opened = Arrival::Opened { connection, remote, message, link: Arc::clone(&link) };
            if arrivals.send(opened).await.is_ok() {
                converse(&link, connection, remote, partial, &arrivals).await;
                // Nobody listens when the server itself ends.
                let _ = arrivals.send(Arrival::Closed { connection }).await;
            }
        }
        Ok(Came::Wrong(what)) => reject(&link, remote, &what),
        Ok(_) => {}
        Err(_) => tracing::info!("DMTCP: {remote} connected and said nothing"),
    }
    link.done.store(true, Ordering::Relaxed);
}

/// Tells a program that can't be understood that it is refused, in the way it may understand.
fn reject(link: &Link, remote: Peer, what: &str) {
    tracing::warn!("DMTCP: {remote} sent {what}; its connection is closed");
    link.send(&Message::new(Kind::RejectWrongGroup).encode());
}

async fn first(link: &Link, partial: &mut Partial) -> Came {
    loop {
        match partial.read(&link.stream) {
            Came::Nothing => {}
            came => return came,
        }
        if link.stream.readable().await.is_err() {
            return Came::End;
        }
    }
}

/// Reads and writes until one side has enough.
async fn converse(
    link: &Link,
    connection: Connection,
    remote: Peer,
    mut partial: Partial,
    arrivals: &mpsc::Sender<Arrival>,
) {
    loop {
        match partial.read(&link.stream) {
            Came::Message(message) => {
                if arrivals.send(Arrival::Message { connection, message }).await.is_err() {
                    return;
                }
                continue;
            }
            Came::Nothing => {}
            Came::End => return,
            Came::Wrong(what) => return reject(link, remote, &what),
        }
        // What can't be written to any more has ended, and is reported as that.
        let Ok(flushed) = link.flush() else { return };
        if flushed && link.closing.load(Ordering::Relaxed) {
            return;
        }
        tokio::select! {
            ready = link.stream.readable() => if ready.is_err() { return },
            ready = link.stream.writable(), if !flushed => if ready.is_err() { return },
            () = link.wake.notified() => {}
        }
    }
}
