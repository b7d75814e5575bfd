//! The index on disk: a header, then records of one size, each with a checksum. The last one is written anew when its
//! piece grows. What a crash leaves of it is read as far as it is whole: a torn index costs times, never output.

use super::{Added, MOST, Origin, Piece, Times};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Its name, beside the log.
pub const NAME: &str = "log.times";

/// What it begins with: its name and format.
const HEADER: &[u8; 16] = b"ckptd-logtimes-1";

/// Bytes of a record.
const RECORD: usize = 40;

/// Bytes of a record before its checksum.
const CONTENT: usize = 32;

/// The longest file that is read: none is longer that this wrote.
const MOST_BYTES: u64 = (HEADER.len() + MOST * RECORD) as u64;

/// Records that are read at once, from the end.
const CHUNK: u64 = 64;

fn encode(piece: &Piece) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    let origin: u8 = match piece.origin {
        Origin::Output => 1,
        Origin::Error => 2,
        Origin::Ckptd => 3,
        Origin::Mixed => 4,
    };
    record[..8].copy_from_slice(&piece.start.to_le_bytes());
    record[8..16].copy_from_slice(&piece.end.to_le_bytes());
    record[16..24].copy_from_slice(&piece.at_ms.to_le_bytes());
    record[24..28].copy_from_slice(&piece.span_ms.to_le_bytes());
    record[28] = origin;
    let check = blake3::hash(&record[..CONTENT]);
    record[CONTENT..].copy_from_slice(&check.as_bytes()[..RECORD - CONTENT]);
    record
}

