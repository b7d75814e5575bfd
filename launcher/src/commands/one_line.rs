//! Log lines that stay one line: names and reasons come from other machines, and a newline in one would forge a line of ours.

use std::fmt::Write as _;
use std::io::{self, Write};

/// Standard error, to which each write is one line.
#[derive(Debug)]
pub struct OneLine<W> {
    to: W,
}

impl<W> OneLine<W> {
    /// One that writes there.
    pub fn to(to: W) -> Self {
        Self { to }
    }
}

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        self.to.write_all(escaped(&text).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The line with its control characters written out, but for the newline at its end.
pub fn escaped(line: &str) -> String {
    let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
    let mut escaped = String::with_capacity(line.len() + 1);
    for character in line.chars() {
        match character.is_control() {
            true => drop(write!(escaped, "{}", character.escape_default())),
            false => escaped.push(character),
        }
    }
    escaped + end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_line_begins_another_one() {
        assert_eq!(escaped("refused a: b\n"), "refused a: b\n");
        let forged = "name \"x\n2026 INFO all is well\r\u{7}\u{9b}2J\u{1b}[1m\" ü\n";
        let line = escaped(forged);
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(line, "name \"x\\n2026 INFO all is well\\r\\u{7}\\u{9b}2J\\u{1b}[1m\" ü\n");
        let mut written = Vec::new();
        OneLine::to(&mut written).write_all(b"a\nb\xff\n").unwrap();
        assert_eq!(written, "a\\nb\u{fffd}\n".as_bytes());
    }
}
