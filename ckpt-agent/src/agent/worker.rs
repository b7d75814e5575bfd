//! The agent's thread: one checkpoint at a time, step by step.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use protocol::agent::{AgentCommand, AgentEvent, CommitRecord, ExitKind, ImageSummary, Step};

use super::job::Job;
use super::writer::{self, Outcome};
use super::{AgentError, Request};
use crate::engine::dump::{Frozen, Quiesced, Snapshot, freeze_job};
use crate::engine::error::EngineError;
use crate::engine::freeze::settle_lingering;
use crate::engine::sys::allocator;
use crate::fault;
use crate::store::{self, SealedCheckpoint};

/// How often threads that would not stop are looked at.
const SETTLE_STEP: Duration = Duration::from_millis(5);

/// How often the job is let go and frozen again for what passes by itself.
const RETRIES: u32 = 5;
/// How long the job runs in between.
const MOMENT: Duration = Duration::from_millis(20);

/// Takes events.
pub type Events = dyn Fn(AgentEvent) + Send + Sync;

/// How far the checkpoint in flight has come.
enum Stage {
    Frozen(Frozen),
    Quiesced(Box<Quiesced>),
    Snapshot(Snapshot),
    Writing(Snapshot),
    Sealed(Box<SealedCheckpoint>),
}

struct Worker {
    job_dir: PathBuf,
    requests: Sender<Request>,
    events: Arc<Events>,
    job: Option<Job>,
    flight: Option<(u64, Stage)>,
    said: BTreeSet<String>,
}

