//! Who may get which image from whom. Members are not trusted with each other's images: what one of them offers or asks
//! for must be what the coordinator has ordered. The coordinator therefore sends with each order the rights that its
//! execution takes, sealed, and both ends of a copy check them: the one that uses a grant, because it has no other, and
//! the one to which it is shown.

use super::{InstanceKey, NodeName};
use crate::agent::{CheckpointNumber, InstanceId};
use crate::transport::{Seal, Sealer, TransportError, Trust};
use serde::{Deserialize, Serialize};

/// How long a grant is good after it was made, in milliseconds: longer than any image travels. The coordinator renews
/// those of instances that run for longer.
pub const LIFETIME_MS: u64 = 24 * 60 * 60 * 1000;

/// What precedes a grant in what is sealed: no other sealed value begins so.
const PURPOSE: &str = "grant of an image";

/// Which way an image goes, and who asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GrantKind {
    /// The node on which an instance runs gives a copy of any of its images to a partner, and puts the commit's mark
    /// beside it.
    Offer,
    /// A node fetches one image from another that holds it.
    Fetch,
}

/// What is granted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Scope {
    /// Which way.
    pub kind: GrantKind,
    /// The job.
    pub job: String,
    /// The instance whose image it is.
    pub instance: InstanceId,
    /// Of which checkpoint; None, for an offer: of all that the instance takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointNumber>,
    /// The node that sends it.
    pub from: NodeName,
    /// The node that receives it.
    pub to: NodeName,
}

impl Scope {
    /// An instance's node may offer its images to a partner.
    #[must_use]
    pub fn offer(key: &InstanceKey, from: &NodeName, to: &NodeName) -> Self {
        Self {
            kind: GrantKind::Offer,
            job: key.job.clone(),
            instance: key.instance,
            checkpoint: None,
            from: from.clone(),
            to: to.clone(),
        }
    }

    /// A node may fetch an image from one of its holders.
    #[must_use]
    pub fn fetch(
        job: &str,
        (instance, checkpoint): (InstanceId, CheckpointNumber),
        from: &NodeName,
        to: &NodeName,
    ) -> Self {
        Self {
            kind: GrantKind::Fetch,
            job: job.to_owned(),
            instance,
            checkpoint: Some(checkpoint),
            from: from.clone(),
            to: to.clone(),
        }
    }
}

/// A right, as the coordinator has sealed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// To do what.
    pub scope: Scope,
    /// Until when, by the coordinator's clock: milliseconds since 1970 UTC.
    pub until_ms: u64,
    /// The coordinator's seal over all of that.
    seal: Seal,
}

impl Grant {
    /// Grants something at this time, in milliseconds since 1970 UTC.
    ///
    /// # Errors
    /// See [`Sealer::seal`].
    pub fn new(scope: Scope, now_ms: u64, sealer: &Sealer) -> Result<Self, TransportError> {
        let until_ms = now_ms.saturating_add(LIFETIME_MS);
        let seal = sealer.seal(&(PURPOSE, &scope, until_ms))?;
        Ok(Self { scope, until_ms, seal })
    }

    /// Whether the coordinator has made it.
    ///
    /// # Errors
    /// See [`Seal::check`].
    pub fn check(&self, trust: &Trust) -> Result<(), TransportError> {
        trust.check(Some(&self.seal), &(PURPOSE, &self.scope, self.until_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{Authority, Role};

    fn node(name: &str) -> NodeName {
        name.parse().unwrap()
    }

    #[test]
    fn a_grant_is_the_coordinator_s_and_says_what_it_said_first() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::open(folder.path()).unwrap();
        let sealer = Sealer::new(&authority.issue(&Role::Coordinator).unwrap()).unwrap();
        let scope = Scope::fetch("job", (InstanceId(2), 7), &node("a"), &node("b"));
        let grant = Grant::new(scope.clone(), 1_000, &sealer).unwrap();
        let trust = authority.trust();
        grant.check(&trust).unwrap();
        assert_eq!(grant.until_ms, 1_000 + LIFETIME_MS);
        let changed: [fn(&mut Grant); 6] = [
            |grant| grant.until_ms += 1,
            |grant| grant.scope.to = node("c"),
            |grant| grant.scope.from = node("c"),
            |grant| grant.scope.job.push('2'),
            |grant| grant.scope.checkpoint = None,
            |grant| grant.scope.kind = GrantKind::Offer,
        ];
        for change in changed {
            let mut other = grant.clone();
            change(&mut other);
            other.check(&trust).unwrap_err();
        }
        // A member's own key makes none.
        let member = Sealer::new(&authority.issue(&Role::Agent(node("b"))).unwrap()).unwrap();
        Grant::new(scope, 1_000, &member).unwrap().check(&trust).unwrap_err();
    }
}
