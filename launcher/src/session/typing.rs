//! Reading what the user types or pipes in.

use super::terminal;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::unistd::read;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// How often a process in the background looks whether it is in the foreground by now.
const BACKGROUND_RETRY: Duration = Duration::from_millis(200);

/// How often the foreground is looked at while nothing is typed, in milliseconds.
const IDLE_MS: u16 = 1000;

/// Gives `take` what comes from the user, and then no bytes for the end of it; returns after that, when `take` wants no
/// more, or when the user's terminal is gone, which is no end of input.
pub fn follow(user: &OwnedFd, mut take: impl FnMut(&[u8]) -> ControlFlow<()>) {
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
            return;
        }
        let length = match read(user, &mut buffer) {
            Ok(length) => length,
            Err(Errno::EINTR | Errno::EAGAIN) => continue,
            Err(_) => return,
        };
        if take(&buffer[..length]).is_break() || length == 0 {
            return;
        }
    }
}
