//! What a coordinator that carries on for a lost one says to the members' agents, and they to it. It
//! connects to the port where other agents connect, and shows a certificate of the role coordinator.

use super::Term;
use super::replica::{JOBS, LOG, NOTE, ReplicaNote, SmallFile, generation_of};
use crate::json;
use crate::transport::{Seal, Sealer, TransportError, Trust};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What precedes the term in what is sealed.
const TERM: &str = "term";

/// From the new coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromSuccessor {
    /// Whom do you follow, and what do you hold? Answer: [`ToSuccessor::State`].
    Ask,
    /// Send me your copy. Answer: [`ToSuccessor::Piece`]s and [`ToSuccessor::Sent`].
    Fetch,
    /// I am the coordinator. Answer: [`ToSuccessor::Follows`] or [`ToSuccessor::Refused`].
    Follow(Followed),
}

/// A coordinator, as an agent knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// Its term.
    pub term: Term,
    /// Drawn by it at random when it began the term: no two are alike in both.
    pub claim: String,
    /// Where it is, HOST:PORT.
    pub addresses: Vec<String>,
    /// Its own, of term and claim: whoever has heard of it can show that there is such a coordinator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<Seal>,
}

impl Followed {
    /// With a coordinator's seal.
    ///
    /// # Errors
    /// As [`Sealer::seal`].
    pub fn sealed(mut self, sealer: &Sealer) -> Result<Self, TransportError> {
        self.seal = Some(sealer.seal(&(TERM, self.term, &self.claim))?);
        Ok(self)
    }

    /// Whether a coordinator has sealed its term.
    ///
    /// # Errors
    /// Where none has.
    pub fn check(&self, trust: &Trust) -> Result<(), TransportError> {
        trust.check(self.seal.as_ref(), &(TERM, self.term, &self.claim))
    }
}

/// A copy of the lost coordinator's folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Copy {
    /// What it says of itself.
    pub note: ReplicaNote,
    /// How often the log was made shorter: what counts more than its length.
    #[serde(default)]
    pub generation: u32,
    /// Bytes of the log.
    pub length: u64,
    /// Bytes of all jobs' output, which comes behind the log.
    #[serde(default)]
    pub output: u64,
    /// Milliseconds since anything was written to it.
    pub age_ms: u64,
}

impl Copy {
    /// The copy in a folder, if there is one that is whole.
    ///
    /// # Errors
    /// The file that can't be read, and why.
    pub fn in_folder(folder: &Path) -> Result<Option<Self>, (PathBuf, io::Error)> {
        let path = folder.join(NOTE);
        let note = match fs::read(&path) {
            Ok(text) => json::read::<ReplicaNote>(&text).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => Err(error),
        };
        let note = note.map_err(|error| (path, error))?;
        let path = folder.join(LOG);
        let log = fs::metadata(&path).and_then(|log| Ok((log, generation_of(&path)?)));
        let (log, generation) = log.map_err(|error| (path, error))?;
        let age = log.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        let age_ms = age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        // What can't be read counts for nothing.
        let jobs = fs::read_dir(folder.join(JOBS)).into_iter().flatten().flatten();
        let outputs = jobs.filter_map(|job| fs::metadata(job.path().join("log")).ok());
        let output = outputs.map(|log| log.len()).sum();
        Ok(Some(Self { note, generation, length: log.len(), output, age_ms }))
    }
}

/// Which file of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopiedFile {
    /// The log.
    Log,
    /// A small one.
    Small(SmallFile),
    /// A job's output.
    JobLog(String),
    /// When it was written.
    JobTimes(String),
}

/// From an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToSuccessor {
    /// Answer to [`FromSuccessor::Ask`].
    State {
        /// The coordinator that it follows.
        followed: Followed,
        /// Whether that has said anything within the last heartbeats.
        answers: bool,
        /// Its copy, if it has one that is whole.
        copy: Option<Copy>,
    },
    /// A piece of a file: the body. In order, without gaps.
    Piece {
        /// Of which file.
        file: CopiedFile,
    },
    /// That was all.
    Sent,
    /// The copy can't be read.
    Failed {
        /// One line.
        reason: String,
    },
    /// It follows from now on.
    Follows,
    /// It follows another one.
    Refused {
        /// Whom.
        followed: Followed,
    },
}
