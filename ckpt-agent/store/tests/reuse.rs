//! What a checkpoint shares with those before it is stored once, and what must stay independent is.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use ckpt_store::*;
use proptest::prelude::*;

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Writes a checkpoint of chunks that are told by their seeds, 32 KiB each.
fn write(job: &Path, number: u64, reuse_from: Option<u64>, seeds: &[u64]) -> CommitMark {
    let options = WriterOptions { threads: 2, reuse_from, ..WriterOptions::default() };
    let writer = CheckpointWriter::create_with(job, number, &options).unwrap();
    for (tag, seed) in seeds.iter().enumerate() {
        writer.submit(tag as u64, noise(*seed, 32 << 10)).unwrap();
    }
    let (mut index, chunks) = writer.finish_chunks().unwrap();
    let chunks: Vec<ChunkRef> = chunks.iter().map(|(_, chunk)| chunk).collect();
    index.put_json("graph.json", &chunks).unwrap();
    index.seal().unwrap().commit(&()).unwrap()
}

fn check(job: &Path, number: u64, seeds: &[u64]) {
    verify(job, number, |_| {}).unwrap();
    let checkpoint = Checkpoint::open(job, number).unwrap();
    let chunks: Vec<ChunkRef> = checkpoint.read_json("graph.json").unwrap();
    let reader = checkpoint.reader().unwrap();
    let mut bytes = Vec::new();
    for (chunk, seed) in chunks.iter().zip(seeds) {
        reader.read(chunk, &mut bytes).unwrap();
        assert_eq!(bytes, noise(*seed, 32 << 10));
    }
    assert_eq!(chunks.len(), seeds.len());
}

fn ids(mark: &CommitMark) -> BTreeSet<PackId> {
    mark.packs.iter().map(|pack| pack.id).collect()
}

fn on_disk(job: &Path) -> u64 {
    let packs = fs::read_dir(job.join("packs")).unwrap();
    packs.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn only_what_changed_is_stored_and_the_last_two_share_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path();
    let mut seeds: Vec<u64> = (0..100).collect();
    let mut marks: Vec<CommitMark> = Vec::new();
    for number in 1..=12 {
        seeds[number as usize] = 1000 + number;
        let mark = write(job, number, Some(1), &seeds);
        let new = mark.totals.stored - mark.totals.reused;
        match number {
            1 | 2 => assert_eq!(mark.totals.reused, 0),
            // Two chunks have changed since the one before the last.
            _ => assert_eq!(new, 2 * (32 << 10)),
        }
        if let Some(last) = marks.last() {
            assert!(ids(last).is_disjoint(&ids(&mark)), "{number}");
        }
        marks.push(mark);
        collect(job, &[number, number - 1]).unwrap();
        check(job, number, &seeds);
    }
    // Damage to everything that the newest has leaves the one before.
    for pack in ids(&marks[11]) {
        fs::write(job.join(format!("packs/{pack}.tar")), b"").unwrap();
    }
    assert!(verify(job, 12, |_| {}).is_err());
    seeds[12] = 12;
    check(job, 11, &seeds);
}

#[test]
fn nothing_new_makes_no_pack() {
    let dir = tempfile::tempdir().unwrap();
    let seeds: Vec<u64> = (0..10).collect();
    for number in 1..=5 {
        write(dir.path(), number, Some(1), &seeds);
    }
    assert_eq!(fs::read_dir(dir.path().join("packs")).unwrap().count(), 2);
    check(dir.path(), 5, &seeds);
}

#[test]
fn what_came_before_the_writer_s_own_is_not_referred_to() {
    let dir = tempfile::tempdir().unwrap();
    let seeds: Vec<u64> = (0..10).collect();
    for number in 1..=3 {
        write(dir.path(), number, Some(1), &seeds);
    }
    // As after a restart, perhaps because the last was damaged.
    for number in 4..=5 {
        assert_eq!(write(dir.path(), number, Some(4), &seeds).totals.reused, 0);
    }
    let mark = write(dir.path(), 6, Some(4), &seeds);
    assert_eq!(mark.totals.reused, mark.totals.stored);
    assert_eq!(write(dir.path(), 7, None, &seeds).totals.reused, 0);
}

#[test]
fn a_base_that_is_damaged_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let seeds: Vec<u64> = (0..10).collect();
    for number in 1..=2 {
        write(dir.path(), number, Some(1), &seeds);
    }
    fs::write(dir.path().join("checkpoints/1/graph.json"), b"[]").unwrap();
    assert_eq!(write(dir.path(), 3, Some(1), &seeds).totals.reused, 0);
    check(dir.path(), 3, &seeds);
}

/// A copy of an uncommitted checkpoint is checked where it can be wrong.
#[test]
fn a_copy_is_checked_but_for_what_a_committed_one_vouches_for() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path();
    let seeds: Vec<u64> = (0..10).collect();
    let first = write(job, 1, Some(1), &seeds);
    write(job, 2, Some(1), &seeds);
    write(job, 3, Some(1), &seeds);
    fs::remove_file(job.join("checkpoints/3/COMMITTED")).unwrap();
    let pack = first.packs[0].id;
    let path = job.join(format!("packs/{pack}.tar"));
    let chunks: Vec<ChunkRef> = Checkpoint::open(job, 1).unwrap().read_json("graph.json").unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[chunks[4].offset as usize] ^= 1;
    fs::write(&path, bytes).unwrap();
    let trusted = packs(job).unwrap().into_iter().collect();
    verify_copy(job, 3, &trusted).unwrap();
    assert!(verify_copy(job, 3, &[].into()).is_err());
    fs::remove_dir_all(job.join("checkpoints/1")).unwrap();
    assert!(verify_copy(job, 3, &trusted).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// Whatever changes, is given up, or is collected: all that is kept can be read, and the disk stays bounded.
    #[test]
    fn histories(
        steps in prop::collection::vec((0..40_usize, 0..5_u8, 1..4_usize), 1..40),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let job = dir.path();
        let mut seeds: Vec<u64> = (0..40).collect();
        let mut kept: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (step, (changes, kind, keep)) in steps.into_iter().enumerate() {
            let number = step as u64 + 1;
            for at in 0..changes {
                seeds[(at * 7 + step) % 40] = number * 100 + at as u64;
            }
            if kind == 0 {
                // Given up.
                let options = WriterOptions { reuse_from: Some(1), ..WriterOptions::default() };
                let writer = CheckpointWriter::create_with(job, number, &options).unwrap();
                writer.submit(1, noise(number, 1000)).unwrap();
                continue;
            }
            let last = kept.last_key_value().map(|(last, _)| *last);
            let last = last.map(|last| ids(Checkpoint::open(job, last).unwrap().mark()));
            let mark = write(job, number, Some(1), &seeds);
            prop_assert!(last.is_none_or(|last| last.is_disjoint(&ids(&mark))));
            prop_assert!(mark.packs.len() <= 65);
            kept.insert(number, seeds.clone());
            while kept.len() > keep {
                kept.pop_first();
            }
            collect(job, &kept.keys().copied().collect::<Vec<_>>()).unwrap();
            for (number, seeds) in &kept {
                check(job, *number, seeds);
            }
            // Each keeps at most as much dead as live, and what has died since its packs were last judged.
            prop_assert!(on_disk(job) < (kept.len() as u64 + 1) * 4 * 40 * (34 << 10), "{}", on_disk(job));
        }
    }
}
