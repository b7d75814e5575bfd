//! Bytes on their way through a pseudoterminal. There is no peeking: what is read is put back at
//! once, with the processing switched off that it has already gone through
//! (drivers/tty/n_tty.c).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::super::super::error::{EngineError, Refusal, Result};
use super::super::super::sys::poll::poll_one;
use super::super::super::sys::sockopt;
use super::super::super::sys::tty;
use super::full::{self, FRONT};
use super::{LineEnd, status};

/// A pair buffers some 20 KiB each way; more means that somebody writes.
const MOST_BYTES: usize = 1 << 20;
/// Limit for putting bytes back: the kernel moves them between its buffers in the background.
const LIMIT: Duration = Duration::from_secs(2);
/// For input to be looked at by the kernel, where nothing tells that it was.
const SETTLE: Duration = Duration::from_millis(10);
/// Read at once.
const PIECE: usize = 16 * 1024;

/// What a pair holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Buffered {
    /// From the slave to the master.
    pub(super) output: Vec<u8>,
    /// From the master to the slave.
    pub(super) input: Vec<(Vec<u8>, LineEnd)>,
    /// Output is stopped.
    pub(super) stopped: bool,
    /// By tcflow(3) rather than ^S, so that only tcflow starts it again.
    pub(super) stopped_by_call: bool,
    /// What the master writes is stopped, by tcflow(3) on the master.
    pub(super) input_stopped: bool,
    /// The slave has been open and is closed.
    pub(super) slave_closed: bool,
    /// What the master is told next in packet mode.
    pub(super) status: u8,
}

fn system(call: &'static str, error: impl Into<io::Error>) -> EngineError {
    EngineError::system(call, "a pseudoterminal", error)
}

/// Reads everything that a pair holds and puts it back, with nobody else touching the pair.
///
/// `slave` is a description of the slave's side that the job has open, if there is one.
///
/// # Errors
/// Failed system calls; whatever had been read is put back first.
pub(super) fn take_and_put_back(
    master: BorrowedFd<'_>,
    slave: Option<BorrowedFd<'_>>,
    index: u32,
) -> Result<Buffered> {
    let hung_up = poll_one(master, 0, Duration::ZERO).map_err(|error| system("poll", error))?
        & libc::POLLHUP
        != 0;
    if slave.is_none() && !hung_up {
        // Never opened: opening it now would make the next close of it be seen by the master.
        return Ok(Buffered::default());
    }
    let (mut side, status) = Sides::borrow(master, slave)?;
    let mut taken = Buffered { slave_closed: hung_up, status, ..Buffered::default() };
    let read = side.take(&mut taken);
    // What could not be read is there still: nothing is thrown away for the sake of a status.
    if read.is_err() {
        taken.status &= !status::of_bytes(taken.status);
    }
    let put_back = side.put_all(&taken);
    drop(side);
    put_back.map_err(|error| match error {
        EngineError::TooLong { limit_ms, .. } => EngineError::TooLong {
            what: format!("putting bytes back into /dev/pts/{index}"),
            limit_ms,
        },
        other => other,
    })?;
    read?;
    Ok(taken)
}

/// Fills a fresh pair.
///
/// # Errors
/// Failed system calls.
pub(super) fn fill(master: BorrowedFd<'_>, held: &Buffered) -> Result<()> {
    let (mut side, _) = Sides::borrow(master, None)?;
    side.packet |= held.status != 0;
    side.put_all(held)
}

/// Both sides of a pair in a state fit for moving bytes: not blocking, no packet mode. Everything
/// is given back when it falls out of scope.
struct Sides<'a> {
    master: BorrowedFd<'a>,
    /// A description of our own.
    slave: OwnedFd,
    flags: OFlag,
    packet: bool,
    modes: libc::termios2,
    /// Those that can't be changed otherwise.
    fixed: Option<libc::termios2>,
}

