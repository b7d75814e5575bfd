//! What the user types or pipes in, read by a thread.

use super::foreground::Typed;
use crate::session::terminal;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::unistd::read;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::sync::mpsc;

/// How often a process in the background looks whether it is in the foreground by now.
const BACKGROUND_RETRY: Duration = Duration::from_millis(200);

/// How often the foreground is looked at while nothing is typed, in milliseconds.
const IDLE_MS: u16 = 1000;

/// The key that suspends, on every terminal that was not told otherwise: Ctrl-Z.
const SUSPEND: u8 = 0x1a;

/// Begins to read. The thread ends with the user's input, or with the process.
///
/// # Errors
/// Where there are no threads left.
pub fn start(typed: mpsc::Sender<Typed>) -> io::Result<()> {
    let user = io::stdin().as_fd().try_clone_to_owned()?;
    std::thread::Builder::new()
        .name("input".to_owned())
        .spawn(move || carry(&user, &typed))
        .map(drop)
}

fn carry(user: &OwnedFd, typed: &mpsc::Sender<Typed>) {
    let from_terminal = terminal::is_terminal(user);
    let mut buffer = vec![0; 16 * 1024];
    loop {
        // Reading a terminal from the background would stop this process (SIGTTIN).
        if from_terminal && !terminal::is_foreground(user) {
            std::thread::sleep(BACKGROUND_RETRY);
            continue;
        }
        let mut streams = [PollFd::new(user.as_fd(), PollFlags::POLLIN)];
        match poll(&mut streams, IDLE_MS) {
            Ok(ready) if ready > 0 => {}
            _ => continue,
        }
        let hung_up = streams[0].revents().is_some_and(|found| found.contains(PollFlags::POLLHUP));
        if from_terminal && hung_up {
            // The terminal is gone, which is no end of input: the job runs on.
            return;
        }
        let sent = match read(user, &mut buffer) {
            Ok(length) => type_in(&buffer[..length], typed),
            Err(Errno::EINTR | Errno::EAGAIN) => continue,
            Err(_) => return,
        };
        if !sent {
            return;
        }
    }
}

/// Hands bytes on; none of them: the end. False where there is nothing more to do.
fn type_in(bytes: &[u8], typed: &mpsc::Sender<Typed>) -> bool {
    let send = |typed_now| typed.blocking_send(typed_now).is_ok();
    if bytes.is_empty() {
        send(Typed::Bytes(Vec::new()));
        return false;
    }
    if !terminal::is_raw() {
        return send(Typed::Bytes(bytes.to_vec()));
    }
    let mut parts = bytes.split(|byte| *byte == SUSPEND).peekable();
    while let Some(part) = parts.next() {
        if !part.is_empty() && !send(Typed::Bytes(part.to_vec())) {
            return false;
        }
        if parts.peek().is_some() && !send(Typed::Suspend) {
            return false;
        }
    }
    true
}
