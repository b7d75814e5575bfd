//! How fast the image store makes random data durable, beside `dd conv=fsync` of the same bytes
//! on the same disk, and how fast it reads it back.
//!
//!     cargo run --release -p ckpt-store --example store_throughput [MIB] [ROUNDS] [DIR]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ckpt_store::{Checkpoint, CheckpointWriter, ChunkRef};

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

    let (mut by_dd, mut by_store, mut reading) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        by_dd.push(dd(&source, &folder.path().join("copy"))?);
        let job = folder.path().join(format!("job{round}"));
        let (took, chunks) = store(&job, &data)?;
        by_store.push(took);
        reading.push(read(&job, &chunks)?);
        fs::remove_dir_all(&job)?;
    }
    let [dd, store, read] = [by_dd, by_store, reading].map(median);
    let rate = |took: Duration| mib as f64 / took.as_secs_f64();
    println!("dd conv=fsync      {:7.0} MiB/s  {dd:?}", rate(dd));
    println!("store, durable     {:7.0} MiB/s  {store:?}", rate(store));
    println!("store / dd         {:7.2}", dd.as_secs_f64() / store.as_secs_f64());
    println!("read, one thread   {:7.0} MiB/s  {read:?}", rate(read));
    Ok(())
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

fn store(job: &Path, data: &[u8]) -> Result<(Duration, Vec<ChunkRef>), Box<dyn Error>> {
    let start = Instant::now();
    let writer = CheckpointWriter::create(job, 1)?;
    for (tag, bytes) in data.chunks(CHUNK).enumerate() {
        let mut buffer = writer.take_buffer(CHUNK);
        buffer.extend_from_slice(bytes);
        writer.submit(tag as u64, buffer)?;
    }
    let submitted = start.elapsed();
    let (mut index, chunks) = writer.finish_chunks()?;
    let written = start.elapsed();
    let chunks: Vec<ChunkRef> = chunks.iter().map(|(_, chunk)| chunk).collect();
    index.put_json("graph.json", &chunks)?;
    index.seal()?.commit(&())?;
    let took = start.elapsed();
    println!("  submitted {submitted:?}, in the pack {written:?}, durable {took:?}");
    Command::new("sync").status()?;
    Ok((took, chunks))
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
