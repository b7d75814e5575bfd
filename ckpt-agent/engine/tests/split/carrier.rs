//! What agents do between the two sides of each relay: bytes, messages, and ends of files.

#![allow(clippy::unwrap_used, reason = "a lock that a panic has poisoned ends the test")]

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use ckpt_engine::graph::{RelayEnd, RelayKind};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};

/// Carries in both directions.
const RUN: u8 = 0;
/// Reads what there is, writes nothing.
const DRAIN: u8 = 1;
/// Ends.
const STOP: u8 = 2;

/// One side of a relay.
pub struct Side {
    pub end: RelayEnd,
    fd: Mutex<Option<Arc<OwnedFd>>>,
    /// Undelivered, towards this side.
    queue: Mutex<VecDeque<Vec<u8>>>,
    /// The far side has closed.
    far_closed: Mutex<bool>,
}

/// A chunk in the written form.
fn frames(queue: &VecDeque<Vec<u8>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for chunk in queue {
        bytes.extend_from_slice(&(chunk.len() as u32).to_le_bytes());
        bytes.extend_from_slice(chunk);
    }
    bytes
}

fn chunks(mut bytes: &[u8]) -> VecDeque<Vec<u8>> {
    let mut queue = VecDeque::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (chunk, behind) = rest.split_at(u32::from_le_bytes(*length) as usize);
        queue.push_back(chunk.to_vec());
        bytes = behind;
    }
    queue
}

impl Side {
    pub fn new(end: RelayEnd, fd: OwnedFd, undelivered: &[u8], far_closed: bool) -> Self {
        fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        Self {
            end,
            fd: Mutex::new(Some(Arc::new(fd))),
            queue: Mutex::new(chunks(undelivered)),
            far_closed: Mutex::new(far_closed),
        }
    }

    pub fn fd(&self) -> Option<Arc<OwnedFd>> {
        self.fd.lock().unwrap().clone()
    }

    pub fn close(&self) {
        *self.fd.lock().unwrap() = None;
    }

    /// Undelivered bytes, and whether the far side has closed.
    pub fn state(&self) -> (Vec<u8>, bool) {
        (frames(&self.queue.lock().unwrap()), *self.far_closed.lock().unwrap())
    }

    fn has_messages(&self) -> bool {
        matches!(self.end.kind, RelayKind::Packets | RelayKind::Link { .. })
    }

    fn is_socket(&self) -> bool {
        self.has_messages() || self.end.kind == RelayKind::Stream
    }

    fn read(&self, fd: &OwnedFd) -> Result<Option<Vec<u8>>, ()> {
        let mut bytes = vec![0; 4096];
        let read = match self.is_socket() {
            true => recv(fd.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT),
            false => nix::unistd::read(fd, &mut bytes),
        };
        match read {
            Ok(0) => Err(()),
            Ok(length) => {
                bytes.truncate(length);
                Ok(Some(bytes))
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(_) => Err(()),
        }
    }

    fn write(&self, fd: &OwnedFd, bytes: &[u8]) -> Result<usize, ()> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let written = match self.is_socket() {
            true => send(fd.as_raw_fd(), bytes, flags),
            false => nix::unistd::write(fd, bytes),
        };
        match written {
            Ok(length) => Ok(length),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
            Err(_) => Err(()),
        }
    }
}

/// Carries from one side to the other.
struct Direction {
    from: Arc<Side>,
    to: Arc<Side>,
}

impl Direction {
    fn exists(&self) -> bool {
        !matches!(
            (self.from.end.kind, self.to.end.kind),
            (RelayKind::PipeWrite, _) | (_, RelayKind::PipeRead)
        )
    }

    fn run(&self, mode: &AtomicU8) {
        loop {
            match mode.load(Ordering::SeqCst) {
                STOP => return,
                mode => {
                    let moved = self.step(mode == DRAIN);
                    if !moved {
                        self.nap();
                    }
                }
            }
        }
    }

