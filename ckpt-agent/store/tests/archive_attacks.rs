//! Archives that are small and ask for much: of memory, of the disk, of work. Each is imported by a process of its own, whose
//! peak of memory and whose reads are looked at when it has ended.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use ckpt_store::archive::{ArchiveError, Export, Import};
use ckpt_store::*;
use serde_json::{Value, json};

/// In the environment of a process that is to import this archive.
const ARCHIVE: &str = "CKPT_STORE_ATTACK";
/// What an import may take beyond that of a job of the usual kind, in bytes.
const MOST_MEMORY: u64 = 100 << 20;
const PACK: &str = "0123456789ab";
const MIB: u64 = 1 << 20;

/// What an import in a process of its own has come to.
#[derive(Debug)]
struct Outcome {
    /// Why it was refused.
    refusal: Option<String>,
    /// The most memory that it had, in bytes.
    peak: u64,
    /// Bytes that it read, from whatever files.
    read: u64,
    /// Bytes on the disk when it had ended.
    left: u64,
}

fn figure(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Not a test of its own: the process that [`imported`] starts.
#[test]
fn imports_for_another_test() {
    let Some(archive) = std::env::var_os(ARCHIVE) else { return };
    let archive = Path::new(&archive);
    let to = archive.with_extension("job");
    fs::create_dir(&to).unwrap();
    let import = || -> Result<CommitMark, ArchiveError> {
        Import::open(File::open(archive).unwrap())?.unpack(&to, &|_| Ok(8 << 30), &mut |_| Ok(()))
    };
    let refusal = import().map(drop).err().map(|error| error.to_string());
    let peak = figure("/proc/self/status", "VmHWM:") << 10;
    let read = figure("/proc/self/io", "rchar:");
    let outcome = json!({"refusal": refusal, "peak": peak, "read": read});
    fs::write(archive.with_extension("outcome"), outcome.to_string()).unwrap();
}

fn imported(archive: &Path) -> Outcome {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "imports_for_another_test"]).env(ARCHIVE, archive);
    assert!(child.stdout(Stdio::null()).status().unwrap().success());
    let outcome = fs::read(archive.with_extension("outcome")).unwrap();
    let outcome: Value = serde_json::from_slice(&outcome).unwrap();
    let number = |name: &str| outcome[name].as_u64().unwrap();
    let refusal = outcome["refusal"].as_str().map(str::to_owned);
    let left = bytes_below(&archive.with_extension("job"));
    let outcome = Outcome { refusal, peak: number("peak"), read: number("read"), left };
    println!("{} of {} bytes: {outcome:?}", archive.display(), archive.metadata().unwrap().len());
    outcome
}

fn bytes_below(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let bytes = |entry: fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => bytes_below(&entry.path()),
        false => entry.metadata().unwrap().blocks() * 512,
    };
    entries.map(bytes).sum()
}

/// An archive that is being written, one member after the other, of whatever length.
struct Attack {
    tar: tar::Builder<zstd::Encoder<'static, BufWriter<File>>>,
}

impl Attack {
    fn begin(path: &Path, about: &[u8], window: Option<u32>) -> Self {
        let mut zstd = zstd::Encoder::new(BufWriter::new(File::create(path).unwrap()), 1).unwrap();
        if let Some(window) = window {
            zstd.window_log(window).unwrap();
        }
        let mut attack = Self { tar: tar::Builder::new(zstd) };
        attack.member("about.json", about.len() as u64, about);
        attack
    }

    fn member(&mut self, name: &str, length: u64, from: impl Read) {
        let mut header = tar::Header::new_ustar();
        header.set_path(format!("ckptd-checkpoint/{name}")).unwrap();
        header.set_size(length);
        header.set_entry_type(tar::EntryType::Regular);
        header.set_cksum();
        self.tar.append(&header, from.take(length)).unwrap();
    }

    fn end(self) {
        self.tar.into_inner().unwrap().finish().unwrap().flush().unwrap();
    }
}

fn about() -> Vec<u8> {
    json!({"format": 1, "checkpoint": 3, "log": null, "job": {}}).to_string().into_bytes()
}

fn hash_of(length: u64, from: impl Read) -> String {
    let mut hasher = blake3::Hasher::new();
    io::copy(&mut from.take(length), &mut hasher).unwrap();
    hasher.finalize().to_hex().to_string()
}

