//! Whatever happens to the files of a checkpoint is found, named, and never a panic.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ckpt_store::*;

struct Sample {
    dir: tempfile::TempDir,
    chunks: Vec<ChunkRef>,
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

impl Sample {
    /// Checkpoints 1 and 2; the tests damage 2.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut sample = Self { dir, chunks: Vec::new() };
        for number in [1, 2] {
            let writer = CheckpointWriter::create(sample.job(), number).unwrap();
            writer.submit(0, noise(number, 9000)).unwrap();
            writer.submit(1, vec![number as u8; 9000]).unwrap();
            let (mut index, chunks) = writer.finish_chunks().unwrap();
            sample.chunks = chunks.iter().map(|(_, chunk)| chunk).collect();
            index.put_json("graph.json", &serde_json::json!({"vertices": []})).unwrap();
            index.put_json("17.json", &sample.chunks).unwrap();
            index.seal().unwrap().commit(&()).unwrap();
        }
        sample
    }

    fn job(&self) -> &Path {
        self.dir.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.job().join("checkpoints/2").join(name)
    }

    fn pack(&self) -> PathBuf {
        self.job().join(format!("packs/{}.tar", self.chunks[0].pack))
    }

    fn damage(&self) -> Damage {
        let damage = verify(self.job(), 2, |_| {}).unwrap_err();
        assert!(verify(self.job(), 1, |_| {}).is_ok(), "the older checkpoint is whole");
        assert!(!damage.to_string().contains('\n'));
        damage
    }

    fn flip(path: &Path, at: usize) {
        let mut bytes = fs::read(path).unwrap();
        bytes[at] ^= 0x10;
        fs::write(path, bytes).unwrap();
    }

    fn cut(path: &Path) {
        let length = fs::metadata(path).unwrap().len();
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length - 1).unwrap();
    }
}

#[test]
fn a_damaged_index_is_named() {
    for name in ["graph.json", "17.json"] {
        type Change = fn(&Path);
        let changes: [(Change, &str); 4] = [
            (|path| Sample::flip(path, 3), "its hash does not match"),
            (Sample::cut, "shorter or longer"),
            (|path| fs::write(path, vec![b' '; 1 << 20]).unwrap(), "shorter or longer"),
            (|path| fs::remove_file(path).unwrap(), "is missing"),
        ];
        for (change, reason) in changes {
            let sample = Sample::new();
            change(&sample.file(name));
            let damage = sample.damage();
            let text = damage.to_string();
            assert!(matches!(damage, Damage::Index { .. } | Damage::IndexMissing { .. }), "{text}");
            assert!(text.contains(name) && text.contains(reason) && text.contains('2'), "{text}");
            // The listing says the same.
            let states = list(sample.job()).unwrap();
            assert!(matches!(&states[0].state, CheckpointState::Committed(_)));
            let CheckpointState::Damaged(listed) = &states[1].state else { panic!("{states:?}") };
            assert_eq!(listed, &damage);
        }
    }
}

#[test]
fn a_damaged_commit_mark_is_named() {
    let sample = Sample::new();
    let mark = sample.file("COMMITTED");
    let whole = fs::read(&mark).unwrap();
    for at in (0..whole.len()).step_by(7) {
        Sample::flip(&mark, at);
        assert!(matches!(sample.damage(), Damage::Mark { number: 2, .. }), "{at}");
        fs::write(&mark, &whole[..at]).unwrap();
        assert!(matches!(sample.damage(), Damage::Mark { number: 2, .. }), "{at}");
        fs::write(&mark, &whole).unwrap();
    }
    assert!(verify(sample.job(), 2, |_| {}).is_ok());
    // Another checkpoint's mark.
    fs::copy(sample.job().join("checkpoints/1/COMMITTED"), &mark).unwrap();
    assert!(sample.damage().to_string().contains("another checkpoint"));
    fs::remove_file(&mark).unwrap();
    assert_eq!(sample.damage(), Damage::Incomplete { number: 2 });
    fs::remove_dir_all(sample.file("")).unwrap();
    assert_eq!(sample.damage(), Damage::NoCheckpoint { number: 2 });
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let sample = Sample::new();
    let mark = sample.file("COMMITTED");
    let text = fs::read_to_string(&mark).unwrap();
    let (body, _) = text.split_at(text.rfind("blake3 ").unwrap());
    let found = FORMAT_VERSION + 1;
    let newer = body.replacen("checkpoint 1\n", &format!("checkpoint {found}\n"), 1);
    fs::write(&mark, format!("{newer}blake3 {}\n", ChunkHash::of(newer.as_bytes()))).unwrap();
    assert_eq!(sample.damage(), Damage::NewerFormat { number: 2, found, known: FORMAT_VERSION });
    // And nothing of it is collected but on request.
    collect(sample.job(), &[1, 2]).unwrap();
    assert!(sample.pack().exists());
}

