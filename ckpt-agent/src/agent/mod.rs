//! The agent of one job on this machine: takes commands, reports events. All tracing happens on
//! one operating-system thread, since ptrace(2) and PR_SET_PDEATHSIG are tied to one.

mod job;
mod memory_watch;
mod worker;
mod writer;

use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};

use protocol::agent::{AgentCommand, AgentEvent};
use protocol::launch::{Console, LaunchSpec, RestoreSpec};

use crate::engine::EngineError;
use crate::engine::job_init::ChannelError;
use crate::engine::sys::allocator;

/// Why a job could not be started or restored.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The engine could not.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The job's init says why.
    #[error("{0}")]
    Init(String),
    /// The job's init could not be talked to.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The job's init could not be started.
    #[error("the job's init cannot be started: {0}")]
    Spawn(std::io::Error),
    /// A second job for one agent.
    #[error("this agent has a job already")]
    Busy,
    /// The agent's thread has ended by a bug of ours.
    #[error("the agent's own thread has ended")]
    Stopped,
}

/// What the agent's thread is asked to do.
enum Request {
    Launch(Box<LaunchSpec>, Sender<Result<Console, AgentError>>),
    Restore(RestoreSpec, Sender<Result<Console, AgentError>>),
    Command(AgentCommand),
    Written(u64, Box<writer::Outcome>),
    Ended(Option<protocol::agent::ExitKind>),
}

/// An agent for one job.
#[derive(Debug, Clone)]
pub struct Agent {
    requests: Sender<Request>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Launch(..) => "launch",
            Self::Restore(..) => "restore",
            Self::Command(_) => "command",
            Self::Written(..) => "written",
            Self::Ended(_) => "ended",
        })
    }
}

impl Agent {
    /// Starts an agent for the job kept in `job_dir`. `events` is called on the agent's own threads and
    /// must not block.
    ///
    /// # Errors
    /// No threads.
    pub fn start(
        job_dir: PathBuf,
        events: impl Fn(AgentEvent) + Send + Sync + 'static,
    ) -> Result<Self, AgentError> {
        allocator::few_arenas();
        let (requests, inbox) = channel();
        let sender = requests.clone();
        std::thread::Builder::new()
            .name("tracer".into())
            .spawn(move || worker::run(job_dir, &inbox, sender, Box::new(events)))
            .map_err(AgentError::Spawn)?;
        Ok(Self { requests })
    }

    /// Starts the job. Blocks until its first process has been started.
    ///
    /// # Errors
    /// As [`AgentError`] tells; nothing runs then.
    pub fn launch(&self, spec: LaunchSpec) -> Result<Console, AgentError> {
        self.ask(|answer| Request::Launch(Box::new(spec), answer))
    }

    /// Brings the job back. Blocks until its processes run.
    ///
    /// # Errors
    /// As [`AgentError`] tells; nothing runs then.
    pub fn restore(&self, spec: RestoreSpec) -> Result<Console, AgentError> {
        self.ask(|answer| Request::Restore(spec, answer))
    }

    fn ask(
        &self,
        request: impl FnOnce(Sender<Result<Console, AgentError>>) -> Request,
    ) -> Result<Console, AgentError> {
        let (answer, answered) = channel();
        self.requests.send(request(answer)).map_err(|_| AgentError::Stopped)?;
        answered.recv().map_err(|_| AgentError::Stopped)?
    }

    /// Gives a command. Never blocks; the answer is an event.
    pub fn command(&self, command: AgentCommand) {
        // A thread that has ended has reported the job's end before.
        let _ = self.requests.send(Request::Command(command));
    }
}