/// A commit mark with the one index and the one pack, and the bytes that it tells of.
fn mark(index: (u64, &str), pack: Option<u64>, meta: &str) -> Vec<u8> {
    let (length, hash) = index;
    let packs = pack.map(|length| json!({"id": PACK, "length": length}));
    let packs = Value::from_iter(packs);
    let totals = json!({"submitted": 1, "bytes": 1u64 << 50, "chunks": 1u64 << 40, "stored": 1,
        "index": length});
    let body = format!(
        "ckptd checkpoint 1\n{{\"checkpoint\":3,\"time_ms\":1,\"files\":[{{\"name\":\"graph.json\",\"length\":{length},\
         \"hash\":\"{hash}\"}}],\"packs\":{packs},\"totals\":{totals},\"meta\":{meta}}}\n"
    );
    let seal = blake3::hash(body.as_bytes()).to_hex();
    format!("{body}blake3 {seal}\n").into_bytes()
}

/// A whole archive of one index and one pack.
fn archive(path: &Path, index: &[u8], pack: &[u8]) {
    let mark =
        mark((index.len() as u64, &hash_of(u64::MAX, index)), Some(pack.len() as u64), "null");
    let mut attack = Attack::begin(path, &about(), None);
    attack.member("COMMITTED", mark.len() as u64, mark.as_slice());
    attack.member("index/graph.json", index.len() as u64, index);
    attack.member(&format!("packs/{PACK}.tar"), pack.len() as u64, pack);
    attack.end();
}

/// A pack with one member of these bytes, which begin at 512.
fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_path("v1/000000.plain").unwrap();
    header.set_size(bytes.len() as u64);
    header.set_entry_type(tar::EntryType::Regular);
    header.set_cksum();
    tar.append(&header, bytes).unwrap();
    tar.into_inner().unwrap()
}

/// What a job of the usual kind takes.
fn usual(folder: &Path) -> Outcome {
    let from = folder.join("usual");
    fs::create_dir(&from).unwrap();
    let writer = CheckpointWriter::create(&from, 3).unwrap();
    for tag in 0..64u8 {
        let mut bytes = vec![tag; 256 << 10];
        bytes[7] = 255;
        writer.submit(u64::from(tag), bytes).unwrap();
    }
    let (mut index, chunks) = writer.finish_chunks().unwrap();
    let all: Vec<ChunkRef> = chunks.iter().map(|(_, chunk)| chunk).collect();
    index.put_json("graph.json", &all).unwrap();
    index.seal().unwrap().commit(&json!({"pause": 4})).unwrap();
    let path = folder.join("usual.tar");
    let out = File::create(&path).unwrap();
    Export::open(&from, 3, None).unwrap().write(&json!({}), out, &mut |_| Ok(())).unwrap();
    let outcome = imported(&path);
    assert_eq!(outcome.refusal, None);
    outcome
}

/// The archive is refused with these words, and without more memory than a usual one by [`MOST_MEMORY`].
fn refused(name: &str, words: &str, write: impl FnOnce(&Path)) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let usual = usual(folder.path());
    let path = folder.path().join(format!("{name}.tar"));
    write(&path);
    let outcome = imported(&path);
    let refusal = outcome.refusal.as_deref().unwrap_or("nothing");
    assert!(refusal.contains(words) && refusal.lines().count() == 1, "{name}: {refusal}");
    assert!(outcome.peak < usual.peak + MOST_MEMORY, "{name}: {outcome:?}, usual: {usual:?}");
    outcome
}

/// An index that is `byte` over and over.
fn index_of(path: &Path, byte: u8, length: u64, window: Option<u32>) {
    let mark = mark((length, &hash_of(length, io::repeat(byte))), None, "null");
    let mut attack = Attack::begin(path, &about(), window);
    attack.member("COMMITTED", mark.len() as u64, mark.as_slice());
    attack.member("index/graph.json", length, io::repeat(byte));
    attack.end();
}

#[test]
fn an_index_of_blanks_goes_neither_into_memory_nor_onto_the_disk() {
    let outcome = refused("blanks", "blanks", |path| index_of(path, b' ', 512 * MIB, None));
    assert!(outcome.left < 16 * MIB, "{outcome:?}");
}

