//! A checkpoint as an archive: what goes out comes in, and nothing else does.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::fs::{self, File};
use std::io::{Cursor, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use ckpt_store::archive::{ArchiveError, Beside, Export, ExportAll, Import, Interrupted};
use ckpt_store::*;
use protocol::log_times::{self, Origin, Piece};
use serde_json::{Value, json};

const LOG: &[u8] = b"the output so far\nmore of it";

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// A job whose checkpoint 3 refers to all chunks but the two of the middle.
fn job(dir: &Path) -> (Vec<ChunkRef>, Vec<ChunkRef>) {
    let writer = CheckpointWriter::create(dir, 3).unwrap();
    for tag in 0..12 {
        let mut bytes = noise(tag, 30_000 + tag as usize);
        if tag % 3 == 0 {
            bytes[5000..].fill(tag as u8);
        }
        writer.submit(tag, bytes).unwrap();
    }
    let (mut index, chunks) = writer.finish_chunks().unwrap();
    let mut wanted: Vec<ChunkRef> = chunks.iter().map(|(_, chunk)| chunk).collect();
    let unwanted = wanted.drain(5..7).collect();
    index.put_json("graph.json", &wanted).unwrap();
    index.put_json("17.json", &json!({"pid": 17})).unwrap();
    index.seal().unwrap().commit(&json!({"pause": 4})).unwrap();
    fs::write(dir.join("log"), LOG).unwrap();
    (wanted, unwanted)
}

fn export(dir: &Path, log_length: u64) -> Result<Vec<u8>, ArchiveError> {
    let log = File::open(dir.join("log")).unwrap();
    let export = Export::open(dir, 3, Some((log, log_length)))?;
    let (mut told, bytes) = (0, export.bytes());
    let archive = export.write(&json!({"name": "fold"}), Vec::new(), &mut |bytes| {
        told += bytes;
        Ok(())
    })?;
    assert!(told >= bytes);
    Ok(archive)
}

fn import(archive: &[u8], dir: &Path) -> Result<CommitMark, ArchiveError> {
    Import::open(archive)?.unpack(dir, &|_| Ok(u64::MAX), &mut |_| Ok(()))
}

#[test]
fn what_goes_out_comes_in() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (wanted, unwanted) = job(from.path());
    let archive = export(from.path(), 17).unwrap();
    let opened = Import::open(archive.as_slice()).unwrap();
    assert_eq!((opened.about().checkpoint, &opened.about().job["name"]), (3, &json!("fold")));
    let mark = import(&archive, to.path()).unwrap();
    assert_eq!(&mark, Checkpoint::open(from.path(), 3).unwrap().mark());
    let checkpoint = Checkpoint::open(to.path(), 3).unwrap();
    assert_eq!(checkpoint.read_json::<Vec<ChunkRef>>("graph.json").unwrap(), wanted);
    let reader = checkpoint.reader().unwrap();
    let mut bytes = Vec::new();
    for chunk in &wanted {
        reader.read(chunk, &mut bytes).unwrap();
    }
    for chunk in &unwanted {
        assert!(matches!(reader.read(chunk, &mut bytes), Err(Damage::Chunk { .. })));
    }
    assert_eq!(fs::read(to.path().join("log")).unwrap(), &LOG[..17]);
    let report = verify(to.path(), 3, |_| {}).unwrap();
    assert_eq!(report.chunks, wanted.len() as u64);
    for path in ["log", "checkpoints/3/graph.json", "checkpoints/3/COMMITTED"] {
        let mode = fs::metadata(to.path().join(path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{path}");
    }
    tell_anew(to.path(), 3, &json!({"job": "other"})).unwrap();
    let told = Checkpoint::open(to.path(), 3).unwrap();
    assert_eq!((&told.mark().meta["job"], told.mark().time_ms), (&json!("other"), mark.time_ms));
}

#[test]
fn what_is_not_needed_takes_no_room() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let writer = CheckpointWriter::create(from.path(), 3).unwrap();
    for tag in 0..20 {
        writer.submit(tag, noise(tag, 1 << 20)).unwrap();
    }
    let (mut index, chunks) = writer.finish_chunks().unwrap();
    let (_, one) = chunks.iter().nth(9).unwrap();
    index.put_json("graph.json", &[one]).unwrap();
    index.seal().unwrap().commit(&()).unwrap();
    fs::write(from.path().join("log"), b"").unwrap();
    let archive = export(from.path(), 0).unwrap();
    assert!(archive.len() < 3 << 19, "{}", archive.len());
    let mark = import(&archive, to.path()).unwrap();
    let pack = fs::metadata(to.path().join(format!("packs/{}.tar", mark.packs[0].id))).unwrap();
    assert!(pack.len() > 20 << 20 && pack.blocks() * 512 < 2 << 20, "{pack:?}");
    assert!(!to.path().join("log").exists());
}

#[test]
fn a_damaged_checkpoint_is_not_exported() {
    let dir = tempfile::tempdir().unwrap();
    let (wanted, _) = job(dir.path());
    let pack = dir.path().join(format!("packs/{}.tar", wanted[0].pack));
    let mut bytes = fs::read(&pack).unwrap();
    bytes[wanted[4].offset as usize + 7] ^= 1;
    fs::write(&pack, bytes).unwrap();
    let error = export(dir.path(), 5).unwrap_err();
    assert!(matches!(error, ArchiveError::Damage(Damage::Chunk { .. })), "{error}");
}

#[test]
fn it_ends_when_it_is_told_to() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    job(from.path());
    let archive = export(from.path(), 5).unwrap();
    let stop = &mut |_| Err(Interrupted);
    let error =
        Export::open(from.path(), 3, None).unwrap().write(&(), Vec::new(), stop).unwrap_err();
    assert!(matches!(error, ArchiveError::Interrupted(_)), "{error}");
    let error =
        Import::open(archive.as_slice()).unwrap().unpack(to.path(), &|_| Ok(u64::MAX), stop);
    assert!(matches!(error, Err(ArchiveError::Interrupted(_))), "{error:?}");
    let room = tempfile::tempdir().unwrap();
    let import = Import::open(archive.as_slice()).unwrap();
    let error = import.unpack(room.path(), &|_| Ok(1000), &mut |_| Ok(())).unwrap_err();
    assert!(matches!(error, ArchiveError::Room { free: 1000, .. }), "{error}");
}

