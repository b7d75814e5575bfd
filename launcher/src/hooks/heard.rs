//! What a command says: the beginning of it, in lines.

/// Bytes that are kept; a command may say any number.
const MOST: usize = 4096;

/// Lines that are shown.
const MOST_LINES: usize = 20;

/// The longest line, in bytes.
const LONGEST: usize = 400;

/// See the module.
#[derive(Debug, Default)]
pub struct Heard {
    bytes: Vec<u8>,
    /// Bytes that were not kept.
    more: u64,
}

impl Heard {
    /// Some bytes more.
    pub fn add(&mut self, bytes: &[u8]) {
        let (kept, left) = bytes.split_at(bytes.len().min(MOST - self.bytes.len()));
        self.bytes.extend_from_slice(kept);
        self.more = self.more.saturating_add(left.len() as u64);
    }

    /// All of it, as lines that control no terminal.
    pub fn lines(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        let mut lines: Vec<String> = text.lines().flat_map(pieces).collect();
        let left = lines.len().saturating_sub(MOST_LINES);
        lines.truncate(MOST_LINES);
        if left > 0 || self.more > 0 {
            lines.push("... and more, which is left out".to_owned());
        }
        lines
    }
}

/// A line in parts that are not too long.
fn pieces(line: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for c in line.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        match pieces.last_mut() {
            Some(last) if last.len() + c.len_utf8() <= LONGEST => last.push(c),
            _ => pieces.push(c.to_string()),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_plain() {
        let mut heard = Heard::default();
        assert!(heard.lines().is_empty());
        heard.add(b"one\n\x1b[2Jtw");
        heard.add("o\nü".as_bytes());
        assert_eq!(heard.lines(), ["one", " [2Jtwo", "ü"]);
        heard.add(&[b'x'; 1000]);
        assert_eq!(heard.lines()[2..].iter().map(String::len).collect::<Vec<_>>(), [400, 400, 202]);
        heard.add(&[b'\n'; 5000]);
        let lines = heard.lines();
        assert_eq!((lines.len(), heard.bytes.len()), (MOST_LINES + 1, MOST));
        assert_eq!(lines.last().unwrap(), "... and more, which is left out");
    }
}
