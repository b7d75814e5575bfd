//! Why images are not kept, or not to be had.

use super::MAX_DESCRIPTION;
use crate::cluster::AnswerError;
use protocol::cluster::NodeName;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why images of a checkpoint are not kept, found or restarted.
#[derive(Debug, Error)]
pub enum ImageError {
    /// A file can't be read.
    #[error("read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Files can't be written.
    #[error(transparent)]
    Write(#[from] io::Error),
    /// What a checkpoint has is told at too great a length.
    #[error("read {}: it exceeds {MAX_DESCRIPTION} bytes", .0.display())]
    TooLong(PathBuf),
    /// What a checkpoint has is not told as it should be.
    #[error("read {}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// What a checkpoint has is told in a form that is not known here.
    #[error("read {}: it is of a newer ckptd", .0.display())]
    Newer(PathBuf),
    /// An image is not what was kept.
    #[error("the image {} is damaged: its hash is another", .0.display())]
    Damaged(PathBuf),
    /// An image is not on this machine, but with agents.
    #[error(
        "the image {path} of {node} is kept by the agents of {}: the cluster's coordinator restarts the job when a \
         node is lost; to do it by hand, execute dmtcp_restart_script.sh",
        holders.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ")
    )]
    WithAgents {
        /// The image, as DMTCP named it.
        path: String,
        /// The machine that it was written on.
        node: NodeName,
        /// Machines that have it.
        holders: Vec<NodeName>,
    },
    /// An image is on its own machine only.
    #[error(
        "the image {path} is on {host} only, where no agent of ckptd runs: start dmtcp_restart there and here by hand, \
         with DMTCP's own coordinator or 'ckptd coordinator --dmtcp-port'"
    )]
    Elsewhere {
        /// The image, as DMTCP named it.
        path: String,
        /// The machine, as its process knows it.
        host: String,
    },
    /// No agent has an image.
    #[error("no agent of ckptd keeps the image {path} of {host} at checkpoint {checkpoint}")]
    WithoutAgent {
        /// The image, as DMTCP named it.
        path: String,
        /// The machine, as its process knows it.
        host: String,
        /// The checkpoint.
        checkpoint: u64,
    },
    /// An agent did not do what it was to do.
    #[error("{node}: {source}")]
    Agent {
        /// Its node.
        node: NodeName,
        /// Why not.
        source: AnswerError,
    },
    /// An agent took in fewer images than there are, or more.
    #[error("{0} did not take in all images")]
    NotAll(NodeName),
    /// None of those who hold a machine's images is there.
    #[error("the images of {0} are on no machine that is there")]
    NowhereThere(NodeName),
}
