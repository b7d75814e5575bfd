//! The job's log: all that it wrote to its streams, with marks of ours on lines of their own, and when.

use crate::text;
use protocol::log_times::{Origin, Piece, TimesFile};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The job's log, open for appending.
#[derive(Debug)]
pub struct JobLog {
    file: File,
    length: u64,
    at_line_start: bool,
    times: TimesFile,
}

/// What was cut off a log.
#[derive(Debug, PartialEq, Eq)]
pub struct Tail {
    /// Where it is kept.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
}

impl JobLog {
    /// Opens a log or makes it.
    ///
    /// # Errors
    /// Where that can't be done.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let length = file.metadata()?.len();
        let mut last = [b'\n'];
        if length > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        // As much of the index as is of a log of this length: after a restart, that of its checkpoint.
        let times = TimesFile::open(path.parent().unwrap_or(Path::new(".")), length);
        Ok(Self { file, length, at_line_start: last == [b'\n'], times })
    }

    /// Appends what the job wrote, or another origin.
    ///
    /// # Errors
    /// Where that can't be done; what was written of it counts.
    pub fn append(&mut self, bytes: &[u8], origin: Origin) -> io::Result<()> {
        let Some(last) = bytes.last() else { return Ok(()) };
        let (start, at_ms) = (self.length, text::now_ms());
        self.at_line_start = *last == b'\n';
        let written = self.file.write_all(bytes);
        self.length = match written {
            Ok(()) => self.length + bytes.len() as u64,
            Err(_) => self.file.metadata()?.len(),
        };
        self.times.add(Piece { start, end: self.length, at_ms, span_ms: 0, origin });
        written
    }

    /// Appends a mark on a line of its own.
    ///
    /// # Errors
    /// Where that can't be done.
    pub fn mark(&mut self, text: &str) -> io::Result<()> {
        let start = if self.at_line_start { "" } else { "\n" };
        self.append(format!("{start}[ckptd: {text}]\n").as_bytes(), Origin::Ckptd)
    }

    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }
}

/// Puts a log back to the length that it had at a checkpoint, and keeps what it had more in
/// `log.tail-CHECKPOINT` beside it. None where it had no more.
///
/// # Errors
/// Where that can't be done; the log is cut only once its tail is durable.
pub fn put_back(path: &Path, length: u64, checkpoint: u64) -> io::Result<Option<Tail>> {
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let bytes = file.metadata()?.len().saturating_sub(length);
    if bytes == 0 {
        return Ok(None);
    }
    let (tail_path, mut tail) = new_tail(path, checkpoint)?;
    file.seek(SeekFrom::Start(length))?;
    let copied = io::copy(&mut file, &mut tail).and_then(|_| tail.sync_all());
    if let Err(error) = copied {
        let _ = fs::remove_file(&tail_path);
        return Err(error);
    }
    file.set_len(length)?;
    file.sync_all()?;
    Ok(Some(Tail { path: tail_path, bytes }))
}

fn new_tail(path: &Path, checkpoint: u64) -> io::Result<(PathBuf, File)> {
    for attempt in 1..10_000 {
        let again = if attempt == 1 { String::new() } else { format!(".{attempt}") };
        let path = path.with_file_name(format!("log.tail-{checkpoint}{again}"));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("too many tails are kept already; remove some of them"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::log_times;

    #[test]
    fn marks_have_lines_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = JobLog::open(&path).unwrap();
        log.mark("one").unwrap();
        log.append(b"half a line", Origin::Error).unwrap();
        log.mark("two").unwrap();
        log.append(b"", Origin::Output).unwrap();
        drop(log);
        let mut log = JobLog::open(&path).unwrap();
        log.mark("three").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "[ckptd: one]\nhalf a line\n[ckptd: two]\n[ckptd: three]\n");
        assert_eq!(log.length(), text.len() as u64);
        let times = log_times::read(&dir.path().join(log_times::NAME), log.length());
        let origin = |place: usize| times.at(place as u64).map(|piece| piece.origin);
        let of_job = text.find("half").unwrap();
        assert_eq!([origin(0), origin(of_job)], [Some(Origin::Ckptd), Some(Origin::Error)]);
        assert_eq!([origin(text.len() - 1), origin(text.len())], [Some(Origin::Ckptd), None]);
    }

    #[test]
    fn what_is_cut_off_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert_eq!(put_back(&path, 5, 1).unwrap(), None);
        fs::write(&path, "12345678").unwrap();
        let tail = put_back(&path, 5, 7).unwrap().unwrap();
        assert_eq!((tail.bytes, tail.path.file_name().unwrap().to_str()), (3, Some("log.tail-7")));
        assert_eq!(fs::read_to_string(&tail.path).unwrap(), "678");
        fs::write(&path, "12345abc").unwrap();
        let second = put_back(&path, 5, 7).unwrap().unwrap();
        assert!(second.path.ends_with("log.tail-7.2"));
        assert_eq!(fs::read_to_string(&tail.path).unwrap(), "678");
        assert_eq!(fs::read_to_string(&path).unwrap(), "12345");
        // The times of what was cut off are not those of what comes in its place.
        let piece = Piece { start: 0, end: 8, at_ms: 1, span_ms: 0, origin: Origin::Output };
        log_times::write(&dir.path().join(log_times::NAME), &[piece], 8).unwrap();
        JobLog::open(&path).unwrap().append(b"xyz", Origin::Output).unwrap();
        let times = log_times::read(&dir.path().join(log_times::NAME), 8);
        assert_eq!(times.at(4).map(|piece| piece.at_ms), Some(1));
        assert!(times.at(5).unwrap().at_ms > 1);
        put_back(&path, 5, 9).unwrap().unwrap();
        assert_eq!(put_back(&path, 5, 7).unwrap(), None);
        // Shorter than it should be: nothing to cut.
        assert_eq!(put_back(&path, 50, 7).unwrap(), None);
    }
}
