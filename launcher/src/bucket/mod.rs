//! Archives in S3, and in what is compatible with it: `s3://BUCKET/KEY`.
//!
//! - `address`: bucket and key, as people write them.
//! - `asked`: whether an archive is there, or can be.
//! - `claim`: what keeps two runs of one job from replacing each other's archives.
//! - `client`: an object of a bucket, with the credentials of the usual variables AWS_*.
//! - `connector`: how a server is reached, and how long that may take.
//! - `give_up`: the wish that what waits for it ends.
//! - `upload`: an archive on its way there, part by part; `draft`: what is known of one that is not whole.
//! - `download`: an archive on its way here, range by range.
//! - `told`: errors without anything secret.
//!
//! Without the cargo feature `s3`, `without` stands for all but addresses and wishes.

mod address;
#[cfg(feature = "s3")]
mod asked;
#[cfg(feature = "s3")]
mod claim;
#[cfg(feature = "s3")]
mod client;
#[cfg(feature = "s3")]
mod connector;
#[cfg(feature = "s3")]
mod download;
#[cfg(feature = "s3")]
mod draft;
mod give_up;
#[cfg(feature = "s3")]
mod told;
#[cfg(feature = "s3")]
mod upload;
#[cfg(not(feature = "s3"))]
mod without;

pub use address::Address;
#[cfg(feature = "s3")]
pub use asked::{check, exists, remove};
#[cfg(feature = "s3")]
pub use claim::Claim;
#[cfg(feature = "s3")]
pub use download::Download;
pub use give_up::GiveUp;
#[cfg(feature = "s3")]
pub use upload::Upload;
#[cfg(not(feature = "s3"))]
pub use without::{Claim, Download, Upload, check, exists, remove};

use thiserror::Error;

/// What an upload may replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Over {
    /// Nothing.
    Nothing,
    /// Whatever is there.
    Anything,
    /// The same, as long as the claim there is that of this run.
    Claimed(String),
}

/// Why something is not in a bucket, or can't be had from there; the text is a cause, and holds nothing secret.
#[derive(Debug, Error)]
pub enum BucketError {
    /// The feature is missing.
    #[cfg(not(feature = "s3"))]
    #[error("this ckptd is built without S3, as those for phones are")]
    Without,
    /// It is no address.
    #[error("{0} is no place in S3: s3://BUCKET/PREFIX is one")]
    NoAddress(String),
    /// Nobody is named who asks.
    #[cfg(feature = "s3")]
    #[error("there are no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")]
    NoCredentials,
    /// A variable makes no sense.
    #[cfg(feature = "s3")]
    #[error("a variable AWS_... makes no sense: {0}")]
    Variable(String),
    /// Who asks is refused.
    #[cfg(feature = "s3")]
    #[error("S3 refuses the credentials of AWS_ACCESS_KEY_ID, or what they may do: {0}")]
    Denied(String),
    /// There is no such bucket.
    #[cfg(feature = "s3")]
    #[error("there is no bucket {0}")]
    NoBucket(String),
    /// There is no such object.
    #[cfg(feature = "s3")]
    #[error("it is not there")]
    NotFound,
    /// It was replaced meanwhile.
    #[cfg(feature = "s3")]
    #[error("it was replaced while it was read: try again")]
    Replaced,
    /// It must not be replaced.
    #[cfg(feature = "s3")]
    #[error("{0} is there already; choose another name")]
    There(Address),
    /// Another run of the job is kept there.
    #[cfg(feature = "s3")]
    #[error(
        "another job of that name runs on {0} and is kept there: give one of them another name or prefix"
    )]
    Claimed(String),
    /// This run's claim has ended, and with it what is known of others.
    #[cfg(feature = "s3")]
    #[error("this run's claim on the archive has ended: another run may have had the job since")]
    Lapsed,
    /// What is called like ckptd's own is something else.
    #[cfg(feature = "s3")]
    #[error("the object {0} is none of ckptd's, and in its way: move it away")]
    Foreign(String),
    /// There are more parts than S3 takes.
    #[cfg(feature = "s3")]
    #[error("it is larger than was to be expected: it has more parts than S3 takes")]
    TooLarge,
    /// What waited for the server was given up.
    #[cfg(feature = "s3")]
    #[error("it was given up")]
    GivenUp,
    /// Anything else.
    #[cfg(feature = "s3")]
    #[error("S3 at {endpoint}: {cause}")]
    Other {
        /// Which server.
        endpoint: String,
        /// What happened.
        cause: String,
    },
    /// The kernel refuses something.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}
