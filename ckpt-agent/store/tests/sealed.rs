//! Encrypted checkpoints: whoever has the key reads them, whoever has not can check and collect them, and nothing more.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use ckpt_store::archive::{Export, Import};
use ckpt_store::*;
use protocol::cluster::image_key::{Encryption, JobKey};
use serde::{Deserialize, Serialize};

/// What compresses and what does not, and what an index says beside.
const SECRET: &str = "whoever reads this has the key";

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Index {
    secret: String,
    chunks: Vec<ChunkRef>,
    blob: Blob,
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn text(seed: u64) -> Vec<u8> {
    format!("{SECRET} {seed} ").repeat(1000).into_bytes()
}

fn job_key(byte: u8) -> JobKey {
    JobKey::new([byte; 32])
}

/// A job's folder with that key.
fn job(byte: u8, encryption: Encryption) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    keep_key(dir.path(), &job_key(byte), encryption).unwrap();
    dir
}

fn contents(seeds: &[u64]) -> Vec<Vec<u8>> {
    seeds.iter().flat_map(|seed| [noise(*seed, 50_000), text(*seed)]).collect()
}

fn write_with(job: &Path, number: u64, seeds: &[u64], options: &WriterOptions) -> CommitMark {
    let writer = CheckpointWriter::create_with(job, number, options).unwrap();
    for (tag, bytes) in contents(seeds).into_iter().enumerate() {
        writer.submit(tag as u64, bytes).unwrap();
    }
    let blob = writer.submit_blob(&mut Cursor::new(noise(number + 1000, 300_000))).unwrap();
    let (mut index, chunks) = writer.finish_chunks().unwrap();
    let blob = chunks.blob(&blob).unwrap();
    let chunks = chunks.iter().map(|(_, chunk)| chunk).collect();
    index.put_json("graph.json", &Index { secret: SECRET.to_owned(), chunks, blob }).unwrap();
    index.seal().unwrap().commit(&()).unwrap()
}

fn write(job: &Path, number: u64, seeds: &[u64]) -> CommitMark {
    let options = WriterOptions { reuse_from: Some(1), threads: 2, ..WriterOptions::default() };
    write_with(job, number, seeds, &options)
}

fn check(job: &Path, number: u64, seeds: &[u64]) -> Index {
    let checkpoint = Checkpoint::open(job, number).unwrap();
    let index: Index = checkpoint.read_json("graph.json").unwrap();
    assert_eq!(index, read_index(job, number, "graph.json").unwrap());
    assert_eq!(index.secret, SECRET);
    let reader = checkpoint.reader().unwrap();
    let mut bytes = Vec::new();
    for (chunk, expected) in index.chunks.iter().zip(contents(seeds)) {
        reader.read(chunk, &mut bytes).unwrap();
        assert_eq!(bytes, expected);
    }
    let mut blob = Vec::new();
    reader.read_blob(&index.blob, &mut blob).unwrap();
    assert_eq!(blob, noise(number + 1000, 300_000));
    index
}

/// All files of a job's folder but its key, by their paths.
fn files(job: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![job.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false if entry.file_name() == "key" => {}
                false => found.push(entry.path()),
            }
        }
    }
    found
}

/// Whether the bytes are in any file as they are, or in a zstd frame of one.
fn finds(job: &Path, wanted: &[u8]) -> bool {
    let has = |bytes: &[u8]| bytes.windows(wanted.len()).any(|window| window == wanted);
    files(job).into_iter().map(|path| fs::read(path).unwrap()).any(|bytes| {
        let frames =
            bytes.windows(4).enumerate().filter(|(_, start)| *start == b"\x28\xb5\x2f\xfd");
        has(&bytes)
            || frames.into_iter().any(|(at, _)| {
                let unpacked = zstd::bulk::decompress(&bytes[at..], 4 << 20);
                let first = unpacked.or_else(|_| {
                    let mut first = Vec::new();
                    let decoder = zstd::Decoder::new(&bytes[at..])?.single_frame();
                    std::io::copy(&mut { decoder }, &mut first).map(|_| first)
                });
                first.is_ok_and(|unpacked| has(&unpacked))
            })
    })
}

/// A copy as a holder has it: everything but the key.
fn copy(job: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for file in files(job) {
        let place = to.path().join(file.strip_prefix(job).unwrap());
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(file, place).unwrap();
    }
    to
}

#[test]
fn what_was_written_is_read_with_either_cipher_and_after_the_other() {
    for (first, then) in [
        (Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305),
        (Cipher::ChaCha20Poly1305, Cipher::Aes256Gcm),
    ] {
        let dir = job(1, Encryption::Shared);
        let options = |cipher| WriterOptions {
            reuse_from: Some(1),
            cipher: Some(cipher),
            ..WriterOptions::default()
        };
        for (number, cipher) in [(1, first), (2, first), (3, then)] {
            let mark = write_with(dir.path(), number, &[1, 2, 3, number + 10], &options(cipher));
            assert!(mark.sealed);
            assert_eq!(mark.totals.reused > 0, number == 3, "it takes chunks of checkpoint 1");
        }
        for number in 1..=3 {
            check(dir.path(), number, &[1, 2, 3, number + 10]);
            verify(dir.path(), number, |_| {}).unwrap();
        }
    }
}

