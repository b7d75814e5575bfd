//! What the machine itself can do.

use std::io::{IoSlice, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::uio::{RemoteIoVec, process_vm_writev};
use nix::unistd::Pid;

use super::subject::{NAME, Setting, failure};
use crate::job::Failure;

/// Bytes of a MiB.
const MIB: usize = 1 << 20;

/// Random bytes, which cost as much to make as to read: done once a run.
///
/// # Errors
/// No /dev/urandom.
pub fn random(mib: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0; mib * MIB];
    let mut source = std::fs::File::open("/dev/urandom").map_err(failure)?;
    source.read_exact(&mut bytes).map_err(failure)?;
    Ok(bytes)
}

/// `dd conv=fsync` of a file that is in the page cache, onto the disk of the run's folder, ms.
///
/// # Errors
/// dd failed.
pub fn dd(setting: &Setting, source: &Path) -> Result<f64, Failure> {
    let copy = setting.folder.path().join("copy");
    let started = Instant::now();
    let status = Command::new("dd")
        .args([format!("if={}", source.display()), format!("of={}", copy.display())])
        .args(["bs=1M", "conv=fsync", "status=none"])
        .status()
        .map_err(failure)?;
    let took = started.elapsed().as_secs_f64() * 1e3;
    if !status.success() {
        return Err(Failure("dd failed".into()));
    }
    std::fs::remove_file(copy).map_err(failure)?;
    Ok(took)
}

/// process_vm_writev(2) of the bytes into fresh memory of another process, ms.
///
/// # Errors
/// Failed calls.
pub fn write_to_fresh_process(setting: &Setting, bytes: &[u8]) -> Result<f64, Failure> {
    let results = setting.folder.path().join("fresh-results");
    let _ = std::fs::remove_file(&results);
    let mib = (bytes.len() / MIB).to_string();
    let child = Command::new(setting.program(NAME)?)
        .arg(&results)
        .args(["--fresh", &mib])
        .stdin(Stdio::null())
        .spawn()
        .map_err(failure)?;
    let child = Killed(child);
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut base = loop {
        let text = std::fs::read_to_string(&results).unwrap_or_default();
        if text.contains("ready") {
            let number = text.lines().find_map(|line| line.strip_prefix("fresh ")?.parse().ok());
            break number.ok_or_else(|| Failure(format!("odd answer {text:?}")))?;
        }
        if Instant::now() > deadline {
            return Err(Failure("the fresh process never came up".into()));
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let pid = Pid::from_raw(i32::try_from(child.0.id()).map_err(failure)?);
    let started = Instant::now();
    // In the pieces that the engine uses.
    for piece in bytes.chunks(MIB / 4) {
        let remote = [RemoteIoVec { base, len: piece.len() }];
        let written = process_vm_writev(pid, &[IoSlice::new(piece)], &remote).map_err(failure)?;
        if written != piece.len() {
            return Err(Failure("process_vm_writev came to a stop".into()));
        }
        base += written;
    }
    Ok(started.elapsed().as_secs_f64() * 1e3)
}

/// Ends with its owner.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
