//! The steps of a checkpoint, from freeze to commit, in the order in which they are ordered.

use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::agent::{AgentEvent, CommitRecord, ImageSummary, Step};
use tracing::{Span, debug, debug_span};

use super::{Tracer, no_job, one_line};
use crate::doing::{self, Doing, Thing};
use crate::dump::{DumpSettings, Frozen, Quiesced, Snapshot, freeze_job};
use crate::error::{EngineError, Refusal};
use crate::fault;
use crate::late::{Addresses, Names};
use crate::session::job::Job;
use crate::session::memory_watch::MemoryWatch;
use crate::session::pace::Pace;
use crate::session::reports::Reports;
use crate::session::writer::{self, Outcome};
use crate::sys::allocator;
use ckpt_store::SealedCheckpoint;

/// How often the job is let go and frozen again for what passes by itself.
const RETRIES: u32 = 5;
/// How long the job runs in between.
const MOMENT: Duration = Duration::from_millis(20);

/// How far the checkpoint in flight has come.
pub(super) enum Stage {
    Frozen(Frozen),
    Quiesced(Box<Quiesced>),
    Snapshot(Snapshot),
    Writing(Snapshot),
    /// It is written while the job stands.
    WritingFirst(Snapshot),
    /// It has been, and the job is to be let go.
    Written(Snapshot, Box<Outcome>),
    /// With the job, where it was not let go: it is to go on elsewhere.
    Sealed(Box<SealedCheckpoint>, Option<Snapshot>),
    /// The checkpoint is committed, and the job still stands.
    Parked(Snapshot),
}

impl Stage {
    /// The step that is to come, where it needs the job's processes or the snapshot processes.
    pub(super) fn next(&self) -> Option<Step> {
        match self {
            Self::Frozen(_) => Some(Step::Quiesce),
            Self::Quiesced(_) => Some(Step::Snapshot),
            Self::WritingFirst(_) => Some(Step::Snapshot),
            Self::Snapshot(_) | Self::Written(..) => Some(Step::Resume),
            Self::Writing(_) => Some(Step::Write),
            Self::Sealed(..) | Self::Parked(_) => None,
        }
    }

    /// Whether the job stands still.
    pub(super) fn stands(&self) -> bool {
        match self {
            Self::Frozen(_)
            | Self::Quiesced(_)
            | Self::WritingFirst(_)
            | Self::Sealed(_, Some(_))
            | Self::Parked(_) => true,
            Self::Snapshot(snapshot) | Self::Writing(snapshot) | Self::Written(snapshot, _) => {
                snapshot.stands()
            }
            Self::Sealed(_, None) => false,
        }
    }
}

