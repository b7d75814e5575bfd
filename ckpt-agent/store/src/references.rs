//! Finds every chunk that an index file refers to, without knowing what else it says.
//!
//! A reference is an array of six, `[hash, pack, offset, stored, length, encoding]`. Nothing that
//! an application can put into an index looks like it: its arguments and names are strings.

use std::fmt;
use std::io::{self, BufReader, Read};

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::chunk::{ChunkRef, Encoding, PackId};
use super::hash::ChunkHash;

/// The longest text in an index file, in bytes: a hundred times what the kernel takes as an argument.
const MAX_TEXT: usize = 16 << 20;
/// The most blanks one after the other: indexes are written without any.
const MAX_BLANKS: usize = 1 << 20;

/// Why an index file's references can't be told.
#[derive(Debug)]
pub(super) enum Fault {
    /// It could not be read.
    Read(io::Error),
    /// It is no index; what is wrong with it.
    Text(String),
}

/// Calls `found` for each reference in the JSON that `from` gives to its end. Neither takes memory by the length of the text.
///
/// # Errors
/// If it is not JSON, or something has the shape of a reference beyond the limits of one.
pub(super) fn references(
    from: &mut dyn Read,
    mut found: impl FnMut(ChunkRef),
) -> Result<(), Fault> {
    let guarded = Guarded { from, within_text: false, escaped: false, run: 0 };
    let mut json = serde_json::Deserializer::from_reader(BufReader::new(guarded));
    let scanned = Scan(&mut found).deserialize(&mut json).and_then(|_| json.end());
    scanned.map_err(|error| match error.io_error_kind() {
        None | Some(io::ErrorKind::InvalidData) => Fault::Text(error.to_string()),
        Some(_) => Fault::Read(error.into()),
    })
}

/// Ends the reading at a text that would have to be held, and at blanks without end.
struct Guarded<'a> {
    from: &'a mut dyn Read,
    within_text: bool,
    escaped: bool,
    /// Bytes of the text, or blanks.
    run: usize,
}

impl Guarded<'_> {
    fn pass(&mut self, byte: u8) -> Result<(), &'static str> {
        let begins_anew = match (self.within_text, byte) {
            (true, b'"') => !self.escaped,
            (true, _) => false,
            (false, byte) => !byte.is_ascii_whitespace(),
        };
        if begins_anew {
            self.within_text = byte == b'"' && !self.within_text;
            (self.run, self.escaped) = (0, false);
            return Ok(());
        }
        self.run += 1;
        self.escaped = self.within_text && byte == b'\\' && !self.escaped;
        match self.within_text {
            true if self.run > MAX_TEXT => Err("a text in it is longer than any that is written"),
            false if self.run > MAX_BLANKS => Err("it consists of blanks"),
            _ => Ok(()),
        }
    }
}

impl Read for Guarded<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(into)?;
        let passed = into[..count].iter().try_for_each(|byte| self.pass(*byte));
        passed.map_err(|reason| io::Error::new(io::ErrorKind::InvalidData, reason))?;
        Ok(count)
    }
}

/// Counts and hashes what passes.
pub(super) struct Tally<R> {
    from: R,
    hasher: blake3::Hasher,
    length: u64,
}

impl<R: Read> Tally<R> {
    pub(super) fn of(from: R) -> Self {
        Self { from, hasher: blake3::Hasher::new(), length: 0 }
    }

    /// Reads what is left. Length and hash of all.
    ///
    /// # Errors
    /// Where it can't be read.
    pub(super) fn finish(mut self) -> io::Result<(u64, ChunkHash)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(self.so_far())
    }

    /// Length and hash of what has been read.
    pub(super) fn so_far(&self) -> (u64, ChunkHash) {
        (self.length, self.hasher.finalize().into())
    }
}

impl<R: Read> Read for Tally<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(into)?;
        self.length += count as u64;
        self.hasher.update(&into[..count]);
        Ok(count)
    }
}

struct Scan<'a>(&'a mut dyn FnMut(ChunkRef));

