//! The session's thread: one checkpoint at a time, step by step.

mod steps;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::agent::{AgentCommand, AgentEvent, ExitKind, InstanceEvent, Step};
use protocol::cluster::InstanceKey;
use protocol::cluster::addresses::AddressMap;
use protocol::launch::{AdoptSpec, LaunchSpec};
use tracing::debug_span;
use tracing::span::EnteredSpan;

use self::steps::Stage;
use crate::dump::find_stand_ins;
use crate::error::EngineError;
use crate::freeze::{FrozenJob, freeze, settle_lingering};
use crate::graph::{OuterEnd, RelayEnd};
use crate::inodes::ahead::Taken;
use crate::inodes::copying::Copying;
use crate::job_init::{InstanceOrder, Instruction, Report};
use crate::objects::Shown;
use crate::proc::Members;
use crate::session::job::{FREEZE_LIMIT, Job};
use crate::session::previous::Whose;
use crate::session::reports::Events;
use crate::session::types::{RestoreOrder, Started, TakenOver};
use crate::session::{Answer, Request, Requests, SessionError, previous, taking_over, temporary};
use crate::tracking::Tracking;

/// How often threads that would not stop are looked at.
const SETTLE_STEP: Duration = Duration::from_millis(5);

/// What the session's thread holds.
pub struct Tracer {
    /// Of the job, in spans.
    name: String,
    job_dir: PathBuf,
    requests: Requests,
    events: Arc<Events>,
    // Before the job: what is traced is let go before the init is told that this agent leaves.
    flight: Option<(u64, Stage)>,
    /// The first checkpoint that this agent has written of the instance.
    first_written: Option<u64>,
    held: Option<FrozenJob>,
    job: Option<Job>,
    /// Those who have outlived the first process of an adopted job.
    rest: Option<Members>,
    said: BTreeSet<String>,
    /// What the agent holds of relays, for the checkpoint in flight.
    pub relay_states: Vec<(RelayEnd, Vec<u8>, bool)>,
    /// Addresses of the machines that the job may run on; empty: not known.
    pub machines: BTreeSet<IpAddr>,
    /// What has moved in the job.
    addresses: AddressMap,
    /// Those who wait for what the init holds to run.
    going: Vec<Answer<()>>,
    /// How the checkpoint in flight copies files and shared memory.
    copying: Copying,
    /// Files that the last image has.
    seen: Taken,
    /// Empty messages in the queues of Unix sockets that earlier looks have seen.
    shown: Shown,
    /// What is known of pages that were not written since earlier checkpoints.
    tracking: Tracking,
    /// The checkpoint in flight, from freeze to commit.
    checkpoint: Option<EnteredSpan>,
    quitting: bool,
}

impl Tracer {
    /// With nothing to trace yet. `requests` lead back to it.
    pub fn new(job_dir: PathBuf, requests: Requests, events: Arc<Events>) -> Self {
        Self {
            name: name_of(&job_dir),
            job_dir,
            requests,
            events,
            job: None,
            rest: None,
            flight: None,
            first_written: None,
            held: None,
            said: BTreeSet::new(),
            relay_states: Vec::new(),
            machines: BTreeSet::new(),
            addresses: AddressMap::default(),
            going: Vec::new(),
            copying: Copying::default(),
            seen: Taken::default(),
            shown: Shown::default(),
            tracking: Tracking::default(),
            checkpoint: None,
            quitting: false,
        }
    }

    /// Serves requests until the last handle is gone, and, without an instance that would live on, the job has ended.
    pub fn serve(mut self, inbox: &Receiver<Request>) {
        while !self.quitting || self.job.as_ref().is_some_and(Job::ends_with_agent) {
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
            request(&mut self);
        }
        self.flight = None;
        self.held = None;
        self.touch(false);
        self.instruct(&Instruction::HandOver);
    }

    /// The last handle is gone.
    pub fn quit(&mut self) {
        self.quitting = true;
    }

    /// Starts a program.
    pub fn launch(
        &mut self,
        spec: LaunchSpec,
        instance: Option<InstanceOrder>,
    ) -> Result<Started, SessionError> {
        let _launching = debug_span!("launch", job = self.name).entered();
        let begun = Job::launch(spec, instance, self.unused()?)?;
        Ok(self.begin(begun))
    }

