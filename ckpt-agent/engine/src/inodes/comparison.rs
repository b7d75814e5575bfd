//! Whether a file has the bytes that an image holds of it.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// A file beside its recorded content, which comes in spans; between them there are zeros.
#[derive(Debug)]
pub struct Comparison {
    file: File,
    /// Up to where it was compared.
    end: u64,
    same: bool,
}

impl Comparison {
    /// With a file that can be read; one that can't has another content.
    pub fn of(file: File) -> Self {
        Self { file, end: 0, same: true }
    }

    /// The next bytes, at this offset.
    pub fn span(&mut self, offset: u64, bytes: &[u8]) {
        self.zeros_until(offset);
        self.same = self.same && self.has(offset, bytes);
        self.end = offset.saturating_add(bytes.len() as u64);
    }

    /// No more come, and the content has this length: whether all was the same.
    pub fn ends(mut self, length: u64) -> bool {
        self.zeros_until(length);
        self.same
    }

    fn zeros_until(&mut self, offset: u64) {
        let zeros = [0; 4096];
        while self.same && self.end < offset {
            let length = (offset - self.end).min(zeros.len() as u64);
            self.same = self.has(self.end, &zeros[..length as usize]);
            self.end += length;
        }
    }

    fn has(&self, offset: u64, bytes: &[u8]) -> bool {
        let mut found = vec![0; bytes.len()];
        self.file.read_exact_at(&mut found, offset).is_ok() && found == bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: u64 = 10_000;

    fn file() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(LENGTH).unwrap();
        file.write_all_at(b"one", 5000).unwrap();
        file.write_all_at(b"two", 9000).unwrap();
        file
    }

    fn is_same(file: &File) -> bool {
        let mut comparison = Comparison::of(file.try_clone().unwrap());
        comparison.span(5000, b"one");
        comparison.span(9000, b"two");
        comparison.ends(LENGTH)
    }

    #[test]
    fn each_byte_counts_wherever_it_is() {
        assert!(is_same(&file()));
        for at in [0, 4999, 5001, 5003, 9002, 9003, LENGTH - 1] {
            let file = file();
            file.write_all_at(b"x", at).unwrap();
            assert!(!is_same(&file), "byte {at}");
        }
        let short = file();
        short.set_len(9001).unwrap();
        assert!(!is_same(&short));
        assert!(Comparison::of(tempfile::tempfile().unwrap()).ends(0));
    }
}