#[test]
fn a_damaged_pack_is_named() {
    let sample = Sample::new();
    let pack = sample.pack();
    let whole = fs::read(&pack).unwrap();
    Sample::cut(&pack);
    assert!(matches!(sample.damage(), Damage::Pack { .. }));
    fs::remove_file(&pack).unwrap();
    let damage = sample.damage();
    assert_eq!(damage, Damage::PackMissing { pack: sample.chunks[0].pack });
    assert!(damage.to_string().contains(&sample.chunks[0].pack.to_string()));
    fs::create_dir(&pack).unwrap();
    assert!(matches!(sample.damage(), Damage::Kernel { .. }));
    fs::remove_dir(&pack).unwrap();
    let elsewhere = sample.job().join("elsewhere");
    fs::write(&elsewhere, &whole).unwrap();
    symlink(&elsewhere, &pack).unwrap();
    assert!(matches!(sample.damage(), Damage::Kernel { .. }), "links are not followed");
}

#[test]
fn every_flipped_byte_of_a_chunk_is_found() {
    let sample = Sample::new();
    let pack = sample.pack();
    for chunk in &sample.chunks {
        let step = if chunk.encoding == Encoding::Zstd { 1 } else { 997 };
        let range = chunk.offset as usize..chunk.offset as usize + chunk.stored as usize;
        for at in range.step_by(step) {
            if chunk.encoding == Encoding::Zstd && at as u64 == chunk.offset + 4 {
                // The bit that is flipped here means nothing in a frame's header (RFC 8878).
                continue;
            }
            Sample::flip(&pack, at);
            let damage = sample.damage();
            let Damage::Chunk { pack: named, hash, offset, .. } = &damage else {
                panic!("{at}: {damage}")
            };
            assert_eq!((*named, *hash, *offset), (chunk.pack, chunk.hash, chunk.offset));
            Sample::flip(&pack, at);
        }
    }
    assert_eq!(sample.chunks[0].encoding, Encoding::Plain);
    assert_eq!(sample.chunks[1].encoding, Encoding::Zstd);
}

#[test]
fn flipped_headers_and_padding_of_a_pack_are_found() {
    let sample = Sample::new();
    let pack = sample.pack();
    // The first padding member: its header, and some of its zeros.
    for at in [0, 100, 124, 130, 156, 512, 2000] {
        Sample::flip(&pack, at);
        let damage = sample.damage();
        assert!(matches!(damage, Damage::Pack { .. }), "{at}: {damage}");
        Sample::flip(&pack, at);
    }
}

