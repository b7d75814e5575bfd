//! What the user types or pipes in, read by a thread.

use crate::session::{terminal, typing};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use tokio::sync::mpsc;

/// The key that suspends, on every terminal that was not told otherwise: Ctrl-Z.
const SUSPEND: u8 = 0x1a;

/// What the input thread reports.
#[derive(Debug)]
pub(super) enum Typed {
    /// Bytes; none: the end.
    Bytes(Vec<u8>),
    /// The key that suspends.
    Suspend,
}

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
    typing::follow(user, |bytes| match type_in(bytes, typed) {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    });
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