/// A member of an archive that is about to be changed.
#[derive(Clone)]
struct Member {
    header: tar::Header,
    bytes: Vec<u8>,
}

fn members(archive: &[u8]) -> Vec<Member> {
    let plain = zstd::decode_all(archive).unwrap();
    let mut tar = tar::Archive::new(Cursor::new(plain));
    let member = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry: tar::Entry<'_, Cursor<Vec<u8>>> = entry.unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        Member { header: entry.header().clone(), bytes }
    };
    tar.entries().unwrap().map(member).collect()
}

fn pack_again(members: &[Member]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for Member { header, bytes } in members {
        let mut header = header.clone();
        header.set_cksum();
        tar.append(&header, bytes.as_slice()).unwrap();
    }
    zstd::encode_all(tar.into_inner().unwrap().as_slice(), 1).unwrap()
}

impl Member {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let mut header = tar::Header::new_ustar();
        let field = &mut header.as_old_mut().name;
        field[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(bytes.len() as u64);
        header.set_entry_type(tar::EntryType::Regular);
        Self { header, bytes: bytes.to_vec() }
    }

    fn named(mut self, name: &str) -> Self {
        let kind = self.header.entry_type();
        self = Self::new(name, &self.bytes);
        self.header.set_entry_type(kind);
        self
    }

    fn kind(mut self, kind: tar::EntryType) -> Self {
        self.header.set_entry_type(kind);
        if kind != tar::EntryType::Regular {
            self.header.set_size(0);
            self.bytes.clear();
        }
        self
    }

    fn with(mut self, bytes: Vec<u8>) -> Self {
        self.header.set_size(bytes.len() as u64);
        self.bytes = bytes;
        self
    }

    fn edit(self, edit: impl FnOnce(&mut Value)) -> Self {
        let mut value: Value = serde_json::from_slice(&self.bytes).unwrap();
        edit(&mut value);
        let bytes = serde_json::to_vec(&value).unwrap();
        self.with(bytes)
    }
}

