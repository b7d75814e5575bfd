//! What can go wrong between two machines.

use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why the other side took somebody not in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// Its certificate is of another cluster, revoked, or for another role.
    Certificate,
    /// Its token is wrong, used up or expired.
    Token,
    /// Another node has its name.
    Name,
    /// It speaks another version.
    Version,
    /// The one who is asked is the coordinator of a lower term, and ends.
    Superseded,
    /// Anything else.
    Other,
}

/// Why a connection could not be made, or does not go on.
#[derive(Debug, Error)]
pub enum TransportError {
    /// The system refused.
    #[error("{action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// Why not.
        source: io::Error,
    },
    /// A file of the identity could not be used.
    #[error("{action} {}: {reason}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// TLS failed in a way that has no name of its own.
    #[error("secure connection: {0}")]
    Tls(#[from] rustls::Error),
    /// A certificate could not be made.
    #[error("make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The other side is none of the cluster.
    #[error("{server} is not who it should be: {reason}")]
    Impostor {
        /// The address.
        server: String,
        /// What is wrong with its certificate.
        reason: String,
    },
    /// The client shows no certificate that would do.
    #[error("{0}")]
    Unfit(String),
    /// The client does not speak TLS.
    #[error("client does not speak TLS: unencrypted connections are refused")]
    Unencrypted,
    /// The other side refused, and said why.
    #[error("{reason}")]
    Refused {
        /// The kind.
        kind: RefusalKind,
        /// Why.
        reason: String,
    },
    /// A handshake took too long.
    #[error("{0} did not answer within {1} s")]
    TooSlow(String, u64),
    /// Part of a message is too long.
    #[error("{part} of {length} bytes exceeds the limit of {limit}")]
    TooLong {
        /// "header" or "body".
        part: &'static str,
        /// Its length.
        length: u64,
        /// The limit.
        limit: u64,
    },
    /// A message is not what is expected here.
    #[error("malformed message: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The connection ended within a message.
    #[error("connection ended in the middle of a message")]
    Truncated,
    /// The connection ended where an answer was due.
    #[error("connection closed before an answer came")]
    Closed,
    /// Nobody answers at any of the addresses.
    #[error("no coordinator answers at {0}")]
    Unreachable(String),
}

impl TransportError {
    pub(super) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }

    /// The kind of a refusal by the other side.
    #[must_use]
    pub fn refusal(&self) -> Option<RefusalKind> {
        match self {
            Self::Refused { kind, .. } => Some(*kind),
            _ => None,
        }
    }
}
