//! Why the driver could not do what the node decided.

use std::io;
use std::path::PathBuf;

use ckpt_node::Lacking;
use ckpt_store::StoreError;
use protocol::agent::InstanceId;
use protocol::cluster::InstanceKey;
use thiserror::Error;
use tokio::task::JoinError;

use crate::driver::copies::CopyError;
use crate::driver::dmtcp::DmtcpError;
use crate::driver::instance::InstanceError;
use crate::driver::user::UserError;
use crate::driver::wiring::WiringError;

/// Why an action failed. The node, and by it the coordinator, is told its text.
#[derive(Debug, Error)]
pub enum Failure {
    /// The job's user is not to be had here.
    #[error(transparent)]
    User(#[from] UserError),
    /// An image is not as it should be here.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The store does not take something.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Connections could not be made.
    #[error(transparent)]
    Wiring(#[from] WiringError),
    /// The instance itself could not be made.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// Images of DMTCP could not be taken in or put out.
    #[error(transparent)]
    Dmtcp(#[from] DmtcpError),
    /// No holder has the image, or none that is whole.
    #[error("{}", .0.reason)]
    Lacking(Lacking),
    /// An image of an archive is not taken over.
    #[error("instance {}: {source}", instance.0)]
    OfInstance {
        /// Whose image it is.
        instance: InstanceId,
        /// Why not.
        source: CopyError,
    },
    /// The coordinator names a job as none is named.
    #[error("{0:?} is no job's id")]
    NoJob(String),
    /// A job's folder is there already.
    #[error("{} is there already", .0.display())]
    Occupied(PathBuf),
    /// No file system says how much room it has.
    #[error("tell the free space: {0}")]
    FreeSpace(#[source] io::Error),
    /// Nothing was made of an instance that is to be carried.
    #[error("nothing of {0} is there to be carried")]
    NotMade(InstanceKey),
    /// This executable has no part for it.
    #[error("this ckptd is built without DMTCP")]
    WithoutDmtcp,
    /// The kernel refused something.
    #[error("{what}: {source}")]
    System {
        /// What was to be done, naming the thing.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// A thread ended early: a defect of ckptd.
    #[error(transparent)]
    Thread(#[from] JoinError),
}

impl Failure {
    /// For `map_err`: what was to be done.
    pub fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what: what.into(), source }
    }
}

impl From<Failure> for Lacking {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Lacking(lacking) => lacking,
            other => Self::from(other.to_string()),
        }
    }
}