impl<'a> Sides<'a> {
    /// `open`: the slave, where somebody has it open. In exclusive mode nobody but root can open it once more. Also what the
    /// master was to be told in packet mode, which it is not any more.
    fn borrow(master: BorrowedFd<'a>, open: Option<BorrowedFd<'_>>) -> Result<(Self, u8)> {
        let flags = fcntl(master, FcntlArg::F_GETFL).map_err(|errno| system("fcntl", errno))?;
        let flags = OFlag::from_bits_truncate(flags);
        let packet = tty::packet_mode(master).map_err(|error| system("ioctl TIOCGPKT", error))?;
        let modes = tty::modes(master).map_err(|error| system("ioctl TCGETS2", error))?;
        let locked = tty::locked(master).map_err(|error| system("ioctl TIOCGPTLCK", error))?;
        if locked {
            tty::set_locked(master, false).map_err(|error| system("ioctl TIOCSPTLCK", error))?;
        }
        let exclusive = open.filter(|open| tty::exclusive(open).unwrap_or(false));
        let shared = exclusive.map_or(Ok(()), tty::set_shared);
        let slave = tty::open_peer(
            master,
            libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC,
        );
        let again = exclusive.map_or(Ok(()), tty::set_exclusive);
        if locked {
            tty::set_locked(master, true).map_err(|error| system("ioctl TIOCSPTLCK", error))?;
        }
        shared.map_err(|error| system("ioctl TIOCNXCL", error))?;
        again.map_err(|error| system("ioctl TIOCEXCL", error))?;
        let slave = slave.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => EngineError::Refused(Refusal::new(
                "a pseudoterminal in exclusive mode (TIOCEXCL) whose slave is closed",
                "leave that mode (TIOCNXCL) before it is closed",
            )),
            _ => system("ioctl TIOCGPTPEER", error),
        })?;
        let fixed =
            tty::fixed_modes(master).map_err(|error| system("ioctl TIOCGLCKTRMIOS", error))?;
        if fixed.is_some() && tty::fix_modes(master, None).is_err() {
            return Err(EngineError::Refused(Refusal::new(
                "a pseudoterminal whose modes are fixed (TIOCSLCKTRMIOS)",
                "have root unlock them while checkpoints are taken",
            )));
        }
        // From here on `drop` gives everything back.
        let sides = Self { master, slave, flags, packet, modes, fixed };
        fcntl(master, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))
            .map_err(|errno| system("fcntl", errno))?;
        let status = if packet { status::take(master)? } else { 0 };
        if packet {
            tty::set_packet_mode(master, false).map_err(|error| system("ioctl TIOCPKT", error))?;
        }
        Ok((sides, status))
    }

    fn set(&self, change: impl FnOnce(&mut libc::termios2)) -> Result<()> {
        let mut modes = self.modes;
        change(&mut modes);
        tty::set_modes(&self.slave, &modes).map_err(|error| system("ioctl TCSETS2", error))
    }

    fn take(&self, taken: &mut Buffered) -> Result<()> {
        let canonical = self.modes.c_lflag & libc::ICANON != 0;
        if canonical {
            self.take_lines(&mut taken.input)?;
        }
        // Without line editing, at least one byte and no time: read(2) returns what there is.
        self.set(|modes| {
            modes.c_lflag &= !libc::ICANON;
            modes.c_cc[libc::VMIN] = 1;
            modes.c_cc[libc::VTIME] = 0;
        })?;
        let mut rest = Vec::new();
        let read = read_until_dry(self.slave.as_fd(), &mut rest);
        if !rest.is_empty() {
            taken.input.push((rest, LineEnd::Open));
        }
        read?;
        // After the input, whose echo it may hold.
        read_until_dry(self.master, &mut taken.output)?;
        self.start(taken)
    }

    /// Finds out what is stopped, and starts it for now. With its buffers empty, only a stop keeps a side from taking bytes.
    fn start(&self, taken: &mut Buffered) -> Result<()> {
        taken.stopped = !takes_bytes(self.slave.as_fd())?;
        if taken.stopped {
            self.resume_output()?;
            // ^Q does nothing then (drivers/tty/tty_io.c, __start_tty: tco_stopped).
            taken.stopped_by_call = !takes_bytes(self.slave.as_fd())?;
        }
        if taken.stopped_by_call {
            flow(self.slave.as_fd(), true)?;
        }
        taken.input_stopped = !takes_bytes(self.master)?;
        if taken.input_stopped {
            flow(self.master, true)?;
        }
        Ok(())
    }

    fn take_lines(&self, lines: &mut Vec<(Vec<u8>, LineEnd)>) -> Result<()> {
        let mut piece = vec![0u8; PIECE];
        let ends = [self.modes.c_cc[libc::VEOL], self.modes.c_cc[libc::VEOL2]];
        while lines.len() < MOST_BYTES {
            match nix::unistd::read(&self.slave, &mut piece) {
                Ok(count) => {
                    let line = piece.get(..count).unwrap_or_default().to_vec();
                    let by_itself = line
                        .last()
                        .is_some_and(|&last| last == b'\n' || (last != 0 && ends.contains(&last)));
                    let end = if by_itself { LineEnd::Itself } else { LineEnd::EndOfFile };
                    lines.push((line, end));
                }
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(system("read", errno)),
            }
        }
        Err(EngineError::odd("input of a terminal", "no end of it"))
    }

    /// Puts everything back, and what the master is told of it. What was flushed is told where it happens: before there is
    /// anything to be lost. The rest is told by what happens last, of which packet mode tells nothing while it is off.
    fn put_all(&mut self, held: &Buffered) -> Result<()> {
        let told = |on| {
            tty::set_packet_mode(self.master, on).map_err(|error| system("ioctl TIOCPKT", error))
        };
        let flushed = status::of_bytes(held.status);
        if flushed != 0 {
            told(true)?;
            status::flush(self.slave.as_fd(), flushed)?;
        }
        self.put(held)?;
        if held.status == 0 {
            return Ok(());
        }
        told(true)?;
        status::tell_modes(self.slave.as_fd(), &self.modes, held.status)?;
        self.tell_flow(held)?;
        // It is on already.
        self.packet = false;
        Ok(())
    }

    /// Tells the master that output was stopped, or that it goes on.
    fn tell_flow(&self, held: &Buffered) -> Result<()> {
        let slave = self.slave.as_fd();
        if held.status & status::STOP != 0 && held.stopped_by_call {
            flow(slave, true)?;
            flow(slave, false)?;
        } else if held.status & status::STOP != 0 && held.stopped {
            self.resume_output()?;
            self.stop_output()?;
        } else if held.status & status::START != 0 && !held.stopped {
            flow(slave, false)?;
            flow(slave, true)?;
        }
        Ok(())
    }

    fn put(&self, held: &Buffered) -> Result<()> {
        self.put_input(&held.input)?;
        if !held.output.is_empty() {
            let mut modes = self.modes;
            modes.c_oflag &= !libc::OPOST;
            self.put_bytes(self.slave.as_fd(), self.master, &held.output, &modes)?;
        }
        tty::set_modes(&self.slave, &self.modes).map_err(|error| system("ioctl TCSETS2", error))?;
        match (held.stopped_by_call, held.stopped) {
            (true, _) => flow(self.slave.as_fd(), false)?,
            (false, true) => self.stop_output()?,
            (false, false) => {}
        }
        if held.input_stopped {
            flow(self.master, false)?;
        }
        Ok(())
    }

    fn put_input(&self, lines: &[(Vec<u8>, LineEnd)]) -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let bytes = || lines.iter().flat_map(|(line, _)| line.iter().copied());
        // A character for the end of file that is no byte of the lines themselves.
        let mut used = [false; 256];
        bytes().for_each(|byte| used[usize::from(byte)] = true);
        let is_free = |byte: u8| !used[usize::from(byte)] && byte != b'\n';
        let unused = (1..=255u8).find(|&byte| is_free(byte) && !status::FLOW.contains(&byte));
        let end_of_file = unused.unwrap_or(self.modes.c_cc[libc::VEOF]);
        let canonical = self.modes.c_lflag & libc::ICANON != 0;
        let mut modes = self.modes;
        // As long as these characters do nothing, the master need not be told of another flow control.
        let flows = status::flows(&modes) && !bytes().any(|byte| status::FLOW.contains(&byte));
        modes.c_iflag = if flows { libc::IXON } else { 0 };
        modes.c_lflag &= !(libc::ECHO | libc::ECHONL | libc::ISIG | libc::IEXTEN | libc::EXTPROC);
        if canonical {
            // Erase, kill and their kin have had their effect.
            modes.c_cc = [0; 19];
            modes.c_cc[libc::VEOF] = end_of_file;
            modes.c_cc[libc::VEOL] = self.modes.c_cc[libc::VEOL];
            modes.c_cc[libc::VEOL2] = self.modes.c_cc[libc::VEOL2];
            if flows {
                [modes.c_cc[libc::VSTART], modes.c_cc[libc::VSTOP]] = status::FLOW;
            }
        }
        let mut stream = Vec::new();
        // Of those lines only that the reader's own buffer takes can be known when they are there.
        let mut complete = 0;
        for (line, end) in lines {
            stream.extend_from_slice(line);
            match end {
                LineEnd::EndOfFile => stream.push(end_of_file),
                LineEnd::Itself => {}
                LineEnd::Open => continue,
            }
            if stream.len() <= FRONT {
                complete += line.len();
            }
        }
        self.put_bytes(self.master, self.slave.as_fd(), &stream, &modes)?;
        self.wait_until_seen(complete, lines.last().is_some_and(|(_, end)| *end == LineEnd::Open))
    }

    /// Writes bytes under these modes. What falls short is taken out again and written once more, into
    /// buffers that the kernel has made by then: the job's bytes are lost otherwise.
    fn put_bytes(
        &self,
        to: BorrowedFd<'_>,
        from: BorrowedFd<'_>,
        bytes: &[u8],
        modes: &libc::termios2,
    ) -> Result<()> {
        let set = |modes: &libc::termios2| {
            tty::set_modes(&self.slave, modes).map_err(|error| system("ioctl TCSETS2", error))
        };
        set(modes)?;
        match full::write(to, from, bytes) {
            Err(EngineError::TooLong { .. }) => {}
            other => return other,
        }
        let mut raw = *modes;
        raw.c_oflag &= !libc::OPOST;
        raw.c_lflag &= !(libc::ICANON | libc::ECHO | libc::ECHONL | libc::ISIG);
        raw.c_cc[libc::VMIN] = 1;
        raw.c_cc[libc::VTIME] = 0;
        set(&raw)?;
        read_until_dry(from, &mut Vec::new())?;
        full::stock(to)?;
        read_until_dry(from, &mut Vec::new())?;
        set(modes)?;
        full::write(to, from, bytes)
    }

    /// The kernel moves bytes from one side to the other in the background, and treats them by the
    /// modes of that moment: waits until it has.
    fn wait_until_seen(&self, complete: usize, open: bool) -> Result<()> {
        let began = Instant::now();
        // In line mode FIONREAD counts whole lines, else all bytes.
        while sockopt::readable(&self.slave).map_err(|error| system("ioctl FIONREAD", error))?
            < complete
        {
            if began.elapsed() > LIMIT {
                return Err(EngineError::TooLong {
                    what: "input of a terminal".into(),
                    limit_ms: LIMIT.as_millis() as u64,
                });
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        // With nothing to read, poll(2) itself waits for the background (n_tty_poll).
        poll_one(&self.slave, libc::POLLIN, Duration::ZERO)
            .map_err(|error| system("poll", error))?;
        if open && complete > 0 {
            std::thread::sleep(SETTLE);
        }
        Ok(())
    }

    /// ^S as the terminal's user would type it.
    fn stop_output(&self) -> Result<()> {
        self.flow_character(libc::VSTOP)
    }

    fn resume_output(&self) -> Result<()> {
        self.flow_character(libc::VSTART)
    }

    fn flow_character(&self, which: usize) -> Result<()> {
        let current = tty::modes(&self.slave).map_err(|error| system("ioctl TCGETS2", error))?;
        let mut modes = current;
        modes.c_iflag |= libc::IXON;
        [modes.c_cc[libc::VSTART], modes.c_cc[libc::VSTOP]] = status::FLOW;
        modes.c_lflag &= !libc::EXTPROC;
        tty::set_modes(&self.slave, &modes).map_err(|error| system("ioctl TCSETS2", error))?;
        write_all(self.master, &[modes.c_cc[which]])?;
        poll_one(&self.slave, libc::POLLIN, Duration::ZERO)
            .map_err(|error| system("poll", error))?;
        tty::set_modes(&self.slave, &current).map_err(|error| system("ioctl TCSETS2", error))
    }
}

impl Drop for Sides<'_> {
    fn drop(&mut self) {
        // All of these were set to the same values a moment ago, and cannot fail for another reason.
        let _ = tty::set_modes(&self.slave, &self.modes);
        if self.fixed.is_some() {
            let _ = tty::fix_modes(self.master, self.fixed.as_ref());
        }
        if self.packet {
            let _ = tty::set_packet_mode(self.master, true);
        }
        let _ = fcntl(self.master, FcntlArg::F_SETFL(self.flags));
    }
}

