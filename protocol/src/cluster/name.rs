//! Names of nodes.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use thiserror::Error;

/// The longest name: a label of the DNS (RFC 1035).
const LONGEST: usize = 63;

/// A node's name: a label as host names are made of, in lower case. It is kept once, however often it is noted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(Arc<str>);

/// Why a text is no node's name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is no name for a node: 1 to {LONGEST} of a-z, 0-9 and '-', no '-' at its ends")]
pub struct NameError(pub String);

impl NodeName {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for NodeName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        let fits = (1..=LONGEST).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !text.starts_with('-')
            && !text.ends_with('-');
        if fits { Ok(Self(text.into())) } else { Err(NameError(text)) }
    }
}

impl std::str::FromStr for NodeName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::try_from(text.to_owned())
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> String {
        name.0.as_ref().to_owned()
    }
}

impl std::fmt::Display for NodeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A host's name as the label that a node is called by: host names are the same in any case (RFC 1035), and schedulers
/// take some letters that they don't have.
#[must_use]
pub fn host_label(host: &str) -> String {
    host.to_ascii_lowercase().replace(['_', '.'], "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_host_labels() {
        for good in ["node1", "a", "my-phone"] {
            assert_eq!(good.parse::<NodeName>().unwrap().as_str(), good);
        }
        let long = "x".repeat(64);
        for bad in ["", "-a", "a-", "A", "a.b", "a/b", "..", long.as_str()] {
            assert!(bad.parse::<NodeName>().is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<NodeName>("\"../x\"").is_err());
    }
}
