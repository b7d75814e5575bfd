//! The first words over a connection.

use super::RefusalKind;
use crate::cluster::Versions;
use crate::cluster::succession::Followed;
use serde::{Deserialize, Serialize};

/// The longest greeting and the longest answer to it, in bytes.
pub(super) const MAX_GREETING: usize = 64 * 1024;

/// The first message of whoever connects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "kebab-case")]
pub enum Greeting {
    /// It is what its certificate says.
    Member {
        /// [`crate::cluster::VERSIONS`].
        version: Versions,
    },
    /// It wants the key of its certificate certified.
    Join {
        /// [`crate::cluster::VERSIONS`].
        version: Versions,
        /// The token's secret, base64.
        secret: String,
        /// The name that it wants.
        name: String,
    },
    /// It is the coordinator of this term: one of a lower term is told so.
    Successor {
        /// [`crate::cluster::VERSIONS`].
        version: Versions,
        /// Its term, and where it is.
        followed: Followed,
    },
}
crate::tagged!(Greeting, "greeting");

impl Greeting {
    /// The versions that it names.
    #[must_use]
    pub fn version(&self) -> Versions {
        match self {
            Self::Member { version }
            | Self::Join { version, .. }
            | Self::Successor { version, .. } => *version,
        }
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "kebab-case")]
pub enum Reply {
    /// The conversation begins.
    Welcome,
    /// Here is the certificate; the connection ends.
    Joined {
        /// The certificate, PEM.
        certificate: String,
        /// The authority's, PEM.
        authority: String,
    },
    /// The member's certificate is replaced by this one, of the same key; the connection ends, and it comes again with
    /// that.
    Renewed {
        /// The certificate, PEM.
        certificate: String,
        /// The authority's, PEM: the cluster may have another one by now.
        authority: String,
    },
    /// The connection ends.
    Refused {
        /// The kind of reason.
        kind: RefusalKind,
        /// One line, in lower case.
        reason: String,
    },
}
crate::tagged!(Reply, "reply");