fn reseal(mark: Member, edit: impl FnOnce(&mut Value)) -> Member {
    let text = String::from_utf8(mark.bytes.clone()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut value: Value = serde_json::from_str(lines[1]).unwrap();
    edit(&mut value);
    let body = format!("{}\n{value}\n", lines[0]);
    let hash = blake3::hash(body.as_bytes()).to_hex();
    mark.with(format!("{body}blake3 {hash}\n").into_bytes())
}

/// A place in the last chunk that the checkpoint needs: of others there are only zeros, and which comes last is up to the
/// threads that pack them.
fn within_a_chunk(pack: &[u8]) -> usize {
    const WINDOW: usize = 256;
    let is_noise = |place: &usize| {
        let window = &pack[*place..place + WINDOW];
        window.iter().filter(|byte| **byte == 0).count() < WINDOW / 16
    };
    (0..pack.len() - WINDOW).rev().find(is_noise).unwrap() + WINDOW / 2
}

/// Where the members of [`job`]'s archive are.
const ABOUT: usize = 0;
const MARK: usize = 1;
const GRAPH: usize = 2;
const PROCESS: usize = 3;
const PACK: usize = 4;
const LOG_MEMBER: usize = 5;

type Change = fn(&mut Vec<Member>);

/// What is done to a good archive, and a word of the line that refuses it.
const HOSTILE: &[(&str, Change, &str)] = &[
    ("parent", |m| m[GRAPH] = m[GRAPH].clone().named("ckptd-checkpoint/index/../../x"), "'..'"),
    ("absolute", |m| m[GRAPH] = m[GRAPH].clone().named("/etc/cron.d/x"), "absolute"),
    ("symlink", |m| m[GRAPH] = m[GRAPH].clone().kind(tar::EntryType::Symlink), "is a link"),
    ("hard link", |m| m[PACK] = m[PACK].clone().kind(tar::EntryType::Link), "is a link"),
    ("folder", |m| m[PACK] = m[PACK].clone().kind(tar::EntryType::Directory), "is a folder"),
    ("device", |m| m[PACK] = m[PACK].clone().kind(tar::EntryType::Char), "no plain file"),
    ("fifo", |m| m[LOG_MEMBER] = m[LOG_MEMBER].clone().kind(tar::EntryType::Fifo), "no plain file"),
    (
        "long name",
        |m| m.insert(GRAPH, Member::new("long", b"x").kind(tar::EntryType::GNULongName)),
        "no plain file",
    ),
    ("sparse", |m| m[PACK] = m[PACK].clone().kind(tar::EntryType::GNUSparse), "no plain file"),
    ("twice", |m| m.insert(PACK, m[GRAPH].clone()), "is there twice"),
    ("twice the mark", |m| m.push(m[MARK].clone()), "is there twice"),
    ("unexpected", |m| m.insert(PACK, Member::new("ckptd-checkpoint/x", b"x")), "not expected"),
    ("more", |m| m.push(Member::new("ckptd-checkpoint/x", b"x")), "more than belongs"),
    ("swapped", |m| m.swap(GRAPH, PROCESS), "not expected"),
    ("missing index", |m| drop(m.remove(PROCESS)), "not expected"),
    ("missing pack", |m| drop(m.remove(PACK)), "not expected"),
    ("missing log", |m| drop(m.remove(LOG_MEMBER)), "is missing"),
    ("no beginning", |m| drop(m.remove(ABOUT)), "does not begin"),
    ("nothing", Vec::clear, "it is empty"),
    ("longer index", |m| m[GRAPH] = m[GRAPH].clone().with(vec![b' '; 99]), "bytes instead of"),
    (
        "longer pack",
        |m| {
            let mut bytes = m[PACK].bytes.clone();
            bytes.push(0);
            m[PACK] = m[PACK].clone().with(bytes);
        },
        "bytes instead of",
    ),
    ("huge description", |m| m[ABOUT].header.set_size(1 << 40), "longer than"),
    ("huge mark", |m| m[MARK].header.set_size(1 << 40), "longer than"),
    ("other index", |m| m[GRAPH].bytes[3] ^= 1, "its hash does not match"),
    (
        "other chunk",
        |m| {
            let place = within_a_chunk(&m[PACK].bytes);
            m[PACK].bytes[place] ^= 1;
        },
        "hash",
    ),
    ("other frame", |m| m[PACK].bytes[600] ^= 1, "pack"),
    ("other log", |m| m[LOG_MEMBER].bytes[1] ^= 1, "its hash does not match"),
    ("other mark", |m| m[MARK].bytes[40] ^= 1, "commit mark is damaged"),
    (
        "newer mark",
        |m| {
            let text = String::from_utf8(m[MARK].bytes.clone()).unwrap();
            let (body, _) = text.rsplit_once("blake3 ").unwrap();
            let body = body.replacen("checkpoint 1\n", "checkpoint 99\n", 1);
            let hash = blake3::hash(body.as_bytes()).to_hex();
            m[MARK] = m[MARK].clone().with(format!("{body}blake3 {hash}\n").into_bytes());
        },
        "use a newer ckptd",
    ),
    (
        "newer archive",
        |m| m[ABOUT] = m[ABOUT].clone().edit(|v| v["format"] = json!(99)),
        "use a newer",
    ),
    (
        "no format",
        |m| m[ABOUT] = m[ABOUT].clone().edit(|v| v["format"] = json!("x")),
        "description",
    ),
    (
        "other number",
        |m| m[ABOUT] = m[ABOUT].clone().edit(|v| v["checkpoint"] = json!(4)),
        "another",
    ),
    ("no json", |m| m[ABOUT] = m[ABOUT].clone().with(b"{".to_vec()), "description"),
    (
        "hostile index name",
        |m| {
            m[MARK] = reseal(m[MARK].clone(), |v| v["files"][0]["name"] = json!("../../../x.json"));
        },
        "commit mark is damaged",
    ),
    (
        "hostile pack name",
        |m| {
            m[MARK] = reseal(m[MARK].clone(), |v| v["packs"][0]["id"] = json!("../../x"));
        },
        "commit mark is damaged",
    ),
    (
        "endless indexes",
        |m| {
            m[MARK] = reseal(m[MARK].clone(), |v| {
                let file = |n: u32| {
                    json!({"name": format!("{n}.json"), "length": 512 << 20,
                                       "hash": "0".repeat(64)})
                };
                v["files"] = (0..20).map(file).collect();
            });
        },
        "more files than",
    ),
];

#[test]
fn hostile_archives_are_refused_one_by_one() {
    let from = tempfile::tempdir().unwrap();
    job(from.path());
    let good = export(from.path(), 17).unwrap();
    let names: Vec<_> = members(&good)
        .iter()
        .map(|member| String::from_utf8_lossy(&member.header.path_bytes()).into_owned())
        .collect();
    assert_eq!(names.len(), 6, "{names:?}");
    assert!(names[GRAPH].ends_with("index/graph.json") && names[LOG_MEMBER].ends_with("/log"));
    let whole = tempfile::tempdir().unwrap();
    import(&pack_again(&members(&good)), whole.path()).unwrap();
    for (name, change, word) in HOSTILE {
        let mut changed = members(&good);
        change(&mut changed);
        let to = tempfile::tempdir().unwrap();
        let inside = to.path().join("inside");
        fs::create_dir(&inside).unwrap();
        let imported = import(&pack_again(&changed), &inside).map(drop);
        let error = imported.expect_err(name).to_string();
        assert!(error.contains(word), "{name}: {error:?} does not say {word:?}");
        assert_eq!(error.lines().count(), 1, "{name}: {error:?}");
        // Nothing but the folder that was given.
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 1, "{name}");
        assert!(
            !inside.join("checkpoints/3/COMMITTED").exists()
                || error.contains("hash")
                || error.contains("pack")
        );
    }
}

