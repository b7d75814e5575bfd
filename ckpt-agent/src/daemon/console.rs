//! The job's own streams, on the node where its first process is: output to the coordinator, numbered,
//! and kept until the coordinator has it in the job's log; input to the job.

mod input;
mod outbox;

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::errno::Errno;
use protocol::agent::CheckpointNumber;
use protocol::cluster::agent::{RelaySide, Stream};
use protocol::launch::{Console, WindowSize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use self::input::Input;
use self::outbox::Outbox;
use super::control::End;
use super::native::Native;
use crate::engine::sys::tty;

/// The longest piece that is sent.
const PIECE: usize = 64 * 1024;
/// The most that one drain may find: far more than pipes and a terminal hold.
const MOST_DRAINED: usize = 64 * 1024 * 1024;
/// A terminal's output takes this long at most from the job's write to our read: the kernel hands it
/// over in a work queue (drivers/tty/tty_buffer.c).
const TERMINAL_DELAY: Duration = Duration::from_millis(1);
/// How often a terminal that nobody has open is looked at again.
const HUNG_UP_RETRY: Duration = Duration::from_millis(100);

/// What the console is told.
#[derive(Debug)]
pub enum ConsoleOrder {
    /// So many bytes are in the job's log.
    Kept(u64),
    /// There is a new connection: everything that is not known to be kept is sent again.
    SendAgain,
    /// Read until it is empty, with the job standing still.
    Drain {
        /// What for.
        checkpoint: CheckpointNumber,
        /// The job is to go on elsewhere: what it has not got of its input is reported, and kept from it.
        parks: bool,
    },
    /// The job has been let go after all: it gets its input.
    Release,
    /// Read until it is empty; the job's first process has ended.
    Flush,
    /// For the job; empty: the end.
    Input(Vec<u8>),
    /// The terminal's size.
    Resize(WindowSize),
    /// One more pipe with output of the job, which a relay fills.
    Source(RelaySide, OwnedFd),
}

/// What the console reports.
#[derive(Debug, PartialEq, Eq)]
pub enum ConsoleReport {
    /// A piece of output.
    Piece {
        /// Bytes before it.
        offset: u64,
        /// Which stream.
        stream: Stream,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Input that the job has not got, and whether its end follows.
    Left {
        /// What for.
        checkpoint: CheckpointNumber,
        /// The bytes.
        bytes: Vec<u8>,
        /// Whether the end follows.
        ended: bool,
    },
    /// It was empty after so many bytes.
    Drained {
        /// What for.
        checkpoint: CheckpointNumber,
        /// The bytes.
        offset: u64,
    },
    /// All output of the first process is out.
    Flushed,
    /// An end was closed here.
    Closed(End),
}

/// A console that is carried by a task. Dropped, it ends.
#[derive(Debug)]
pub struct ConsoleHandle {
    orders: UnboundedSender<ConsoleOrder>,
}

impl ConsoleHandle {
    /// Gives an order.
    pub fn order(&self, order: ConsoleOrder) {
        // A task that has ended has nothing more to do.
        let _ = self.orders.send(order);
    }

    /// Gives an order once something else has been done.
    pub fn order_after(
        &self,
        first: impl Future<Output = ()> + Send + 'static,
        order: ConsoleOrder,
    ) {
        let orders = self.orders.clone();
        tokio::spawn(async move {
            first.await;
            let _ = orders.send(order);
        });
    }
}

struct Source {
    native: Native,
    stream: Stream,
    end: End,
    hung_up: bool,
    /// Ends of lines are as a program writes them, not as a terminal shows them.
    plain: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Found {
    Bytes(usize),
    Nothing,
    End,
}

struct Carrier<R> {
    sources: Vec<Source>,
    input: Input,
    terminal: Option<OwnedFd>,
    outbox: Outbox,
    keeps: bool,
    /// Whether it is known how much came before this agent: nothing is read until then.
    begun: bool,
    report: R,
    buffer: Vec<u8>,
}

/// What becomes of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// It goes nowhere: nobody listens, but the job must be able to write.
    Nothing,
    /// All of it is sent, from offset 0 on.
    All,
    /// As much as [`ConsoleOrder::Kept`] first tells came before, through an agent that has gone.
    Continued,
}

/// Begins to carry; None where there is nothing.
///
/// # Errors
/// No descriptors left.
pub fn start(
    console: Console,
    keeps: Keeps,
    report: impl Fn(ConsoleReport) + Send + Sync + 'static,
) -> io::Result<Option<ConsoleHandle>> {
    let Console { terminal, stdin, stdout, stderr } = &console;
    if [terminal, stdin, stdout, stderr].iter().all(|stream| stream.is_none()) {
        return Ok(None);
    }
    let (orders, inbox) = unbounded_channel();
    let terminal = console.terminal.as_ref().map(OwnedFd::try_clone).transpose()?;
    let for_input = match (&console.terminal, console.stdin) {
        (_, Some(stdin)) => Some((stdin, End::Stdin)),
        (Some(master), None) => Some((master.try_clone()?, End::Terminal)),
        (None, None) => None,
    };
    let mut sources = Vec::new();
    for (fd, stream, end) in [
        (console.terminal, Stream::Output, End::Terminal),
        (console.stdout, Stream::Output, End::Stdout),
        (console.stderr, Stream::Error, End::Stderr),
    ] {
        if let Some(fd) = fd {
            let native = Native::own(fd)?;
            sources.push(Source { native, stream, end, hung_up: false, plain: false });
        }
    }
    let input = Input::new(for_input)?;
    let carrier = Carrier {
        sources,
        input,
        terminal,
        outbox: Outbox::default(),
        keeps: keeps != Keeps::Nothing,
        begun: keeps != Keeps::Continued,
        report,
        buffer: vec![0; PIECE],
    };
    tokio::spawn(carrier.carry(inbox));
    Ok(Some(ConsoleHandle { orders }))
}

impl<R: Fn(ConsoleReport) + Send + Sync> Carrier<R> {
    async fn carry(mut self, mut inbox: UnboundedReceiver<ConsoleOrder>) {
        loop {
            let has_room = self.begun && self.outbox.has_room();
            let hung_up = self.sources.iter().any(|source| source.hung_up);
            tokio::select! {
                biased;
                order = inbox.recv() => match order {
                    Some(order) => self.obey(order).await,
                    None => return,
                },
                index = ready(&self.sources), if has_room => self.read_or_drop(index),
                () = sleep(HUNG_UP_RETRY), if hung_up => {
                    self.sources.iter_mut().for_each(|source| source.hung_up = false);
                }
                closed = self.input.pump() => {
                    if let Some(end) = closed {
                        (self.report)(ConsoleReport::Closed(end));
                    }
                }
            }
        }
    }

    async fn obey(&mut self, order: ConsoleOrder) {
        match order {
            ConsoleOrder::Kept(offset) if !self.begun => {
                self.outbox.begin_at(offset);
                self.begun = true;
            }
            ConsoleOrder::Kept(offset) => self.outbox.kept(offset),
            ConsoleOrder::SendAgain => {
                for (offset, stream, bytes) in self.outbox.unkept() {
                    let bytes = bytes.to_vec();
                    (self.report)(ConsoleReport::Piece { offset, stream, bytes });
                }
            }
            ConsoleOrder::Drain { checkpoint, parks } => {
                if parks {
                    let (bytes, ended) = self.input.hold();
                    if ended || !bytes.is_empty() {
                        (self.report)(ConsoleReport::Left { checkpoint, bytes, ended });
                    }
                }
                self.drain().await;
                let offset = self.outbox.offset();
                (self.report)(ConsoleReport::Drained { checkpoint, offset });
            }
            ConsoleOrder::Release => self.input.release(),
            ConsoleOrder::Flush => {
                self.drain().await;
                (self.report)(ConsoleReport::Flushed);
            }
            ConsoleOrder::Input(bytes) => self.input.put(&bytes),
            ConsoleOrder::Source(side, fd) => match Native::own(fd) {
                Ok(native) => self.sources.push(Source {
                    native,
                    stream: Stream::Output,
                    end: End::Relay(side),
                    hung_up: false,
                    plain: true,
                }),
                Err(error) => tracing::warn!(relay = side.relay, %error, "its output is lost"),
            },
            ConsoleOrder::Resize(window) => {
                if let Some(terminal) = &self.terminal {
                    let WindowSize { rows, columns, x_pixels, y_pixels } = window;
                    let size = tty::WindowSize { rows, columns, width: x_pixels, height: y_pixels };
                    // It may just have been closed by its job.
                    let _ = tty::set_window_size(terminal, size);
                }
            }
        }
    }

    fn read_or_drop(&mut self, index: usize) {
        if self.read(index) == Found::End {
            let source = self.sources.remove(index);
            (self.report)(ConsoleReport::Closed(source.end));
        }
    }

    fn read(&mut self, index: usize) -> Found {
        let source = &mut self.sources[index];
        source.hung_up = false;
        match source.native.try_read(&mut self.buffer) {
            Ok(0) => Found::End,
            Ok(length) if !self.keeps => Found::Bytes(length),
            Ok(length) => {
                let bytes = &self.buffer[..length];
                let bytes = match source.plain && self.terminal.is_some() {
                    true => as_shown(bytes),
                    false => bytes.to_vec(),
                };
                let (stream, offset) = (source.stream, self.outbox.offset());
                self.outbox.put(stream, bytes.clone());
                (self.report)(ConsoleReport::Piece { offset, stream, bytes });
                Found::Bytes(length)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Found::Nothing,
            // Nobody has the terminal open; the job may open it again (/dev/tty).
            Err(error)
                if source.end == End::Terminal
                    && error.raw_os_error() == Some(Errno::EIO as i32) =>
            {
                source.hung_up = true;
                Found::Nothing
            }
            Err(_) => Found::End,
        }
    }

    /// Reads every stream until it is empty. The bound on what waits for the coordinator is lifted
    /// meanwhile: what comes is bounded by what pipes and terminals hold.
    async fn drain(&mut self) {
        let mut total = 0;
        for round in 0..2 {
            let mut index = 0;
            while index < self.sources.len() {
                match self.read(index) {
                    Found::Bytes(length) if total < MOST_DRAINED => total += length,
                    Found::End => {
                        let source = self.sources.remove(index);
                        (self.report)(ConsoleReport::Closed(source.end));
                    }
                    Found::Bytes(_) | Found::Nothing => index += 1,
                }
            }
            let delayed = |source: &Source| source.end == End::Terminal && !source.hung_up;
            if round == 0 {
                if !self.sources.iter().any(delayed) {
                    return;
                }
                sleep(TERMINAL_DELAY).await;
            }
        }
    }
}

/// As a terminal's output (termios(3): ONLCR).
fn as_shown(bytes: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    for byte in bytes {
        if *byte == b'\n' {
            shown.push(b'\r');
        }
        shown.push(*byte);
    }
    shown
}

/// Which of the sources has something; waits for ever where there is none.
async fn ready(sources: &[Source]) -> usize {
    std::future::poll_fn(|context| {
        for (index, source) in sources.iter().enumerate() {
            if !source.hung_up && source.native.poll_readable(context) {
                return std::task::Poll::Ready(index);
            }
        }
        std::task::Poll::Pending
    })
    .await
}
