//! Where a job is kept between two runs.

use super::archives::RecipientArguments;
use clap::Args;
use std::path::PathBuf;

/// Where a job is kept between two runs.
#[derive(Debug, Default, Args)]
pub struct StoreArguments {
    /// Where the job is kept when its time is over: a folder that all machines see, or s3://BUCKET/PREFIX. At the signal of
    /// --checkpoint-on [default: USR1], a last checkpoint is taken and goes there. The same command goes on from it, on other
    /// machines and another number of them.
    ///
    /// For S3, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_ENDPOINT_URL for another server than Amazon's.
    #[arg(long, value_name = "WHERE")]
    pub store: Option<PathBuf>,
    /// Also put every N-th checkpoint there while the job runs, at low priority: what is left where all machines are lost at
    /// once, or killed without a signal before [default: only the last].
    #[arg(
        long,
        value_name = "N",
        requires = "store",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    pub store_every: Option<u32>,
    /// For whom what is there is encrypted.
    #[command(flatten)]
    pub recipients: RecipientArguments,
    /// The file with your secret key, of age or SSH, to go on from what is encrypted there; may be repeated.
    #[arg(long, value_name = "FILE", requires = "store")]
    pub identity: Vec<PathBuf>,
}

impl StoreArguments {
    /// These; none are left, so that what runs the job then does not ask again.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Whether there are keys, for what is nowhere.
    #[must_use]
    pub fn has_lone_keys(&self) -> bool {
        let RecipientArguments { recipient, recipients_file } = &self.recipients;
        self.store.is_none() && !(recipient.is_empty() && recipients_file.is_empty())
    }
}
