//! The agent's end of the link to a remote shell.

use std::sync::Arc;

use ckpt_engine::split::standin::Message;
use protocol::agent::ExitKind;

use crate::driver::native::Native;

/// The way to the remote shell that started an instance.
#[derive(Debug)]
pub struct ShellEnd {
    link: Arc<Native>,
}

impl ShellEnd {
    /// Over that link.
    pub fn new(link: Arc<Native>) -> Self {
        Self { link }
    }

    /// Tells it how the first process ended; nothing follows.
    pub fn ended(self, kind: ExitKind) {
        // As wait(2) encodes it.
        let status = match kind {
            ExitKind::Exited(status) => i32::from(status) << 8,
            ExitKind::Signalled(signal) => signal & 0x7f,
        };
        // The first message on this link: there is room, unless nobody listens any more.
        let _ = self.link.try_write(&Message::Ended { status }.encode());
        self.link.end_writing();
    }
}
