//! What `ckptd rsh` and its agent say to each other: over a Unix socket in the agent's folder, one
//! request with an end of the caller's link and its three standard streams, then one reply. What comes
//! then goes over the link, as between stand-ins.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use ckpt_engine::job_init::Channel;
use serde::{Deserialize, Serialize};

/// Name of the socket in the agent's folder.
pub const SOCKET: &str = "rsh.sock";

/// Names the socket to processes of a job.
pub const VARIABLE: &str = "CKPTD_AGENT_SOCKET";

/// What is to be started elsewhere. The agent's end of a link and descriptors 0, 1 and 2 of the caller come
/// along.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellRequest {
    /// The logical node, or a host of one of its groups.
    pub node: String,
    /// Whether nodes have such hosts.
    #[serde(default)]
    pub has_groups: bool,
    /// The command, as one line for /bin/sh.
    pub line: OsString,
    /// Variables that are taken along.
    pub environment: Vec<(OsString, OsString)>,
    /// The caller's working directory.
    pub working_directory: PathBuf,
    /// The caller, as the job numbers it.
    pub pid: i32,
    /// Its parent.
    pub parent: i32,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShellReply {
    /// It runs.
    Started,
    /// It could not be started; one line.
    Failed(String),
}

/// A caller that waits.
#[derive(Debug)]
pub struct Caller {
    /// Its process, as this machine numbers it.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// What it wants.
    pub request: ShellRequest,
    /// The agent's end of its link.
    pub link: OwnedFd,
    /// Its standard input, output and error.
    pub streams: [OwnedFd; 3],
    /// The way back.
    pub reply: ReplyTo,
}

/// The way back to a caller.
#[derive(Debug)]
pub struct ReplyTo(UnixStream);

impl ReplyTo {
    /// To who called over that connection.
    pub fn new(stream: UnixStream) -> Self {
        Self(stream)
    }

    /// Answers; the caller listens to its link then, or ends.
    pub fn answer(self, reply: &ShellReply) {
        // A few bytes into an empty socket; and a caller that has gone needs no answer.
        let _ = Channel::new(self.0).send(reply, &[]);
    }
}
