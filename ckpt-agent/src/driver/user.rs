//! Users of jobs, as this machine numbers them.

use std::io;
use std::path::PathBuf;

use ckpt_engine::UserOrder;
use protocol::cluster::NodeName;

/// Why a job's user is not to be had here.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// The agent is another user's, and runs its jobs alone.
    #[error(
        "{node} runs the jobs of {name} alone; start its agent with --shared, as root, or with CAP_SETUID and CAP_SETGID"
    )]
    Alone {
        /// This node.
        node: NodeName,
        /// The agent's user.
        name: String,
    },
    /// No such user is known.
    #[error("there is no user {name:?} on {node}")]
    Unknown {
        /// The job's user.
        name: String,
        /// This node.
        node: NodeName,
    },
    /// The job's user is root.
    #[error("{0} runs no jobs as root; start its agent with --allow-root")]
    Root(NodeName),
    /// The agent has some of root's capabilities, which do not make it this one.
    #[error(
        "{node} runs no jobs as {name}: its agent is not root's, and CAP_SETUID and CAP_SETGID make it any user but root \
         and nobody"
    )]
    Numberless {
        /// This node.
        node: NodeName,
        /// The job's user.
        name: String,
    },
    /// The kernel does not say what groups the user has.
    #[error("find the groups of {name}: {source}")]
    Groups {
        /// The job's user.
        name: String,
        /// Why not.
        source: io::Error,
    },
}

/// A user, as this machine numbers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// Number.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Home directory.
    pub home: PathBuf,
    /// Login shell.
    pub shell: PathBuf,
}

impl User {
    /// What the engine needs of it.
    #[must_use]
    pub fn order(&self) -> UserOrder {
        UserOrder { uid: self.uid, gid: self.gid, groups: self.groups.clone() }
    }
}