/// Whether a side of a pair takes bytes.
fn takes_bytes(side: BorrowedFd<'_>) -> Result<bool> {
    poll_one(side, libc::POLLOUT, Duration::ZERO)
        .map(|ready| ready & libc::POLLOUT != 0)
        .map_err(|error| system("poll", error))
}

fn flow(side: BorrowedFd<'_>, runs: bool) -> Result<()> {
    tty::set_flow(side, runs).map_err(|error| system("ioctl TCXONC", error))
}

fn read_until_dry(from: BorrowedFd<'_>, into: &mut Vec<u8>) -> Result<()> {
    let mut piece = vec![0u8; PIECE];
    while into.len() < MOST_BYTES {
        match nix::unistd::read(from, &mut piece) {
            // EIO: the slave is closed and nothing is left.
            Ok(0) | Err(Errno::EAGAIN | Errno::EIO) => return Ok(()),
            Ok(count) => into.extend_from_slice(piece.get(..count).unwrap_or_default()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(system("read", errno)),
        }
    }
    Err(EngineError::odd("a terminal that stands still", "no end of its bytes"))
}

/// Writes a few bytes.
fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<()> {
    let began = Instant::now();
    while !bytes.is_empty() {
        match nix::unistd::write(to, bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::EAGAIN) if began.elapsed() < LIMIT => {
                poll_one(to, libc::POLLOUT, Duration::from_millis(1))
                    .map_err(|error| system("poll", error))?;
            }
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                return Err(EngineError::TooLong {
                    what: format!("descriptor {} of a terminal", to.as_raw_fd()),
                    limit_ms: LIMIT.as_millis() as u64,
                });
            }
            Err(errno) => return Err(system("write", errno)),
        }
    }
    Ok(())
}