    /// Brings a job or an instance back.
    pub fn restore(&mut self, order: RestoreOrder) -> Result<Started, SessionError> {
        let (job, checkpoint) = (self.name.as_str(), order.spec.checkpoint);
        let _restoring = debug_span!("restore", job, checkpoint).entered();
        let warn = |text| self.tell(AgentEvent::Warning { text });
        let begun = Job::restore(&self.job_dir, order, self.unused()?, &warn)?;
        Ok(self.begin(begun))
    }

    /// Makes a job of processes that ckptd has not started.
    pub fn adopt(&mut self, spec: AdoptSpec) -> Result<(), SessionError> {
        let _adopting = debug_span!("adopt", job = self.name, pid = spec.pid).entered();
        let pid = spec.pid;
        let job = Job::adopt(spec, self.unused()?)?;
        previous::remember(&self.job_dir, pid, Whose::Strangers);
        self.hold_job(job);
        Ok(())
    }

    /// Leaves an adopted job as it is, with what stands of it let go.
    pub fn let_go(&mut self) {
        if self.job.as_ref().is_some_and(Job::is_adopted) {
            self.flight = None;
            self.held = None;
            self.checkpoint = None;
            self.job = None;
            // Whoever outlives its first process is left alone.
            self.tracking = Tracking::default();
        }
    }

    /// How many processes of an adopted job live whose first one has ended; ends them if that is asked for.
    pub fn rest(&mut self, kill: bool) -> usize {
        let Some(members) = &self.rest else { return 0 };
        if kill {
            members.stop();
            members.kill_living();
        }
        members.living()
    }

    /// The first process of an adopted job has ended. How, may be known to nobody.
    pub fn adopted_ended(&mut self, status: Option<ExitKind>) {
        let Some(job) = &self.job else { return };
        self.rest = Some(job.members().clone());
        match status {
            Some(status) => self.ended(Some(status)),
            None => {
                self.let_go();
                self.tell(AgentEvent::Lost {
                    reason: "it has ended; how, the kernel does not tell (Linux 6.15 and newer do)"
                        .into(),
                });
            }
        }
    }

    /// Takes an instance over.
    pub fn take_over(
        &mut self,
        socket: &Path,
        identity: Option<&InstanceKey>,
    ) -> Result<TakenOver, SessionError> {
        let (job, taken) = taking_over::take_over(socket, identity, self.unused()?.clone())?;
        self.hold_job(job);
        Ok(taken)
    }

    /// The way back to this thread, for a session that has no job yet.
    fn unused(&self) -> Result<&Requests, SessionError> {
        if self.job.is_some() {
            return Err(SessionError::Busy);
        }
        Ok(&self.requests)
    }

    fn begin(&mut self, (job, mut started): (Job, Started)) -> Started {
        if !job.is_instance() {
            self.remember(&job);
            for text in started.warnings.drain(..) {
                self.tell(AgentEvent::Warning { text });
            }
        }
        self.hold_job(job);
        started
    }

    fn hold_job(&mut self, job: Job) {
        self.job = Some(job);
        self.first_written = None;
        self.seen = Taken::default();
        self.shown = Shown::default();
        self.tracking = Tracking::default();
    }

    /// For a restart that comes before the job's processes have ended, and for the job's removal.
    fn remember(&self, job: &Job) {
        previous::remember(&self.job_dir, job.init(), Whose::Inits);
        if let Some(folder) = job.temporary() {
            temporary::remember(&self.job_dir, folder);
        }
    }

    fn tell(&self, event: impl Into<InstanceEvent>) {
        (self.events)(event.into());
    }

    /// Says a thing once, not at every checkpoint.
    fn warn(&mut self, text: String) {
        if self.said.insert(text.clone()) {
            self.tell(AgentEvent::Warning { text });
        }
    }

