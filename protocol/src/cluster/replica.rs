//! Copies of the coordinator's folder on agents' disks, from which another coordinator carries on.

use super::Term;
use crate::log_times::Piece;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes at the end of a file whose hash tells whether two copies are alike.
pub const TAIL: u64 = 64 * 1024;

/// Name of the file with a copy's [`ReplicaNote`]: only a copy that has one is whole.
pub const NOTE: &str = "replica.json";

/// Name of the log in a coordinator's folder, and in a copy of one.
pub const LOG: &str = "cluster.log";

/// Name of the folder of jobs' output, likewise: that of a job is `log` in a folder of its name.
pub const JOBS: &str = "jobs";

/// How much of a file is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prefix {
    /// Bytes.
    pub length: u64,
    /// BLAKE3, hexadecimal, of the last [`TAIL`] of them.
    pub tail: String,
}

impl Prefix {
    /// Of a file that ends with these bytes: the last [`TAIL`], or all of a shorter one.
    #[must_use]
    pub fn of(length: u64, end: &[u8]) -> Self {
        Self { length, tail: blake3::hash(end).to_hex().to_string() }
    }

    /// Of the first so many bytes of a file.
    ///
    /// # Errors
    /// Where they can't be read, or it is shorter.
    pub fn of_file(file: &File, length: u64) -> io::Result<Self> {
        let mut end = vec![0; usize::try_from(length.min(TAIL)).unwrap_or_default()];
        file.read_exact_at(&mut end, length - length.min(TAIL))?;
        Ok(Self::of(length, &end))
    }
}

/// The most bytes that the first line of a log has.
pub const FIRST_LINE: usize = 1024;

/// How often a log was made shorter, by its first line: one of a higher generation has all that those of a lower one have, and
/// may have less bytes. 0: never, or it is no log.
#[must_use]
pub fn generation(first: &[u8]) -> u32 {
    let line = first.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line: Option<serde_json::Value> = crate::json::read(line).ok();
    let found = line.and_then(|line| line["log"]["reopened"]["generation"].as_u64());
    found.and_then(|generation| u32::try_from(generation).ok()).unwrap_or(0)
}

/// The generation of the log at a path.
///
/// # Errors
/// Where it can't be read.
pub fn generation_of(log: &Path) -> io::Result<u32> {
    let mut first = Vec::new();
    File::open(log)?.take(FIRST_LINE as u64).read_to_end(&mut first)?;
    Ok(generation(&first))
}

/// A small file, which is always copied whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SmallFile {
    /// Tokens and members' certificates.
    Register,
    /// The authority's certificate.
    Authority,
    /// The authority's key.
    AuthorityKey,
    /// The secret from which the keys of jobs' images follow.
    ImageSecret,
}

impl SmallFile {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Register, Self::Authority, Self::AuthorityKey, Self::ImageSecret];

    /// Those that only standbys get.
    pub const SECRET: [Self; 2] = [Self::AuthorityKey, Self::ImageSecret];

    /// Its name in the coordinator's folder, and in a copy of that.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Register => "members.json",
            Self::Authority => "authority.pem",
            Self::AuthorityKey => "authority-key.pem",
            Self::ImageSecret => "images.key",
        }
    }
}

/// What a copy that is whole says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplicaNote {
    /// The coordinator's term.
    pub term: Term,
    /// Where it is, HOST:PORT.
    pub addresses: Vec<String>,
    /// Seconds from a node's last word to its being declared gone.
    pub grace_s: f64,
}

/// What an agent is to do with its copy. A `number` rises by one from order to order of a
/// connection; orders are carried out in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicaOrder {
    /// Keep a copy from now on, and say what there is of it.
    Hold,
    /// Keep this small file: the body.
    File {
        /// See above.
        number: u64,
        /// The file that the body replaces.
        file: SmallFile,
    },
    /// Keep this small file no longer.
    Withdraw {
        /// See above.
        number: u64,
        /// The file.
        file: SmallFile,
    },
    /// The log begins anew. What comes takes the old one's place once it has this length.
    Anew {
        /// See above.
        number: u64,
        /// Bytes.
        length: u64,
    },
    /// The body follows in the log.
    Log {
        /// See above.
        number: u64,
        /// Bytes before it.
        offset: u64,
    },
    /// The body follows in a job's output; whatever was there behind it is cut off.
    JobLog {
        /// See above.
        number: u64,
        /// The job.
        job: String,
        /// Bytes before it.
        offset: u64,
        /// When it was written, as far as that is known.
        #[serde(default)]
        times: Vec<Piece>,
    },
    /// Nothing is kept of a job's output any more.
    ForgetJob {
        /// See above.
        number: u64,
        /// The job.
        job: String,
    },
    /// The small files and the log are here whole.
    Whole {
        /// See above.
        number: u64,
        /// What is to be said of it.
        note: ReplicaNote,
    },
    /// Keep no copy any more: nothing is left of it.
    Drop,
}

/// What an agent says of its copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicaReport {
    /// Answer to [`ReplicaOrder::Hold`].
    Held {
        /// Of the log.
        log: Prefix,
        /// Of jobs' output.
        jobs: BTreeMap<String, Prefix>,
    },
    /// All orders up to this number are carried out, and durable.
    Durable {
        /// The number.
        number: u64,
    },
    /// No copy can be kept for the time being.
    Failed {
        /// One line.
        reason: String,
    },
}
