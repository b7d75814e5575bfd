//! The commit mark: which files and packs make a checkpoint, and their hashes. `FORMAT.md` draws
//! it.

use serde::{Deserialize, Serialize};

use super::chunk::PackId;
use super::error::Damage;
use super::hash::ChunkHash;
use super::layout::is_index_name;

/// The newest format that this ckptd reads. It writes it where images are encrypted, and else [`PLAIN_FORMAT`].
pub const FORMAT_VERSION: u64 = 2;
/// The format of images that are not encrypted.
const PLAIN_FORMAT: u64 = 1;

/// The longest commit mark that is read, in bytes.
pub(super) const MAX_MARK: usize = 32 << 20;
/// The most index files of a checkpoint.
pub(super) const MAX_FILES: usize = 100_000;
/// The longest index file, in bytes: the chunks of some 700 GiB of memory.
pub(super) const MAX_INDEX: usize = 512 << 20;

const MAGIC: &str = "ckptd checkpoint ";
const TRAILER: &str = "blake3 ";

/// What makes a checkpoint whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommitMark {
    /// The checkpoint's number.
    pub checkpoint: u64,
    /// When it was committed, in milliseconds since 1970 (UTC).
    pub time_ms: u64,
    /// Its index files, in the order in which they were written.
    pub files: Vec<IndexFile>,
    /// The packs that hold its chunks.
    pub packs: Vec<PackFile>,
    /// How large it is.
    pub totals: Totals,
    /// Whether its chunks and index files are encrypted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sealed: bool,
    /// What the caller wants to know about it later: its pause, its reason.
    #[serde(deserialize_with = "protocol::json::modest")]
    pub meta: serde_json::Value,
}

/// An index file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexFile {
    /// Its name in the checkpoint's folder.
    pub name: String,
    /// Its length in bytes.
    pub length: u64,
    /// The hash of its contents.
    pub hash: ChunkHash,
}

/// A pack that a checkpoint refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackFile {
    /// The pack's name, which its file's name is made of.
    pub id: PackId,
    /// Its length in bytes.
    pub length: u64,
}

/// How large a checkpoint is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// How many chunks were submitted.
    pub submitted: u64,
    /// Their length in bytes.
    pub bytes: u64,
    /// How many different chunks that left.
    pub chunks: u64,
    /// The bytes that those take in packs, compressed, without headers and padding.
    pub stored: u64,
    /// Those of them that lay there before, in packs of older checkpoints.
    #[serde(default)]
    pub reused: u64,
    /// The bytes of all index files.
    pub index: u64,
}

// serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !value
}

impl CommitMark {
    /// The mark as it stands on the disk.
    pub(super) fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let version = if self.sealed { FORMAT_VERSION } else { PLAIN_FORMAT };
        let mut text = format!("{MAGIC}{version}\n{}\n", serde_json::to_string(self)?);
        let hash = ChunkHash::of(text.as_bytes());
        text.push_str(&format!("{TRAILER}{hash}\n"));
        Ok(text.into_bytes())
    }

    /// Reads a mark. The checksum comes first, so that a flipped bit in the version is damage
    /// and not a newer format: the last line has the same form in every version.
    pub(super) fn decode(number: u64, bytes: &[u8]) -> Result<Self, Damage> {
        let damaged = |reason: &str| Damage::Mark { number, reason: reason.to_owned() };
        let (body, checked) = split_trailer(bytes).ok_or_else(|| damaged("it is cut short"))?;
        if ChunkHash::of(body.as_bytes()) != checked {
            return Err(damaged("its checksum does not match"));
        }
        let rest = body.strip_prefix(MAGIC).ok_or_else(|| damaged("it is no commit mark"))?;
        let (version, json) = rest.split_once('\n').ok_or_else(|| damaged("it has no version"))?;
        match version.parse::<u64>() {
            Ok(0) | Err(_) => return Err(damaged("it has no version")),
            Ok(found) if found > FORMAT_VERSION => {
                return Err(Damage::NewerFormat { number, found, known: FORMAT_VERSION });
            }
            Ok(_) => {}
        }
        let mark: Self =
            protocol::json::read(json.as_bytes()).map_err(|error| damaged(&error.to_string()))?;
        mark.check(number).map_err(damaged)?;
        Ok(mark)
    }

    fn check(&self, number: u64) -> Result<(), &'static str> {
        if self.checkpoint != number {
            return Err("it belongs to another checkpoint");
        }
        if self.files.len() > MAX_FILES {
            return Err("it names too many index files");
        }
        let mut names = std::collections::HashSet::new();
        for file in &self.files {
            if !is_index_name(&file.name) || !names.insert(&file.name) {
                return Err("it names an index file that is none");
            }
            if file.length > MAX_INDEX as u64 {
                return Err("it names an index file beyond the limit");
            }
        }
        let mut packs = std::collections::HashSet::new();
        if !self.packs.iter().all(|pack| packs.insert(pack.id)) {
            return Err("it names a pack twice");
        }
        Ok(())
    }
}

