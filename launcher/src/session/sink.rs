//! One of the user's streams, written by a thread of its own.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use nix::unistd::write;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

#[derive(Debug, Default)]
struct State {
    waiting: AtomicUsize,
    broken: AtomicBool,
}

/// One of the user's streams.
#[derive(Debug)]
pub struct Sink {
    queue: Sender<Vec<u8>>,
    state: Arc<State>,
    thread: JoinHandle<()>,
}

impl Sink {
    /// Begins to write; `wake` is written to whenever something has left the queue.
    ///
    /// # Errors
    /// Where there are no threads left.
    pub fn start(stream: OwnedFd, wake: Arc<EventFd>) -> io::Result<Self> {
        let (queue, receiver) = channel();
        let state = Arc::new(State::default());
        let thread = std::thread::Builder::new().name("sink".to_owned()).spawn({
            let state = state.clone();
            move || drive(&stream, &receiver, &state, &wake)
        })?;
        Ok(Self { queue, state, thread })
    }

    /// Queues bytes.
    pub fn put(&self, bytes: Vec<u8>) {
        if !self.is_broken() {
            self.state.waiting.fetch_add(bytes.len(), Ordering::AcqRel);
            let _ = self.queue.send(bytes);
        }
    }

    /// Bytes in the queue.
    pub fn waiting(&self) -> usize {
        self.state.waiting.load(Ordering::Acquire)
    }

    /// Whether its reader is gone.
    pub fn is_broken(&self) -> bool {
        self.state.broken.load(Ordering::Acquire)
    }

    /// Blocks until everything is written.
    pub fn finish(self) {
        drop(self.queue);
        let _ = self.thread.join();
    }
}

fn drive(stream: &OwnedFd, queue: &Receiver<Vec<u8>>, state: &State, wake: &EventFd) {
    while let Ok(bytes) = queue.recv() {
        if !state.broken.load(Ordering::Acquire) && write_all(stream.as_fd(), &bytes).is_err() {
            state.broken.store(true, Ordering::Release);
        }
        state.waiting.fetch_sub(bytes.len(), Ordering::AcqRel);
        let _ = wake.write(1);
    }
}

/// Writes all bytes, also to a stream that somebody else has made non-blocking.
///
/// # Errors
/// Where the stream takes no more, ever.
pub fn write_all(stream: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match write(stream, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                let _ = poll(&mut [PollFd::new(stream, PollFlags::POLLOUT)], PollTimeout::NONE);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