#[test]
fn every_cut_and_what_follows_the_end_is_found() {
    let from = tempfile::tempdir().unwrap();
    job(from.path());
    let good = export(from.path(), 17).unwrap();
    let fails = |archive: &[u8]| {
        let to = tempfile::tempdir().unwrap();
        import(archive, to.path()).map(drop).unwrap_err().to_string()
    };
    let cuts = (0..good.len()).step_by(good.len() / 40).chain(good.len() - 12..good.len());
    for cut in cuts {
        let error = fails(&good[..cut]);
        let right = error.contains("cut short") || cut < 600 || error.contains("no archive");
        assert!(right, "{cut} of {}: {error}", good.len());
    }
    let mut longer = good.clone();
    longer.push(0);
    assert!(fails(&longer).contains("follows its end"));
    let mut twice = good.clone();
    twice.extend_from_slice(&good);
    assert!(fails(&twice).contains("follows its end"));
    let mut plain = zstd::decode_all(good.as_slice()).unwrap();
    plain.extend_from_slice(&[7; 512]);
    let hidden = zstd::encode_all(plain.as_slice(), 1).unwrap();
    assert!(fails(&hidden).contains("follows its end"));
    assert!(fails(b"hello, this is no archive").contains("no archive"));
}

#[test]
fn every_flipped_bit_is_found_or_makes_no_difference() {
    let from = tempfile::tempdir().unwrap();
    job(from.path());
    let good = export(from.path(), 17).unwrap();
    let plain = zstd::decode_all(good.as_slice()).unwrap();
    let mark = import(&good, tempfile::tempdir().unwrap().path()).unwrap();
    for at in (0..plain.len()).step_by(997) {
        let mut flipped = plain.clone();
        flipped[at] ^= 1 << (at % 8);
        let archive = zstd::encode_all(flipped.as_slice(), 1).unwrap();
        let to = tempfile::tempdir().unwrap();
        if let Ok(found) = import(&archive, to.path()) {
            assert_eq!(found, mark, "{at}");
            verify(to.path(), 3, |_| {}).unwrap();
        }
    }
}