fn split_trailer(bytes: &[u8]) -> Option<(&str, ChunkHash)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let start = text.len().checked_sub(TRAILER.len() + 64 + 1)?;
    let trailer = text.get(start..)?.strip_prefix(TRAILER)?.strip_suffix('\n')?;
    Some((&text[..start], ChunkHash::parse(trailer)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> CommitMark {
        CommitMark {
            checkpoint: 3,
            time_ms: 1,
            files: vec![IndexFile {
                name: "graph.json".into(),
                length: 2,
                hash: ChunkHash::of(b"{}"),
            }],
            packs: vec![PackFile { id: PackId::random(), length: 1024 }],
            totals: Totals::default(),
            sealed: false,
            meta: serde_json::json!({"pause_ms": 4}),
        }
    }

    fn sealed(body: &str) -> Vec<u8> {
        format!("{body}{TRAILER}{}\n", ChunkHash::of(body.as_bytes())).into_bytes()
    }

    fn decode(bytes: &[u8]) -> Result<CommitMark, Damage> {
        CommitMark::decode(3, bytes)
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let bytes = mark().encode().unwrap();
        assert_eq!(decode(&bytes).unwrap(), mark_with(&bytes));
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(matches!(decode(&flipped), Err(Damage::Mark { .. })), "{at}");
            assert!(matches!(decode(&bytes[..at]), Err(Damage::Mark { .. })), "{at}");
        }
    }

    fn mark_with(bytes: &[u8]) -> CommitMark {
        let json = std::str::from_utf8(bytes).unwrap().lines().nth(1).unwrap().to_owned();
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let found = FORMAT_VERSION + 1;
        let newer = sealed(&format!("{MAGIC}{found}\nwhatever\n"));
        let damage = decode(&newer).unwrap_err();
        assert_eq!(damage, Damage::NewerFormat { number: 3, found, known: FORMAT_VERSION });
        assert!(damage.to_string().contains("use a newer ckptd"));
        assert!(matches!(decode(&sealed(&format!("{MAGIC}0\n{{}}\n"))), Err(Damage::Mark { .. })));
    }

    #[test]
    fn hostile_contents_are_refused_even_with_a_right_checksum() {
        let mut traversal = mark();
        traversal.files[0].name = "../../x.json".into();
        let mut twice = mark();
        twice.files.push(twice.files[0].clone());
        let mut huge = mark();
        huge.files[0].length = u64::MAX;
        let mut other = mark();
        other.checkpoint = 4;
        let mut packs = mark();
        packs.packs.push(packs.packs[0]);
        for bad in [traversal, twice, huge, other, packs] {
            let bytes = bad.encode().unwrap();
            assert!(matches!(decode(&bytes), Err(Damage::Mark { .. })), "{bad:?}");
        }
    }
}
