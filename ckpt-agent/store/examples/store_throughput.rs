//! How fast the image store makes random data durable, in clear and encrypted, beside `dd conv=fsync` of the same bytes
//! on the same disk, and how fast it reads it back. All take turns, so that what else the machine does is in all of them.
//!
//!     cargo run --release -p ckpt-store --example store_throughput [MIB] [ROUNDS] [DIR]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ckpt_store::{Checkpoint, CheckpointWriter, ChunkRef, Cipher, WriterOptions, keep_key};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use protocol::cluster::image_key::{Encryption, JobKey};

const CHUNK: usize = 256 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mib: usize = arguments.next().map_or(Ok(1024), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let parent = arguments.next().unwrap_or_else(|| ".".to_owned());
    let folder = tempfile::tempdir_in(parent)?;
    let mut data = vec![0; mib << 20];
    blake3::Hasher::new().finalize_xof().fill(&mut data);
    let source = folder.path().join("source");
    fs::write(&source, &data)?;
    Command::new("sync").status()?;

    let mut by_dd = Vec::new();
    let mut in_packs = [(); WAYS.len()].map(|()| Vec::new());
    let mut by_store = [(); WAYS.len()].map(|()| (Vec::new(), Vec::new(), Vec::new()));
    for round in 0..rounds {
        by_dd.push(dd(&source, &folder.path().join("copy"))?);
        for (number, (_, cipher)) in WAYS.iter().enumerate() {
            let job = folder.path().join(format!("job{round}-{number}"));
            let before = processor_time()?;
            let (packed, took, chunks) = store(&job, &data, *cipher)?;
            let (worked, durable, reading) = &mut by_store[number];
            worked.push(processor_time()?.saturating_sub(before));
            in_packs[number].push(packed);
            durable.push(took);
            reading.push(read(&job, &chunks)?);
            fs::remove_dir_all(&job)?;
        }
    }
    let rate = |took: Duration| mib as f64 / took.as_secs_f64();
    println!(
        "MiB/s, medians of {rounds}     in the pack  durable  per second of processors  read, one thread"
    );
    println!("dd conv=fsync                  {:9.0}", rate(median(by_dd)));
    for (((name, _), in_pack), (worked, durable, reading)) in
        WAYS.iter().zip(in_packs).zip(by_store)
    {
        let all = [in_pack, durable, worked, reading].map(|times| rate(median(times)));
        let [in_pack, durable, worked, reading] = all;
        println!("{name:20} {in_pack:14.0} {durable:8.0} {worked:26.0} {reading:17.0}");
    }
    Ok(())
}

/// How it is stored.
const WAYS: [(&str, Option<Cipher>); 3] = [
    ("in clear", None),
    ("AES-256-GCM", Some(Cipher::Aes256Gcm)),
    ("ChaCha20-Poly1305", Some(Cipher::ChaCha20Poly1305)),
];

/// What this process has had of processors, its own and the kernel's for it.
fn processor_time() -> Result<Duration, Box<dyn Error>> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(micros.try_into()?))
}

fn dd(source: &Path, copy: &Path) -> Result<Duration, Box<dyn Error>> {
    let start = Instant::now();
    let status = Command::new("dd")
        .arg(format!("if={}", source.display()))
        .arg(format!("of={}", copy.display()))
        .args(["bs=1M", "conv=fsync", "status=none"])
        .status()?;
    let took = start.elapsed();
    if !status.success() {
        return Err("dd failed".into());
    }
    fs::remove_file(copy)?;
    Command::new("sync").status()?;
    Ok(took)
}

/// How long it takes until all is in the pack, and until it is durable.
fn store(
    job: &Path,
    data: &[u8],
    cipher: Option<Cipher>,
) -> Result<(Duration, Duration, Vec<ChunkRef>), Box<dyn Error>> {
    if cipher.is_some() {
        fs::create_dir(job)?;
        keep_key(job, &JobKey::new([1; 32]), Encryption::Shared)?;
    }
    let start = Instant::now();
    let options = WriterOptions { cipher, ..WriterOptions::default() };
    let writer = CheckpointWriter::create_with(job, 1, &options)?;
    for (tag, bytes) in data.chunks(CHUNK).enumerate() {
        let mut buffer = writer.take_buffer(CHUNK);
        buffer.extend_from_slice(bytes);
        writer.submit(tag as u64, buffer)?;
    }
    let (mut index, chunks) = writer.finish_chunks()?;
    let written = start.elapsed();
    let chunks: Vec<ChunkRef> = chunks.iter().map(|(_, chunk)| chunk).collect();
    index.put_json("graph.json", &chunks)?;
    index.seal()?.commit(&())?;
    let took = start.elapsed();
    Command::new("sync").status()?;
    Ok((written, took, chunks))
}

fn read(job: &Path, chunks: &[ChunkRef]) -> Result<Duration, Box<dyn Error>> {
    let reader = Checkpoint::open(job, 1)?.reader()?;
    let mut buffer = Vec::new();
    // Once to have it in the page cache.
    chunks.iter().try_for_each(|chunk| reader.read(chunk, &mut buffer))?;
    let start = Instant::now();
    chunks.iter().try_for_each(|chunk| reader.read(chunk, &mut buffer))?;
    Ok(start.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
