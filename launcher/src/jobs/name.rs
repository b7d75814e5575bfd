//! Names and ids of jobs.

use super::JobError;
use std::ffi::OsStr;
use std::path::Path;

/// The longest name, in bytes: an id must stay a file name with room for a number.
const MAX_NAME: usize = 64;

/// The word for the newest job.
pub const LATEST: &str = "latest";

/// Checks a name that a user has chosen.
pub fn check(name: &str) -> Result<(), JobError> {
    let bad = |reason| Err(JobError::BadName { name: name.to_owned(), reason });
    if name.is_empty() || name.len() > MAX_NAME {
        return bad("it must have 1 to 64 characters");
    }
    if !name.bytes().all(allowed) {
        return bad("only letters, digits, '.', '_' and '-' are allowed");
    }
    if name.starts_with(['.', '-']) {
        return bad("it must not begin with '.' or '-'");
    }
    if name == LATEST {
        return bad("'latest' always means the newest job");
    }
    Ok(())
}

fn allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// The first part of the id of a job that runs this program.
pub fn stem(program: &OsStr) -> String {
    let base = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    let clean: String = base
        .chars()
        .map(|c| if c.is_ascii() && allowed(c as u8) { c } else { '_' })
        .take(MAX_NAME)
        .collect();
    let clean = clean.trim_start_matches(['.', '-']);
    if clean.is_empty() { "job".to_owned() } else { clean.to_owned() }
}

/// The first part of an id, made a name.
pub fn stem_of_id(id: &str) -> String {
    let first = match id.rsplit_once('-') {
        Some((first, digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => first,
        _ => id,
    };
    stem(OsStr::new(first))
}

/// An id's number, where it is one of that stem.
pub fn number(id: &str, stem: &str) -> Option<u64> {
    let digits = id.strip_prefix(stem)?.strip_prefix('-')?;
    if digits.starts_with('0') || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "fold-2", "N_Queens.15"] {
            check(good).unwrap();
        }
        for bad in ["", "..", "-x", "a/b", "a b", "latest", "é", &"x".repeat(65)] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn stems_are_names() {
        for (program, expected) in [
            ("/usr/bin/mpirun", "mpirun"),
            ("./my prog", "my_prog"),
            ("..", "job"),
            ("é", "_"),
            ("--x", "x"),
        ] {
            assert_eq!(stem(OsStr::new(program)), expected);
        }
        check(&stem(OsStr::new(&"x".repeat(300)))).unwrap();
    }

    #[test]
    fn stems_of_ids() {
        for (id, expected) in
            [("mpirun-12", "mpirun"), ("a-b", "a-b"), ("../..", "_.."), ("", "job")]
        {
            assert_eq!(stem_of_id(id), expected);
        }
    }

    #[test]
    fn numbers_of_ids() {
        assert_eq!(number("mpirun-12", "mpirun"), Some(12));
        assert_eq!(number("mpirun-", "mpirun"), None);
        assert_eq!(number("mpirun-2-1", "mpirun"), None);
        assert_eq!(number("mpirun-02", "mpirun"), None);
        assert_eq!(number("other-1", "mpirun"), None);
    }
}
