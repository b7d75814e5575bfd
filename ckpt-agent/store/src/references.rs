//! Finds every chunk that an index file refers to, without knowing what else it says.
//!
//! A reference is an array of six, `[hash, pack, offset, stored, length, encoding]`. Nothing that
//! an application can put into an index looks like it: its arguments and names are strings.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::chunk::{ChunkRef, Encoding, PackId};
use super::hash::ChunkHash;

/// Calls `found` for each reference in the JSON `text`.
///
/// # Errors
/// If `text` is not JSON, or something has the shape of a reference beyond the limits of one.
pub(super) fn references(
    text: &[u8],
    mut found: impl FnMut(ChunkRef),
) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(text);
    Scan(&mut found).deserialize(&mut json)?;
    json.end()
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

    fn all(text: &str) -> Result<Vec<ChunkRef>, serde_json::Error> {
        let mut chunks = Vec::new();
        references(text.as_bytes(), |chunk| chunks.push(chunk)).map(|()| chunks)
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