#[test]
fn an_index_of_one_text_is_not_held() {
    let outcome = refused("text", "longer than", |path| {
        let length = 512 * MIB;
        let index = || b"[\"".chain(io::repeat(b'x'));
        let mark = mark((length, &hash_of(length, index())), None, "null");
        let mut attack = Attack::begin(path, &about(), None);
        attack.member("COMMITTED", mark.len() as u64, mark.as_slice());
        attack.member("index/graph.json", length, index());
        attack.end();
    });
    assert!(outcome.left < 64 * MIB, "{outcome:?}");
}

#[test]
fn a_window_beyond_what_exports_have_is_not_held() {
    refused("window", "memory", |path| index_of(path, b' ', 256 * MIB, Some(27)));
}

/// References to a stretch of `stored` bytes at each of these offsets.
fn index(chunks: impl Iterator<Item = (u64, u64, u64, &'static str, String)>) -> Vec<u8> {
    let line = |(offset, stored, length, encoding, hash): (u64, u64, u64, &str, String)| {
        json!([hash, PACK, offset, stored, length, encoding]).to_string()
    };
    format!("[{}]", chunks.map(line).collect::<Vec<_>>().join(",")).into_bytes()
}

#[test]
fn no_byte_of_a_pack_is_read_for_two_chunks() {
    let outcome = refused("overlap", "overlap", |path| {
        let length = 256 << 10;
        let zeros = vec![0; 1 << 20];
        let hash = blake3::hash(&zeros[..length as usize]).to_hex().to_string();
        let chunk = |at: u64| (512 + at, length, length, "p", hash.clone());
        archive(path, &index((0..4000).map(chunk)), &pack(&zeros));
    });
    // The archive's pack and index are 1.4 MB; a chunk each of these references would be 1 GB.
    assert!(outcome.read < 16 * MIB, "{outcome:?}");
}

#[test]
fn equal_chunks_are_unpacked_once_or_not_at_all() {
    refused("equal", "twice", |path| {
        let zeros = vec![0; 4 << 20];
        let hash = blake3::hash(&zeros).to_hex().to_string();
        let frame = zstd::bulk::compress(&zeros, 19).unwrap();
        let length = frame.len() as u64;
        let chunk = |n: u64| (512 + n * length, length, 4 << 20, "z", hash.clone());
        archive(path, &index((0..300).map(chunk)), &pack(&frame.repeat(300)));
    });
}

#[test]
fn millions_of_references_wait_on_the_disk() {
    refused("references", "no such pack", |path| {
        let one = |at: u64| {
            json!([format!("{at:064x}"), "ffffffffffff", at * 8, 7, 7, "p"])
                .to_string()
                .into_bytes()
        };
        let mut text = b"[".to_vec();
        for at in 0..1_500_000 {
            text.extend(one(at));
            text.push(b',');
        }
        text.extend(one(0));
        text.push(b']');
        archive(path, &text, &pack(b"x"));
    });
}

/// As many objects as a text of this length has room for.
fn objects(length: usize) -> String {
    format!("[{}0]", "{\"a\":0},".repeat(length / 8))
}

#[test]
fn what_a_mark_tells_besides_is_small() {
    refused("meta", "commit mark is damaged", |path| {
        let mark = mark((2, &hash_of(2, b"{}".as_slice())), None, &objects(30 << 20));
        let mut attack = Attack::begin(path, &about(), None);
        attack.member("COMMITTED", mark.len() as u64, mark.as_slice());
        attack.end();
    });
}

#[test]
fn what_is_told_of_a_job_is_small() {
    refused("about", "description", |path| {
        let job = objects(15 << 20);
        let about = format!(r#"{{"format":1,"checkpoint":3,"log":null,"job":{job}}}"#);
        Attack::begin(path, about.as_bytes(), None).end();
    });
}

#[test]
fn long_names_in_a_pack_are_not_held() {
    refused("names", "member", |path| {
        let length = 512 * MIB;
        let index = b"{}";
        let mut header = tar::Header::new_gnu();
        header.set_size(length);
        header.set_entry_type(tar::EntryType::GNULongName);
        header.set_path("././@LongLink").unwrap();
        header.set_cksum();
        let pack = 1024 + length;
        let mark = mark((2, &hash_of(2, index.as_slice())), Some(pack), "null");
        let mut attack = Attack::begin(path, &about(), None);
        attack.member("COMMITTED", mark.len() as u64, mark.as_slice());
        attack.member("index/graph.json", 2, index.as_slice());
        let bytes = header.as_bytes().chain(io::repeat(0));
        attack.member(&format!("packs/{PACK}.tar"), pack, bytes);
        attack.end();
    });
}