#[test]
fn nothing_of_the_content_is_on_the_disk() {
    // That the search finds what is there.
    let plain = tempfile::tempdir().unwrap();
    assert!(!write(plain.path(), 1, &[1]).sealed);
    let hidden = noise(1, 50_000)[1000..1032].to_vec();
    assert!(finds(plain.path(), SECRET.as_bytes()));
    assert!(finds(plain.path(), &hidden));
    let chunk = ChunkHash::of(&noise(1, 50_000)).to_string();
    assert!(finds(plain.path(), chunk.as_bytes()), "chunks are named by their contents");
    for encryption in [Encryption::Shared, Encryption::Apart] {
        let dir = job(1, encryption);
        write(dir.path(), 1, &[1]);
        assert!(!finds(dir.path(), SECRET.as_bytes()));
        assert!(!finds(dir.path(), &hidden));
        assert!(!finds(dir.path(), chunk.as_bytes()));
        check(dir.path(), 1, &[1]);
    }
}

#[test]
fn a_holder_without_the_key_verifies_commits_and_collects_and_can_not_read() {
    let dir = job(1, Encryption::Shared);
    for number in [1, 2] {
        write(dir.path(), number, &[number, number + 1]);
    }
    let copy = copy(dir.path());
    let holder = copy.path();
    // As it comes, without the mark.
    fs::remove_file(holder.join("checkpoints/2/COMMITTED")).unwrap();
    let mark = verify_copy(holder, 2, &HashSet::new()).unwrap();
    assert!(mark.sealed);
    assert_eq!(digest(holder, 2).unwrap(), digest(dir.path(), 2).unwrap());
    commit_copy(holder, 2, &()).unwrap();
    for number in [1, 2] {
        verify(holder, number, |_| {}).unwrap();
        assert!(wounded(holder, number).unwrap().is_empty());
    }
    assert_eq!(list(holder).unwrap().len(), 2);
    let checkpoint = Checkpoint::open(holder, 2).unwrap();
    let refused = checkpoint.read_json::<Index>("graph.json").unwrap_err();
    assert_eq!(refused, Damage::NoKey { number: 2 });
    assert_eq!(checkpoint.reader().unwrap_err(), Damage::NoKey { number: 2 });
    assert_eq!(
        read_index::<Index>(holder, 2, "graph.json").unwrap_err(),
        Damage::NoKey { number: 2 }
    );
    assert!(!refused.to_string().contains('\n'));
    // Another job's key is none.
    keep_key(holder, &job_key(2), Encryption::Shared).unwrap();
    let refused = checkpoint.read_json::<Index>("graph.json").unwrap_err();
    assert_eq!(refused, Damage::WrongKey { number: 2 });
    assert_eq!(checkpoint.reader().unwrap_err(), Damage::WrongKey { number: 2 });
    // With the right one the copy is as good as the original.
    keep_key(holder, &job_key(1), Encryption::Shared).unwrap();
    check(holder, 2, &[2, 3]);
    forget_key(holder).unwrap();
    let collected = collect(holder, &[2]).unwrap();
    assert_eq!(collected.checkpoints, [1]);
    verify(holder, 2, |_| {}).unwrap();
}

#[test]
fn damage_is_found_with_the_key_and_without_it() {
    let dir = job(1, Encryption::Shared);
    let mark = write(dir.path(), 1, &[1]);
    let index = check(dir.path(), 1, &[1]);
    let pack = dir.path().join(format!("packs/{}.tar", mark.packs[0].id));
    let whole = fs::read(&pack).unwrap();
    let chunk = index.chunks[0];
    for at in [chunk.offset, chunk.offset + 5, chunk.offset + 20_000] {
        let mut damaged = whole.clone();
        damaged[at as usize] ^= 1;
        fs::write(&pack, &damaged).unwrap();
        let reader = Checkpoint::open(dir.path(), 1).unwrap().reader().unwrap();
        let read = reader.read(&chunk, &mut Vec::new()).unwrap_err();
        assert!(matches!(read, Damage::Chunk { .. }), "{read}");
        assert!(read.to_string().contains("decrypted"), "{read}");
        let found = verify(copy(dir.path()).path(), 1, |_| {}).unwrap_err();
        assert!(matches!(found, Damage::Chunk { .. }), "{found}");
        let names = wounded(copy(dir.path()).path(), 1).unwrap();
        assert_eq!(names.keys().collect::<Vec<_>>(), ["graph.json"]);
    }
    fs::write(&pack, &whole).unwrap();
    check(dir.path(), 1, &[1]);
    // An index whose digits were changed, with a mark that vouches for it.
    let path = dir.path().join("checkpoints/1/graph.json");
    let text = fs::read_to_string(&path).unwrap();
    let at = text.rfind("\"pieces\":[\"").unwrap() + 60;
    let other = if text.as_bytes()[at] == b'A' { "B" } else { "A" };
    fs::write(&path, format!("{}{other}{}", &text[..at], &text[at + 1..])).unwrap();
    fs::remove_file(dir.path().join("checkpoints/1/COMMITTED")).unwrap();
    commit_copy(dir.path(), 1, &()).unwrap();
    let read = Checkpoint::open(dir.path(), 1).unwrap().read_json::<Index>("graph.json");
    assert!(matches!(read, Err(Damage::Index { .. })), "{read:?}");
}

