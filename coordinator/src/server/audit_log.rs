//! The file with the [audit log](protocol::cluster::audit).

use protocol::cluster::audit::{AuditEvent, Chain, MAX_LINE};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// Its name in the coordinator's folder.
pub const NAME: &str = "audit.log";

/// The most of it that one answer has, in bytes.
const PART: usize = 256 * 1024;

/// The log, open at its end.
#[derive(Debug)]
pub struct AuditLog {
    file: Arc<File>,
    chain: Chain,
    length: u64,
    unsynced: bool,
}

/// Some of its lines.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// The lines, whole ones.
    pub lines: Vec<String>,
    /// Bytes of the log up to their end.
    pub next: u64,
    /// Whether there are no more.
    pub over: bool,
}

impl AuditLog {
    /// Opens the log of a folder, or begins one. A line of which only the beginning was written is taken away. Where a
    /// line does not follow the one before, whoever reads the log is told: it is written on behind all the same, so that
    /// nothing is lost of what comes.
    ///
    /// # Errors
    /// It can't be opened or read.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let file = options.open(folder.join(NAME))?;
        let (mut chain, mut length) = (Chain::default(), 0);
        let mut lines = BufReader::new(&file);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
            length += line.len() as u64;
            let text = String::from_utf8_lossy(&line[..line.len() - 1]);
            if let Err(error) = chain.follow(&text) {
                tracing::error!("the audit log is not as it was written: {error}");
                chain.begin_behind(&text);
            }
            line.clear();
        }
        file.set_len(length)?;
        Ok(Self { file: Arc::new(file), chain, length, unsynced: false })
    }

    /// Appends a line.
    ///
    /// # Errors
    /// It can't be written: then the log is as it was, as far as the disk allows.
    pub fn append(&mut self, at_ms: u64, event: AuditEvent) -> io::Result<()> {
        let mut chain = self.chain.clone();
        let line = chain.add(at_ms, event)? + "\n";
        debug_assert!(line.len() <= MAX_LINE, "texts from outside are short");
        let written = (&*self.file).write_all(line.as_bytes());
        if let Err(error) = written {
            // Half a line, behind which no other can be read.
            self.file.set_len(self.length)?;
            return Err(error);
        }
        self.chain = chain;
        self.length += line.len() as u64;
        self.unsynced = true;
        Ok(())
    }

    /// The file, if something was appended since it was asked for.
    pub fn take_unsynced(&mut self) -> Option<Arc<File>> {
        std::mem::take(&mut self.unsynced).then(|| Arc::clone(&self.file))
    }

    /// The lines that begin so many bytes behind the log's beginning, as many as one answer has.
    ///
    /// # Errors
    /// They can't be read.
    pub fn read(&self, from: u64) -> io::Result<Part> {
        let wanted = self.length.saturating_sub(from).min(PART as u64) as usize;
        let mut bytes = vec![0; wanted];
        self.file.read_exact_at(&mut bytes, from)?;
        // A line is shorter than a part, so that there is a whole one, if not the log's end.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines = String::from_utf8_lossy(&bytes[..whole]).lines().map(str::to_owned).collect();
        let next = from + whole as u64;
        Ok(Part { lines, next, over: whole == 0 || next >= self.length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn began(term: u64) -> AuditEvent {
        AuditEvent::Began { term, version: "x".repeat(400) }
    }

    fn all(log: &AuditLog) -> Vec<String> {
        let (mut from, mut lines) = (0, Vec::new());
        loop {
            let part = log.read(from).unwrap();
            lines.extend(part.lines);
            from = part.next;
            if part.over {
                return lines;
            }
        }
    }

    #[test]
    fn a_log_goes_on_where_it_ended() {
        let folder = tempfile::tempdir().unwrap();
        for term in 0..1000 {
            AuditLog::open(folder.path()).unwrap().append(term, began(term)).unwrap();
        }
        let path = folder.path().join(NAME);
        // Half a line, of a coordinator that was killed.
        let torn = std::fs::read_to_string(&path).unwrap() + "{\"number\":1001,";
        std::fs::write(&path, torn).unwrap();
        let mut log = AuditLog::open(folder.path()).unwrap();
        log.append(1, began(1000)).unwrap();
        let (lines, mut chain) = (all(&log), Chain::default());
        assert_eq!(lines.len(), 1001);
        lines.iter().for_each(|line| drop(chain.follow(line).unwrap()));
        assert!(log.take_unsynced().is_some() && log.take_unsynced().is_none());
        assert_eq!(
            log.read(log.length + 5).unwrap(),
            Part { lines: vec![], next: log.length + 5, over: true }
        );
    }

    #[test]
    fn a_log_that_was_changed_is_written_on_and_stays_broken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let mut log = AuditLog::open(folder.path()).unwrap();
        (0..3).for_each(|term| log.append(term, began(term)).unwrap());
        let changed =
            std::fs::read_to_string(&path).unwrap().replacen("\"term\":1", "\"term\":7", 1);
        std::fs::write(&path, changed).unwrap();
        let mut log = AuditLog::open(folder.path()).unwrap();
        log.append(9, began(9)).unwrap();
        let mut chain = Chain::default();
        let followed: Vec<bool> = all(&log).iter().map(|line| chain.follow(line).is_ok()).collect();
        assert_eq!(followed, [true, true, false, false]);
        // Not even text: the coordinator starts all the same.
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[3] = 0xff;
        std::fs::write(&path, bytes).unwrap();
        let last = AuditLog::open(folder.path()).unwrap();
        assert_eq!(last.chain.length(), 4);
    }
}