/// Serves requests until the job has ended or the last handle is gone.
pub fn run(
    job_dir: PathBuf,
    inbox: &Receiver<Request>,
    requests: Sender<Request>,
    events: Box<Events>,
) {
    let mut worker = Worker {
        job_dir,
        requests,
        events: Arc::from(events),
        job: None,
        flight: None,
        said: BTreeSet::new(),
    };
    loop {
        let request = if settle_lingering() {
            match inbox.recv_timeout(SETTLE_STEP) {
                Ok(request) => request,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        } else {
            match inbox.recv() {
                Ok(request) => request,
                Err(_) => return,
            }
        };
        match request {
            Request::Launch(spec, answer) => {
                let result = worker.begin(|requests, warn| Job::launch(*spec, requests, warn));
                let _ = answer.send(result);
            }
            Request::Restore(spec, answer) => {
                let job_dir = worker.job_dir.clone();
                let result =
                    worker.begin(|requests, warn| Job::restore(&job_dir, spec, requests, warn));
                let _ = answer.send(result);
            }
            Request::Command(command) => worker.command(command),
            Request::Written(number, outcome) => worker.written(number, *outcome),
            Request::Ended(status) => worker.ended(status),
        }
    }
}

impl Worker {
    fn tell(&self, event: AgentEvent) {
        (self.events)(event);
    }

    /// Says a thing once, not at every checkpoint.
    fn warn(&mut self, text: String) {
        if self.said.insert(text.clone()) {
            self.tell(AgentEvent::Warning { text });
        }
    }

    fn begin(
        &mut self,
        start: impl FnOnce(
            Sender<Request>,
            &dyn Fn(String),
        ) -> Result<(Job, protocol::launch::Console), AgentError>,
    ) -> Result<protocol::launch::Console, AgentError> {
        if self.job.is_some() {
            return Err(AgentError::Busy);
        }
        let events = self.events.clone();
        let warn = move |text| events(AgentEvent::Warning { text });
        let (job, console) = start(self.requests.clone(), &warn)?;
        self.job = Some(job);
        Ok(console)
    }

    fn command(&mut self, command: AgentCommand) {
        match command {
            AgentCommand::Freeze { checkpoint } => {
                self.flight = None;
                self.step(checkpoint, Step::Freeze, Self::freeze);
            }
            AgentCommand::Quiesce { checkpoint } => {
                self.step(checkpoint, Step::Quiesce, Self::quiesce);
            }
            AgentCommand::Snapshot { checkpoint } => {
                self.step(checkpoint, Step::Snapshot, Self::snapshot);
            }
            AgentCommand::Resume { checkpoint } => {
                self.step(checkpoint, Step::Resume, Self::resume);
            }
            AgentCommand::Write { checkpoint } => self.step(checkpoint, Step::Write, Self::write),
            AgentCommand::Commit { checkpoint, record } => {
                self.step(checkpoint, Step::Commit, |worker, number| {
                    worker.commit(number, &record)
                });
            }
            AgentCommand::Collect { keep } => self.collect(&keep),
            AgentCommand::Abandon { checkpoint } => {
                if self.flight.as_ref().is_some_and(|(number, _)| *number == checkpoint) {
                    self.flight = None;
                }
                self.tell(AgentEvent::Abandoned { checkpoint });
            }
            AgentCommand::Signal { signal } => {
                if let Some(job) = &self.job {
                    job.signal(signal);
                }
            }
            AgentCommand::Hold | AgentCommand::Release => {}
            AgentCommand::Kill => {
                // A frozen process does not end before its tracer has let go or the signal arrives: it does.
                if let Some(job) = &self.job {
                    job.kill();
                }
            }
        }
    }

    /// Runs one step; where it fails the job goes on and the checkpoint is gone.
    fn step(
        &mut self,
        number: u64,
        step: Step,
        run: impl FnOnce(&mut Self, u64) -> Result<(), EngineError>,
    ) {
        if let Err(error) = run(self, number) {
            self.flight = None;
            let reason = error.to_string().replace('\n', " ");
            self.tell(AgentEvent::Failed { checkpoint: number, step, reason, passing: false });
        }
    }

    fn take(&mut self, number: u64) -> Option<Stage> {
        match self.flight.take() {
            Some((flying, stage)) if flying == number => Some(stage),
            other => {
                self.flight = other;
                None
            }
        }
    }

    fn freeze(&mut self, number: u64) -> Result<(), EngineError> {
        let job = self.job.as_ref().ok_or_else(no_job)?;
        let frozen = freeze_job(job.dump_settings()?)?;
        let (processes, threads) = frozen.counts();
        self.flight = Some((number, Stage::Frozen(frozen)));
        fault::point("freeze");
        self.tell(AgentEvent::Frozen {
            checkpoint: number,
            processes: processes as u32,
            threads: threads as u32,
        });
        Ok(())
    }

    fn quiesce(&mut self, number: u64) -> Result<(), EngineError> {
        let Some(Stage::Frozen(frozen)) = self.take(number) else {
            return Err(out_of_order("frozen"));
        };
        let quiesced = self.quiesce_soon(frozen)?;
        self.flight = Some((number, Stage::Quiesced(Box::new(quiesced))));
        fault::point("quiesce");
        self.tell(AgentEvent::Quiesced { checkpoint: number });
        Ok(())
    }

    /// What passes by itself is given a few moments to pass, with the job running.
    fn quiesce_soon(&self, mut frozen: Frozen) -> Result<Quiesced, EngineError> {
        for _ in 0..RETRIES {
            match frozen.quiesce() {
                Err(error) if error.passes() => {}
                other => return other,
            }
            std::thread::sleep(MOMENT);
            let job = self.job.as_ref().ok_or_else(no_job)?;
            frozen = freeze_job(job.dump_settings()?)?;
        }
        frozen.quiesce()
    }

    fn snapshot(&mut self, number: u64) -> Result<(), EngineError> {
        let Some(Stage::Quiesced(quiesced)) = self.take(number) else {
            return Err(out_of_order("quiesced"));
        };
        let snapshot = quiesced.snapshot()?;
        self.flight = Some((number, Stage::Snapshot(snapshot)));
        fault::point("snapshot");
        self.tell(AgentEvent::SnapshotTaken { checkpoint: number });
        Ok(())
    }

    fn resume(&mut self, number: u64) -> Result<(), EngineError> {
        let Some(Stage::Snapshot(mut snapshot)) = self.take(number) else {
            return Err(out_of_order("read"));
        };
        let pause = snapshot.resume()?;
        self.flight = Some((number, Stage::Snapshot(snapshot)));
        fault::point("resume");
        let pause_us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        self.tell(AgentEvent::Resumed { checkpoint: number, pause_us });
        Ok(())
    }

    fn write(&mut self, number: u64) -> Result<(), EngineError> {
        let Some(Stage::Snapshot(mut snapshot)) = self.take(number) else {
            return Err(out_of_order("read"));
        };
        let data = snapshot.take_data().ok_or_else(|| out_of_order("read"))?;
        let (job_dir, requests) = (self.job_dir.clone(), self.requests.clone());
        writer::start(data, job_dir, number, requests, self.events.clone())
            .map_err(|error| EngineError::system("start", "the writer", error))?;
        self.flight = Some((number, Stage::Writing(snapshot)));
        Ok(())
    }

    /// The writer has come to its end. A checkpoint that was abandoned meanwhile is dropped with it.
    fn written(&mut self, number: u64, outcome: Outcome) {
        let Some(Stage::Writing(snapshot)) = self.take(number) else { return };
        let whole = snapshot.is_whole();
        drop(snapshot);
        self.step(number, Step::Write, |worker, number| {
            let (sealed, summary, warnings) = outcome?;
            if !whole {
                return Err(EngineError::odd(
                    "a copy of the job's memory",
                    "it was killed for want of memory; the job is unharmed",
                ));
            }
            worker.flight = Some((number, Stage::Sealed(Box::new(sealed))));
            fault::point("seal");
            for warning in warnings {
                worker.warn(warning);
            }
            let summary = ImageSummary {
                processes: summary.processes,
                bytes: summary.bytes,
                stored_bytes: summary.stored_bytes,
                files: summary.files,
                connections: summary.connections,
            };
            worker.tell(AgentEvent::Written { checkpoint: number, summary });
            Ok(())
        });
    }

    fn commit(&mut self, number: u64, record: &CommitRecord) -> Result<(), EngineError> {
        let Some(Stage::Sealed(sealed)) = self.take(number) else {
            return Err(out_of_order("written"));
        };
        fault::point("commit");
        sealed.commit(record)?;
        allocator::trim();
        self.tell(AgentEvent::Committed { checkpoint: number });
        Ok(())
    }

    fn collect(&mut self, keep: &[u64]) {
        if keep.is_empty() {
            return;
        }
        if let Err(error) = store::collect(&self.job_dir, keep) {
            self.warn(format!("old checkpoints could not be removed: {error}"));
        }
    }

    fn ended(&mut self, status: Option<ExitKind>) {
        self.flight = None;
        if let Some(mut job) = self.job.take() {
            if status.is_none() {
                job.kill();
            }
            job.wait_gone();
            // Without a report the init itself was killed, and every process with it.
            let status = status.unwrap_or(ExitKind::Signalled(libc::SIGKILL));
            self.tell(AgentEvent::Ended { status });
        }
    }
}

fn no_job() -> EngineError {
    EngineError::odd("the job", "it is not running")
}

fn out_of_order(stage: &str) -> EngineError {
    EngineError::odd("order of steps", format!("the job is not {stage}"))
}
