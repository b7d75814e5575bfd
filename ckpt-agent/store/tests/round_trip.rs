//! What goes into the image store comes out of it, and GNU tar can read its packs.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ckpt_store::*;
use proptest::prelude::*;

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn options(threads: usize) -> WriterOptions {
    WriterOptions { threads, ..WriterOptions::default() }
}

fn write(job: &Path, number: u64, data: &[Vec<u8>]) -> Vec<ChunkRef> {
    let writer = CheckpointWriter::create(job, number).unwrap();
    for (tag, bytes) in data.iter().enumerate() {
        writer.submit(tag as u64, bytes.clone()).unwrap();
    }
    let (mut index, chunks) = writer.finish_chunks().unwrap();
    let chunks: Vec<ChunkRef> = chunks.iter().map(|(_, chunk)| chunk).collect();
    index.put_json("graph.json", &chunks).unwrap();
    index.seal().unwrap().commit(&serde_json::json!({"pause_ms": 3})).unwrap();
    chunks
}

fn packs(job: &Path) -> Vec<PathBuf> {
    fs::read_dir(job.join("packs")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// One chunk: some noise and some repetition, in any proportion.
fn chunk() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![1..200_usize, 1..70_000_usize, Just(4096), Just(262_144)];
    (length, 0..4_u8, 0..6_u64).prop_map(|(length, kind, seed)| {
        let mut bytes = noise(seed, length);
        match kind {
            0 => {}
            1 => bytes.fill(seed as u8),
            _ => bytes[length / 3..].fill(seed as u8),
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn chunks_come_back(data in prop::collection::vec(chunk(), 0..60), threads in 1..4_usize) {
        let dir = tempfile::tempdir().unwrap();
        let writer = CheckpointWriter::create_with(dir.path(), 7, &options(threads)).unwrap();
        for (tag, bytes) in data.iter().enumerate() {
            writer.submit(1000 + tag as u64, bytes.clone()).unwrap();
        }
        let (mut index, chunks) = writer.finish_chunks().unwrap();
        let chunks: Vec<(u64, ChunkRef)> = chunks.iter().collect();
        index.put_json("1.json", &chunks).unwrap();
        let mark = index.seal().unwrap().commit(&()).unwrap();

        let tags: Vec<u64> = chunks.iter().map(|(tag, _)| *tag).collect();
        prop_assert_eq!(tags, (1000..1000 + data.len() as u64).collect::<Vec<_>>());
        let different: BTreeMap<&[u8], ()> = data.iter().map(|bytes| (&bytes[..], ())).collect();
        prop_assert_eq!(mark.totals.chunks, different.len() as u64);
        prop_assert_eq!(mark.totals.submitted, data.len() as u64);

        let checkpoint = Checkpoint::open(dir.path(), 7).unwrap();
        prop_assert_eq!(checkpoint.mark(), &mark);
        let told: Vec<(u64, ChunkRef)> = checkpoint.read_json("1.json").unwrap();
        prop_assert_eq!(&told, &chunks);
        let reader = checkpoint.reader().unwrap();
        let mut bytes = Vec::new();
        for ((_, chunk), expected) in told.iter().zip(&data) {
            reader.read(chunk, &mut bytes).unwrap();
            prop_assert_eq!(&bytes, expected);
            if chunk.encoding == Encoding::Plain {
                prop_assert_eq!(chunk.offset % 4096, 0);
            }
        }
        let report = verify(dir.path(), 7, |_| {}).unwrap();
        prop_assert_eq!(report.chunks, different.len() as u64);
        prop_assert_eq!(report.bytes, different.keys().map(|bytes| bytes.len() as u64).sum::<u64>());
    }

    #[test]
    fn blobs_come_back(parts in prop::collection::vec((0..700_000_usize, 0..3_u64), 0..5)) {
        let mut stream = Vec::new();
        for (length, kind) in parts {
            match kind {
                0 => stream.resize(stream.len() + length, 0),
                seed => stream.extend_from_slice(&noise(seed, length)),
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let writer = CheckpointWriter::create(dir.path(), 1).unwrap();
        let pending = writer.submit_blob(&mut Cursor::new(&stream)).unwrap();
        let (mut index, chunks) = writer.finish_chunks().unwrap();
        index.put_json("graph.json", &chunks.blob(&pending).unwrap()).unwrap();
        index.seal().unwrap().commit(&()).unwrap();

        let checkpoint = Checkpoint::open(dir.path(), 1).unwrap();
        let blob: Blob = checkpoint.read_json("graph.json").unwrap();
        prop_assert_eq!(blob.length(), stream.len() as u64);
        let reader = checkpoint.reader().unwrap();
        let mut back = Vec::new();
        reader.read_blob(&blob, &mut back).unwrap();
        prop_assert!(back == stream);
        for (offset, piece) in blob.pieces() {
            let range = offset as usize..(offset + piece.length()) as usize;
            if let Piece::Hole(_) = piece {
                prop_assert!(stream[range].iter().all(|byte| *byte == 0));
            }
        }
    }
}

#[test]
fn zeros_of_a_blob_take_no_room() {
    let dir = tempfile::tempdir().unwrap();
    let writer = CheckpointWriter::create(dir.path(), 1).unwrap();
    let pending = writer.submit_blob(&mut Cursor::new(vec![0; 3 << 20])).unwrap();
    let (index, chunks) = writer.finish_chunks().unwrap();
    let blob = chunks.blob(&pending).unwrap();
    assert_eq!(serde_json::to_string(&blob).unwrap(), r#"{"length":3145728,"pieces":[3145728]}"#);
    assert_eq!(index.seal().unwrap().totals().stored, 0);
}

#[test]
fn gnu_tar_lists_and_unpacks_a_pack() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("job");
    // Plain and compressed chunks, in several groups each.
    let data: Vec<Vec<u8>> = (0..160_u64)
        .map(|seed| match seed % 2 {
            0 => noise(seed, 262_144 - 100 * seed as usize),
            _ => noise(seed, 2000).into_iter().flat_map(|byte| [byte; 100]).collect(),
        })
        .collect();
    let chunks = write(&job, 1, &data);
    let [pack] = &packs(&job)[..] else { panic!("one pack expected") };

    let listing = Command::new("tar").arg("-tvf").arg(pack).output().unwrap();
    assert!(listing.status.success() && listing.stderr.is_empty(), "{listing:?}");
    let listing = String::from_utf8(listing.stdout).unwrap();
    assert!(listing.contains("v1/000000.") && listing.contains(".zst"), "{listing}");
    assert!(listing.lines().filter(|line| line.ends_with(".plain")).count() > 1, "{listing}");

    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    let unpacked = Command::new("tar").arg("-xf").arg(pack).arg("-C").arg(&out).output().unwrap();
    assert!(unpacked.status.success() && unpacked.stderr.is_empty(), "{unpacked:?}");
    let mut frames = Vec::new();
    let mut members: Vec<_> = fs::read_dir(out.join("v1")).unwrap().flatten().collect();
    members.sort_by_key(|member| member.file_name());
    let mut plain = Vec::new();
    for member in members {
        let bytes = fs::read(member.path()).unwrap();
        assert!(bytes.len() <= 8 << 20);
        match member.path().extension().unwrap().to_str().unwrap() {
            "zst" => frames.extend(zstd::decode_all(&bytes[..]).unwrap()),
            _ => plain.push(bytes),
        }
    }
    // Every chunk is in what tar has unpacked, at its place in the member.
    for (chunk, bytes) in chunks.iter().zip(&data) {
        let found = match chunk.encoding {
            Encoding::Zstd => frames.windows(64).any(|window| window == &bytes[..64]),
            Encoding::Plain => plain.iter().any(|member| {
                member.chunks(4096).any(|page| bytes.starts_with(&page[..page.len().min(64)]))
            }),
        };
        assert!(found, "{chunk:?}");
    }
    assert!(chunks.iter().any(|chunk| chunk.encoding == Encoding::Zstd));
}

#[test]
fn every_member_begins_at_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let data: Vec<Vec<u8>> = (0..50).map(|seed| noise(seed, 1 + 9000 * seed as usize)).collect();
    write(dir.path(), 1, &data);
    let file = fs::File::open(&packs(dir.path())[0]).unwrap();
    let mut members = 0;
    for entry in tar::Archive::new(file).entries().unwrap() {
        let entry = entry.unwrap();
        if entry.path_bytes().starts_with(b"v1/") {
            assert_eq!(entry.raw_file_position() % 4096, 0);
            members += 1;
        }
    }
    assert!(members > 1);
}

#[test]
fn only_the_owner_may_read() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("job");
    write(&job, 1, &[noise(1, 5000)]);
    let mut folders = vec![job];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            seen += 1;
            if path.is_dir() {
                folders.push(path);
            } else {
                assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            }
        }
    }
    assert_eq!(seen, 6, "checkpoints, 1, graph.json, COMMITTED, packs, a pack");
}

#[test]
fn a_full_pipeline_makes_the_caller_wait_and_ends() {
    let started = Arc::new(AtomicUsize::new(0));
    let hook = started.clone();
    let options = WriterOptions {
        threads: 3,
        budget: 0,
        on_thread_start: Some(Arc::new(move || {
            hook.fetch_add(1, Ordering::SeqCst);
        })),
        ..WriterOptions::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let writer = CheckpointWriter::create_with(dir.path(), 1, &options).unwrap();
    // Much more than the budget; half of it compresses to next to nothing.
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let writer = &writer;
            scope.spawn(move || {
                for number in 0..30 {
                    let mut buffer = writer.take_buffer(MAX_CHUNK);
                    assert!(buffer.is_empty() && buffer.capacity() >= MAX_CHUNK);
                    match thread {
                        0 => buffer.extend_from_slice(&noise(number, MAX_CHUNK)),
                        _ => buffer.resize(MAX_CHUNK, number as u8),
                    }
                    writer.submit(thread << 32 | number, buffer).unwrap();
                }
            });
        }
    });
    let (_index, chunks) = writer.finish_chunks().unwrap();
    assert_eq!(chunks.iter().count(), 60);
    assert_eq!(started.load(Ordering::SeqCst), 4);
}

