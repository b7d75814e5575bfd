//! Names and ids of jobs.

use std::ffi::OsStr;
use std::path::Path;

/// The longest name, in bytes: an id must stay a file name with room for a number.
const MAX_NAME: usize = 64;

/// The word for the newest job.
pub(in crate::cluster) const LATEST: &str = "latest";

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// Why a name that a user has chosen is none.
pub(in crate::cluster) fn refusal(name: &str) -> Option<&'static str> {
    if name.is_empty() || name.len() > MAX_NAME {
        Some("it must have 1 to 64 characters")
    } else if !name.bytes().all(is_allowed) {
        Some("only letters, digits, '.', '_' and '-' are allowed")
    } else if name.starts_with(['.', '-']) {
        Some("it must not begin with '.' or '-'")
    } else if name == LATEST {
        Some("'latest' always means the newest job")
    } else {
        None
    }
}

/// The first part of the id of a job that runs this program.
pub(in crate::cluster) fn stem(program: &OsStr) -> String {
    let base = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    let clean: String = base
        .chars()
        .map(|c| if u8::try_from(c).is_ok_and(is_allowed) { c } else { '_' })
        .take(MAX_NAME)
        .collect();
    let clean = clean.trim_start_matches(['.', '-']);
    if clean.is_empty() { "job".to_owned() } else { clean.to_owned() }
}

/// An id of this stem that none of those in use equals, with the smallest number above theirs.
pub(in crate::cluster) fn fresh_id<'a>(stem: &str, used: impl Iterator<Item = &'a str>) -> String {
    let number = |id: &str| -> Option<u64> {
        let digits = id.strip_prefix(stem)?.strip_prefix('-')?;
        let plain = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
        if plain { digits.parse().ok() } else { None }
    };
    let newest = used.filter_map(number).max().unwrap_or(0);
    format!("{stem}-{}", newest.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_never_used_twice() {
        let used = ["nqueens-1", "nqueens-12", "nqueens-012", "ring-99"];
        assert_eq!(fresh_id("nqueens", used.into_iter()), "nqueens-13");
        assert_eq!(fresh_id("pi", used.into_iter()), "pi-1");
    }

    #[test]
    fn stems_are_file_names() {
        assert_eq!(stem(OsStr::new("/opt/my prog")), "my_prog");
        assert_eq!(stem(OsStr::new("..")), "job");
        assert!(refusal("../x").is_some() && refusal("fold").is_none());
    }
}
