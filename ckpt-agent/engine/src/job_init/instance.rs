//! What a cluster's agent and an init say to each other. The init outlives its agent: the next one
//! finds it at a socket and takes it over.

use std::path::PathBuf;

use protocol::agent::ExitKind;
use protocol::cluster::addresses::AddressMap;
use protocol::cluster::agent::MovedListener;
use protocol::cluster::{InstanceKey, NodeName};
use protocol::launch::{External, Kept};
use serde::{Deserialize, Serialize};

use super::super::graph::{FileId, Offer, OuterEnd, Pid, RelayEnd};
use super::super::late::Watch;
use super::super::objects::StdioRole;

/// What an init in a cluster is told at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceOrder {
    /// Which instance it is.
    pub identity: InstanceKey,
    /// The host name inside: the logical node's.
    pub host_name: String,
    /// Content of /etc/hosts inside; empty: the machine's.
    pub hosts: String,
    /// Where the next agent finds this init: a Unix socket, made by it, in a folder of the agent's.
    pub socket: PathBuf,
    /// Where processes of the job call the agent; `None`: they can't. The init shows it to them.
    #[serde(default)]
    pub calls: Option<PathBuf>,
    /// CLOCK_BOOTTIME, as the agent reads it, until which processes may run with no agent there, ns.
    pub lease_until_ns: u64,
    /// Whether a restored instance waits, complete, for [`Instruction::Go`]. A launched one never does.
    pub hold: bool,
    /// Whether the end of its first process is the job's end.
    pub root_instance: bool,
    /// What a checkpoint of a launched instance does about connections to outside of the job.
    #[serde(default)]
    pub external: External,
    /// The user whom a root agent runs the job for; `None`: the agent's own. Any other agent must leave
    /// it out.
    #[serde(default)]
    pub user: Option<UserOrder>,
    /// For a program that a remote shell launches: the name of the shell's link. Its streams are then
    /// not the launcher's, but sides of the shell's relays.
    #[serde(default)]
    pub shell: Option<String>,
    /// For connections that are made after a move; `None`: they are left alone.
    #[serde(default)]
    pub watch: Option<Watch>,
    /// Other parts of its logical node are on this machine as well.
    #[serde(default)]
    pub crowded: bool,
}

/// A user, as this machine numbers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserOrder {
    /// Its number.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its supplementary groups.
    pub groups: Vec<u32>,
}

/// What an agent knows of its job besides its processes; an init keeps it for the next agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keepsake {
    /// Directories whose files travel with the job.
    pub session_directories: Vec<PathBuf>,
    /// What of the file system is the job's.
    #[serde(default)]
    pub kept: Kept,
    /// What a checkpoint does about connections to outside of the job.
    pub external: External,
    /// Logical node and machine, if late connections are watched.
    #[serde(default)]
    pub watched: Option<(String, NodeName)>,
    /// What processors the programs of a restored job began on.
    #[serde(default)]
    pub offers: Vec<Offer>,
    /// The user whom a root agent runs the job for; `None`: the agent's own.
    #[serde(default)]
    pub user: Option<UserOrder>,
}

impl Keepsake {
    /// The instance's own host name, where that is not its node's.
    pub fn own_host_name(&self) -> Option<&str> {
        self.kept.host_name.as_ref().map(NodeName::as_str)
    }
}

/// A connection that an agent has made for a restore, sent with its descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The open file of the image that it is to be.
    pub file: FileId,
    /// It is the other end of that connection instead, whose peer has departed: kept as this relay, so
    /// that it outlives the agent.
    #[serde(default)]
    pub absent: Option<RelayEnd>,
}

/// What an agent tells an init while the instance lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Instruction {
    /// Let go what is held. Answered by [`super::Report::Running`].
    Go,
    /// The lease reaches until this CLOCK_BOOTTIME, as the agent reads it, ns.
    Lease {
        /// Until when.
        until_ns: u64,
    },
    /// The agent is about to take bytes out of the job's objects or to run calls in its processes
    /// (`true`), or has put everything back. One that dies in between leaves a job behind that
    /// must not go on.
    Touching(bool),
    /// Close the copy of an end, so that the job can see the other side's end.
    Close {
        /// The end whose descriptor the agent has.
        end: OuterEnd,
    },
    /// What has moved in the job; replaces what was said before.
    #[serde(rename = "addresses")]
    Addresses(AddressMap),
    /// Tell what single sockets are called. Answered by [`super::Report::Names`].
    Names,
    /// The agent leaves; another one will come.
    HandOver,
    /// End every process, and the init. Also says that the end which was reported is known.
    Kill,
}

/// What an init tells an agent that takes it over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    /// Which instance it is.
    pub identity: InstanceKey,
    /// The first process, as the logical node numbers it; `None`: it is not here or has ended.
    pub root: Option<Pid>,
    /// Whether the end of the first process is the job's end.
    pub root_instance: bool,
    /// Which stream each descriptor sent along is. Those closed are left out.
    pub console: Vec<StdioRole>,
    /// How many [`super::Report::Outer`] follow.
    pub outer: u32,
    /// Whether everything stands still: the lease had run out, or the agent before died with its hands
    /// in the job. It goes on at [`Instruction::Go`].
    pub held: bool,
    /// The end of the lease that the agent before had, by CLOCK_BOOTTIME as an agent reads it, ns; 0: unknown.
    #[serde(default)]
    pub lease_until_ns: u64,
    /// Whether the agent before died with its hands in the job, whose bytes under way or registers
    /// may be lost: it must be rolled back.
    pub touched: bool,
    /// How the first process ended, if it has.
    pub ended: Option<ExitKind>,
    /// Whether no process is left.
    pub empty: bool,
    /// Listening sockets that others must know of.
    #[serde(default)]
    pub listeners: Vec<MovedListener>,
    /// What the first agent knew.
    pub keepsake: Keepsake,
    /// Lines for the user.
    pub warnings: Vec<String>,
}