#[test]
fn wrong_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let writer = CheckpointWriter::create(dir.path(), 1).unwrap();
    for length in [0, MAX_CHUNK + 1] {
        let error = writer.submit(0, vec![0; length]).unwrap_err();
        assert!(matches!(error, StoreError::ChunkLength { .. }), "{error}");
    }
    let busy = CheckpointWriter::create(dir.path(), 2).map(drop).unwrap_err();
    assert!(matches!(busy, StoreError::Busy { .. }), "{busy}");
    assert!(matches!(collect(dir.path(), &[]), Err(StoreError::Busy { .. })));
    let (mut index, _) = writer.finish_chunks().unwrap();
    index.put_json("a.json", &1).unwrap();
    for name in ["a.json", "../a.json", "COMMITTED", ""] {
        let error = index.put_json(name, &1).unwrap_err();
        assert!(matches!(error, StoreError::IndexName { .. }), "{error}");
    }
    index.seal().unwrap().commit(&()).unwrap();
    let taken = CheckpointWriter::create(dir.path(), 1).map(drop).unwrap_err();
    assert!(matches!(taken, StoreError::Committed { number: 1 }), "{taken}");
    assert!(verify(dir.path(), 1, |_| {}).is_ok());
}

#[test]
fn what_is_not_committed_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let writer = CheckpointWriter::create(dir.path(), 1).unwrap();
        writer.submit(0, noise(1, 100_000)).unwrap();
        writer
    };
    drop(start());
    drop(start().finish_chunks().unwrap());
    drop(start().finish_chunks().unwrap().0.seal().unwrap());
    assert_eq!(packs(dir.path()), Vec::<PathBuf>::new());
    assert_eq!(fs::read_dir(dir.path().join("checkpoints")).unwrap().count(), 0);
    assert!(list(dir.path()).unwrap().is_empty());
}

