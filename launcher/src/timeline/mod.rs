//! A timeline of what ckptd does, for chrome://tracing and Perfetto (`--trace FILE`): Chrome's trace events as a JSON
//! array, one event a line, that is well-formed up to its last line when the program is killed.
//!
//! - `event`: one line.
//! - `layer`: spans and events of `tracing` as such lines.
//! - [`Timeline`]: the file, written by a thread of its own.

mod event;
mod layer;

use event::Line;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use layer::ChromeLayer;

/// For how long lines are gathered before they are written.
const GATHER: Duration = Duration::from_millis(50);
/// Most bytes that may wait to be written; lines beyond are counted and left out.
const MOST_WAITING: usize = 64 * 1024 * 1024;

/// What waits to be written.
#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Lines that were left out since the last that was not.
    left_out: u64,
    ends: bool,
}

/// What threads that tell something share with the one that writes.
#[derive(Debug)]
struct Shared {
    began: Instant,
    waiting: Mutex<Waiting>,
    /// There is something to write, or the end has come.
    woken: Condvar,
    /// The end has come.
    ended: Condvar,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time is taken under the lock, so that no line is before one of an earlier time.
    fn push(&self, line: &Line<'_>) {
        let mut waiting = self.waiting();
        if waiting.bytes.len() > MOST_WAITING {
            waiting.left_out += 1;
            return;
        }
        let at = self.began.elapsed();
        let was_empty = waiting.bytes.is_empty();
        if waiting.left_out > 0 {
            let lost = std::mem::take(&mut waiting.left_out);
            Line::left_out(lost).write(at, &mut waiting.bytes);
        }
        line.write(at, &mut waiting.bytes);
        drop(waiting);
        if was_empty {
            self.woken.notify_one();
        }
    }
}

/// A timeline that is being written. Dropping it completes the file.
#[derive(Debug)]
pub struct Timeline {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

impl Timeline {
    /// Makes the file, or empties it.
    ///
    /// # Errors
    /// Where it can't be made; no threads.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(b"[\n")?;
        let shared = Arc::new(Shared {
            began: Instant::now(),
            waiting: Mutex::default(),
            woken: Condvar::new(),
            ended: Condvar::new(),
        });
        let (path, own) = (path.to_owned(), shared.clone());
        let writer = std::thread::Builder::new().name("timeline".into()).spawn(move || {
            if let Err(error) = write(&own, file) {
                eprintln!("ckptd: warning: {} is not complete: {error}", path.display());
            }
        })?;
        shared.push(&Line::process("ckptd"));
        Ok(Self { shared, writer: Some(writer) })
    }

    /// What has spans and events written to it.
    pub fn layer(&self) -> ChromeLayer {
        ChromeLayer::new(self.shared.clone())
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        self.shared.waiting().ends = true;
        self.shared.woken.notify_all();
        self.shared.ended.notify_all();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// Writes what there is until the end, many lines at a time: the thread wakes seldom, since it shares the processors with
/// a job that may be standing still for a checkpoint.
fn write(shared: &Shared, mut file: File) -> io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        let waiting = shared.waiting();
        let idle = |waiting: &mut Waiting| waiting.bytes.is_empty() && !waiting.ends;
        let waiting = shared.woken.wait_while(waiting, idle);
        let waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        let gathered = shared.ended.wait_timeout_while(waiting, GATHER, |waiting| !waiting.ends);
        let mut waiting = gathered.unwrap_or_else(PoisonError::into_inner).0;
        std::mem::swap(&mut bytes, &mut waiting.bytes);
        let ends = waiting.ends;
        drop(waiting);
        file.write_all(&bytes)?;
        bytes.clear();
        if ends {
            // A last line without a comma behind it.
            Line::end().write_last(shared.began.elapsed(), &mut bytes);
            return file.write_all(&bytes);
        }
    }
}

#[cfg(test)]
mod tests;
