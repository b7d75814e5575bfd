//! The file that is to be like a job's log.

use crate::text;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// See the module.
#[derive(Debug)]
pub struct Mirror {
    file: File,
    path: PathBuf,
    /// So far it is like the log.
    length: u64,
    /// Since when it takes nothing.
    failing: Option<Instant>,
    /// Whether the user has been told of that.
    told: bool,
}

impl Mirror {
    /// A file with nothing in it.
    pub fn new(file: File, path: PathBuf) -> Self {
        Self { file, path, length: 0, failing: None, told: false }
    }

    /// So many bytes of the log are in it.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// How long it has taken nothing.
    pub fn failing(&self) -> Option<Duration> {
        self.failing.map(|since| since.elapsed())
    }

    /// The bytes of the log from a place on, up to which it is like the log or which was cut off. False where it does not
    /// take them.
    pub fn put(&mut self, start: u64, bytes: &[u8]) -> bool {
        let written = self.file.write_all_at(bytes, start);
        self.length = match written {
            Ok(()) => start + bytes.len() as u64,
            // What was written of it is written again.
            Err(_) => self.length.min(start),
        };
        if written.is_ok() {
            self.failing = None;
        }
        self.note(written)
    }

    /// The log ends here. False where the file can't be cut.
    pub fn end_at(&mut self, length: u64) -> bool {
        self.length = self.length.min(length);
        let cut = || match self.file.metadata()?.len() > self.length {
            true => self.file.set_len(self.length),
            false => Ok(()),
        };
        let done = cut();
        // A full disk lets a file be cut, and takes no more for that.
        if done.is_ok() && self.length == length {
            self.failing = None;
        }
        self.note(done)
    }

    fn note(&mut self, done: io::Result<()>) -> bool {
        let Err(error) = done else { return true };
        self.failing.get_or_insert_with(Instant::now);
        if !std::mem::replace(&mut self.told, true) {
            self.warn(&format!("can't be written: {error}; the job runs on, and its log has all"));
        }
        false
    }

    /// Tells how much is lacking in the end, of a log of this length.
    pub fn tell_of_lack(&self, length: u64, job: &str) {
        let lacking = length.saturating_sub(self.length);
        if lacking > 0 || self.failing.is_some() {
            let lacking = text::size(lacking);
            self.warn(&format!(
                "lacks the last {lacking} of the output: 'ckptd logs {job}' shows it"
            ));
        }
    }

    fn warn(&self, cause: &str) {
        // The terminal may be raw for the job's sake.
        let end = if io::stderr().is_terminal() { "\r\n" } else { "\n" };
        // Nobody may hear it, and the job is not to suffer by that.
        let _ = write!(io::stderr(), "ckptd: warning: {} {cause}{end}", self.path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};

    #[test]
    fn it_is_cut_back_with_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let file = File::create(&path).unwrap();
        let mut mirror = Mirror::new(file, path.clone());
        assert!(mirror.put(0, b"one two") && mirror.put(7, b" three") && mirror.end_at(13));
        assert_eq!(fs::read(&path).unwrap(), b"one two three");
        assert!(mirror.put(4, b"2") && mirror.end_at(5));
        assert_eq!(fs::read(&path).unwrap(), b"one 2");
        assert!(mirror.end_at(3));
        assert_eq!((fs::read(&path).unwrap(), mirror.length()), (b"one".to_vec(), 3));
    }

    #[test]
    fn what_a_full_disk_does_not_take_is_still_to_come() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut mirror = Mirror::new(full, "/dev/full".into());
        assert!(!mirror.put(0, b"one") && !mirror.put(0, b"one"));
        assert_eq!(mirror.length(), 0);
        assert!(mirror.failing().is_some() && mirror.told);
        // That it can still be cut does not make it take more.
        let since = mirror.failing;
        assert!(mirror.end_at(3) && !mirror.put(0, b"one"));
        assert_eq!(mirror.failing, since);
    }
}