/// Hashes of chunks as they are stored, which is all that a holder sees of them.
fn seen(job: &Path, number: u64) -> BTreeSet<String> {
    let text = fs::read_to_string(job.join(format!("checkpoints/{number}/graph.json"))).unwrap();
    let hashes = text.split('"').filter(|word| ChunkHash::parse(word).is_some());
    // The salt and the text's name are in the first line.
    let first: BTreeSet<&str> = text.lines().next().unwrap().split('"').collect();
    hashes.filter(|hash| !first.contains(hash)).map(str::to_owned).collect()
}

#[test]
fn equal_content_looks_equal_within_a_job_alone_and_apart_nowhere() {
    let (one, other, apart) =
        (job(1, Encryption::Shared), job(2, Encryption::Shared), job(1, Encryption::Apart));
    for dir in [&one, &other, &apart] {
        for number in [1, 2, 3] {
            let mark = write(dir.path(), number, &[1, 2]);
            let shares = number == 3 && dir.path() != apart.path();
            assert_eq!(mark.totals.reused > 0, shares);
        }
        check(dir.path(), 3, &[1, 2]);
    }
    let common = |a: &Path, m: u64, b: &Path, n: u64| seen(a, m).intersection(&seen(b, n)).count();
    // Four of five chunks are alike: the blob is another.
    assert_eq!(seen(one.path(), 1).len(), 6);
    assert_eq!(common(one.path(), 1, one.path(), 2), 4);
    assert_eq!(common(one.path(), 1, other.path(), 1), 0);
    assert_eq!(common(apart.path(), 1, apart.path(), 2), 0);
    assert_eq!(common(apart.path(), 1, one.path(), 1), 0);
}

#[test]
fn a_job_whose_images_were_plain_goes_on_encrypted_and_back() {
    let dir = tempfile::tempdir().unwrap();
    for number in [1, 2] {
        assert!(!write(dir.path(), number, &[1]).sealed);
    }
    keep_key(dir.path(), &job_key(1), Encryption::Shared).unwrap();
    let mark = write(dir.path(), 3, &[1]);
    assert!(mark.sealed);
    assert_eq!(mark.totals.reused, 0, "nothing of it lies in packs that anybody can read");
    keep_key(dir.path(), &job_key(1), Encryption::Off).unwrap();
    let mark = write(dir.path(), 4, &[1]);
    assert!(!mark.sealed);
    for number in [1, 2, 3, 4] {
        check(dir.path(), number, &[1]);
    }
    // One of before is read by a ckptd of before; a newer one is refused there by its version.
    let first = |number: u64| {
        let text = fs::read_to_string(dir.path().join(format!("checkpoints/{number}/COMMITTED")));
        text.unwrap().lines().next().unwrap().to_owned()
    };
    assert_eq!(first(4), "ckptd checkpoint 1");
    assert_eq!(first(3), "ckptd checkpoint 2");
}

#[test]
fn an_archive_brings_the_key_along() {
    let dir = job(1, Encryption::Shared);
    write(dir.path(), 1, &[1, 2]);
    let export = Export::open(dir.path(), 1, None).unwrap();
    let archive = export.write(&serde_json::json!({}), Vec::new(), &mut |_| Ok(())).unwrap();
    let import = Import::open(archive.as_slice()).unwrap();
    let key = import.about().key.clone().unwrap();
    assert_eq!(key, job_key(1));
    let to = tempfile::tempdir().unwrap();
    import.unpack(to.path(), &|_| Ok(u64::MAX), &mut |_| Ok(())).unwrap();
    let without = Checkpoint::open(to.path(), 1).unwrap().reader();
    assert_eq!(without.unwrap_err(), Damage::NoKey { number: 1 });
    keep_key(to.path(), &key, Encryption::Shared).unwrap();
    check(to.path(), 1, &[1, 2]);
    forget_key(dir.path()).unwrap();
    let refused = Export::open(dir.path(), 1, None).unwrap_err();
    assert!(refused.to_string().contains("has not got its job's key"), "{refused}");
}
