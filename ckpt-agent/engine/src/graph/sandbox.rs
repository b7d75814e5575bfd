//! Sandboxes of threads (seccomp(2)).

use serde::{Deserialize, Serialize};

/// What a thread has forbidden itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Strict mode; then there are no filters.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// Filters among those of the process, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<u32>,
}

/// A filter of system calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxFilter {
    /// SECCOMP_FILTER_FLAG_LOG
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log: bool,
    /// Its instructions, struct sock_filter each, hex.
    pub instructions: String,
}
