//! Archives of a few kilobytes that ask for much memory or disk, and disks that have too little.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use ckptd_tests::job::Failure;
use serde_json::{Value, json};

use super::archives::{archive, expect_jobs, refused as refused_with, text};
use super::stage::{Finished, Stage, expect, own};

/// The address space of an import, in KiB. Those of before took 0.5 to 3 GB for these archives.
pub const MEMORY: &str = "400000";
const MIB: u64 = 1 << 20;

/// `ckptd import FILE --dir STATE OPTIONS...` within what `ulimit LIMIT` leaves it.
pub fn import(
    stage: &Stage,
    limit: &str,
    file: &Path,
    state: &Path,
    options: &[&str],
) -> Result<Finished, Failure> {
    let script = format!("ulimit {limit} && exec \"$@\"");
    let (file, state) = (text(file), text(state));
    let arguments = [&["import", &file, "--dir", &state], options].concat();
    stage.start_wrapped(&["sh", "-c", &script, "sh"], &arguments)?.finish()
}

/// What the archive says of its job.
fn about(file: &Path) -> Result<Value, Failure> {
    let mut archive = tar::Archive::new(own(zstd::Decoder::new(own(File::open(file))?))?);
    let first = own(archive.entries())?.next().ok_or_else(|| Failure("it is empty".into()))?;
    let mut text = Vec::new();
    own(own(first)?.read_to_end(&mut text))?;
    serde_json::from_slice(&text).map_err(|error| Failure(format!("about.json: {error}")))
}

/// An archive of these members.
fn pack(file: &Path, members: Vec<(&str, u64, Box<dyn Read>)>) -> Result<(), Failure> {
    let packed = || -> io::Result<()> {
        let mut tar = tar::Builder::new(zstd::Encoder::new(File::create(file)?, 1)?);
        for (name, length, from) in members {
            let mut header = tar::Header::new_ustar();
            header.set_path(format!("ckptd-checkpoint/{name}"))?;
            header.set_size(length);
            header.set_cksum();
            tar.append(&header, from.take(length))?;
        }
        tar.into_inner()?.finish().map(drop)
    };
    own(packed())
}

fn member(name: &str, bytes: Vec<u8>) -> (&str, u64, Box<dyn Read>) {
    (name, bytes.len() as u64, Box::new(io::Cursor::new(bytes)))
}

/// A commit mark of one index of that length, with `meta`.
fn mark(length: u64, meta: &str) -> Vec<u8> {
    let zeros = "0".repeat(64);
    let body = format!(
        "ckptd checkpoint 1\n{{\"checkpoint\":1,\"time_ms\":1,\"files\":[{{\"name\":\"graph.json\",\"length\":{length},\
         \"hash\":\"{zeros}\"}}],\"packs\":[],\"totals\":{{\"submitted\":0,\"bytes\":0,\"chunks\":0,\"stored\":0,\
         \"index\":{length}}},\"meta\":{meta}}}\n"
    );
    format!("{body}blake3 {}\n", blake3::hash(body.as_bytes()).to_hex()).into_bytes()
}

/// Archives that ask for gigabytes are refused within little memory, in one line each, and leave nothing; the one that they
/// were made of is imported within the same.
pub fn refused(stage: &Stage) -> Result<(), Failure> {
    let good = archive(stage)?;
    let (bad, state) = (stage.home.join("bad.tar.zst"), stage.home.join("other"));
    let mut told = about(&good)?;
    let usual = || told.to_string().into_bytes();
    let objects = format!("[{}0]", "{\"a\":0},".repeat(15 << 17));
    // An import asks for twice as much free room, and the machine may have little.
    let length = 192 * MIB;
    let index = |bytes| ("index/graph.json", length, bytes);
    let blanks: Box<dyn Read> = Box::new(io::repeat(b' '));
    let endless: Box<dyn Read> = Box::new(io::Cursor::new(b"[\"").chain(io::repeat(b'x')));
    let whole = |index| {
        vec![member("about.json", usual()), member("COMMITTED", mark(length, "null")), index]
    };
    let meta = vec![member("about.json", usual()), member("COMMITTED", mark(2, &objects))];
    let mut cases = vec![
        ("blanks", whole(index(blanks)), "it consists of blanks"),
        ("one text", whole(index(endless)), "longer than any that is written"),
        ("meta", meta, "larger than any that is written"),
    ];
    told["job"]["more"] = json!("MORE");
    let told = told.to_string().replace("\"MORE\"", &objects).into_bytes();
    cases.push(("about", vec![member("about.json", told)], "larger than any that is written"));
    for (name, members, words) in cases {
        pack(&bad, members)?;
        let size = own(fs::metadata(&bad))?.len();
        expect(size < 64 << 10, || format!("{name} has {size} bytes"))?;
        let ended = import(stage, &format!("-v {MEMORY}"), &bad, &state, &[])?;
        refused_with(ended, words).map_err(|f| Failure(format!("{name}: {f}")))?;
        nothing(&state)?;
    }
    import(stage, &format!("-v {MEMORY}"), &good, &state, &[])?.expect(0)?;
    expect_jobs(&state, 1)
}

fn nothing(state: &Path) -> Result<(), Failure> {
    expect_jobs(state, 0).or_else(|failure| if state.exists() { Err(failure) } else { Ok(()) })
}

/// An import that the system gives no more room says so in one line, and leaves nothing.
pub fn full(stage: &Stage) -> Result<(), Failure> {
    let (good, state) = (archive(stage)?, stage.home.join("other"));
    // In blocks of 512 bytes: less than the memory in the image.
    let ended = import(stage, "-f 200", &good, &state, &[])?;
    refused_with(ended, "limit on a file's size")?;
    nothing(&state)
}