fn decode(record: &[u8]) -> Option<Piece> {
    let (content, check) = record.split_at_checked(CONTENT)?;
    if blake3::hash(content).as_bytes().get(..RECORD - CONTENT)? != check {
        return None;
    }
    let number = |at: usize| {
        let bytes = content.get(at..at + 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    let origin = match content.get(28)? {
        1 => Origin::Output,
        2 => Origin::Error,
        3 => Origin::Ckptd,
        4 => Origin::Mixed,
        _ => return None,
    };
    let span_ms = u32::from_le_bytes(content.get(24..28)?.try_into().ok()?);
    Some(Piece { start: number(0)?, end: number(8)?, at_ms: number(16)?, span_ms, origin })
}

fn pieces(records: &[u8]) -> impl Iterator<Item = Piece> + '_ {
    records.chunks_exact(RECORD).filter_map(decode)
}

/// What is known of a log of this length by the index at that path: nothing where there is none.
#[must_use]
pub fn read(path: &Path, length: u64) -> Times {
    let read = || -> io::Result<Vec<u8>> {
        match fs::metadata(path)?.len() {
            0..=MOST_BYTES => fs::read(path),
            _ => Err(io::Error::other("it is too long")),
        }
    };
    let bytes = read().unwrap_or_default();
    let records = bytes.strip_prefix(HEADER.as_slice()).unwrap_or_default();
    Times::of(pieces(records), length)
}

/// What is known of a log between two places near its end. As [`read`], but no more of the index is read than that takes.
#[must_use]
pub fn behind(path: &Path, start: u64, end: u64) -> Vec<Piece> {
    let last = || -> io::Result<Vec<Piece>> {
        let file = File::open(path)?;
        let mut found = [0; HEADER.len()];
        file.read_exact_at(&mut found, 0)?;
        if found != *HEADER {
            return Err(io::Error::other("it is something else"));
        }
        let header = HEADER.len() as u64;
        let length = file.metadata()?.len();
        if length > MOST_BYTES {
            return Err(io::Error::other("it is longer than any"));
        }
        let mut first = length.saturating_sub(header) / RECORD as u64;
        let mut found: Vec<Piece> = Vec::new();
        while first > 0 && found.first().is_none_or(|piece| piece.start > start) {
            let count = first.min(CHUNK);
            first -= count;
            let mut records = vec![0; RECORD * usize::try_from(count).unwrap_or_default()];
            file.read_exact_at(&mut records, header + first * RECORD as u64)?;
            found.splice(0..0, pieces(&records));
        }
        Ok(found)
    };
    Times::of(last().unwrap_or_default(), end).between(start, end)
}

/// Writes the index of a log of this length; none where nothing is known. What does not follow on each other is left out.
///
/// # Errors
/// Where it can't be written.
pub fn write(path: &Path, known: &[Piece], length: u64) -> io::Result<()> {
    let times = Times::of(known.iter().copied(), length);
    if times.pieces().is_empty() { Ok(()) } else { replace(path, &times).map(drop) }
}

/// Puts an index into the place of the old one, which nobody sees half written.
fn replace(path: &Path, times: &Times) -> io::Result<File> {
    let new = path.with_extension("times.new");
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let records = times.pieces().iter().flat_map(encode);
    let bytes: Vec<u8> = HEADER.iter().copied().chain(records).collect();
    file.write_all_at(&bytes, 0)?;
    fs::rename(&new, path)?;
    Ok(file)
}

/// The index of a log that is being written. It never fails: what can't be written is tried again with the next piece.
#[derive(Debug)]
pub struct TimesFile {
    path: PathBuf,
    file: Option<File>,
    times: Times,
}

impl TimesFile {
    /// That of the log in a folder, which has this length. What it says of more is forgotten.
    #[must_use]
    pub fn open(folder: &Path, length: u64) -> Self {
        let path = folder.join(NAME);
        let times = read(&path, length);
        // It is written anew with the first piece: whatever was torn or left behind goes then.
        Self { path, file: None, times }
    }

    /// What is known.
    #[must_use]
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// A piece was written.
    pub fn add(&mut self, piece: Piece) {
        let added = self.times.add(piece);
        if added == Added::Nothing {
            return;
        }
        let written = match (&self.file, added) {
            (Some(file), Added::Last) => write_last(file, &self.times),
            _ => self.rewrite(),
        };
        if written.is_err() {
            self.file = None;
        }
    }

    /// The log was cut to a length.
    pub fn cut(&mut self, length: u64) {
        if self.times.cut(length) && self.rewrite().is_err() {
            self.file = None;
        }
    }

    fn rewrite(&mut self) -> io::Result<()> {
        self.file = Some(replace(&self.path, &self.times)?);
        Ok(())
    }
}

fn write_last(file: &File, times: &Times) -> io::Result<()> {
    let Some((last, before)) = times.pieces().split_last() else { return Ok(()) };
    file.write_all_at(&encode(last), (HEADER.len() + before.len() * RECORD) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: u64, end: u64, at_ms: u64) -> Piece {
        Piece { start, end, at_ms, span_ms: 0, origin: Origin::Output }
    }

    fn filled(folder: &Path, count: u64) -> TimesFile {
        let mut file = TimesFile::open(folder, 0);
        for number in 0..count {
            file.add(piece(number * 10, number * 10 + 5, number * 1000));
            file.add(piece(number * 10 + 5, number * 10 + 10, number * 1000 + 1));
        }
        file
    }

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let file = filled(dir.path(), 200);
        assert_eq!(read(&path, 2000), *file.times());
        assert_eq!(read(&path, 1995).pieces().last().unwrap().end, 1995);
        assert_eq!(behind(&path, 1985, 1995), read(&path, 2000).between(1985, 1995));
        assert_eq!(behind(&path, 0, 2000), file.times().pieces());
        let mut again = TimesFile::open(dir.path(), 1000);
        again.add(piece(1000, 1001, 5));
        assert_eq!(read(&path, 2000).pieces().last().unwrap().end, 1001);
        again.cut(500);
        assert_eq!(read(&path, 2000).pieces().last().unwrap().end, 500);
        filled(dir.path(), 2 * MOST as u64);
        assert!(fs::metadata(&path).unwrap().len() <= MOST_BYTES);
        assert_eq!(read(&path, u64::MAX).pieces().last().unwrap().end, 20 * MOST as u64);
    }

    #[test]
    fn a_torn_index_costs_the_times_that_are_torn() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let whole = filled(dir.path(), 20).times().clone();
        let bytes = fs::read(&path).unwrap();
        for length in 0..bytes.len() {
            fs::write(&path, &bytes[..length]).unwrap();
            let known = length.saturating_sub(HEADER.len()) / RECORD;
            assert_eq!(read(&path, 200).pieces(), &whole.pieces()[..known]);
            let mut flipped = bytes.clone();
            flipped[length] ^= 0x40;
            fs::write(&path, &flipped).unwrap();
            let left = read(&path, 200);
            assert!(left.pieces().iter().all(|piece| whole.pieces().contains(piece)));
            assert!(length < HEADER.len() || left.pieces().len() == whole.pieces().len() - 1);
            let last = behind(&path, 100, 200);
            assert!(last.iter().all(|piece| left.pieces().contains(piece)));
        }
    }
}
