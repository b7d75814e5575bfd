//! What export and import take.

use clap::Args;
use std::path::PathBuf;

/// What export takes.
#[derive(Debug, Args)]
pub struct ExportArguments {
    /// The job, and the checkpoint if not its newest.
    #[arg(value_name = "JOB[@N]")]
    pub job: String,
    /// The archive, which must not be there yet: a file, or s3://BUCKET/KEY; - for standard output.
    pub file: PathBuf,
    /// Replace an archive that is there, once the new one is whole and durable.
    #[arg(long)]
    pub replace: bool,
    /// At low priority, and no longer than who asks for it.
    #[arg(long, hide = true)]
    pub beside_job: bool,
    /// With it: not at low priority.
    #[arg(long, hide = true, requires = "beside_job")]
    pub urgent: bool,
    /// In a bucket: only if the claim there is that of this run.
    #[arg(long, hide = true, value_name = "RUN")]
    pub claim: Option<String>,
    /// For whom it is encrypted.
    #[command(flatten)]
    pub recipients: RecipientArguments,
}

/// For whom an archive is encrypted.
#[derive(Debug, Default, Clone, Args)]
pub struct RecipientArguments {
    /// Encrypt the archive for whoever has the secret key of KEY: age1..., or a public key of SSH, ed25519 or RSA; may be
    /// repeated.
    #[arg(long, short, value_name = "KEY")]
    pub recipient: Vec<String>,
    /// Encrypt it for the keys in FILE, one a line; may be repeated.
    #[arg(long, short = 'R', value_name = "FILE")]
    pub recipients_file: Vec<PathBuf>,
}

/// What import takes.
#[derive(Debug, Args)]
pub struct ImportArguments {
    /// The archive: a file, or s3://BUCKET/KEY; - for standard input.
    pub file: PathBuf,
    /// The job's name [default: the one that it had].
    #[arg(long)]
    pub name: Option<String>,
    /// On a cluster: whose the job is to be, also a job of one machine; for operators.
    #[arg(long)]
    pub user: Option<String>,
    /// Of an encrypted archive: the file with your secret key, of age or SSH, without a passphrase; may be repeated.
    #[arg(long, short, value_name = "FILE")]
    pub identity: Vec<PathBuf>,
}