    /// Performs a command; the answer is an event.
    pub fn command(&mut self, command: AgentCommand) {
        match command {
            AgentCommand::Freeze { checkpoint } => {
                self.flight = None;
                // The one before ends first.
                self.checkpoint = None;
                let (job, number) = (self.name.as_str(), checkpoint);
                self.checkpoint = Some(debug_span!("checkpoint", job, number).entered());
                self.touch(false);
                self.copying = Copying::with(self.job_dir.clone()).after(&self.copying);
                let _moving = self.report_copying(checkpoint);
                self.step(checkpoint, Step::Freeze, Self::freeze);
            }
            AgentCommand::Quiesce { checkpoint } => {
                let _moving = self.report_copying(checkpoint);
                self.step(checkpoint, Step::Quiesce, Self::quiesce);
            }
            AgentCommand::Snapshot { checkpoint } => {
                let _moving = self.report_copying(checkpoint);
                self.step(checkpoint, Step::Snapshot, Self::snapshot);
            }
            AgentCommand::Resume { checkpoint } => {
                self.step(checkpoint, Step::Resume, Self::resume);
            }
            AgentCommand::Write { checkpoint } => self.step(checkpoint, Step::Write, Self::write),
            AgentCommand::Commit { checkpoint, record } => {
                let _doing = self.report_copying(checkpoint);
                self.step(checkpoint, Step::Commit, |tracer, number| {
                    tracer.commit(number, &record)
                });
                self.checkpoint = None;
            }
            AgentCommand::Collect { keep } => self.collect(&keep),
            AgentCommand::Abandon { checkpoint } => {
                if self.flight.as_ref().is_some_and(|(number, _)| *number == checkpoint) {
                    self.flight = None;
                    self.checkpoint = None;
                    self.touch(false);
                }
                self.tell(AgentEvent::Abandoned { checkpoint });
            }
            AgentCommand::Signal { signal } => {
                if let Some(job) = &self.job {
                    job.signal(signal);
                }
            }
            AgentCommand::Forward { signal } => {
                if let Some(job) = &self.job {
                    job.forward(signal);
                }
            }
            AgentCommand::Kill => {
                self.kill_instance();
                // A frozen process does not end before its tracer has let go or the signal arrives: it does.
                if let Some(job) = &self.job {
                    job.kill();
                }
            }
        }
    }

    fn collect(&mut self, keep: &[u64]) {
        if keep.is_empty() {
            return;
        }
        if let Err(error) = ckpt_store::collect(&self.job_dir, keep) {
            self.warn(format!("old checkpoints could not be removed: {error}"));
        }
    }

    /// The init has ended, or has told the end of a job that is alone.
    pub fn ended(&mut self, status: Option<ExitKind>) {
        let is_told = status.is_some();
        // Without a report the init itself was killed, and every process with it.
        let status = status.unwrap_or(ExitKind::Signalled(libc::SIGKILL));
        self.over(is_told, AgentEvent::Ended { status });
    }

    /// The init has ended the job, whose memory could not be filled.
    pub fn unfilled(&mut self, why: &str) {
        let reason = format!("its memory can't be filled: {}", one_line(why));
        self.over(true, AgentEvent::Lost { reason });
    }

    fn over(&mut self, is_told: bool, end: AgentEvent) {
        // What is written needs no process any more: the log may have it already, and it is to have its mark then.
        self.flight = match self.flight.take() {
            Some((number, Stage::Sealed(sealed, _))) => Some((number, Stage::Sealed(sealed, None))),
            _ => None,
        };
        self.held = None;
        self.going.clear();
        if let Some(mut job) = self.job.take() {
            if !is_told {
                job.kill();
            }
            let known = job.instance().is_some_and(|instance| instance.over);
            job.wait_gone();
            if !known {
                self.tell(end);
            }
        }
        if self.flight.is_none() {
            self.checkpoint = None;
        }
    }

    /// The init of an instance has said something.
    pub fn reported(&mut self, report: Report) {
        let over = matches!(report, Report::Ended(_) | Report::Empty);
        if over {
            // Nothing is left that could be let go. An image that only has to be written is written to its end: the
            // checkpoint is one of all instances.
            self.flight.take_if(|(_, stage)| stage.stands());
            self.held = None;
        }
        // What an init has said before its end may be heard after that: the end was told then.
        let Some(job) = &mut self.job else { return };
        if matches!(report, Report::Ended(_) | Report::RootEnded(_)) {
            job.root_ended();
        }
        if let Some(instance) = job.instance() {
            instance.over |= over;
        }
        match report {
            Report::Ended(status) => self.tell(AgentEvent::Ended { status }),
            Report::RootEnded(status) => self.tell(InstanceEvent::RootEnded(status)),
            Report::Empty => self.tell(InstanceEvent::Empty),
            Report::Running => {
                for answer in self.going.drain(..) {
                    let _ = answer.send(Ok(()));
                }
            }
            Report::Failed(text) => self.tell(AgentEvent::Warning { text }),
            Report::Listens(listeners) => self.tell(InstanceEvent::Listens(listeners)),
            Report::Init(_)
            | Report::Ready { .. }
            | Report::Outer { .. }
            | Report::Names { .. }
            | Report::Rehearsed { .. }
            | Report::NotRehearsable(_)
            | Report::Filling { .. }
            | Report::Filled
            | Report::Unfilled(_)
            | Report::Stage(_)
            | Report::Introduction(_) => {}
        }
    }