#[test]
fn a_collection_keeps_what_it_was_told_to() {
    let dir = tempfile::tempdir().unwrap();
    for number in 1..=4 {
        write(dir.path(), number, &[noise(number, 10_000)]);
    }
    // Leftovers of writers that were killed.
    fs::create_dir(dir.path().join("checkpoints/5")).unwrap();
    fs::write(dir.path().join("checkpoints/5/graph.json"), b"{}").unwrap();
    fs::write(dir.path().join("packs/0123456789ab.tar"), b"half").unwrap();
    fs::write(dir.path().join("packs/notes.txt"), b"not ours").unwrap();
    let states = list(dir.path()).unwrap();
    assert!(matches!(states[4].state, CheckpointState::Incomplete));

    let collected = collect(dir.path(), &[3, 4]).unwrap();
    assert_eq!(collected.checkpoints, vec![1, 2, 5]);
    assert_eq!(collected.packs.len(), 3);
    assert!(collected.bytes > 20_000);
    assert_eq!(packs(dir.path()).len(), 3, "two packs and the file that is not ours");
    for number in [3, 4] {
        verify(dir.path(), number, |_| {}).unwrap();
    }
    assert_eq!(collect(dir.path(), &[3, 4]).unwrap(), Collected::default());

    // While a mark can't be read, no pack goes, whoever else does.
    fs::write(dir.path().join("checkpoints/3/COMMITTED"), b"?").unwrap();
    let collected = collect(dir.path(), &[3]).unwrap();
    assert_eq!((collected.checkpoints, collected.packs), (vec![4], vec![]));
    let collected = collect(dir.path(), &[]).unwrap();
    assert_eq!((collected.checkpoints, collected.packs.len()), (vec![3], 2));
}

#[test]
fn an_open_checkpoint_outlives_its_collection() {
    let dir = tempfile::tempdir().unwrap();
    let data = [noise(1, 10_000)];
    let chunks = write(dir.path(), 1, &data);
    let reader = Checkpoint::open(dir.path(), 1).unwrap().reader().unwrap();
    collect(dir.path(), &[]).unwrap();
    let mut bytes = vec![0; 10_000];
    reader.read_into(&chunks[0], &mut bytes).unwrap();
    assert_eq!(bytes, data[0]);
}