    fn nap(&self) {
        let wait = PollTimeout::from(2u8);
        match self.from.fd() {
            Some(fd) => {
                let mut polled = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
                let ready = poll(&mut polled, wait).unwrap_or(0);
                if ready > 0 {
                    // Nothing was to be had although it is ready: hung up, or stopped.
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }

    /// Whether anything happened.
    fn step(&self, drain: bool) -> bool {
        let mut moved = false;
        if let Some(fd) = self.from.fd() {
            if self.to.queue.lock().unwrap().len() < 16 || drain {
                let mut queue = self.to.queue.lock().unwrap();
                match self.from.read(&fd) {
                    Ok(Some(bytes)) => {
                        queue.push_back(bytes);
                        moved = true;
                    }
                    Ok(None) => {}
                    Err(()) => *self.to.far_closed.lock().unwrap() = true,
                }
            }
        }
        if drain {
            return moved;
        }
        moved | self.deliver()
    }

    fn deliver(&self) -> bool {
        let Some(fd) = self.to.fd() else { return false };
        let mut queue = self.to.queue.lock().unwrap();
        let Some(first) = queue.front_mut() else {
            let mut closed = self.to.far_closed.lock().unwrap();
            if *closed {
                drop(fd);
                self.end();
                *closed = self.to.end.kind == RelayKind::Stream;
            }
            return false;
        };
        match self.to.write(&fd, first) {
            Ok(0) => false,
            Ok(length) => {
                first.drain(..length);
                if first.is_empty() {
                    queue.pop_front();
                }
                true
            }
            Err(()) => {
                queue.clear();
                drop(fd);
                self.to.close();
                self.from.close();
                false
            }
        }
    }

    fn end(&self) {
        if self.to.end.kind == RelayKind::Stream {
            if let Some(fd) = self.to.fd() {
                let _ = shutdown(fd.as_raw_fd(), Shutdown::Write);
            }
            return;
        }
        self.to.close();
        self.from.close();
    }
}

/// All relays between instances.
#[derive(Default)]
pub struct Carrier {
    sides: Vec<Arc<Side>>,
    mode: Arc<AtomicU8>,
    threads: Vec<JoinHandle<()>>,
}

impl Carrier {
    /// Takes a side, and starts to carry when both are there.
    pub fn add(&mut self, side: Side) -> Arc<Side> {
        let side = Arc::new(side);
        let peer = self
            .sides
            .iter()
            .find(|other| other.end.id == side.end.id && other.end.side != side.end.side);
        if let Some(peer) = peer {
            for (from, to) in [(&side, peer), (peer, &side)] {
                let direction = Direction { from: from.clone(), to: to.clone() };
                let mode = self.mode.clone();
                if direction.exists() {
                    self.threads.push(std::thread::spawn(move || direction.run(&mode)));
                }
            }
        }
        self.sides.push(side.clone());
        side
    }

    /// Carries what is read at one side to the other.
    pub fn echo(&mut self, from: &Arc<Side>, to: &Arc<Side>) {
        let direction = Direction { from: from.clone(), to: to.clone() };
        let mode = self.mode.clone();
        self.threads.push(std::thread::spawn(move || direction.run(&mode)));
    }

    /// Reads everything that frozen instances have written.
    pub fn drain(&self) {
        self.mode.store(DRAIN, Ordering::SeqCst);
        // That nothing is on its way through a terminal any more shows nowhere.
        std::thread::sleep(Duration::from_millis(50));
    }

    /// Goes on.
    pub fn go_on(&self) {
        self.mode.store(RUN, Ordering::SeqCst);
    }

    /// Ends; relays of the next generation are new.
    pub fn stop(&mut self) {
        self.mode.store(STOP, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
        self.sides.clear();
        self.mode = Arc::default();
    }

    /// Relays of which only one side is there.
    pub fn unpaired(&self) -> Vec<&RelayEnd> {
        let paired = |side: &Side| {
            self.sides
                .iter()
                .any(|other| other.end.id == side.end.id && other.end.side != side.end.side)
        };
        self.sides.iter().filter(|side| !paired(side)).map(|side| &side.end).collect()
    }
}