    /// More relays of which this process holds ends.
    pub fn hold_relays(&mut self, ends: &[(OuterEnd, OwnedFd)]) {
        let held = self.job.as_mut().map_or(Ok(()), |job| job.hold_relays(ends));
        if let Err(error) = held {
            self.warn(format!("checkpoints fail while a remote shell lives: {error}"));
        }
    }

    /// Tells the init what has moved in the job.
    pub fn set_addresses(&mut self, addresses: AddressMap) {
        self.addresses = addresses.clone();
        self.instruct(&Instruction::Addresses(addresses));
    }

    /// An end of a stream or relay is closed here.
    pub fn close_end(&mut self, end: &OuterEnd) {
        if let Some(job) = &mut self.job {
            job.close_end(end);
        }
    }

    /// Ends everything; returns when it has ended.
    pub fn kill(&mut self) {
        self.kill_instance();
        if let Some(mut job) = self.job.take() {
            job.kill();
            job.wait_gone();
        }
    }

    /// Tells the init.
    pub fn instruct(&mut self, instruction: &Instruction) {
        if let Some(instance) = self.job.as_mut().and_then(Job::instance) {
            instance.instruct(instruction);
        }
    }

    fn touch(&mut self, touching: bool) {
        if let Some(instance) = self.job.as_mut().and_then(Job::instance) {
            instance.touch(touching);
        }
    }

    /// Lets an instance run; answered when its init says so.
    pub fn go(&mut self, answer: Answer<()>) {
        if self.job.as_mut().and_then(Job::instance).is_none() {
            let _ = answer.send(Err(SessionError::OutOfOrder("is not running")));
            return;
        }
        self.going.push(answer);
        self.instruct(&Instruction::Go);
    }

    /// Stops everything; how many processes.
    pub fn hold(&mut self) -> Result<u32, EngineError> {
        if let Some(held) = &self.held {
            return Ok(held.processes.len() as u32);
        }
        if let Some((_, Stage::Sealed(_, Some(parked)) | Stage::Parked(parked))) = &self.flight {
            return Ok(parked.processes() as u32);
        }
        let members = self.job.as_ref().ok_or_else(no_job)?.members().clone();
        if let Some((number, step)) =
            self.flight.as_ref().and_then(|(number, stage)| Some((*number, stage.next()?)))
        {
            let held = EngineError::odd("the job", "it is to be held");
            self.step(number, step, |_, _| Err(held));
        }
        let held = freeze(&members, find_stand_ins(&members, &[])?.0, FREEZE_LIMIT)?;
        let count = held.processes.len() as u32;
        self.held = Some(held);
        Ok(count)
    }

    /// Lets go what [`Tracer::hold`] stopped.
    pub fn release(&mut self) -> Result<(), EngineError> {
        self.job.as_ref().ok_or_else(no_job)?;
        self.held = None;
        Ok(())
    }

    /// What stands still must not run on when its init is killed: the kernel lets tracees go first and
    /// kills them later. Processes that this thread traces keep their numbers until it has reaped
    /// them.
    fn kill_instance(&mut self) {
        let Some(job) = self.job.as_ref().filter(|job| job.is_instance()) else { return };
        let stands =
            self.held.is_some() || self.flight.as_ref().is_some_and(|(_, stage)| stage.stands());
        if stands {
            for pid in job.members().list().unwrap_or_default() {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        job.kill();
        self.flight = None;
        self.checkpoint = None;
        self.held = None;
    }
}

/// The job in spans: its folder's name, of an instance with its number.
fn name_of(job_dir: &Path) -> String {
    let name = |path: Option<&Path>| {
        path.and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned()
    };
    let parent = job_dir.parent();
    match name(parent).as_str() {
        "instances" => format!("{}/{}", name(parent.and_then(Path::parent)), name(Some(job_dir))),
        _ => name(Some(job_dir)),
    }
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

fn no_job() -> EngineError {
    EngineError::odd("the job", "it is not running")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_name_the_job_and_its_instance() {
        assert_eq!(name_of(Path::new("/var/lib/ckptd/fold-1")), "fold-1");
        assert_eq!(name_of(Path::new("/var/lib/ckptd/fold-1/instances/3")), "fold-1/3");
        assert_eq!(name_of(Path::new("/")), "");
    }
}
