//! The seam to the agent that a launcher embeds.

use ckpt_engine::{RestoreOrder, Session};
use protocol::agent::{AgentCommand, AgentEvent, InstanceEvent};
use protocol::launch::{AdoptSpec, Console, LaunchSpec, RestoreSpec};
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

/// Any error of an agent; its text is one line that fits after "failed to ...: ".
pub type AgentFailure = Box<dyn Error + Send + Sync>;

/// Takes an agent's events, on whatever thread it reports them.
pub type EventSink = Box<dyn Fn(AgentEvent) + Send + Sync>;

/// Starts an agent for the job kept in that folder.
pub type StartAgent = fn(PathBuf, EventSink) -> Result<Arc<dyn AgentHandle>, AgentFailure>;

/// An agent for one job.
pub trait AgentHandle: Send + Sync {
    /// Starts the job; blocks until its first process runs.
    ///
    /// # Errors
    /// Where it could not be started; nothing is left of it.
    fn launch(&self, spec: LaunchSpec) -> Result<Console, AgentFailure>;

    /// Brings the job back; blocks until its processes run.
    ///
    /// # Errors
    /// Where it could not be restored; nothing is left of it.
    fn restore(&self, spec: RestoreSpec) -> Result<Console, AgentFailure>;

    /// Makes a job of processes that ckptd has not started.
    ///
    /// # Errors
    /// Where it can't be one; the processes run on.
    fn adopt(&self, spec: AdoptSpec) -> Result<(), AgentFailure>;

    /// Leaves an adopted job as it is; blocks until nothing of it stands still any more.
    fn let_go(&self);

    /// How many processes of an adopted job live whose first one has ended; they are ended if `kill` says so.
    fn rest(&self, kill: bool) -> usize;

    /// Takes a command; never blocks.
    fn command(&self, command: AgentCommand);
}

impl AgentHandle for Session {
    fn launch(&self, spec: LaunchSpec) -> Result<Console, AgentFailure> {
        Ok(Session::launch(self, spec, None)?.console)
    }

    fn restore(&self, spec: RestoreSpec) -> Result<Console, AgentFailure> {
        Ok(Session::restore(self, RestoreOrder::alone(spec))?.console)
    }

    fn adopt(&self, spec: AdoptSpec) -> Result<(), AgentFailure> {
        Ok(Session::adopt(self, spec)?)
    }

    fn let_go(&self) {
        Session::let_go(self);
    }

    fn rest(&self, kill: bool) -> usize {
        Session::rest(self, kill)
    }

    fn command(&self, command: AgentCommand) {
        Session::command(self, command);
    }
}

/// Starts the session of a job without a cluster, in this process.
///
/// # Errors
/// Where this machine does not let it work.
pub fn start_embedded(
    job_dir: PathBuf,
    events: EventSink,
) -> Result<Arc<dyn AgentHandle>, AgentFailure> {
    let session = Session::start(job_dir, move |event| match event {
        InstanceEvent::Agent(event) => events(event),
        // Of instances of a cluster.
        InstanceEvent::RootEnded(_) | InstanceEvent::Empty | InstanceEvent::Listens(_) => {}
    })?;
    Ok(Arc::new(session))
}