/// As much of a value as a reference could consist of.
enum Seen {
    Hash(ChunkHash),
    Pack(PackId),
    Number(u64),
    Encoding(Encoding),
    Other,
}

impl<'de> DeserializeSeed<'de> for Scan<'_> {
    type Value = Seen;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Seen, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Scan<'_> {
    type Value = Seen;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Seen, E> {
        Ok(Seen::Other)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Seen, E> {
        Ok(Seen::Other)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Seen, E> {
        Ok(Seen::Number(number))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Seen, E> {
        Ok(Seen::Other)
    }

    fn visit_unit<E: Error>(self) -> Result<Seen, E> {
        Ok(Seen::Other)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Seen, E> {
        Ok(match text {
            "p" => Seen::Encoding(Encoding::Plain),
            "z" => Seen::Encoding(Encoding::Zstd),
            _ => ChunkHash::parse(text)
                .map(Seen::Hash)
                .or_else(|| PackId::parse(text).map(Seen::Pack))
                .unwrap_or(Seen::Other),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Seen, A::Error> {
        while map.next_key::<IgnoredAny>()?.is_some() {
            map.next_value_seed(Scan(self.0))?;
        }
        Ok(Seen::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Seen, A::Error> {
        let mut first = Vec::with_capacity(6);
        let mut count = 0_usize;
        while let Some(seen) = seq.next_element_seed(Scan(self.0))? {
            count += 1;
            if count <= 6 {
                first.push(seen);
            }
        }
        if count != 6 {
            return Ok(Seen::Other);
        }
        if let [
            Seen::Hash(hash),
            Seen::Pack(pack),
            Seen::Number(offset),
            Seen::Number(stored),
            Seen::Number(length),
            Seen::Encoding(encoding),
        ] = first[..]
        {
            let small = |number| u32::try_from(number).map_err(A::Error::custom);
            let (stored, length) = (small(stored)?, small(length)?);
            let chunk = ChunkRef { hash, pack, offset, stored, length, encoding };
            chunk.check().map_err(A::Error::custom)?;
            (self.0)(chunk);
        }
        Ok(Seen::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(offset: u64) -> ChunkRef {
        let (hash, pack) = (ChunkHash::of(b"x"), PackId::random());
        ChunkRef { hash, pack, offset, stored: 5, length: 5, encoding: Encoding::Plain }
    }

    fn all(text: &str) -> Result<Vec<ChunkRef>, Fault> {
        let mut chunks = Vec::new();
        references(&mut text.as_bytes(), |chunk| chunks.push(chunk)).map(|()| chunks)
    }

    #[test]
    fn what_would_have_to_be_held_ends_the_reading() {
        let most = "x".repeat(MAX_TEXT);
        assert_eq!(all(&format!(r#"["{most}", "\\\"{{", "\\"]"#)).unwrap(), []);
        let blanks = " ".repeat(MAX_BLANKS);
        assert_eq!(all(&format!("[{blanks}1,{blanks}2]")).unwrap(), []);
        let endless =
            [format!(r#"["{most}x"]"#), format!("[{blanks} 1]"), format!(r#"["\"{most}"#)];
        for text in endless {
            let mut rest = text.as_bytes().chain(io::repeat(b' '));
            assert!(matches!(references(&mut rest, |_| ()), Err(Fault::Text(_))));
        }
    }

    #[test]
    fn references_are_found_at_any_depth_and_nothing_else_is() {
        let (a, b) = (sample(0), sample(4096));
        let text = serde_json::json!({
            "areas": [{"start": -1, "index": [[0, a], [64, b]]}],
            "argv": [ChunkHash::of(b""), "0123456789ab", "1", "2", "3", "p"],
            "numbers": [1, 2, 3, 4, 5, 6, 7.5, null, true],
        });
        assert_eq!(all(&text.to_string()).unwrap(), vec![a, b]);
    }

    #[test]
    fn a_reference_beyond_the_limits_is_an_error() {
        let bad = ChunkRef { stored: 6, ..sample(0) };
        assert!(all(&serde_json::to_string(&[bad]).unwrap()).is_err());
        assert!(all("[1,2").is_err());
        assert!(all("[] []").is_err());
    }
}
