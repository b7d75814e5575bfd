//! What the job writes: into its log first, then to the user's own streams.
//!
//! One thread reads all streams of the job, so that the log has an order and a length; one more
//! per stream of the user writes, so that a slow reader of the one does not hold up the other. A
//! stream of the job is not read while too much of it waits for its reader: so the job feels the
//! reader's pace as it would without ckptd. While a checkpoint drains the streams, that bound is
//! lifted; what comes then is bounded by what pipes and terminals hold.

use super::callers::Caller;
use super::joblog::JobLog;
use super::sink::Sink;
use super::terminal;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::read;
use protocol::cluster::agent::Stream;
use protocol::log_times::Origin;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes that may wait for the user's reader before the job's stream is left unread.
const MAX_WAITING: usize = 256 * 1024;

/// The most that one drain may find: far more than pipes and a terminal hold, and a bound on a
/// stranger who writes into them meanwhile.
const MAX_DRAIN: usize = 64 * 1024 * 1024;

/// A terminal's output takes this long at most from the job's write to our read: the kernel hands
/// it over in a work queue (drivers/tty/tty_buffer.c).
const TERMINAL_DELAY: Duration = Duration::from_millis(1);

/// How often a terminal that nobody has open is looked at again, in milliseconds.
const HUNG_UP_RETRY_MS: u16 = 100;

/// What the thread is told.
#[derive(Debug)]
enum Order {
    Drain { checkpoint: u64 },
    Mark(String),
    Say(String),
    Attach { caller: Caller },
    Detach,
    Finish { mark: Option<String> },
}

/// What the thread reports.
#[derive(Debug)]
pub enum Report {
    /// The streams are empty, and this is the log's length.
    Drained {
        /// The checkpoint that it was for.
        checkpoint: u64,
        /// In bytes.
        log_length: u64,
    },
    /// The streams could not be emptied, or the log not be written.
    DrainFailed {
        /// The checkpoint that it was for.
        checkpoint: u64,
        /// Why, in one line.
        reason: String,
    },
    /// The log can't be written; the job's output still reaches the user.
    LogFailed(String),
    /// From here on, output is reported for that caller.
    Attached {
        /// The caller.
        caller: Caller,
        /// The log's length in bytes.
        log_length: u64,
    },
    /// What the job has written, while somebody is attached.
    Written {
        /// Which stream.
        stream: Stream,
        /// The bytes.
        bytes: Vec<u8>,
        /// The log's length behind them.
        log_length: u64,
    },
}

/// The user's streams.
#[derive(Debug)]
pub struct UserOutput {
    /// Standard output.
    pub stdout: OwnedFd,
    /// Standard error.
    pub stderr: OwnedFd,
    /// Where the output of the job's terminal goes.
    pub terminal: OwnedFd,
}

/// The job's streams.
#[derive(Debug, Default)]
pub struct JobOutput {
    /// Master side of its terminal.
    pub terminal: Option<OwnedFd>,
    /// Read end of its standard output.
    pub stdout: Option<OwnedFd>,
    /// Read end of its standard error.
    pub stderr: Option<OwnedFd>,
}

/// The threads that carry the job's output.
#[derive(Debug)]
pub struct Output {
    orders: Sender<Order>,
    wake: Arc<EventFd>,
    thread: JoinHandle<()>,
}

struct Source {
    stream: OwnedFd,
    sink: usize,
    is_terminal: bool,
    hung_up: bool,
}

