//! Questions to the coordinator, over its socket for commands: what `ckptd nodes`, `ckptd status` and `ckptd logs` ask.

use crate::limits;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coordinator::server::SOCKET;
use protocol::cluster::client::{Answer, Ask, LogPlace, MAX_ANSWER, MAX_ASK};
use protocol::cluster::{Epoch, VERSIONS};
use protocol::frame::{self, FrameError};
use serde_json::Value;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// Why the coordinator has not answered; the text fits after "failed to ask the coordinator: ".
#[derive(Debug, Error)]
pub enum AskError {
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// What it said is no answer.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// It took too long.
    #[error("it has not answered for {} s", limits::ANSWER.as_secs())]
    Late,
    /// It ended the conversation.
    #[error("it has ended the connection")]
    Gone,
    /// It refused; the text fits after "failed to".
    #[error("it did not {0}")]
    Refused(String),
    /// It answered another question.
    #[error("its answer fits no question")]
    Unexpected,
}

/// A part of a job's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPart {
    /// Bytes of the log before it.
    pub start: u64,
    /// Bytes of the whole log.
    pub length: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The way to the coordinator of a folder.
#[derive(Debug)]
pub struct Coordinator {
    /// Leads to the socket by a path that fits into an address, however long the folder's is (unix(7)).
    folder: File,
}

impl Coordinator {
    /// # Errors
    /// Where the folder can't be opened.
    pub fn of(state: &Path) -> io::Result<Self> {
        Ok(Self { folder: File::open(state)? })
    }

    fn socket(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.folder.as_raw_fd().to_string()).join(SOCKET)
    }

    /// A listing, as `--json` shows it.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn listing(&self, ask: &Ask) -> Result<Value, AskError> {
        match self.ask(ask, |_| Ok(())).await? {
            Answer::Listing { value } => Ok(value),
            _ => Err(AskError::Unexpected),
        }
    }

    /// Gives an order for somebody at the page, who is known by the token of that name.
    ///
    /// # Errors
    /// [`AskError`]; [`AskError::Late`] where it is obeyed, and that takes longer.
    pub async fn order(&self, ask: &Ask, name: &str) -> Result<Answer, AskError> {
        let lines = [&Ask::Page { name: name.to_owned() }, ask];
        tokio::time::timeout(limits::ANSWER, self.converse(&lines, |_| Ok(())))
            .await
            .map_err(|_| AskError::Late)?
    }

    /// The end of a job's log.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn log(&self, job: &str) -> Result<LogPart, AskError> {
        // Whoever asks for what is behind the end hears where that is. A place of a later epoch is a place of this one.
        let behind = LogPlace { epoch: Epoch::MAX, length: u64::MAX, written: 0 };
        let (place, _) = self.log_from(job, behind).await?;
        let from = LogPlace { length: place.length.saturating_sub(limits::LOG), ..place };
        let (place, part) = self.log_from(job, from).await?;
        Ok(LogPart { length: place.length.max(part.length), ..part })
    }

    async fn log_from(&self, job: &str, from: LogPlace) -> Result<(LogPlace, LogPart), AskError> {
        let mut bytes = Vec::new();
        let ask = Ask::Log { job: job.to_owned(), from, times: false };
        let taken = |answer: Answer| {
            if let Answer::Output { bytes: more, .. } = answer {
                // The log may have grown since its length was told.
                let more = STANDARD.decode(more).map_err(|_| AskError::Unexpected)?;
                let room = (limits::LOG as usize).saturating_sub(bytes.len());
                bytes.extend_from_slice(&more[..more.len().min(room)]);
            }
            Ok(())
        };
        match self.ask(&ask, taken).await? {
            Answer::Log { start, next, length, .. } => Ok((next, LogPart { start, length, bytes })),
            _ => Err(AskError::Unexpected),
        }
    }

    /// Asks; output on the way to the answer is handed to `take`.
    async fn ask(
        &self,
        ask: &Ask,
        take: impl FnMut(Answer) -> Result<(), AskError>,
    ) -> Result<Answer, AskError> {
        tokio::time::timeout(limits::ANSWER, self.converse(&[ask], take))
            .await
            .map_err(|_| AskError::Late)?
    }

    async fn converse(
        &self,
        asks: &[&Ask],
        mut take: impl FnMut(Answer) -> Result<(), AskError>,
    ) -> Result<Answer, AskError> {
        let mut stream = UnixStream::connect(self.socket()).await?;
        let hello = frame::encode(&Ask::Hello { version: VERSIONS }, MAX_ASK)?;
        let mut lines = format!("{hello}\n");
        for ask in asks {
            lines.push_str(&frame::encode(*ask, MAX_ASK)?);
            lines.push('\n');
        }
        stream.write_all(lines.as_bytes()).await?;
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = Vec::new();
            // One byte more than the limit, so that a longer line is seen as such; and the newline.
            let mut limited = (&mut reader).take(MAX_ANSWER as u64 + 2);
            limited.read_until(b'\n', &mut line).await?;
            let line = String::from_utf8_lossy(&line);
            let line = line.strip_suffix('\n').ok_or(AskError::Gone)?;
            match frame::decode(line, MAX_ANSWER)? {
                Answer::Failed { reason, .. } => return Err(AskError::Refused(reason)),
                answer @ Answer::Output { .. } => take(answer)?,
                Answer::Say { .. } => {}
                answer => return Ok(answer),
            }
        }
    }
}
