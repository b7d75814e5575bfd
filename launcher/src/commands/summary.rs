//! What `ls` and `status` show of a job. The keys of the JSON form stay as they are.

use crate::cli::EngineSetting;
use crate::client::launcher::{AskError, ask};
use crate::jobs::{self, JobError, JobFolder};
use crate::text;
use coordinator::{CommittedState, End};
use protocol::agent::{CommitRecord, ExitKind};
use protocol::cluster::client::{Answer, Ask};
use protocol::control::LiveStatus;
use serde::Serialize;
use std::time::Duration;

/// How long a running job may take to tell of itself.
const LIVE_LIMIT: Duration = Duration::from_secs(5);

/// How a job is.
#[derive(Debug, Serialize)]
pub struct JobSummary {
    /// Its id.
    pub id: String,
    /// The name that its user knows it by.
    pub name: String,
    /// `running`; `stopped`, where its user has suspended it; `ended`, where its end was seen; `interrupted`, where it was not, or was asked
    /// for: such a job is one to restart.
    pub state: &'static str,
    /// `native` or `dmtcp`.
    pub engine: EngineSetting,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// When it was first run, in milliseconds since 1970 UTC.
    pub created_at_ms: u64,
    /// When it was last started or restarted.
    pub started_at_ms: Option<u64>,
    /// How often it was started or restarted.
    pub starts: u64,
    /// The checkpoint that it was last restarted from.
    pub restored_from: Option<u64>,
    /// How it ended.
    pub end: Option<End>,
    /// The job's output.
    pub log: String,
    /// What the process that runs it tells.
    pub live: Option<LiveStatus>,
    /// Its committed checkpoints, oldest first.
    pub checkpoints: Vec<CheckpointSummary>,
    /// The last checkpoint that was given up.
    pub last_abandoned: Option<Abandoned>,
}

/// A committed checkpoint.
#[derive(Debug, Serialize)]
pub struct CheckpointSummary {
    /// `current`, or `superseded`: newer than the one that the job was restarted from.
    pub state: CommittedState,
    /// Seconds since the job stood still for it.
    pub age_s: u64,
    /// Its record.
    #[serde(flatten)]
    pub record: CommitRecord,
}

/// A checkpoint that was given up.
#[derive(Debug, Serialize)]
pub struct Abandoned {
    /// Its number.
    pub checkpoint: u64,
    /// Why.
    pub reason: String,
}

/// What the process that runs a job tells; None: nothing that this ckptd understands.
fn live(job: &JobFolder) -> Result<Option<LiveStatus>, AskError> {
    let status = Ask::Status { job: Some(job.id().to_owned()) };
    Ok(match ask(job.path(), &status, Some(LIVE_LIMIT))? {
        Answer::Listing { value } => protocol::json::of_value(&value).ok(),
        _ => None,
    })
}

impl JobSummary {
    /// How a job is now.
    pub fn of(job: &JobFolder) -> Result<Self, JobError> {
        let running = job.is_running()?;
        let history = jobs::load(job)?;
        let (live, stopped) = match running.then(|| live(job)) {
            Some(Ok(live)) => {
                let suspended = live.as_ref().is_some_and(|live| live.suspended);
                (live, suspended)
            }
            Some(Err(AskError::Stopped)) => (None, true),
            // It has just ended, or begins.
            Some(Err(_)) | None => (None, false),
        };
        let end = history.end().copied().filter(|_| !running);
        let state = match &end {
            _ if stopped => "stopped",
            _ if running => "running",
            Some(End { asked: false, status: Some(_), .. }) => "ended",
            _ => "interrupted",
        };
        let now = text::now_ms();
        let record = job.record();
        Ok(Self {
            id: record.id.clone(),
            name: record.name.clone(),
            state,
            engine: record.settings.engine,
            command: record.command.clone(),
            created_at_ms: record.created_at_ms,
            started_at_ms: history.started_at_ms(),
            starts: history.starts(),
            restored_from: history.restored_from(),
            end,
            log: job.log().to_string_lossy().into_owned(),
            live,
            checkpoints: history
                .committed()
                .map(|(record, state)| CheckpointSummary {
                    state,
                    age_s: now.saturating_sub(record.taken_at_ms) / 1000,
                    record: record.clone(),
                })
                .collect(),
            last_abandoned: history
                .last_abandoned()
                .map(|(checkpoint, reason)| Abandoned { checkpoint, reason: reason.to_owned() }),
        })
    }

    /// Its state in a few words.
    pub fn state_text(&self) -> String {
        match (&self.end, self.state) {
            (Some(End { status: Some(ExitKind::Exited(status)), .. }), "ended") => {
                format!("ended ({status})")
            }
            (Some(End { status: Some(ExitKind::Signalled(signal)), .. }), "ended") => {
                format!("ended (signal {signal})")
            }
            (_, state) => state.to_owned(),
        }
    }
}
