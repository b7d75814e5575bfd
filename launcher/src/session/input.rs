//! What the user types or pipes in, carried to the job by a thread.

use super::sink::write_all;
use super::terminal::{self, Key, Keys};
use super::typing;
use nix::errno::Errno;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{SyncSender, sync_channel};

/// Where input goes.
#[derive(Debug)]
pub enum Target {
    /// Master side of the job's terminal.
    Terminal(OwnedFd),
    /// Write end of the job's standard input.
    Pipe(OwnedFd),
}

/// What the user did, apart from typing text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Typed {
    /// A key by which the job's terminal sends this signal.
    Signal(i32),
    /// The key that suspends.
    Suspend,
    /// Text, after a key that sends a signal.
    Text,
}

/// Begins to carry. The thread ends with the user's input, or with the process.
///
/// # Errors
/// Where there are no threads left.
pub fn start(
    user: OwnedFd,
    target: Target,
    report: impl Fn(Typed) + Send + 'static,
) -> io::Result<()> {
    std::thread::Builder::new()
        .name("input".to_owned())
        .spawn(move || {
            carry(&user, &target, &report);
            // The job sees the end of its input when the pipe is closed.
            drop(target);
        })
        .map(drop)
}

/// Types into the job's terminal what others send, on a thread of its own: a terminal takes no more than its job reads.
#[derive(Debug)]
pub struct Typist(SyncSender<Vec<u8>>);

/// Pieces of input that may wait for the job to read.
const MOST_PIECES: usize = 64;

/// Bytes of a piece.
const LONGEST_PIECE: usize = 64 * 1024;

impl Typist {
    /// At the master side of the job's terminal.
    ///
    /// # Errors
    /// Where there are no threads left.
    pub fn start(master: OwnedFd, report: impl Fn(Typed) + Send + 'static) -> io::Result<Self> {
        let (sender, pieces) = sync_channel::<Vec<u8>>(MOST_PIECES);
        std::thread::Builder::new().name("typist".to_owned()).spawn(move || {
            let mut signalled = false;
            while let Ok(piece) = pieces.recv() {
                if type_in(&master, &piece, &mut signalled, &report).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self(sender))
    }

    /// Types. False: the job has read nothing for long, and this is lost.
    pub fn type_in(&self, piece: Vec<u8>) -> bool {
        piece.len() <= LONGEST_PIECE && self.0.try_send(piece).is_ok()
    }
}

fn carry(user: &OwnedFd, target: &Target, report: &impl Fn(Typed)) {
    let mut signalled = false;
    typing::follow(user, |bytes| {
        let written = match target {
            Target::Pipe(pipe) => write_all(pipe.as_fd(), bytes),
            Target::Terminal(master) if terminal::is_raw() => {
                type_in(master, bytes, &mut signalled, report)
            }
            Target::Terminal(master) => write_all(master.as_fd(), bytes),
        };
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
}

/// Hands bytes to the job's terminal, and reports the keys that mean something to it.
fn type_in(
    master: &OwnedFd,
    bytes: &[u8],
    signalled: &mut bool,
    report: &impl Fn(Typed),
) -> Result<(), Errno> {
    let Some(keys) = Keys::of(master.as_fd()) else {
        return write_all(master.as_fd(), bytes);
    };
    let mut start = 0;
    for (index, byte) in bytes.iter().enumerate() {
        match keys.meaning(*byte) {
            Key::Signal(signal) => {
                *signalled = true;
                report(Typed::Signal(signal));
            }
            // A job under a shell of its own is that shell's to suspend.
            Key::Suspend if terminal::leader_is_foreground(master.as_fd()) => {
                write_all(master.as_fd(), &bytes[start..index])?;
                start = index + 1;
                report(Typed::Suspend);
            }
            Key::Suspend => {}
            Key::Plain => {
                if std::mem::replace(signalled, false) {
                    report(Typed::Text);
                }
            }
        }
    }
    write_all(master.as_fd(), &bytes[start..])
}
