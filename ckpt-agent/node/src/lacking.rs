//! Why an instance could not be made.

use protocol::cluster::agent::DamagedCopy;

/// Why an instance could not be launched, prepared or restored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lacking {
    /// One line for the user.
    pub reason: String,
    /// Copies of its image that were found damaged.
    pub damaged: Vec<DamagedCopy>,
}

impl From<String> for Lacking {
    fn from(reason: String) -> Self {
        Self { reason, damaged: Vec::new() }
    }
}
