//! The content of files that stay where they are, by which a restart tells whether they have changed if the user wants so
//! (`--file-check hash`). Each version of a file is read once.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Result};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::sys::stat::{changed_ns_of, modified_ns_of};

/// Versions that are remembered.
const MOST_REMEMBERED: usize = 4096;
/// Bytes read at once.
const PIECE: usize = 1 << 20;
/// Times of files are as coarse as the kernel's tick. What was changed a shorter while ago may change without one.
const REST: Duration = Duration::from_secs(2);

/// Device, inode, size, times of modification and change in nanoseconds.
type Version = (u64, u64, u64, i64, i64);

fn version(metadata: &Metadata) -> Version {
    let times = (modified_ns_of(metadata), changed_ns_of(metadata));
    (metadata.dev(), metadata.ino(), metadata.size(), times.0, times.1)
}

/// BLAKE3 of a file's bytes, hex. Its offset stays as it is.
///
/// # Errors
/// Failed reads; a file that changes meanwhile.
pub fn hash(file: &File) -> Result<String> {
    static KNOWN: Mutex<Option<HashMap<Version, String>>> = Mutex::new(None);
    let found = version(&file.metadata()?);
    if let Some(known) = remembered(&KNOWN, |known| known.get(&found).cloned()) {
        return Ok(known);
    }
    let hash = read(file, found.2)?;
    if version(&file.metadata()?) != found {
        return Err(ErrorKind::ResourceBusy.into());
    }
    if rests(&found) {
        remembered(&KNOWN, |known| {
            if known.len() >= MOST_REMEMBERED {
                known.clear();
            }
            known.insert(found, hash.clone());
        });
    }
    Ok(hash)
}

fn remembered<T>(
    known: &Mutex<Option<HashMap<Version, String>>>,
    act: impl FnOnce(&mut HashMap<Version, String>) -> T,
) -> T {
    act(known.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(HashMap::new))
}

fn rests(version: &Version) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let before = now.saturating_sub(REST).as_nanos() as i64;
    version.3.max(version.4) < before
}

fn read(file: &File, size: u64) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < size {
        let wanted = usize::try_from(size - at).unwrap_or(PIECE).min(PIECE);
        match file.read_at(piece.get_mut(..wanted).unwrap_or_default(), at) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                hasher.update(piece.get(..count).unwrap_or_default());
                at += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn content_decides() {
        let mut one = tempfile::tempfile().unwrap();
        one.write_all(&[7; PIECE + 1]).unwrap();
        let mut other = tempfile::tempfile().unwrap();
        other.write_all(&[7; PIECE + 1]).unwrap();
        assert_eq!(hash(&one).unwrap(), hash(&other).unwrap());
        other.write_at(&[8], PIECE as u64).unwrap();
        assert_ne!(hash(&one).unwrap(), hash(&other).unwrap());
        assert_eq!(hash(&one).unwrap(), blake3::hash(&[7; PIECE + 1]).to_hex().to_string());
    }
}
