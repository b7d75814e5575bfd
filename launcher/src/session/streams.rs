//! The user's three streams, and what the job's are to be for them.

use super::output::UserOutput;
use super::terminal;
use nix::sys::stat::{SFlag, fstat};
use protocol::launch::{StreamKind, WindowSize};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// What a job's streams are to be, so that they behave as the user's own.
#[derive(Debug)]
pub struct LaunchStreams {
    /// Standard input.
    pub stdin: StreamKind,
    /// Standard output.
    pub stdout: StreamKind,
    /// Standard error.
    pub stderr: StreamKind,
    /// Size of the terminal.
    pub window: Option<WindowSize>,
    /// Settings of the terminal.
    pub termios: Option<Vec<u8>>,
}

/// The first of the user's streams that is a terminal.
pub fn terminal_stream() -> Option<OwnedFd> {
    let streams = [
        io::stdin().as_fd().try_clone_to_owned(),
        io::stdout().as_fd().try_clone_to_owned(),
        io::stderr().as_fd().try_clone_to_owned(),
    ];
    streams.into_iter().flatten().find(|stream| terminal::is_terminal(stream))
}

/// Size of the user's terminal.
pub fn window() -> Option<WindowSize> {
    terminal_stream().and_then(terminal::size)
}

/// What the streams of a new job are to be.
pub fn launch_streams() -> LaunchStreams {
    let stdin_is_terminal = terminal::is_terminal(io::stdin());
    let stdin = if stdin_is_terminal {
        StreamKind::Terminal
    } else if passes_on(io::stdin()) {
        StreamKind::Inherit
    } else {
        StreamKind::Pipe
    };
    let stdout = match terminal::is_terminal(io::stdout()) {
        true => StreamKind::Terminal,
        false => StreamKind::Pipe,
    };
    let stderr = if terminal::is_terminal(io::stderr()) {
        StreamKind::Terminal
    } else if stdout == StreamKind::Pipe && same_file(io::stdout(), io::stderr()) {
        StreamKind::WithStdout
    } else {
        StreamKind::Pipe
    };
    let any = [stdin, stdout, stderr].contains(&StreamKind::Terminal);
    let user = terminal_stream().filter(|_| any);
    LaunchStreams {
        stdin,
        stdout,
        stderr,
        window: user.as_ref().and_then(terminal::size),
        termios: user.as_ref().and_then(|user| terminal::kernel_settings(user, !stdin_is_terminal)),
    }
}

/// What those of a job are to be that nobody sits at: its output is in its log, in the order in which it was written.
pub fn streams_of_nobody() -> LaunchStreams {
    LaunchStreams {
        stdin: StreamKind::Inherit,
        stdout: StreamKind::Pipe,
        stderr: StreamKind::WithStdout,
        window: None,
        termios: None,
    }
}

/// Whether a standard input can be the job's own: a regular file or a device, which the engine
/// restores by name.
fn passes_on(stream: impl AsFd) -> bool {
    fstat(stream).is_ok_and(|stat| {
        let kind = SFlag::from_bits_truncate(stat.st_mode as libc::mode_t) & SFlag::S_IFMT;
        kind == SFlag::S_IFREG || kind == SFlag::S_IFCHR
    })
}

fn same_file(a: impl AsFd, b: impl AsFd) -> bool {
    match (fstat(a), fstat(b)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}

/// The user's streams for the job's output. What the job writes to its terminal goes to standard
/// output or standard error, whichever is a terminal, else to the terminal that it is typed at.
pub fn user_output() -> io::Result<UserOutput> {
    let stdout = io::stdout().as_fd().try_clone_to_owned()?;
    let stderr = io::stderr().as_fd().try_clone_to_owned()?;
    let terminal = if terminal::is_terminal(&stdout) {
        stdout.try_clone()?
    } else if terminal::is_terminal(&stderr) {
        stderr.try_clone()?
    } else if terminal::is_terminal(io::stdin()) {
        io::stdin().as_fd().try_clone_to_owned()?
    } else {
        stdout.try_clone()?
    };
    Ok(UserOutput { stdout, stderr, terminal })
}
