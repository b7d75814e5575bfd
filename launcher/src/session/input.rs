//! What the user types or pipes in, carried to the job by a thread.

use super::sink::write_all;
use super::terminal::{self, Key, Keys};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::unistd::read;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// How often a process in the background looks whether it is in the foreground by now.
const BACKGROUND_RETRY: Duration = Duration::from_millis(200);

/// How often the foreground is looked at while nothing is typed, in milliseconds.
const IDLE_MS: u16 = 1000;

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
        .spawn(move || carry(&user, target, &report))
        .map(drop)
}

fn carry(user: &OwnedFd, target: Target, report: &impl Fn(Typed)) {
    let from_terminal = terminal::is_terminal(user);
    let mut signalled = false;
    let mut buffer = vec![0; 16 * 1024];
    loop {
        // Reading a terminal from the background would stop this process (SIGTTIN).
        if from_terminal && !terminal::is_foreground(user) {
            std::thread::sleep(BACKGROUND_RETRY);
            continue;
        }
        if !is_ready(user, &target) {
            continue;
        }
        let length = match read(user, &mut buffer) {
            // End of input: the pipe is closed with `target`.
            Ok(0) => return,
            Ok(length) => length,
            Err(Errno::EINTR | Errno::EAGAIN) => continue,
            Err(_) => return,
        };
        let bytes = &buffer[..length];
        let written = match &target {
            Target::Pipe(pipe) => write_all(pipe.as_fd(), bytes),
            Target::Terminal(master) if terminal::is_raw() => {
                type_in(master, bytes, &mut signalled, report)
            }
            Target::Terminal(master) => write_all(master.as_fd(), bytes),
        };
        if written.is_err() {
            return;
        }
    }
}

/// Waits for input; false where there is none yet. A job that has closed its standard input ends
/// the wait too: the next write tells.
fn is_ready(user: &OwnedFd, target: &Target) -> bool {
    let mut streams = vec![PollFd::new(user.as_fd(), PollFlags::POLLIN)];
    if let Target::Pipe(pipe) = target {
        streams.push(PollFd::new(pipe.as_fd(), PollFlags::empty()));
    }
    match poll(&mut streams, IDLE_MS) {
        Ok(ready) if ready > 0 => {
            let user_ready = streams[0].any().unwrap_or(false);
            if !user_ready {
                // Only the job's end: nothing is to be read for it, and nothing is lost.
                std::thread::sleep(BACKGROUND_RETRY);
            }
            user_ready
        }
        _ => false,
    }
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