struct Carrier<R> {
    sources: Vec<Source>,
    sinks: Vec<Sink>,
    /// The sink of what ckptd itself says.
    own_sink: usize,
    own_is_terminal: bool,
    at_line_start: bool,
    log: JobLog,
    log_failed: bool,
    /// Callers for whom output is reported.
    attached: usize,
    report: R,
    buffer: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum Found {
    Bytes(usize),
    Nothing,
    End,
}

impl Output {
    /// Begins to carry.
    ///
    /// # Errors
    /// Where the kernel has no descriptors or threads left.
    pub fn start(
        job: JobOutput,
        user: UserOutput,
        log: JobLog,
        report: impl Fn(Report) + Send + 'static,
    ) -> std::io::Result<Self> {
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let (orders, receiver) = channel();
        let mut sources = Vec::new();
        for (stream, sink, is_terminal) in
            [(job.stdout, 0, false), (job.stderr, 1, false), (job.terminal, 2, true)]
        {
            if let Some(stream) = stream {
                // The launcher's ends are nobody else's, so their flags are free to be set.
                let flags = OFlag::from_bits_truncate(fcntl(&stream, FcntlArg::F_GETFL)?);
                fcntl(&stream, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
                sources.push(Source { stream, sink, is_terminal, hung_up: false });
            }
        }
        let own_is_terminal = terminal::is_terminal(&user.stderr);
        let has_terminal = sources.iter().any(|source| source.is_terminal);
        let sinks = vec![
            Sink::start(user.stdout, wake.clone())?,
            Sink::start(user.stderr, wake.clone())?,
            Sink::start(user.terminal, wake.clone())?,
        ];
        let carrier = Carrier {
            sources,
            sinks,
            own_sink: if own_is_terminal && has_terminal { 2 } else { 1 },
            own_is_terminal,
            at_line_start: true,
            log,
            log_failed: false,
            attached: 0,
            report,
            buffer: vec![0; 64 * 1024],
        };
        let thread = std::thread::Builder::new().name("output".to_owned()).spawn({
            let wake = wake.clone();
            move || carrier.carry(&receiver, &wake)
        })?;
        Ok(Self { orders, wake, thread })
    }

    fn order(&self, order: Order) {
        // A thread that has ended has nothing to be told.
        let _ = self.orders.send(order);
        let _ = self.wake.write(1);
    }

    /// Empties the streams into the log, and reports.
    pub fn drain(&self, checkpoint: u64) {
        self.order(Order::Drain { checkpoint });
    }

    /// Puts a mark into the log.
    pub fn mark(&self, text: String) {
        self.order(Order::Mark(text));
    }

    /// Says something to the user, on a line of its own.
    pub fn say(&self, text: String) {
        self.order(Order::Say(text));
    }

    /// Begins to report what the job writes, for one more caller.
    pub fn attach(&self, caller: Caller) {
        self.order(Order::Attach { caller });
    }

    /// A caller less wants it.
    pub fn detach(&self) {
        self.order(Order::Detach);
    }

    /// Carries what is left in the streams, puts a last mark into the log, and ends; blocks until
    /// the user's readers have all.
    pub fn finish(self, mark: Option<String>) {
        self.order(Order::Finish { mark });
        let _ = self.thread.join();
    }
}

impl<R: Fn(Report)> Carrier<R> {
    fn carry(mut self, orders: &Receiver<Order>, wake: &EventFd) {
        loop {
            self.wait(wake);
            let _ = wake.read();
            loop {
                match orders.try_recv() {
                    Ok(Order::Drain { checkpoint }) => self.drain_for(checkpoint),
                    Ok(Order::Mark(text)) => {
                        let written = self.log.mark(&text);
                        self.note_log(written);
                    }
                    Ok(Order::Say(text)) => self.say(&text),
                    Ok(Order::Attach { caller }) => {
                        self.attached += 1;
                        let log_length = self.log.length();
                        (self.report)(Report::Attached { caller, log_length });
                    }
                    Ok(Order::Detach) => self.attached = self.attached.saturating_sub(1),
                    Ok(Order::Finish { mark }) => return self.end(mark),
                    Err(TryRecvError::Disconnected) => return self.end(None),
                    Err(TryRecvError::Empty) => break,
                }
            }
            for index in (0..self.sources.len()).rev() {
                let sink = &self.sinks[self.sources[index].sink];
                if sink.is_broken() && !self.sources[index].is_terminal {
                    // So that the job gets SIGPIPE, as it would without ckptd.
                    self.sources.remove(index);
                } else if sink.waiting() < MAX_WAITING && self.read(index) == Found::End {
                    self.sources.remove(index);
                }
            }
        }
    }

