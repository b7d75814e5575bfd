//! Images on the disk, and archives from outside.

use crate::random::Random;
use crate::room;
use crate::sample::samples;
use ckpt_engine::graph::{Graph, ProcessImage};
use ckpt_engine::split::{Holdings, PartOrder, plan, units};
use ckpt_store::archive::{Beside, Export, ExportAll, Import};
use ckpt_store::{Checkpoint, CheckpointWriter, ChunkRef, CommitMark};
use protocol::cluster::portable::{PortableJob, SealedJob};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

const NUMBER: u64 = 3;
const MAGIC: &str = "ckptd checkpoint 1\n";

/// Reads a commit mark: as it is, and with the checksum that it should have.
pub fn mark(bytes: &[u8]) {
    let Ok(job) = room() else { return };
    let folder = job.path().join("checkpoints").join(NUMBER.to_string());
    if fs::create_dir_all(&folder).is_err() {
        return;
    }
    let sealed = String::from_utf8_lossy(bytes);
    let sealed = format!("{sealed}blake3 {}\n", blake3::hash(sealed.as_bytes()).to_hex());
    for text in [bytes, sealed.as_bytes()] {
        if fs::write(folder.join("COMMITTED"), text).is_ok() {
            let _ = ckpt_store::list(job.path());
            let _ = ckpt_store::survey(job.path(), NUMBER);
            let _ = Checkpoint::open(job.path(), NUMBER);
        }
    }
}

/// Marks of checkpoints, without their last line.
pub fn mark_seeds(random: &mut Random) -> Vec<Vec<u8>> {
    let mut marks: Vec<Value> = samples::<CommitMark>(random);
    for mark in &mut marks {
        mark["checkpoint"] = json!(NUMBER);
    }
    marks.iter().map(|mark| format!("{MAGIC}{mark}\n").into_bytes()).collect()
}

/// Reads an index as a graph and as a process, and a checkpoint whose graph and pack it is: the first two
/// bytes tell where the index ends and the pack begins.
pub fn image(bytes: &[u8]) {
    let Some((at, rest)) = bytes.split_first_chunk::<2>() else { return };
    let (index, pack) = rest.split_at(usize::from(u16::from_be_bytes(*at)).min(rest.len()));
    if let Ok((graph, processes)) = serde_json::from_slice::<(Graph, Vec<ProcessImage>)>(index) {
        placed(&graph, &processes);
    }
    let Ok(job) = room() else { return };
    let _ = checked(job.path(), index, pack);
}

/// What a part of an image needs, as for a rollback.
fn placed(graph: &Graph, processes: &[ProcessImage]) {
    let holdings = Holdings::of(graph, processes);
    let _ = units(graph, &holdings, true);
    let first = processes.first().map_or(1, |process| process.pid);
    let assignment: BTreeMap<_, _> =
        processes.iter().map(|process| (process.pid, u32::from(process.pid != first))).collect();
    for part in [0, 1] {
        let order = PartOrder { assignment: assignment.clone(), part, origin: "a/1@3".into() };
        let _ = plan(graph, &holdings, &order);
    }
}

/// A checkpoint that refers to the pack by right hashes of the files, whatever is in them.
fn checked(job: &Path, index: &[u8], pack: &[u8]) -> Option<()> {
    let id = "000000000000002a";
    let folder = job.join("checkpoints").join(NUMBER.to_string());
    fs::create_dir_all(&folder).ok()?;
    fs::create_dir_all(job.join("packs")).ok()?;
    fs::write(folder.join("graph.json"), index).ok()?;
    fs::write(job.join("packs").join(format!("{id}.tar")), pack).ok()?;
    let file = json!({
        "name": "graph.json",
        "length": index.len(),
        "hash": blake3::hash(index).to_hex().as_str(),
    });
    let totals = json!({"submitted": 0, "bytes": 0, "chunks": 0, "stored": 0, "index": 0});
    let mark = json!({
        "checkpoint": NUMBER, "time_ms": 0, "files": [file],
        "packs": [{"id": id, "length": pack.len()}], "totals": totals, "meta": {},
    });
    let text = format!("{MAGIC}{mark}\n");
    let sealed = format!("{text}blake3 {}\n", blake3::hash(text.as_bytes()).to_hex());
    fs::write(folder.join("COMMITTED"), sealed).ok()?;
    let _ = ckpt_store::verify(job, NUMBER, |_| {});
    let checkpoint = Checkpoint::open(job, NUMBER).ok()?;
    let reader = checkpoint.reader().ok()?;
    let chunks: Vec<ChunkRef> = checkpoint.read_json("graph.json").ok()?;
    let mut room = Vec::new();
    for chunk in &chunks {
        let _ = reader.read(chunk, &mut room);
    }
    Some(())
}