/// The contents beside the second of two images: the list, and a file by its hash.
const LIST: &[u8] = b"the list";
const CONTENT: &[u8] = b"what is in a file of the job";

fn beside() -> Vec<Beside> {
    let content = format!("files/{}", blake3::hash(CONTENT).to_hex());
    let of = |name: String, bytes: &[u8]| Beside { name, length: bytes.len() as u64 };
    vec![of(content, CONTENT), of("FILES".to_owned(), LIST)]
}

/// An archive of the images of two instances.
fn export_all(dir: &Path) -> Vec<u8> {
    for instance in ["2", "7"] {
        fs::create_dir(dir.join(instance)).unwrap();
        job(&dir.join(instance));
    }
    let last = dir.join("7");
    fs::create_dir(last.join("files")).unwrap();
    fs::write(last.join(&beside()[0].name), CONTENT).unwrap();
    fs::write(last.join("checkpoints/3/FILES"), LIST).unwrap();
    let log = File::open(last.join("log")).unwrap();
    let times = vec![Piece { start: 3, end: 99, at_ms: 5, span_ms: 0, origin: Origin::Error }];
    let watch = &mut |_| Ok(());
    let about = json!({"name": "ring"});
    let mut archive =
        ExportAll::begin(Vec::new(), 3, vec![2, 7], &about, Some((log, 17, times)), watch).unwrap();
    archive.image(&dir.join("2"), &[]).unwrap();
    archive.image(&last, &beside()).unwrap();
    archive.finish().unwrap()
}

fn import_all(archive: &[u8], to: &Path) -> Result<Vec<u32>, ArchiveError> {
    let place = |instance: u32| to.join(instance.to_string());
    let marks = Import::open(archive)?.unpack_all(to, place, &|_| Ok(1 << 30), &mut |_| Ok(()))?;
    Ok(marks.into_keys().collect())
}

#[test]
fn all_instances_go_out_and_come_in() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let archive = export_all(from.path());
    assert_eq!(import_all(&archive, to.path()).unwrap(), [2, 7]);
    for instance in ["2", "7"] {
        let (old, new) = (from.path().join(instance), to.path().join(instance));
        verify(&new, 3, |_| {}).unwrap();
        assert_eq!(digest(&old, 3).unwrap(), digest(&new, 3).unwrap());
    }
    let last = to.path().join("7");
    assert_eq!(fs::read(last.join(&beside()[0].name)).unwrap(), CONTENT);
    assert_eq!(fs::read(last.join("checkpoints/3/FILES")).unwrap(), LIST);
    assert_eq!(fs::read(to.path().join("log")).unwrap(), &LOG[..17]);
    let times = log_times::read(&to.path().join(log_times::NAME), 17);
    assert_eq!(
        times.pieces().iter().map(|p| (p.start, p.end, p.at_ms)).collect::<Vec<_>>(),
        [(3, 17, 5)]
    );
    // Neither kind is taken for the other.
    let one = tempfile::tempdir().unwrap();
    let error = import(&archive, one.path()).unwrap_err();
    assert_eq!(error.to_string(), "it holds a job of a cluster");
    let single = export(&from.path().join("2"), 17).unwrap();
    let error = import_all(&single, one.path()).unwrap_err();
    assert_eq!(error.to_string(), "it holds a job of one machine");
    let room = Import::open(archive.as_slice()).unwrap();
    let place = |instance: u32| one.path().join(format!("x{instance}"));
    let error = room.unpack_all(one.path(), place, &|_| Ok(500_000), &mut |_| Ok(())).unwrap_err();
    assert!(matches!(error, ArchiveError::Room { free: 500_000, .. }), "{error}");
}

