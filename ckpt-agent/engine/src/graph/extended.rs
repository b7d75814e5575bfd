//! Extended attributes of files that travel.

use serde::{Deserialize, Serialize};

use super::BlobId;

/// An attribute with its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtendedAttribute {
    /// Its name, with its class before it (user.NAME).
    pub name: String,
    /// Its value.
    pub value: BlobId,
}
