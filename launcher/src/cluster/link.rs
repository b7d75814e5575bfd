//! One conversation with a cluster, over a local Unix socket.

use protocol::cluster::VERSION;
use protocol::cluster::client::{Answer, Ask, MAX_ANSWER, MAX_ASK};
use protocol::frame::{self, FrameError};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The longest path that fits into the address of a socket with its final NUL (unix(7)).
const LONGEST: usize = 107;

/// Why a conversation failed.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The connection failed.
    #[error("talk to the cluster: {0}")]
    Io(#[from] io::Error),
    /// A line is none of the conversation.
    #[error("talk to the cluster: {0}")]
    Frame(#[from] FrameError),
    /// Nobody is there any more.
    #[error("the connection to the cluster was lost")]
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
    lines: BufReader<UnixStream>,
}

impl Link {
    /// Connects, says hello, and asks.
    ///
    /// # Errors
    /// Where nobody is there, or the question is too long.
    pub fn open(socket: &Path, ask: &Ask) -> Result<Self, LinkError> {
        let stream = UnixStream::connect(ShortPath::of(socket).as_ref())?;
        let mut sender = LinkSender(stream.try_clone()?);
        sender.send(&Ask::Hello { version: VERSION })?;
        sender.send(ask)?;
        Ok(Self { sender, lines: BufReader::new(stream) })
    }

    /// The next answer; waits as long as it takes.
    ///
    /// # Errors
    /// Where none comes.
    pub fn next(&mut self) -> Result<Answer, LinkError> {
        next(&mut self.lines)
    }

    /// The two halves.
    pub fn split(self) -> (LinkSender, impl FnMut() -> Result<Answer, LinkError> + Send) {
        let mut lines = self.lines;
        (self.sender, move || next(&mut lines))
    }
}

fn next(lines: &mut BufReader<UnixStream>) -> Result<Answer, LinkError> {
    let mut line = String::new();
    // One byte more than the limit, so that a longer line is seen as such; and the newline.
    let read = lines.take(MAX_ANSWER as u64 + 2).read_line(&mut line);
    match read {
        Ok(0) => Err(LinkError::Gone),
        Ok(_) => match line.strip_suffix('\n') {
            Some(line) => Ok(frame::decode(line, MAX_ANSWER)?),
            // Cut off in the middle, or too long.
            None if line.len() <= MAX_ANSWER => Err(LinkError::Gone),
            None => Ok(frame::decode(&line, MAX_ANSWER)?),
        },
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(LinkError::Gone),
        Err(error) => Err(error.into()),
    }
}
