//! Rehearses restarts from checkpoints of a job that runs, one at a time, beside it.

use crate::text;
use protocol::control::{Rehearsal, RehearsalOutcome};
use std::path::PathBuf;
use tokio::sync::mpsc;

/// A rehearsal that has come to its end, and what the restart would have warned of.
#[derive(Debug)]
pub struct Finished {
    /// From which checkpoint.
    pub checkpoint: u64,
    /// How it came out.
    pub outcome: RehearsalOutcome,
    /// Lines for the user.
    pub warnings: Vec<String>,
}

/// The rehearsals of a session.
#[derive(Debug)]
pub struct Rehearsals {
    job_dir: PathBuf,
    /// After so many checkpoints; 0: never.
    every: u32,
    /// Checkpoints since the last one.
    since: u32,
    newest: Option<Rehearsal>,
    /// Why the last one failed, or came to nothing.
    failure: Option<String>,
    finished: mpsc::UnboundedSender<Finished>,
}

impl Rehearsals {
    /// None has begun. What has come to its end is to be received, and given back to [`Rehearsals::note`].
    pub fn new(job_dir: PathBuf, every: u32) -> (Self, mpsc::UnboundedReceiver<Finished>) {
        let (finished, ends) = mpsc::unbounded_channel();
        (Self { job_dir, every, since: 0, newest: None, failure: None, finished }, ends)
    }

    /// The newest one.
    pub fn newest(&self) -> Option<&Rehearsal> {
        self.newest.as_ref()
    }

    /// A checkpoint has been committed. Begins a rehearsal where one is due; a line for the log where it can't.
    pub fn committed(&mut self, checkpoint: u64) -> Option<String> {
        self.since = self.since.saturating_add(1);
        if self.every == 0 || self.since < self.every {
            return None;
        }
        if let Some(Rehearsal { checkpoint: other, outcome: None }) = &self.newest {
            return Some(format!(
                "checkpoint {checkpoint} is not rehearsed: the rehearsal of checkpoint {other} is going on"
            ));
        }
        let (job_dir, finished) = (self.job_dir.clone(), self.finished.clone());
        // The kernel ends the rehearsal with the thread that has begun it.
        let begun = std::thread::Builder::new().name("rehearsal".into()).spawn(move || {
            // The job may have ended meanwhile.
            let _ = finished.send(rehearse(&job_dir, checkpoint));
        });
        match begun {
            Ok(_) => {
                self.since = 0;
                self.newest = Some(Rehearsal { checkpoint, outcome: None });
                None
            }
            Err(error) => Some(format!("checkpoint {checkpoint} is not rehearsed: {error}")),
        }
    }

    /// Remembers how one came out. Whether that is news.
    pub fn note(&mut self, finished: &Finished) -> bool {
        let failure = match &finished.outcome {
            RehearsalOutcome::Restorable { .. } => None,
            RehearsalOutcome::Failed(reason) | RehearsalOutcome::Unknown(reason) => {
                Some(reason.clone())
            }
        };
        let is_news = self.failure != failure;
        self.failure = failure;
        let outcome = Some(finished.outcome.clone());
        self.newest = Some(Rehearsal { checkpoint: finished.checkpoint, outcome });
        is_news
    }

    /// One came to its end, whose checkpoint was removed meanwhile.
    pub fn forget(&mut self) {
        self.newest = None;
    }
}

fn rehearse(job_dir: &std::path::Path, checkpoint: u64) -> Finished {
    match ckpt_engine::rehearse(job_dir, checkpoint) {
        Ok(rehearsed) => Finished {
            checkpoint,
            outcome: RehearsalOutcome::Restorable {
                processes: rehearsed.processes,
                took_ms: text::millis(rehearsed.took),
            },
            warnings: rehearsed.warnings,
        },
        Err(error) => {
            let reason = error.to_string().replace('\n', " ");
            let outcome = match error.is_not_rehearsable() {
                true => RehearsalOutcome::Unknown(reason),
                false => RehearsalOutcome::Failed(reason),
            };
            Finished { checkpoint, outcome, warnings: Vec::new() }
        }
    }
}