#[test]
fn an_export_has_the_images_that_it_announces() {
    let dir = tempfile::tempdir().unwrap();
    job(dir.path());
    let watch = &mut |_| Ok(());
    let mut archive = ExportAll::begin(Vec::new(), 3, vec![1], &(), None, watch).unwrap();
    archive.image(dir.path(), &[]).unwrap();
    assert!(archive.image(dir.path(), &[]).is_err());
    let watch = &mut |_| Ok(());
    let archive = ExportAll::begin(Vec::new(), 3, vec![1], &(), None, watch).unwrap();
    assert!(archive.finish().is_err());
    let watch = &mut |_| Ok(());
    let mut archive = ExportAll::begin(Vec::new(), 3, vec![1], &(), None, watch).unwrap();
    let outside = Beside { name: "../secret".to_owned(), length: 1 };
    let error = archive.image(dir.path(), &[outside]).unwrap_err().to_string();
    assert!(error.contains("does not lie beside"), "{error}");
}

#[test]
fn hostile_archives_of_several_instances_are_refused() {
    let from = tempfile::tempdir().unwrap();
    let good = members(&export_all(from.path()));
    let at = |end: &str| {
        let ends = |m: &Member| String::from_utf8_lossy(&m.header.path_bytes()).ends_with(end);
        good.iter().rposition(ends).unwrap()
    };
    let (list, content, files) = (at("7/beside.json"), at(&beside()[0].name), at("7/FILES"));
    let second = good[..=at("2/COMMITTED")].len() - 1;
    let rename = move |name: &'static str| {
        move |m: &mut Vec<Member>| {
            m[list] = m[list].clone().edit(|v| v[0]["name"] = json!(name));
        }
    };
    let about = |instances: Value| {
        move |m: &mut Vec<Member>| {
            m[0] = m[0].clone().edit(|v| v["instances"] = instances.clone());
        }
    };
    type Changes<'a> = Vec<(&'a str, Box<dyn Fn(&mut Vec<Member>) + 'a>, &'a str)>;
    let cases: Changes<'_> = vec![
        ("outside", Box::new(rename("../../x")), "does not lie beside"),
        ("absolute", Box::new(rename("/etc/passwd")), "does not lie beside"),
        ("no hash", Box::new(rename("files/00")), "does not lie beside"),
        ("the mark", Box::new(rename("COMMITTED")), "does not lie beside"),
        ("twice", Box::new(rename("FILES")), "does not lie beside"),
        ("other content", Box::new(move |m| m[content].bytes[3] ^= 1), "hash does not match"),
        ("missing content", Box::new(move |m| drop(m.remove(content))), "not expected"),
        (
            "link",
            Box::new(move |m| m[files] = m[files].clone().kind(tar::EntryType::Symlink)),
            "link",
        ),
        (
            "huge list",
            Box::new(move |m| {
                m[list] = m[list].clone().edit(|v| v[0]["length"] = json!(1u64 << 50))
            }),
            "are free in",
        ),
        ("other list", Box::new(move |m| m[list] = m[list].clone().with(b"{}".to_vec())), "beside"),
        ("missing image", Box::new(about(json!([2, 5, 7]))), "not expected"),
        ("unannounced image", Box::new(about(json!([2]))), "not expected"),
        ("twice the same", Box::new(about(json!([2, 2]))), "instances"),
        ("none", Box::new(about(json!([]))), "instances"),
        ("too many", Box::new(about((0..10_001).collect::<Vec<u32>>().into())), "instances"),
        (
            "one kind as the other",
            Box::new(|m| m[0] = m[0].clone().edit(|v| v["format"] = json!(1))),
            "instances",
        ),
        ("missing mark", Box::new(move |m| drop(m.remove(second))), "not expected"),
    ];
    for (name, change, word) in cases {
        let mut changed = good.clone();
        change(&mut changed);
        let to = tempfile::tempdir().unwrap();
        let inside = to.path().join("inside");
        fs::create_dir(&inside).unwrap();
        let error = import_all(&pack_again(&changed), &inside).expect_err(name).to_string();
        assert!(error.contains(word), "{name}: {error:?} does not say {word:?}");
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 1, "{name}");
    }
}
