//! What a command has said last into a file, which is why it has failed.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// So much of its end is looked at, in bytes.
const MOST_SAID: u64 = 4096;

/// The last line that is not blank, without the name of who has said it.
pub fn last_line(mut said: File) -> Option<String> {
    let length = said.metadata().ok()?.len();
    said.seek(SeekFrom::Start(length.saturating_sub(MOST_SAID))).ok()?;
    let mut bytes = Vec::new();
    said.take(MOST_SAID).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rfind(|line| !line.trim().is_empty())?.trim();
    Some(line.strip_prefix("ckptd: ").unwrap_or(line).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn of_what_an_export_says_the_last_line_is_its_failure() {
        let mut said = tempfile::tempfile().unwrap();
        writeln!(said, "{}\nckptd: failed to export a@3: the disk is full\n", "x".repeat(9000))
            .unwrap();
        let line = last_line(said.try_clone().unwrap());
        assert_eq!(line.as_deref(), Some("failed to export a@3: the disk is full"));
        said.set_len(0).unwrap();
        assert_eq!(last_line(said), None);
    }
}
