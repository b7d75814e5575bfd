//! Standard streams of a job.

/// Which of the job's standard streams an object is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum StdioRole {
    /// Standard input, the job reads.
    Stdin,
    /// Standard output, the job writes.
    Stdout,
    /// Standard error, the job writes.
    Stderr,
    /// The terminal that stands for all three.
    Terminal,
}
