//! The agent of a cluster: one process on every node, with one connection to the coordinator and
//! connections to other agents on demand.
//!
//! One task, [`actions::Driver`], takes reports one by one. [`ckpt_node::Node`], which does nothing itself, decides what to
//! do about them. Everything that waits (the connection to the coordinator, consoles, relays, copies of images, local
//! clients) is a task of its own that talks to it through channels.

mod absent;
mod actions;
mod busy;
mod carrier;
mod clients;
mod clock;
mod console;
mod coordinator;
pub(crate) mod copies;
mod discover;
mod dmtcp;
mod folders;
mod grants;
mod host;
mod instance;
mod keys;
mod line_queue;
mod link;
mod native;
mod peers;
mod relay;
mod replica;
mod report;
mod rest;
mod rsh;
mod serving;
mod shell_call;
mod shells;
mod start;
mod succession;
pub mod traffic;
mod tree;
mod user;
mod whereabouts;
mod wiring;

use std::path::PathBuf;

use protocol::cluster::NodeName;

use crate::port::Wanted;

pub use rsh::rsh;
pub use start::{has_joined, run};

/// How an agent is started.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The join token; None: the node has joined before, and its identity is in `dir`.
    pub join: Option<String>,
    /// The node's name; None: as it joined before, else the machine's host name.
    pub name: Option<NodeName>,
    /// Processes of jobs that it takes; None: as many as it has cores.
    pub slots: Option<u32>,
    /// Whether it takes processes only in the place of a machine that is gone.
    pub spare: bool,
    /// Relative speed of one core; None: measured.
    pub speed: Option<f64>,
    /// Whether jobs may run as root here.
    pub allow_root: bool,
    /// Whether an agent that is not root runs other users' jobs, as its own user.
    pub shared: bool,
    /// Where jobs, images and the identity are kept.
    pub dir: PathBuf,
    /// Where other machines reach it.
    pub port: Wanted,
    /// Percent of the battery below which the node announces its departure, unless it is being charged; None: never.
    pub leave_below: Option<u8>,
    /// How jobs' traffic is encrypted; None: not at all.
    pub traffic: Option<traffic::Options>,
    /// What signals to it mean.
    pub signals: Signals,
    /// Whether the coordinator is looked for by multicast DNS where none of its addresses answers.
    pub discover: bool,
}

/// What signals to an agent mean.
#[derive(Debug, Clone, Copy)]
pub enum Signals {
    /// SIGTERM and SIGINT tell that this machine is about to go. SIGUSR1 ends it as if it were killed, with everything where
    /// it is, for one that takes over.
    OfMachine,
    /// SIGINT alone means that. A scheduler sends SIGTERM, SIGUSR1 and their like to all machines at once, and what it tells is for the
    /// job: an agent that left at SIGTERM would take away where its images are, in the very moment in which they are to be
    /// kept elsewhere.
    OfAllocation {
        /// Called at SIGTERM.
        terminated: fn(),
        /// Called at SIGUSR1, SIGUSR2, SIGXCPU and SIGPWR.
        signalled: fn(),
    },
}

/// Why an agent ended, or `ckptd rsh` could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The kernel refused something.
    #[error("{what}: {error}")]
    System {
        /// What was to be done, naming the thing.
        what: String,
        /// Why not.
        error: std::io::Error,
    },
    /// The coordinator does not take this node.
    #[error("join the cluster: {0}")]
    Refused(String),
    /// What was asked for can't be.
    #[error("{0}")]
    Unfit(String),
}

impl AgentError {
    /// For `map_err`: what was to be done.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |error| Self::System { what, error }
    }
}
