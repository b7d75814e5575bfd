//! Slurm's word that it is about to end an allocation, and which checkpoints it has not touched.

use ckpt_agent::driver::ALLOCATION_ENDS;
use protocol::agent::{CheckpointNumber, CommitRecord};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// Between two looks at what the agents have said.
const LOOK: Duration = Duration::from_millis(200);
/// Of what was said before a look, so much is read again: a line may have been cut in two.
const OVERLAP: u64 = ALLOCATION_ENDS.len() as u64;
/// By so much earlier, in milliseconds, some processes may have had the word than it was seen here: Slurm tells node after
/// node, and agents' lines come by srun.
const EARLIER_MS: u64 = 3000;

/// A watch for that word. It comes to all processes of the job, too, which end at it unless they catch it.
pub struct Notice {
    seen: Arc<Seen>,
    watch: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    /// When, in milliseconds since 1970 UTC; 0: not yet.
    at_ms: AtomicU64,
    is_over: AtomicBool,
}

impl Notice {
    /// Watches the log of the agents, until it is dropped.
    ///
    /// # Errors
    /// Where there can't be another thread.
    pub fn watch(log: PathBuf) -> std::io::Result<Self> {
        let seen = Arc::<Seen>::default();
        let own = Arc::clone(&seen);
        let thread = std::thread::Builder::new().name("notice".to_owned());
        let watch = thread.spawn(move || own.look(&log))?;
        Ok(Self { seen, watch: Some(watch) })
    }

    /// When it was seen, in milliseconds since 1970 UTC.
    pub fn at_ms(&self) -> Option<u64> {
        Some(self.seen.at_ms.load(Ordering::Acquire)).filter(|at| *at > 0)
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        self.seen.is_over.store(true, Ordering::Release);
        let _ = self.watch.take().map(JoinHandle::join);
    }
}

impl Seen {
    fn look(&self, log: &Path) {
        let mut from = 0;
        while !self.is_over.load(Ordering::Acquire) {
            // It is there before the watch; what can't be read now may be read the next time.
            if has_word(log, &mut from).unwrap_or(false) {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                let now = now.unwrap_or_default().as_millis();
                self.at_ms.store(u64::try_from(now).unwrap_or(u64::MAX), Ordering::Release);
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Whether the word is in what was added to the log.
fn has_word(log: &Path, from: &mut u64) -> std::io::Result<bool> {
    let mut log = File::open(log)?;
    let length = log.metadata()?.len();
    if length == *from {
        return Ok(false);
    }
    log.seek(SeekFrom::Start(from.saturating_sub(OVERLAP)))?;
    let mut added = Vec::new();
    log.read_to_end(&mut added)?;
    *from = length;
    Ok(String::from_utf8_lossy(&added).contains(ALLOCATION_ENDS))
}

/// The newest of these checkpoints in which no process has had the word yet: one that has it pending would end as soon as it
/// goes on.
pub fn untouched(
    records: impl IntoIterator<Item = CommitRecord>,
    at_ms: u64,
) -> Option<CheckpointNumber> {
    let before = at_ms.saturating_sub(EARLIER_MS);
    let went_on = |record: &CommitRecord| record.taken_at_ms.saturating_add(record.pause_us / 1000);
    let good = records.into_iter().filter(|record| went_on(record) < before);
    good.map(|record| record.checkpoint).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::agent::{ImageSummary, InstanceId};
    use std::io::Write;

    #[test]
    fn the_word_is_seen_once_it_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = File::create(&path).unwrap();
        let (mut from, (first, second)) = (0, ALLOCATION_ENDS.split_at(9));
        assert!(!has_word(&path, &mut from).unwrap());
        write!(log, "INFO member\nINFO {first}").unwrap();
        assert!(!has_word(&path, &mut from).unwrap());
        writeln!(log, "{second}").unwrap();
        let notice = Notice::watch(path.clone()).unwrap();
        while notice.at_ms().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(has_word(&path, &mut from).unwrap());
        assert!(!has_word(&path, &mut from).unwrap(), "it is told once");
    }

    #[test]
    fn what_stood_still_shortly_before_the_word_is_not_trusted() {
        let record = |checkpoint, taken_at_ms, pause_us| CommitRecord {
            format: CommitRecord::FORMAT,
            job: "j".into(),
            checkpoint,
            restored_from: None,
            taken_at_ms,
            committed_at_ms: 99_000,
            pause_us,
            log_length: 0,
            copies: 1,
            degraded: false,
            suspended: false,
            summary: ImageSummary::default(),
            agents: vec![InstanceId::EMBEDDED].into(),
        };
        let records = [record(1, 10_000, 0), record(2, 20_000, 0), record(3, 24_000, 2_000_000)];
        assert_eq!(untouched(records.clone(), 40_000), Some(3));
        // It stood still until 26 s.
        assert_eq!(untouched(records.clone(), 28_000), Some(2));
        assert_eq!(untouched(records.clone(), 23_000), Some(1));
        assert_eq!(untouched(records, 13_000), None);
    }
}
