//! Lines of local clients, who may be anybody on this machine: what is not complete must not take memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

/// Bytes of the first line, which says hello.
pub const MAX_FIRST: usize = 1024;
/// Bytes of a line that needs no place.
pub const MAX_SHORT: usize = 256 * 1024;
/// Longer lines that are read at one time.
const MAX_LONG: usize = 4;
/// How long one may take from where it is known to be longer.
const LONG_LIMIT: Duration = Duration::from_secs(10);
/// Users of whom it is remembered that they have sent a longer one.
const MAX_USERS: usize = 4096;

/// Places for longer lines: one for each user.
#[derive(Debug, Clone)]
pub struct LongLines {
    all: Arc<Semaphore>,
    users: Arc<Mutex<BTreeMap<u32, Arc<Semaphore>>>>,
}

impl Default for LongLines {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(MAX_LONG)), users: Arc::default() }
    }
}

/// A place, with the time at which it is given back.
#[derive(Debug)]
struct Long {
    _places: [OwnedSemaphorePermit; 2],
    until: Instant,
}

impl LongLines {
    async fn place(&self, user: u32) -> Result<Long, LineError> {
        let own = {
            let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
            if users.len() >= MAX_USERS {
                users.retain(|_, places| Arc::strong_count(places) > 1);
            }
            Arc::clone(users.entry(user).or_insert_with(|| Arc::new(Semaphore::new(1))))
        };
        let closed = |_| LineError::Io(io::ErrorKind::NotConnected.into());
        let own = own.acquire_owned().await.map_err(closed)?;
        let one = Arc::clone(&self.all).acquire_owned().await.map_err(closed)?;
        Ok(Long { _places: [own, one], until: Instant::now() + LONG_LIMIT })
    }
}

/// Why no more lines come.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The connection is broken.
    #[error("read the request: {0}")]
    Io(#[from] io::Error),
    /// It has more bytes than it may have.
    #[error("read the request: it exceeds the limit of {0} bytes")]
    TooLong(usize),
    /// A longer line does not come to its end.
    #[error("read the request: it did not come in {} s", LONG_LIMIT.as_secs())]
    TooSlow,
    /// It is no UTF-8.
    #[error("read the request: it is no UTF-8")]
    NoText,
}

/// Reads lines.
#[derive(Debug)]
pub struct Lines<R> {
    reader: BufReader<R>,
    user: u32,
    places: LongLines,
    longest: usize,
    line: Vec<u8>,
    is_first: bool,
    long: Option<Long>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Of a user, up to so many bytes each.
    pub fn new(reader: R, user: u32, places: LongLines, longest: usize) -> Self {
        let reader = BufReader::new(reader);
        Self { reader, user, places, longest, line: Vec::new(), is_first: true, long: None }
    }

    /// The next line, without its end. `None`: the other side has ended, if need be in the middle of one. May be cancelled
    /// without loss.
    ///
    /// # Errors
    /// [`LineError`]; nothing that follows can be read after that.
    pub async fn next(&mut self) -> Result<Option<String>, LineError> {
        loop {
            let filled = match self.long.as_ref().map(|long| long.until) {
                None => self.reader.fill_buf().await?,
                Some(until) => tokio::select! {
                    filled = self.reader.fill_buf() => filled?,
                    () = sleep_until(until) => return Err(LineError::TooSlow),
                },
            };
            if filled.is_empty() {
                return Ok(None);
            }
            let end = filled.iter().position(|byte| *byte == b'\n');
            let more = end.unwrap_or(filled.len());
            let length = self.line.len() + more;
            let limit = match self.is_first {
                true => MAX_FIRST,
                false => self.longest,
            };
            if length > limit {
                return Err(LineError::TooLong(limit));
            }
            if length > MAX_SHORT && self.long.is_none() {
                self.long = Some(self.places.place(self.user).await?);
                continue;
            }
            self.line.extend_from_slice(&filled[..more]);
            self.reader.consume(more + usize::from(end.is_some()));
            if end.is_some() {
                (self.is_first, self.long) = (false, None);
                let line = String::from_utf8(std::mem::take(&mut self.line));
                return line.map(Some).map_err(|_| LineError::NoText);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::timeout;

    const LONGEST: usize = 4 * MAX_SHORT;

    fn of(user: u32, places: &LongLines) -> (DuplexStream, Lines<DuplexStream>) {
        let (client, server) = duplex(2 * LONGEST);
        (client, Lines::new(server, user, places.clone(), LONGEST))
    }

    #[tokio::test]
    async fn lines_come_as_they_were_sent() {
        let (mut client, mut lines) = of(1, &LongLines::default());
        let long = "x".repeat(LONGEST);
        client.write_all(format!("hello\n\n{long}\nlast\ncut").as_bytes()).await.unwrap();
        drop(client);
        for expected in ["hello", "", &long, "last"] {
            assert_eq!(lines.next().await.unwrap().as_deref(), Some(expected));
        }
        assert!(matches!(lines.next().await, Ok(None)));
    }

    #[tokio::test]
    async fn no_line_is_longer_than_it_may_be() {
        for (before, length, limit) in [("", MAX_FIRST, MAX_FIRST), ("hello\n", LONGEST, LONGEST)] {
            let (mut client, mut lines) = of(1, &LongLines::default());
            let text = format!("{before}{}", "x".repeat(length + 1));
            client.write_all(text.as_bytes()).await.unwrap();
            if !before.is_empty() {
                lines.next().await.unwrap();
            }
            assert!(matches!(lines.next().await, Err(LineError::TooLong(at)) if at == limit));
        }
        let (mut client, mut lines) = of(1, &LongLines::default());
        client.write_all(b"\xff\n").await.unwrap();
        assert!(matches!(lines.next().await, Err(LineError::NoText)));
    }

    #[tokio::test]
    async fn lines_that_are_never_finished_take_little_and_nobody_s_place() {
        let places = LongLines::default();
        let part = format!("hello\n{}", "x".repeat(LONGEST));
        let mut open = Vec::new();
        for _ in 0..20 {
            let (mut client, mut lines) = of(1, &places);
            client.write_all(part.as_bytes()).await.unwrap();
            lines.next().await.unwrap();
            let waited = timeout(Duration::from_millis(1), lines.next()).await;
            assert!(waited.is_err(), "it is not complete");
            open.push((client, lines));
        }
        let held: usize = open.iter().map(|(_, lines)| lines.line.len()).sum();
        assert!(held <= LONGEST + 19 * MAX_SHORT, "{held} bytes");
        let (mut client, mut lines) = of(2, &places);
        client.write_all(format!("{part}\n").as_bytes()).await.unwrap();
        lines.next().await.unwrap();
        let line = timeout(LONG_LIMIT, lines.next()).await.unwrap().unwrap();
        assert_eq!(line.map(|line| line.len()), Some(LONGEST));
    }
}
