//! The copy of the log of a job on this machine alone: a thread of its launcher, with which the job ends.

use super::mirror::Mirror;
use super::{LOOK, OutputFile, PATIENCE, RETRY};
use crate::failure::Failure;
use crate::jobs::JobFolder;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

/// Bytes that are copied at once.
const PIECE: u64 = 64 << 10;

/// Copies the job's log for as long as that runs, and then what is left of it.
///
/// # Errors
/// Those of what runs; the copy has none but warnings.
pub fn while_running<T>(
    output: Option<OutputFile>,
    job: &JobFolder,
    run: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let Some(output) = output else { return run() };
    let (log, name) = (job.log(), job.name().to_owned());
    let (over, is_over) = channel::<()>();
    let copy = move || carry(output.mirror(), &log, &name, &is_over);
    let thread = std::thread::Builder::new().name("output-file".to_owned()).spawn(copy);
    let thread = thread.map_err(|error| Failure::of("copy the output", error))?;
    let status = run();
    drop(over);
    let _ = thread.join();
    status
}

fn carry(mut mirror: Mirror, log: &Path, name: &str, over: &Receiver<()>) {
    loop {
        let pause = if mirror.failing().is_some() { RETRY } else { LOOK };
        // Before the log is read: what is written until its end is there then.
        let is_over = over.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected);
        // A log that can't be read is told of by who writes it.
        let length = copy(&mut mirror, log).unwrap_or_default();
        if is_over {
            match mirror.failing() {
                Some(since) if since < PATIENCE => std::thread::sleep(LOOK),
                _ => return mirror.tell_of_lack(length, name),
            }
        }
    }
}

/// Copies what there is, as far as the file takes it; the log's length.
fn copy(mirror: &mut Mirror, log: &Path) -> io::Result<u64> {
    let log = File::open(log)?;
    let length = log.metadata()?.len();
    if !mirror.end_at(length) {
        return Ok(length);
    }
    let mut buffer = vec![0; usize::try_from(PIECE).unwrap_or_default()];
    while mirror.length() < length {
        let most = PIECE.min(length - mirror.length());
        let piece = buffer.get_mut(..usize::try_from(most).unwrap_or_default());
        let piece = piece.unwrap_or_default();
        log.read_exact_at(piece, mirror.length())?;
        if !mirror.put(mirror.length(), piece) {
            break;
        }
    }
    Ok(length)
}