/// Graphs, processes, and lists of chunks with their pack.
pub fn image_seeds(random: &mut Random) -> Vec<Vec<u8>> {
    let mut indexes = Vec::new();
    for _ in 0..2 {
        let processes = samples::<ProcessImage>(random);
        for graph in samples::<Graph>(random) {
            indexes.push(json!([graph, processes]));
        }
    }
    let joined = |index: &[u8], pack: &[u8]| {
        let length = u16::try_from(index.len()).unwrap_or(u16::MAX);
        [&length.to_be_bytes(), index, pack].concat()
    };
    let mut seeds: Vec<Vec<u8>> =
        indexes.iter().map(|index| joined(index.to_string().as_bytes(), &[])).collect();
    if let Ok(job) = room() {
        if let Some((index, pack)) = written(job.path()) {
            let index = String::from_utf8_lossy(&index.1).replace(&index.0, "000000000000002a");
            seeds.push(joined(index.as_bytes(), &pack));
        }
    }
    seeds
}

/// A pack's name, an index, and the pack.
type Written = ((String, Vec<u8>), Vec<u8>);

/// A small checkpoint.
fn written(job: &Path) -> Option<Written> {
    let writer = CheckpointWriter::create(job, NUMBER).ok()?;
    for tag in 0..3 {
        let mut bytes = vec![0; 4096];
        blake3::Hasher::new().update(&[tag]).finalize_xof().fill(&mut bytes[..2048]);
        writer.submit(tag.into(), bytes).ok()?;
    }
    let (mut index, chunks) = writer.finish_chunks().ok()?;
    let chunks: Vec<ChunkRef> = chunks.iter().map(|(_, chunk)| chunk).collect();
    index.put_json("graph.json", &chunks).ok()?;
    let mark = index.seal().ok()?.commit(&json!({"pause": 4})).ok()?;
    let id = mark.packs.first()?.id.to_string();
    let index = fs::read(job.join("checkpoints").join(NUMBER.to_string()).join("graph.json"));
    let pack = fs::read(job.join("packs").join(format!("{id}.tar")));
    Some(((id, index.ok()?), pack.ok()?))
}

/// Unpacks an archive: as it is, and what lies in it without the compression that hides it from chance.
pub fn archive(bytes: &[u8]) {
    unpack(bytes);
    if let Ok(packed) = zstd_of(bytes) {
        unpack(&packed);
    }
}

fn unpack(bytes: &[u8]) {
    let Ok(folder) = room() else { return };
    let target = folder.path().join("job");
    if fs::create_dir(&target).is_err() {
        return;
    }
    if let Ok(import) = Import::open(bytes) {
        let about = import.about();
        if about.instances.is_empty() {
            let _ = import.unpack(&target, &|_| Ok(1 << 20), &mut |_| Ok(()));
        } else {
            if let Ok(sealed) = serde_json::from_value::<SealedJob>(about.job.clone()) {
                let _ = sealed.read();
            }
            let place = |instance: u32| target.join(instance.to_string());
            let _ = import.unpack_all(&target, place, &|_| Ok(1 << 20), &mut |_| Ok(()));
        }
    }
    // Nothing but what it unpacks into.
    let left = fs::read_dir(folder.path()).map_or(1, |listing| listing.count());
    assert_eq!(left, 1, "an archive has written outside of its folder");
}

fn zstd_of(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    zstd::encode_all(bytes, 1)
}

/// An archive, compressed and not.
pub fn archive_seeds(_: &mut Random) -> Vec<Vec<u8>> {
    let make = || {
        let job = room().ok()?;
        written(job.path())?;
        fs::write(job.path().join("log"), b"the output so far").ok()?;
        let log = File::open(job.path().join("log")).ok()?;
        let export = Export::open(job.path(), NUMBER, Some((log, 17))).ok()?;
        let packed = export.write(&json!({"name": "fold"}), Vec::new(), &mut |_| Ok(())).ok()?;
        let content = b"what is in a file of the job";
        let name = format!("files/{}", blake3::hash(content).to_hex());
        fs::create_dir(job.path().join("files")).ok()?;
        fs::write(job.path().join(&name), content).ok()?;
        let beside = [Beside { name, length: content.len() as u64 }];
        let sealed = SealedJob { text: "{}".to_owned(), seal: "00".repeat(32), key: None };
        let watch = &mut |_| Ok(());
        let begun = ExportAll::begin(Vec::new(), NUMBER, vec![1, 2], &sealed, None, watch);
        let mut all = begun.ok()?;
        all.image(job.path(), &beside).ok()?;
        all.image(job.path(), &[]).ok()?;
        let all = all.finish().ok()?;
        let plain = [&packed, &all].map(|packed| zstd::decode_all(packed.as_slice()));
        Some(plain.into_iter().flatten().chain([packed, all]).collect())
    };
    make().unwrap_or_default()
}

/// Reads what an archive tells of a cluster's job.
pub fn portable(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    if let Ok(job) = (SealedJob { text, seal: String::new(), key: None }).read() {
        let text = serde_json::to_string(&job).unwrap_or_default();
        let again = SealedJob { text, seal: String::new(), key: None }.read();
        assert!(again.is_ok(), "what is understood can be said again: {again:?}");
    }
}

/// Such descriptions.
pub fn portable_seeds(random: &mut Random) -> Vec<Vec<u8>> {
    let mut jobs = samples::<PortableJob>(random);
    for job in &mut jobs {
        job["format"] = json!(1);
        job["record"]["format"] = json!(1);
        for (key, number) in [("epoch", 3), ("created_at_ms", 5)] {
            job[key] = json!(number);
        }
    }
    jobs.iter().map(|job| job.to_string().into_bytes()).collect()
}
