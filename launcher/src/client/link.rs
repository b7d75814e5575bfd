//! One conversation with whoever serves jobs: a cluster, or a job's own launcher, over a local Unix socket.

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::Pid;
use protocol::cluster::VERSIONS;
use protocol::cluster::client::{Answer, Ask, MAX_ANSWER, MAX_ASK};
use protocol::frame::{self, FrameError};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;
use tokio::sync::mpsc;

/// The longest path that fits into the address of a socket with its final NUL (unix(7)).
const LONGEST: usize = 107;

/// Why a conversation failed; in the words for a cluster. Those for a job's launcher are
/// [`super::launcher::AskError`]'s.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The connection failed.
    #[error("talk to the cluster: {0}")]
    Io(#[from] io::Error),
    /// A line is none of the conversation.
    #[error("talk to the cluster: {0}")]
    Frame(#[from] FrameError),
    /// Nobody is there any more.
    #[error("the connection to the cluster was lost: it may be without its coordinator")]
    Gone,
}

/// A way to a socket that fits into an address, however long its path is: through this process's
/// own descriptor of its folder.
pub struct ShortPath {
    _folder: Option<File>,
    path: PathBuf,
}

impl ShortPath {
    /// To that socket; one that can't be shortened is left as it is, and connecting fails.
    pub fn of(socket: &Path) -> Self {
        let whole = Self { _folder: None, path: socket.to_owned() };
        if socket.as_os_str().len() <= LONGEST {
            return whole;
        }
        let (Some(folder), Some(name)) = (socket.parent(), socket.file_name()) else {
            return whole;
        };
        let opened = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_PATH | nix::libc::O_DIRECTORY)
            .open(folder);
        match opened {
            Ok(folder) => {
                let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string());
                Self { path: path.join(name), _folder: Some(folder) }
            }
            Err(_) => whole,
        }
    }
}

impl AsRef<Path> for ShortPath {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// The sending half.
#[derive(Debug)]
pub struct LinkSender(UnixStream);

impl LinkSender {
    /// Says something.
    ///
    /// # Errors
    /// Where nobody is there, or it is too long.
    pub fn send(&mut self, ask: &Ask) -> Result<(), LinkError> {
        let mut line = frame::encode(ask, MAX_ASK)?;
        line.push('\n');
        Ok(self.0.write_all(line.as_bytes())?)
    }
}

/// One conversation.
#[derive(Debug)]
pub struct Link {
    sender: LinkSender,
    answers: Answers,
}

impl Link {
    /// Connects, says hello, and asks.
    ///
    /// # Errors
    /// Where nobody is there, or the question is too long.
    pub fn open(socket: &Path, ask: &Ask) -> Result<Self, LinkError> {
        let stream = UnixStream::connect(ShortPath::of(socket).as_ref())?;
        let mut sender = LinkSender(stream.try_clone()?);
        for ask in [&Ask::Hello { version: VERSIONS }, ask] {
            match sender.send(ask) {
                // It may have said why before it went.
                Err(LinkError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
                other => other?,
            }
        }
        let answers = Answers { lines: BufReader::new(stream), line: Vec::new() };
        Ok(Self { sender, answers })
    }

    /// The process at the other side (SO_PEERCRED, unix(7)); none where it can't be seen from here.
    pub fn peer(&self) -> Option<Pid> {
        let peer = getsockopt(&self.sender.0, PeerCredentials).ok()?.pid();
        (peer > 0).then(|| Pid::from_raw(peer))
    }

    /// Says something more.
    ///
    /// # Errors
    /// Where nobody is there, or it is too long.
    pub fn send(&mut self, ask: &Ask) -> Result<(), LinkError> {
        self.sender.send(ask)
    }

    /// The next answer; waits as long as it takes.
    ///
    /// # Errors
    /// Where none comes.
    pub fn next(&mut self) -> Result<Answer, LinkError> {
        self.answers.next()
    }

    /// The next answer; None: it has not come within that time, and can be waited for again.
    ///
    /// # Errors
    /// Where none comes.
    pub fn next_within(&mut self, limit: Duration) -> Result<Option<Answer>, LinkError> {
        self.sender.0.set_read_timeout(Some(limit))?;
        match self.answers.next() {
            Ok(answer) => Ok(Some(answer)),
            Err(LinkError::Io(error)) if is_timeout(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The two halves.
    pub fn split(self) -> (LinkSender, Answers) {
        (self.sender, self.answers)
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// The receiving half.
#[derive(Debug)]
pub struct Answers {
    lines: BufReader<UnixStream>,
    /// What has come of the next line.
    line: Vec<u8>,
}

impl Answers {
    /// The next answer.
    ///
    /// # Errors
    /// Where none comes. What has come of it before a time limit is kept.
    pub fn next(&mut self) -> Result<Answer, LinkError> {
        // One byte more than the limit, so that a longer line is seen as such; and the newline.
        let limit = (MAX_ANSWER + 2).saturating_sub(self.line.len());
        match (&mut self.lines).take(limit as u64).read_until(b'\n', &mut self.line) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Err(LinkError::Gone);
            }
            Err(error) => return Err(error.into()),
        }
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        match line.strip_suffix('\n') {
            Some(line) => Ok(frame::decode(line, MAX_ANSWER)?),
            // Cut off in the middle, or too long.
            None if line.len() <= MAX_ANSWER => Err(LinkError::Gone),
            None => Ok(frame::decode(&line, MAX_ANSWER)?),
        }
    }
}

/// Opens a conversation, whose answers a thread reads.
///
/// # Errors
/// As [`Link::open`]; and where there can't be another thread.
pub fn connect(
    socket: &Path,
    ask: &Ask,
) -> Result<(LinkSender, mpsc::Receiver<Result<Answer, LinkError>>), LinkError> {
    let (sender, mut lines) = Link::open(socket, ask)?.split();
    let (answers, receiver) = mpsc::channel(64);
    std::thread::Builder::new().name("answers".to_owned()).spawn(move || {
        loop {
            let answer = lines.next();
            let last = answer.is_err();
            if answers.blocking_send(answer).is_err() || last {
                return;
            }
        }
    })?;
    Ok((sender, receiver))
}
