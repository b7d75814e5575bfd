//! Signals to a command that has something to clean up.

use crate::failure::Failure;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

/// The signals that would end the process. While it lives they do nothing but wait in it.
pub struct Interrupts {
    waiting: SignalFd,
}

impl Interrupts {
    /// Holds them up from now on. To be called while the process has one thread.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn hold() -> Result<Self, Failure> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
            set.add(signal);
        }
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let waiting = set.thread_block().and_then(|()| SignalFd::with_flags(&set, flags));
        // Held up only so that a write beyond `ulimit -f` fails with EFBIG instead of ending the process.
        let mut limit = SigSet::empty();
        limit.add(Signal::SIGXFSZ);
        let waiting = waiting.and_then(|waiting| limit.thread_block().map(|()| waiting));
        match waiting {
            Ok(waiting) => Ok(Self { waiting }),
            Err(errno) => Err(Failure::of("hold signals up", errno)),
        }
    }

    /// The number of one that has come.
    pub fn came(&mut self) -> Option<u8> {
        let info = self.waiting.read_signal().ok().flatten()?;
        u8::try_from(info.ssi_signo).ok()
    }

    /// A file whose reading ends with an error when a signal has come: a read from a pipe could wait for
    /// ever, since held signals don't interrupt it.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn reader(&self, file: File) -> io::Result<impl Read + use<>> {
        Ok(Reader { file, waiting: self.waiting.as_fd().try_clone_to_owned()? })
    }
}

struct Reader {
    file: File,
    waiting: OwnedFd,
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut both = [
            PollFd::new(self.file.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.waiting.as_fd(), PollFlags::POLLIN),
        ];
        poll(&mut both, PollTimeout::NONE)?;
        let [_, waiting] = both;
        if waiting.any().unwrap_or(false) {
            return Err(io::Error::other("it was interrupted"));
        }
        self.file.read(into)
    }
}
