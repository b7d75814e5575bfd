//! Slurm's word that it is about to end an allocation, and which checkpoints it has not touched.

use super::agent::{ALLOCATION_ENDS, SIGNALLED};
use crate::failure::Failure;
use protocol::agent::{CheckpointNumber, CommitRecord};
use protocol::clock::wall_ms;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two looks at what the agents have said.
const LOOK: Duration = Duration::from_millis(200);
/// Of what was said before a look, so much is read again: a line may have been cut in two.
const OVERLAP: u64 = if ALLOCATION_ENDS.len() > SIGNALLED.len() {
    ALLOCATION_ENDS.len() as u64
} else {
    SIGNALLED.len() as u64
};
/// By so much earlier, in milliseconds, some processes may have had the word than it was seen here: Slurm tells node after
/// node, and agents' lines come by srun.
const EARLIER_MS: u64 = 3000;

/// So long after it, in milliseconds, a job ends because of it. One that has caught it and runs on for longer is its own
/// master.
const TERMINATION_LASTS_MS: u64 = 600_000;
/// The same of a signal that may have meant something else: who does not catch it ends at once.
const SIGNAL_LASTS_MS: u64 = 60_000;

/// A watch for that word. It comes to all processes of the job, too, which end at it unless they catch it.
pub struct Notice {
    seen: Arc<Seen>,
    watch: Option<JoinHandle<Option<Word>>>,
}

/// What Slurm has sent to all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// SIGTERM: the allocation ends.
    Termination,
    /// Another one that somebody has asked for: perhaps for something else than an end.
    Signal,
}

/// The word, and what became of the job then.
pub struct Word {
    /// What it was.
    pub sent: Sent,
    /// When it was seen, in milliseconds since 1970 UTC.
    at_ms: u64,
    /// Whether the job is kept as it was before.
    pub kept: Result<(), Failure>,
}

impl Word {
    /// Whether a job that ends now does so because of it.
    pub fn is_recent(&self) -> bool {
        let lasts_ms = match self.sent {
            Sent::Termination => TERMINATION_LASTS_MS,
            Sent::Signal => SIGNAL_LASTS_MS,
        };
        wall_ms().saturating_sub(self.at_ms) < lasts_ms
    }

    /// Whether another one that comes now means the same end. The end of the allocation after some signal does not.
    fn means(&self, sent: Sent) -> bool {
        self.is_recent() && !(sent == Sent::Termination && self.sent == Sent::Signal)
    }
}

#[derive(Default)]
struct Seen {
    has_word: AtomicBool,
    is_over: AtomicBool,
}

impl Notice {
    /// Watches the log of the agents. When the word is there, `keep` is told when it came, and keeps the job.
    ///
    /// # Errors
    /// Where there can't be another thread.
    pub fn watch(
        log: PathBuf,
        keep: impl FnMut(u64) -> Result<(), Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let seen = Arc::<Seen>::default();
        let own = Arc::clone(&seen);
        let thread = std::thread::Builder::new().name("notice".to_owned());
        let watch = thread.spawn(move || own.look(&log, keep));
        let watch = watch.map_err(|error| Failure::of("watch the agents", error))?;
        Ok(Self { seen, watch: Some(watch) })
    }

    /// The word, once the job is kept, if it has come, or comes within that time.
    pub fn finish(mut self, patience: Duration) -> Option<Word> {
        let until = Instant::now() + patience;
        while !self.seen.has_word.load(Ordering::Acquire) && Instant::now() < until {
            std::thread::sleep(LOOK / 4);
        }
        self.end()
    }

    fn end(&mut self) -> Option<Word> {
        self.seen.is_over.store(true, Ordering::Release);
        self.watch.take()?.join().ok()?
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        self.end();
    }
}

impl Seen {
    /// The last word that came until nobody waits for it any more. One that follows soon means the same end.
    fn look(&self, log: &Path, mut keep: impl FnMut(u64) -> Result<(), Failure>) -> Option<Word> {
        let (mut from, mut word) = (0, None::<Word>);
        loop {
            let is_over = self.is_over.load(Ordering::Acquire);
            // It is there before the watch; what can't be read now may be read the next time.
            let comes = read_word(log, &mut from).unwrap_or(None);
            match (comes, &mut word) {
                (Some(sent), before) if !before.as_ref().is_some_and(|word| word.means(sent)) => {
                    self.has_word.store(true, Ordering::Release);
                    let at_ms = wall_ms();
                    let kept = keep(at_ms);
                    // What was kept before stays where nothing newer can be.
                    let kept = match before.take().map(|word| word.kept) {
                        Some(Ok(())) if kept.is_err() => Ok(()),
                        _ => kept,
                    };
                    word = Some(Word { sent, at_ms, kept });
                }
                _ => {}
            }
            if is_over {
                return word;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The word in what was added to the log.
fn read_word(log: &Path, from: &mut u64) -> std::io::Result<Option<Sent>> {
    let mut log = File::open(log)?;
    let length = log.metadata()?.len();
    if length == *from {
        return Ok(None);
    }
    let start = from.saturating_sub(OVERLAP);
    log.seek(SeekFrom::Start(start))?;
    let mut added = Vec::new();
    log.read_to_end(&mut added)?;
    let read_before = usize::try_from(*from - start).unwrap_or(usize::MAX);
    *from = length;
    let is_new = |word: &str| {
        let mut places = added.windows(word.len()).enumerate();
        places.any(|(at, text)| text == word.as_bytes() && at + word.len() > read_before)
    };
    let words = [(ALLOCATION_ENDS, Sent::Termination), (SIGNALLED, Sent::Signal)];
    Ok(words.into_iter().find(|(word, _)| is_new(word)).map(|(_, sent)| sent))
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
        assert_eq!(read_word(&path, &mut from).unwrap(), None);
        write!(log, "INFO member\nINFO {first}").unwrap();
        assert_eq!(read_word(&path, &mut from).unwrap(), None);
        writeln!(log, "{second}").unwrap();
        let notice = Notice::watch(path.clone(), |at_ms| {
            assert!(at_ms > 0);
            Err(Failure::of("keep it", "the disk is full"))
        });
        let word = notice.unwrap().finish(Duration::ZERO).unwrap();
        assert!(word.is_recent() && word.kept.is_err());
        assert_eq!(read_word(&path, &mut from).unwrap(), Some(Sent::Termination));
        assert_eq!(read_word(&path, &mut from).unwrap(), None, "it is told once");
        writeln!(log, "INFO").unwrap();
        assert_eq!(read_word(&path, &mut from).unwrap(), None, "it is told once");
        writeln!(log, "{SIGNALLED}").unwrap();
        assert_eq!(read_word(&path, &mut from).unwrap(), Some(Sent::Signal));
        let silent = folder.path().join("silent");
        let notice = Notice::watch(silent, |_| Ok(())).unwrap();
        assert!(notice.finish(Duration::ZERO).is_none());
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