    fn end(mut self, mark: Option<String>) {
        self.drain();
        if let Some(mark) = mark {
            let written = self.log.mark(&mark);
            self.note_log(written);
        }
        for sink in self.sinks {
            sink.finish();
        }
    }

    fn wait(&self, wake: &EventFd) {
        let mut streams = vec![PollFd::new(wake.as_fd(), PollFlags::POLLIN)];
        let mut timeout = PollTimeout::NONE;
        for source in &self.sources {
            if source.hung_up {
                timeout = HUNG_UP_RETRY_MS.into();
            } else if self.sinks[source.sink].waiting() < MAX_WAITING {
                streams.push(PollFd::new(source.stream.as_fd(), PollFlags::POLLIN));
            }
        }
        // EINTR and the like only make the round come earlier.
        let _ = poll(&mut streams, timeout);
    }

    fn read(&mut self, index: usize) -> Found {
        let source = &mut self.sources[index];
        let found = loop {
            match read(&source.stream, &mut self.buffer) {
                Err(Errno::EINTR) => {}
                other => break other,
            }
        };
        source.hung_up = false;
        match found {
            Ok(0) => Found::End,
            Ok(length) => {
                let sink = source.sink;
                self.deliver(sink, length);
                Found::Bytes(length)
            }
            Err(Errno::EAGAIN) => Found::Nothing,
            // Nobody has the terminal open; the job may open it again (/dev/tty).
            Err(Errno::EIO) if source.is_terminal => {
                source.hung_up = true;
                Found::Nothing
            }
            Err(_) => Found::End,
        }
    }

    fn deliver(&mut self, sink: usize, length: usize) {
        let bytes = &self.buffer[..length];
        let origin = if sink == 1 { Origin::Error } else { Origin::Output };
        let written = self.log.append(bytes, origin);
        if sink == self.own_sink || self.own_is_terminal {
            self.at_line_start = bytes.last() == Some(&b'\n');
        }
        self.sinks[sink].put(bytes.to_vec());
        if self.attached > 0 {
            let stream = if sink == 1 { Stream::Error } else { Stream::Output };
            let (bytes, log_length) = (bytes.to_vec(), self.log.length());
            (self.report)(Report::Written { stream, bytes, log_length });
        }
        self.note_log(written);
    }

    fn note_log(&mut self, written: std::io::Result<()>) {
        if let Err(error) = written {
            if !std::mem::replace(&mut self.log_failed, true) {
                (self.report)(Report::LogFailed(format!(
                    "the job's log can't be written: {error}"
                )));
            }
        } else {
            self.log_failed = false;
        }
    }

    /// Reads every stream until it is empty.
    fn drain(&mut self) {
        let mut total = 0;
        for round in 0..2 {
            let mut index = 0;
            while index < self.sources.len() {
                match self.read(index) {
                    Found::Bytes(length) if total < MAX_DRAIN => total += length,
                    Found::End => {
                        self.sources.remove(index);
                    }
                    Found::Bytes(_) | Found::Nothing => index += 1,
                }
            }
            if round == 0 {
                if !self.sources.iter().any(|source| source.is_terminal && !source.hung_up) {
                    break;
                }
                std::thread::sleep(TERMINAL_DELAY);
            }
        }
    }

    fn drain_for(&mut self, checkpoint: u64) {
        self.drain();
        (self.report)(if self.log_failed {
            let reason = "the job's log can't be written; make room on its disk".to_owned();
            Report::DrainFailed { checkpoint, reason }
        } else {
            Report::Drained { checkpoint, log_length: self.log.length() }
        });
    }

    fn say(&mut self, text: &str) {
        let end = if terminal::is_raw() { "\r\n" } else { "\n" };
        let start = if self.own_is_terminal && !self.at_line_start { end } else { "" };
        self.at_line_start = true;
        self.sinks[self.own_sink].put(format!("{start}ckptd: {text}{end}").into_bytes());
    }
}