#[test]
fn references_to_nowhere_are_refused() {
    let sample = Sample::new();
    let reader = Checkpoint::open(sample.job(), 2).unwrap().reader().unwrap();
    let [plain, zstd] = sample.chunks[..] else { panic!("two chunks") };
    let other = Checkpoint::open(sample.job(), 1).unwrap().mark().packs[0].id;
    let mut buffer = Vec::new();
    for bad in [
        ChunkRef { offset: u64::MAX, ..plain },
        ChunkRef { offset: 1 << 40, ..plain },
        ChunkRef { length: u32::MAX, stored: u32::MAX, ..plain },
        ChunkRef { length: 0, stored: 0, ..plain },
        ChunkRef { length: plain.length - 1, ..plain },
        ChunkRef { pack: other, ..plain },
        ChunkRef { stored: zstd.length, ..zstd },
    ] {
        let damage = reader.read(&bad, &mut buffer).unwrap_err();
        assert!(matches!(damage, Damage::Reference { .. }), "{damage}");
    }
    for bad in [
        ChunkRef { hash: zstd.hash, ..plain },
        ChunkRef { offset: plain.offset + 1, ..plain },
        ChunkRef { length: zstd.length - 1, ..zstd },
        ChunkRef { length: MAX_CHUNK as u32, ..zstd },
        ChunkRef { stored: zstd.stored - 1, ..zstd },
        ChunkRef { encoding: Encoding::Plain, stored: zstd.length, offset: 0, ..zstd },
        ChunkRef { encoding: Encoding::Zstd, stored: plain.length - 1, ..plain },
    ] {
        let damage = reader.read(&bad, &mut buffer).unwrap_err();
        assert!(matches!(damage, Damage::Chunk { .. }), "{damage}");
    }
    assert!(matches!(
        reader.read_into(&plain, &mut [0; 10]).unwrap_err(),
        Damage::Reference { .. }
    ));
    reader.read(&plain, &mut buffer).unwrap();
}

#[test]
fn a_pack_cut_while_it_is_read_is_damage() {
    let sample = Sample::new();
    let reader = Checkpoint::open(sample.job(), 2).unwrap().reader().unwrap();
    fs::OpenOptions::new().write(true).open(sample.pack()).unwrap().set_len(100).unwrap();
    let damage = reader.read(&sample.chunks[0], &mut Vec::new()).unwrap_err();
    assert!(damage.to_string().contains("cut while"), "{damage}");
}

#[test]
fn an_index_that_is_not_what_was_expected_is_damage() {
    let sample = Sample::new();
    let checkpoint = Checkpoint::open(sample.job(), 2).unwrap();
    let damage = checkpoint.read_json::<Vec<u64>>("graph.json").unwrap_err();
    assert!(matches!(damage, Damage::Index { .. }), "{damage}");
    let damage = checkpoint.read_json::<Vec<u64>>("18.json").unwrap_err();
    assert!(matches!(damage, Damage::IndexMissing { .. }), "{damage}");
}

#[test]
fn who_needs_a_damaged_chunk_is_told() {
    let sample = Sample::new();
    let writer = CheckpointWriter::create(sample.job(), 3).unwrap();
    (0..3).for_each(|tag| writer.submit(tag, noise(tag + 10, 9000)).unwrap());
    let (mut index, chunks) = writer.finish_chunks().unwrap();
    let chunks: Vec<ChunkRef> = chunks.iter().map(|(_, chunk)| chunk).collect();
    for (name, of) in
        [("graph.json", &chunks[..1]), ("a.json", &chunks[1..]), ("b.json", &chunks[2..])]
    {
        index.put_json(name, &of).unwrap();
    }
    let sealed = index.seal().unwrap();
    let pack = sample.job().join(format!("packs/{}.tar", chunks[0].pack));
    let told = || wounded(sample.job(), 3).map(|all| all.into_keys().collect::<Vec<_>>());
    assert!(told().unwrap().is_empty());
    Sample::flip(&pack, chunks[1].offset as usize + 5);
    assert_eq!(told().unwrap(), ["a.json"]);
    sealed.commit(&()).unwrap();
    Sample::flip(&pack, chunks[2].offset as usize + 5);
    assert_eq!(told().unwrap(), ["a.json", "b.json"]);
    Sample::flip(&sample.job().join("checkpoints/3/b.json"), 3);
    assert!(matches!(told(), Err(Damage::Index { .. })));
    fs::remove_file(&pack).unwrap();
    assert!(told().is_err());
}
