//! The job's own streams, on the node where its first process is: output to the coordinator, numbered,
//! and kept until the coordinator has it in the job's log; input to the job.

mod input;
mod outbox;

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::time::Duration;

use ckpt_node::{ConsoleOrder, ConsoleReport, End, Keeps};
use nix::errno::Errno;
use protocol::cluster::agent::{RelaySide, Stream};
use protocol::launch::{Console, WindowSize};
use protocol::task;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use self::input::Input;
use self::outbox::Outbox;
use super::native::Native;
use ckpt_engine::sys::tty;

/// The longest piece that is sent.
const PIECE: usize = 64 * 1024;
/// The most that one drain may find: far more than pipes and a terminal hold.
const MOST_DRAINED: usize = 64 * 1024 * 1024;
/// A terminal's output takes this long at most from the job's write to our read: the kernel hands it
/// over in a work queue (drivers/tty/tty_buffer.c).
const TERMINAL_DELAY: Duration = Duration::from_millis(1);
/// How often a terminal that nobody has open is looked at again.
const HUNG_UP_RETRY: Duration = Duration::from_millis(100);

/// What the console's task is told.
#[derive(Debug)]
enum Task {
    /// An order of the node.
    Order(ConsoleOrder),
    /// One more pipe with output of the job, which a relay fills.
    Source(RelaySide, OwnedFd),
}

/// A console that is carried by a task. Dropped, it ends.
#[derive(Debug)]
pub struct ConsoleHandle {
    tasks: UnboundedSender<Task>,
}

impl ConsoleHandle {
    /// Gives an order.
    pub fn order(&self, order: ConsoleOrder) {
        // A task that has ended has nothing more to do.
        let _ = self.tasks.send(Task::Order(order));
    }

    /// Takes output of the job out of one more pipe, which a relay fills.
    pub fn source(&self, side: RelaySide, pipe: OwnedFd) {
        let _ = self.tasks.send(Task::Source(side, pipe));
    }

    /// Gives an order once something else has been done.
    pub fn order_after(
        &self,
        first: impl Future<Output = ()> + Send + 'static,
        order: ConsoleOrder,
    ) {
        let tasks = self.tasks.clone();
        task::spawn(async move {
            first.await;
            let _ = tasks.send(Task::Order(order));
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
    /// Orders to read everything that came before that was known.
    waiting: Vec<ConsoleOrder>,
    report: R,
    buffer: Vec<u8>,
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
    let (tasks, inbox) = unbounded_channel();
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
        waiting: Vec::new(),
        report,
        buffer: vec![0; PIECE],
    };
    task::spawn(carrier.carry(inbox));
    Ok(Some(ConsoleHandle { tasks }))
}

impl<R: Fn(ConsoleReport) + Send + Sync> Carrier<R> {
    async fn carry(mut self, mut inbox: UnboundedReceiver<Task>) {
        loop {
            let has_room = self.begun && self.outbox.has_room();
            let hung_up = self.sources.iter().any(|source| source.hung_up);
            tokio::select! {
                biased;
                task = inbox.recv() => match task {
                    Some(Task::Order(order)) => self.obey(order).await,
                    Some(Task::Source(side, pipe)) => self.add_source(side, pipe),
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
                for order in std::mem::take(&mut self.waiting) {
                    self.read_all(order).await;
                }
            }
            ConsoleOrder::Kept(offset) => self.outbox.kept(offset),
            ConsoleOrder::SendAgain => {
                for (offset, stream, bytes) in self.outbox.unkept() {
                    let bytes = bytes.to_vec();
                    (self.report)(ConsoleReport::Piece { offset, stream, bytes });
                }
                if self.keeps && self.begun {
                    // A coordinator that has less than was kept by the one before learns of that though nothing more comes.
                    let (offset, stream) = (self.outbox.offset(), Stream::Output);
                    (self.report)(ConsoleReport::Piece { offset, stream, bytes: Vec::new() });
                }
            }
            // What is read has no place in the job's log yet.
            ConsoleOrder::Drain { .. } | ConsoleOrder::Flush if !self.begun => {
                self.waiting.push(order);
            }
            ConsoleOrder::Drain { .. } | ConsoleOrder::Flush => self.read_all(order).await,
            ConsoleOrder::Release => self.input.release(),
            ConsoleOrder::Input(bytes) => self.input.put(&bytes),
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

    /// Reads until everything is empty, and reports that.
    async fn read_all(&mut self, order: ConsoleOrder) {
        match order {
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
            _ => {
                self.drain().await;
                (self.report)(ConsoleReport::Flushed);
            }
        }
    }

    fn add_source(&mut self, side: RelaySide, pipe: OwnedFd) {
        match Native::own(pipe) {
            Ok(native) => self.sources.push(Source {
                native,
                stream: Stream::Output,
                end: End::Relay(side),
                hung_up: false,
                plain: true,
            }),
            Err(error) => tracing::warn!(relay = side.relay, %error, "its output is lost"),
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

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::{pipe, write};
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_secs(10);

    /// A job has ended while no agent was there: its last words come behind those that are in its log.
    #[tokio::test]
    async fn nothing_is_read_before_its_place_is_known() {
        let (stdout, job) = pipe().unwrap();
        write(&job, b"last words\n").unwrap();
        let (reports, mut told) = unbounded_channel();
        let console = Console { stdout: Some(stdout), ..Console::default() };
        let report = move |report| reports.send(report).unwrap();
        let console = start(console, Keeps::Continued, report).unwrap().unwrap();
        console.order(ConsoleOrder::SendAgain);
        console.order(ConsoleOrder::Flush);
        console.order(ConsoleOrder::Kept(100));
        let piece = timeout(SOON, told.recv()).await.unwrap();
        let (stream, bytes) = (Stream::Output, b"last words\n".to_vec());
        assert_eq!(piece, Some(ConsoleReport::Piece { offset: 100, stream, bytes }));
        assert_eq!(timeout(SOON, told.recv()).await.unwrap(), Some(ConsoleReport::Flushed));
    }
}
