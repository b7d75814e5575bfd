//! Signals to a command that has something to clean up.

use crate::bucket::GiveUp;
use crate::failure::Failure;
use crate::session::signals::{is_caught, is_ignored};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use signal_hook::SigId;
use signal_hook::flag::register_usize;
use signal_hook::low_level::unregister;
use std::fmt::{self, Debug, Formatter};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Signals that are held up until something watches for them: then they come.
#[derive(Clone, Default)]
pub struct Held(Arc<Mutex<Option<Interrupts>>>);

impl Held {
    /// These. The last one of all clones lets them come, too.
    pub fn of(interrupts: Interrupts) -> Self {
        Self(Arc::new(Mutex::new(Some(interrupts))))
    }

    /// Lets them come. To be called on the thread that has held them up.
    pub fn release(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// The number of one that has come while they were held up.
    pub fn came(&self) -> Option<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.came()
    }
}

impl Debug for Held {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str("Held")
    }
}

/// The signals that would end the process. While it lives they do nothing but wait in it.
pub struct Interrupts {
    waiting: SignalFd,
    /// What was held up before.
    before: SigSet,
    elsewhere: Elsewhere,
}

/// What comes to other threads. Those that a job's session has left do not hold up what it has watched for.
#[derive(Default)]
struct Elsewhere {
    /// The number of the last one; 0: none has come.
    last: Arc<AtomicUsize>,
    handlers: Vec<SigId>,
}

impl Elsewhere {
    /// Learns of those of the signals that have a handler.
    fn watch(signals: &SigSet) -> io::Result<Self> {
        let mut own = Self::default();
        for signal in signals.iter().map(|signal| signal as i32) {
            if is_caught(signal) {
                let number = usize::try_from(signal).unwrap_or_default();
                own.handlers.push(register_usize(signal, own.last.clone(), number)?);
            }
        }
        Ok(own)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            unregister(handler);
        }
    }
}

impl Interrupts {
    /// Holds them up from now on, but those that the process was started with as ignored (nohup, or a shell's background).
    /// To be called while the process has one thread.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn hold() -> Result<Self, Failure> {
        Self::hold_also(None)
    }

    /// The same, and another one, ignored or not: it was asked for.
    ///
    /// # Errors
    /// As [`hold`](Self::hold).
    pub fn hold_also(other: Option<Signal>) -> Result<Self, Failure> {
        let mut set = SigSet::empty();
        let usual = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
        let usual = usual.into_iter().filter(|signal| !is_ignored(*signal as i32));
        for signal in usual.chain(other) {
            set.add(signal);
        }
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let before = SigSet::thread_get_mask();
        let waiting = set.thread_block().and_then(|()| SignalFd::with_flags(&set, flags));
        // Held up only so that a write beyond `ulimit -f` fails with EFBIG instead of ending the process.
        let waiting = waiting.and_then(|waiting| of_limits().thread_block().map(|()| waiting));
        let held = waiting.and_then(|waiting| before.map(|before| (waiting, before)));
        let (waiting, before) = held.map_err(|errno| Failure::of("hold signals up", errno))?;
        let elsewhere = Elsewhere::watch(&set);
        let elsewhere = elsewhere.map_err(|error| Failure::of("watch for signals", error))?;
        Ok(Self { waiting, before, elsewhere })
    }

    /// Starts a program, to which nothing is held up: it would inherit that.
    ///
    /// # Errors
    /// As [`Command::spawn`]; where the kernel refuses.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        Self::spawn_with(self.before, command)
    }

    /// The same, but one signal never comes to it.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    pub fn spawn_without(&self, signal: Signal, command: &mut Command) -> io::Result<Child> {
        let mut mask = self.before;
        mask.add(signal);
        Self::spawn_with(mask, command)
    }

    /// Starts a program with these signals blocked and no others.
    ///
    /// # Errors
    /// Where it can't be started.
    pub fn spawn_with(mask: SigSet, command: &mut Command) -> io::Result<Child> {
        let held = mask.thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let child = command.spawn();
        held.thread_set_mask()?;
        child
    }

    /// The number of one that has come.
    pub fn came(&mut self) -> Option<u8> {
        let waiting = self.waiting.read_signal().ok().flatten();
        if let Some(info) = waiting {
            return u8::try_from(info.ssi_signo).ok();
        }
        let last = self.elsewhere.last.swap(0, Ordering::AcqRel);
        u8::try_from(last).ok().filter(|number| *number != 0)
    }

    /// For what waits for a network: it is given up once a signal has come, which stays to be taken by
    /// [`came`](Self::came).
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn give_up(&self) -> io::Result<GiveUp> {
        let waiting = self.waiting.as_fd().try_clone_to_owned()?;
        let last = self.elsewhere.last.clone();
        Ok(GiveUp::when(move || {
            if last.load(Ordering::Acquire) != 0 {
                return true;
            }
            let mut waiting = [PollFd::new(waiting.as_fd(), PollFlags::POLLIN)];
            poll(&mut waiting, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
        }))
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

fn of_limits() -> SigSet {
    let mut limit = SigSet::empty();
    limit.add(Signal::SIGXFSZ);
    limit
}

/// What comes after it may be a job, which signals are to reach. That a file was too large has been told by then.
impl Drop for Interrupts {
    fn drop(&mut self) {
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        if let Ok(told) = SignalFd::with_flags(&of_limits(), flags) {
            while let Ok(Some(_)) = told.read_signal() {}
        }
        let _ = self.before.thread_set_mask();
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