impl Tracer {
    /// Runs one step; where it fails the job goes on and the checkpoint is gone.
    pub(super) fn step(
        &mut self,
        number: u64,
        step: Step,
        run: impl FnOnce(&mut Self, u64) -> Result<(), EngineError>,
    ) {
        let stage = stage_span(step);
        doing::nothing();
        let result = stage.in_scope(|| run(self, number));
        drop(stage);
        if let Err(error) = result {
            let reason = one_line(&error.with_place(doing::last()));
            debug!(step = step.name(), reason, "failed");
            self.flight = None;
            self.checkpoint = None;
            self.touch(false);
            // With the job's end, which is told in a moment, the checkpoint is over.
            if self.job.as_ref().is_some_and(Job::is_ending) {
                return;
            }
            let passing = error.passes();
            self.tell(AgentEvent::Failed { checkpoint: number, step, reason, passing });
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

    pub(super) fn freeze(&mut self, number: u64) -> Result<(), EngineError> {
        let job = self.job.as_ref().ok_or_else(no_job)?;
        if self.held.is_some() {
            return Err(EngineError::odd("the job", "it is held"));
        }
        // A page that is not there yet would be taken for zeros.
        doing::begin("waiting until all memory is filled", Thing::Job);
        job.wait_until_filled(|bytes| {
            self.copying.done.fetch_add(bytes, Ordering::Relaxed);
        })?;
        doing::nothing();
        let frozen = freeze_job(self.dump_settings(job, number)?)?;
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

    fn dump_settings(&self, job: &Job, checkpoint: u64) -> Result<DumpSettings, EngineError> {
        Ok(DumpSettings {
            machines: self.machines.clone(),
            copying: self.copying.clone(),
            seen: self.seen.clone(),
            shown: self.shown.clone(),
            tracking: self.tracking.clone(),
            checkpoint,
            ..job.dump_settings()?
        })
    }

    /// Tells how far a step has come in which files and shared memory are copied, until it has done.
    pub(super) fn report_copying(&self, number: u64) -> Reports {
        Reports::begin(number, self.copying.done.clone(), Doing::own(), self.events.clone())
    }

    pub(super) fn quiesce(&mut self, number: u64) -> Result<(), EngineError> {
        let Some(Stage::Frozen(frozen)) = self.take(number) else {
            return Err(out_of_order("frozen"));
        };
        self.touch(true);
        let mut frozen = frozen;
        if let Some(names) = self.names()? {
            frozen.set_names(names);
        }
        let mut quiesced = self.quiesce_soon(frozen, number)?;
        quiesced.set_relay_states(std::mem::take(&mut self.relay_states));
        self.flight = Some((number, Stage::Quiesced(Box::new(quiesced))));
        fault::point("quiesce");
        self.tell(AgentEvent::Quiesced { checkpoint: number });
        Ok(())
    }

    /// What the job calls its sockets, which all stand still.
    fn names(&mut self) -> Result<Option<Names>, EngineError> {
        let addresses = self.addresses.clone();
        let Some((instance, who)) = self.job.as_mut().and_then(Job::watched) else {
            return Ok(None);
        };
        let (sockets, unsettled) = instance.names()?;
        if unsettled {
            return Err(EngineError::Refused(Refusal::passing(
                "a connection has been accepted for a process that has not got it yet",
                "it will get it soon: try again",
            )));
        }
        Ok(Some(Names::new(sockets, Addresses::new(addresses, &who.0, &who.1))))
    }

    /// What passes by itself is given a few moments to pass, with the job running. In a cluster all
    /// instances would have to run, so there the whole checkpoint is tried again.
    fn quiesce_soon(&self, mut frozen: Frozen, number: u64) -> Result<Quiesced, EngineError> {
        if self.job.as_ref().is_some_and(Job::is_instance) {
            return frozen.quiesce();
        }
        for _ in 0..RETRIES {
            match frozen.quiesce() {
                Err(error) if error.passes() => {}
                other => return other,
            }
            std::thread::sleep(MOMENT);
            let job = self.job.as_ref().ok_or_else(no_job)?;
            frozen = freeze_job(self.dump_settings(job, number)?)?;
        }
        frozen.quiesce()
    }

    pub(super) fn snapshot(&mut self, number: u64) -> Result<(), EngineError> {
        let Some(Stage::Quiesced(quiesced)) = self.take(number) else {
            return Err(out_of_order("quiesced"));
        };
        let mut snapshot = quiesced.snapshot()?;
        if snapshot.must_stand() {
            // That takes long, and the job is to outlive an agent that is killed meanwhile.
            snapshot.rest()?;
            self.touch(false);
            let told =
                self.copying.done.load(Ordering::Relaxed).saturating_add(Doing::own().begun());
            self.start_writing(number, &mut snapshot, Pace::standing(told))?;
            self.flight = Some((number, Stage::WritingFirst(snapshot)));
            return Ok(());
        }
        self.flight = Some((number, Stage::Snapshot(snapshot)));
        fault::point("snapshot");
        self.tell(AgentEvent::SnapshotTaken { checkpoint: number });
        Ok(())
    }

    pub(super) fn resume(&mut self, number: u64) -> Result<(), EngineError> {
        let (mut snapshot, outcome) = match self.take(number) {
            Some(Stage::Snapshot(snapshot)) => (snapshot, None),
            Some(Stage::Written(snapshot, outcome)) => (snapshot, Some(outcome)),
            _ => return Err(out_of_order("read")),
        };
        let pause = snapshot.resume()?;
        self.touch(false);
        let stage = match outcome {
            Some(outcome) => Stage::Written(snapshot, outcome),
            None => Stage::Snapshot(snapshot),
        };
        self.flight = Some((number, stage));
        fault::point("resume");
        let pause_us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        self.tell(AgentEvent::Resumed { checkpoint: number, pause_us });
        Ok(())
    }

    pub(super) fn write(&mut self, number: u64) -> Result<(), EngineError> {
        let mut snapshot = match self.take(number) {
            Some(Stage::Snapshot(snapshot)) => snapshot,
            Some(Stage::Written(snapshot, outcome)) => {
                if snapshot.stands() {
                    // It is to go on elsewhere, and nowhere else.
                    self.touch(true);
                    snapshot.die_with_tracer();
                }
                return self.seal(number, snapshot, *outcome);
            }
            _ => return Err(out_of_order("read")),
        };
        self.start_writing(number, &mut snapshot, Pace::default())?;
        self.flight = Some((number, Stage::Writing(snapshot)));
        Ok(())
    }

    /// Has what was read written, on a thread of its own.
    fn start_writing(
        &mut self,
        number: u64,
        snapshot: &mut Snapshot,
        pace: Pace,
    ) -> Result<(), EngineError> {
        let mut data = snapshot.take_data().ok_or_else(|| out_of_order("read"))?;
        self.seen = std::mem::take(&mut data.context.seen);
        // What was read in vain, since the files have changed: let go now that the job runs.
        drop(std::mem::take(&mut data.context.copies));
        let watch = MemoryWatch::of(&data.snapshot_processes());
        if watch.is_needed() && watch.can_release() {
            snapshot.stop_snapshot_processes_at_end();
        }
        let (job_dir, requests) = (self.job_dir.clone(), self.requests.clone());
        // Older ones may be damaged, which is perhaps why the job was restored from another.
        let own = *self.first_written.get_or_insert(number);
        let events = self.events.clone();
        let job = (job_dir, self.name.clone());
        writer::start(data, (watch, pace), job, number, own, requests, events)
            .map_err(|error| EngineError::system("start", "the writer", error))
    }

    /// The writer has come to its end. A checkpoint that was abandoned meanwhile is dropped with it.
    pub fn written(&mut self, number: u64, outcome: Outcome) {
        // What was abandoned is gone, and the image that was being written is dropped with its outcome.
        let (step, snapshot) = match self.take(number) {
            Some(Stage::Writing(snapshot)) => (Step::Write, snapshot),
            Some(Stage::WritingFirst(snapshot)) => (Step::Snapshot, snapshot),
            Some(other) => {
                self.flight = Some((number, other));
                return;
            }
            None => return,
        };
        self.step(number, step, |tracer, number| match (step, outcome) {
            (Step::Snapshot, Ok(sealed)) => {
                let stage = Stage::Written(snapshot, Box::new(Ok(sealed)));
                tracer.flight = Some((number, stage));
                fault::point("snapshot");
                tracer.tell(AgentEvent::SnapshotTaken { checkpoint: number });
                Ok(())
            }
            (_, outcome) => tracer.seal(number, snapshot, outcome),
        });
    }

    /// What was written is complete.
    fn seal(
        &mut self,
        number: u64,
        mut snapshot: Snapshot,
        outcome: Outcome,
    ) -> Result<(), EngineError> {
        let whole = snapshot.is_whole();
        snapshot.drop_snapshot_processes();
        let standing = snapshot.stands().then_some(snapshot);
        let outcome = outcome.map_err(|(error, last)| {
            doing::take_over(last);
            error
        });
        // Then what was read may be anything, and so may an error be.
        let outcome = if whole { outcome } else { Err(EngineError::CopyKilled) };
        let (sealed, summary, warnings) = outcome?;
        self.flight = Some((number, Stage::Sealed(Box::new(sealed), standing)));
        fault::point("seal");
        for warning in warnings {
            self.warn(warning);
        }
        let summary = ImageSummary {
            processes: summary.processes,
            bytes: summary.bytes,
            stored_bytes: summary.stored_bytes,
            files: summary.files,
            connections: summary.connections,
        };
        self.tell(AgentEvent::Written { checkpoint: number, summary });
        Ok(())
    }

    pub(super) fn commit(&mut self, number: u64, record: &CommitRecord) -> Result<(), EngineError> {
        let (sealed, standing) = match self.take(number) {
            Some(Stage::Sealed(sealed, standing)) => (sealed, standing),
            Some(parked @ Stage::Parked(_)) => {
                // The answer was lost on its way.
                self.flight = Some((number, parked));
                self.tell(AgentEvent::Committed { checkpoint: number });
                return Ok(());
            }
            // Written by an agent that is no more.
            None if ckpt_store::commit_copy(&self.job_dir, number, record).is_ok() => {
                self.tell(AgentEvent::Committed { checkpoint: number });
                return Ok(());
            }
            _ => return Err(out_of_order("written")),
        };
        doing::begin("marking the commit", Thing::Job);
        fault::point("commit");
        let committed = sealed.commit(record);
        allocator::trim();
        if let Some(standing) = standing {
            // It goes on from what the coordinator's log has, with or without the mark here.
            self.flight = Some((number, Stage::Parked(standing)));
            if let Err(error) = committed {
                let error = EngineError::from(error);
                let (step, reason) = (Step::Commit, one_line(&error.to_string()));
                let failed =
                    AgentEvent::Failed { checkpoint: number, step, reason, passing: false };
                self.tell(failed);
                return Ok(());
            }
        } else {
            committed?;
        }
        self.tell(AgentEvent::Committed { checkpoint: number });
        Ok(())
    }
}

/// The span of a step, but for the write, which has one where it is done: on a thread of its own.
fn stage_span(step: Step) -> Span {
    match step {
        Step::Freeze => debug_span!("freeze"),
        Step::Quiesce => debug_span!("quiesce"),
        Step::Snapshot => debug_span!("snapshot"),
        Step::Resume => debug_span!("resume"),
        Step::Commit => debug_span!("commit"),
        // Draining is the launcher's.
        Step::Write | Step::Drain => Span::none(),
    }
}

fn out_of_order(stage: &str) -> EngineError {
    EngineError::odd("order of steps", format!("the job is not {stage}"))
}
