//! job.json: what was run, by whom, with which settings. Written once; how the job fares is in
//! the coordinator's log.

use super::JobError;
use crate::cli::{EngineSetting, IntervalSetting, JobOptions, Placement};
use coordinator::{Interval, Settings};
use protocol::launch::External;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Version of job.json that this build writes.
const FORMAT: u32 = 1;

/// Why a text is no record of a job.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A newer ckptd has written it.
    #[error("it has format {0}, this ckptd reads up to {FORMAT}: use a newer one")]
    Newer(u64),
    /// It is something else.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// The largest job.json that is read, in bytes.
const MAX_RECORD: u64 = 16 * 1024 * 1024;

/// What was run, by whom, with which settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Version of the file.
    pub format: u32,
    /// The job's id, and the name of its folder.
    pub id: String,
    /// Its name: the one that was asked for, else the id.
    pub name: String,
    /// The program and its arguments, as far as they are text.
    pub command: Vec<String>,
    /// Where it was started.
    pub working_directory: String,
    /// The user's number.
    pub uid: u32,
    /// The machine's host name.
    pub host: String,
    /// When it was first run, in milliseconds since 1970 UTC.
    pub created_at_ms: u64,
    /// The version of ckptd.
    pub version: String,
    /// How it is kept.
    pub settings: JobSettings,
}

/// How a job is kept, unless restart says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct JobSettings {
    /// Seconds between checkpoints.
    pub interval: IntervalSetting,
    /// Committed checkpoints kept.
    pub keep: u32,
    /// Places in which an image is durable.
    pub copies: u32,
    /// What is done about connections to outside.
    pub external: External,
    /// What may be moved.
    pub placement: Placement,
    /// What takes the checkpoints.
    #[serde(default)]
    pub engine: EngineSetting,
    /// After every so many checkpoints a restart is rehearsed; 0: never.
    #[serde(default)]
    pub rehearse: u32,
}

impl Default for JobSettings {
    fn default() -> Self {
        Self {
            interval: IntervalSetting::Seconds(30.0),
            keep: 2,
            copies: 1,
            external: External::Warn,
            placement: Placement::Process,
            engine: EngineSetting::Native,
            rehearse: 0,
        }
    }
}

impl JobSettings {
    /// These settings, but what the options say otherwise.
    #[must_use]
    pub fn with(self, options: &JobOptions) -> Self {
        Self {
            interval: options.interval.unwrap_or(self.interval),
            keep: options.keep.unwrap_or(self.keep),
            copies: options.copies.unwrap_or(self.copies),
            external: options.external.map_or(self.external, External::from),
            placement: options.placement.unwrap_or(self.placement),
            engine: self.engine,
            rehearse: options.rehearse.unwrap_or(self.rehearse),
        }
    }

    /// The coordinator's part of them.
    #[must_use]
    pub fn coordinator(&self) -> Settings {
        let interval = match self.interval {
            IntervalSetting::Auto => Interval::Auto,
            IntervalSetting::Seconds(seconds) if seconds > 0.0 => {
                // In range: the setting is checked where it is read.
                Interval::Every((seconds * 1e9) as u64)
            }
            IntervalSetting::Seconds(_) => Interval::OnDemand,
        };
        Settings { interval, keep: self.keep as usize, copies: self.copies, ..Settings::default() }
    }
}

impl JobRecord {
    /// The record of a new job.
    #[must_use]
    pub fn new(
        id: String,
        name: String,
        command: Vec<String>,
        working_directory: String,
        settings: JobSettings,
    ) -> Self {
        Self {
            format: FORMAT,
            id,
            name,
            command,
            working_directory,
            uid: nix::unistd::geteuid().as_raw(),
            host: nix::unistd::gethostname()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default(),
            created_at_ms: crate::text::now_ms(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings,
        }
    }

    /// Reads a job's record.
    ///
    /// # Errors
    /// Where it can't be read, is too large, newer or no record.
    pub fn read(path: &Path, id: &str) -> Result<Self, JobError> {
        let bad = |reason: String| JobError::BadRecord { path: path.to_owned(), reason };
        let file = File::open(path).map_err(JobError::io("open", path))?;
        let mut text = String::new();
        file.take(MAX_RECORD + 1).read_to_string(&mut text).map_err(JobError::io("read", path))?;
        if text.len() as u64 > MAX_RECORD {
            return Err(bad(format!("it exceeds the limit of {MAX_RECORD} bytes")));
        }
        let value: serde_json::Value =
            protocol::json::read(text.as_bytes()).map_err(|error| bad(error.to_string()))?;
        let record = Self::of(value).map_err(|error| bad(error.to_string()))?;
        if record.id == id { Ok(record) } else { Err(bad(format!("it is of {}", record.id))) }
    }

    fn of(value: serde_json::Value) -> Result<Self, RecordError> {
        match value.get("format").and_then(serde_json::Value::as_u64) {
            Some(format) if format > FORMAT.into() => Err(RecordError::Newer(format)),
            _ => Ok(protocol::json::of_value(&value)?),
        }
    }

    /// The record of a job from outside: now it is this user's, and of this moment.
    ///
    /// # Errors
    /// Where it is no record, or a newer one.
    pub fn adopt(value: serde_json::Value) -> Result<Self, RecordError> {
        let record = Self::of(value)?;
        let uid = nix::unistd::geteuid().as_raw();
        let created_at_ms = crate::text::now_ms();
        Ok(Self { format: FORMAT, uid, created_at_ms, ..record })
    }
}
