//! Log lines that stay one line: names and reasons come from other machines, and a newline in one would forge a line of ours.

use std::fmt::Write as _;
use std::io::{self, Write};

/// Standard error, to which each write is one line.
#[derive(Debug)]
pub struct OneLine<W> {
    to: W,
    /// Whether lines have colours: those of values are escaped by whoever writes them.
    coloured: bool,
}

impl<W> OneLine<W> {
    /// One that writes there.
    pub fn to(to: W, coloured: bool) -> Self {
        Self { to, coloured }
    }
}

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        self.to.write_all(escaped(&text, self.coloured).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The line with its control characters written out, but for the newline at its end.
pub fn escaped(line: &str, coloured: bool) -> String {
    let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
    let mut escaped = String::with_capacity(line.len() + 1);
    for character in line.chars() {
        let is_ours = character == '\u{1b}' && coloured;
        match character.is_control() && !is_ours {
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
        assert_eq!(escaped("refused a: b\n", false), "refused a: b\n");
        let forged = "name \"x\n2026 INFO all is well\r\u{7}\u{9b}2J\u{1b}[1m\" ü\n";
        let line = escaped(forged, false);
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(line, "name \"x\\n2026 INFO all is well\\r\\u{7}\\u{9b}2J\\u{1b}[1m\" ü\n");
        assert_eq!(
            escaped("\u{1b}[33mWARN\u{1b}[0m a\tb\n", true),
            "\u{1b}[33mWARN\u{1b}[0m a\\tb\n"
        );
        let mut written = Vec::new();
        OneLine::to(&mut written, false).write_all(b"a\nb\xff\n").unwrap();
        assert_eq!(written, "a\\nb\u{fffd}\n".as_bytes());
    }
}
