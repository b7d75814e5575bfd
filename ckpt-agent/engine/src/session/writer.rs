//! Writes images in the background.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use protocol::agent::AgentEvent;
use tracing::debug_span;

use super::Requests;
use super::memory_watch::MemoryWatch;
use super::pace::Pace;
use super::reports::{Events, say_what};
use crate::doing::{self, Activity, Doing};
use crate::dump::{ImageSummary, SnapshotData, write_image};
use crate::error::EngineError;
use crate::sys::schedule::be_nice;
use ckpt_store::{SealedCheckpoint, WriterOptions};

/// What became of a write; where it failed, the last thing that it had begun.
pub type Outcome =
    Result<(SealedCheckpoint, ImageSummary, Vec<String>), (EngineError, Option<Activity>)>;

/// How often progress is reported.
const REPORT: Duration = Duration::from_secs(2);
/// How often memory is looked at where there is a limit.
const LOOK: Duration = Duration::from_millis(2);
/// How often the end of the writing is looked for where there is none.
const IDLE: Duration = Duration::from_millis(100);
/// Nice value of the threads that hash, compress and write: a quarter of a core is left to them where
/// the job spins on all of them, since what is not written yet holds the job's old pages in memory.
const NICE: i32 = 5;

/// Starts to write; the outcome comes back as a request. What checkpoints from `reuse_from` on have stored is not
/// stored again. `watch`: of the snapshot's snapshot processes; `pace`: what is reported. The job: its folder, and its name in spans.
///
/// # Errors
/// No threads.
pub fn start(
    data: SnapshotData,
    (mut watch, mut pace): (MemoryWatch, Pace),
    (job_dir, job): (PathBuf, String),
    number: u64,
    reuse_from: u64,
    requests: Requests,
    events: Arc<Events>,
) -> std::io::Result<()> {
    let done = Arc::new(AtomicBool::new(false));
    let progress = Arc::new(AtomicU64::new(0));
    let finished = done.clone();
    let (tell_doing, hear_doing) = std::sync::mpsc::channel();
    let counter = progress.clone();
    std::thread::Builder::new().name("writer".into()).spawn(move || {
        be_nice(NICE);
        let _ = tell_doing.send(Doing::own());
        let _writing = debug_span!("write", job, checkpoint = number).entered();
        crate::fault::point("write");
        let options = WriterOptions {
            on_thread_start: Some(Arc::new(|| be_nice(NICE))),
            reuse_from: Some(reuse_from),
            ..WriterOptions::default()
        };
        let outcome = write_image(data, &job_dir, number, &options, &counter)
            .map_err(|error| (error, doing::last()));
        finished.store(true, Ordering::Relaxed);
        requests.send(move |tracer| tracer.written(number, outcome));
    })?;
    std::thread::Builder::new().name("write-progress".into()).spawn(move || {
        let step = if watch.is_needed() { LOOK } else { IDLE };
        let mut waited = Duration::ZERO;
        let doing = hear_doing.recv().unwrap_or_default();
        let mut said = None;
        while !done.load(Ordering::Relaxed) {
            std::thread::sleep(step);
            waited += step;
            watch.look();
            if waited >= REPORT {
                say_what(number, &doing, &mut said, &events);
                let bytes = pace.report(progress.load(Ordering::Relaxed), waited);
                waited = Duration::ZERO;
                events(AgentEvent::Progress { checkpoint: number, bytes }.into());
            }
        }
    })?;
    Ok(())
}
