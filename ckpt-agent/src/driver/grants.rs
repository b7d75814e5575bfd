//! What this agent may get from others, and what others may get from it: grants of the coordinator, which both ends of
//! a copy check.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use protocol::agent::CheckpointNumber;
use protocol::agent::InstanceId;
use protocol::cluster::grant::{Grant, Scope};
use protocol::cluster::{InstanceKey, NodeName};
use protocol::transport::{TransportError, Trust};

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    /// This agent has no order for it, or an old one.
    #[error("the coordinator has not granted it")]
    NotHeld,
    /// The other side shows none.
    #[error("{0} shows no grant of the coordinator")]
    NotShown(NodeName),
    /// The other side shows one for something else.
    #[error("{0} shows a grant for something else")]
    Other(NodeName),
    /// It was good once.
    #[error("the grant that {0} shows has run out")]
    Over(NodeName),
    /// It is not the coordinator's.
    #[error("the grant that {node} shows is not the coordinator's: {reason}")]
    Forged {
        /// Who shows it.
        node: NodeName,
        /// What is wrong with its seal.
        reason: TransportError,
    },
}

/// Grants of one node. Clones are the same.
#[derive(Clone)]
pub struct Grants {
    own: NodeName,
    trust: Trust,
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    grants: BTreeMap<Scope, Grant>,
    clock: Option<Clock>,
}

/// The coordinator's clock, as told at some moment. Machines that sleep or are set wrong are no reason to refuse a grant.
#[derive(Clone, Copy)]
struct Clock {
    told_ms: u64,
    at: Instant,
}

impl Clock {
    fn now_ms(self) -> u64 {
        let since = self.at.elapsed().min(Duration::from_secs(u64::from(u32::MAX)));
        self.told_ms.saturating_add(since.as_millis() as u64)
    }
}

impl Grants {
    /// None yet.
    #[must_use]
    pub fn new(own: NodeName, trust: Trust) -> Self {
        Self { own, trust, held: Arc::default() }
    }

    /// Of a node in a test in which no image moves.
    #[cfg(test)]
    pub fn none() -> Self {
        let name = "none".parse().expect("a name");
        Self::new(name, Trust::in_authority(Vec::new().into()))
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what the coordinator has sent over its connection. What has run out goes.
    pub fn keep(&self, grants: Vec<Grant>, now_ms: u64) {
        let mut held = self.held();
        held.clock = Some(Clock { told_ms: now_ms, at: Instant::now() });
        held.grants.retain(|_, grant| grant.until_ms > now_ms);
        held.grants.extend(grants.into_iter().map(|grant| (grant.scope.clone(), grant)));
    }

    fn find(&self, scope: &Scope) -> Result<Box<Grant>, GrantError> {
        let grant = self.held().grants.get(scope).cloned();
        grant.map(Box::new).ok_or(GrantError::NotHeld)
    }

    /// To offer an instance's image to that node.
    ///
    /// # Errors
    /// [`GrantError::NotHeld`].
    pub fn to_offer(&self, key: &InstanceKey, to: &NodeName) -> Result<Box<Grant>, GrantError> {
        self.find(&Scope::offer(key, &self.own, to))
    }

    /// To fetch an image from that node.
    ///
    /// # Errors
    /// [`GrantError::NotHeld`].
    pub fn to_fetch(
        &self,
        job: &str,
        image: (InstanceId, CheckpointNumber),
        from: &NodeName,
    ) -> Result<Box<Grant>, GrantError> {
        self.find(&Scope::fetch(job, image, from, &self.own))
    }

    /// Whether that node, which is at the other end of a connection, may offer this node an image of the instance.
    ///
    /// # Errors
    /// Why not.
    pub fn may_offer(
        &self,
        from: &NodeName,
        shown: Option<&Grant>,
        key: &InstanceKey,
    ) -> Result<(), GrantError> {
        self.check(from, shown, &Scope::offer(key, from, &self.own))
    }

    /// Whether that node, which is at the other end of a connection, may fetch the image from this node.
    ///
    /// # Errors
    /// Why not.
    pub fn may_fetch(
        &self,
        to: &NodeName,
        shown: Option<&Grant>,
        job: &str,
        image: (InstanceId, CheckpointNumber),
    ) -> Result<(), GrantError> {
        self.check(to, shown, &Scope::fetch(job, image, &self.own, to))
    }

    fn check(
        &self,
        node: &NodeName,
        shown: Option<&Grant>,
        wanted: &Scope,
    ) -> Result<(), GrantError> {
        let shown = shown.ok_or_else(|| GrantError::NotShown(node.clone()))?;
        if shown.scope != *wanted {
            return Err(GrantError::Other(node.clone()));
        }
        let forged = |reason| GrantError::Forged { node: node.clone(), reason };
        shown.check(&self.trust).map_err(forged)?;
        // Nobody connects to an agent that no coordinator has welcomed, and with the welcome comes the clock.
        let clock = self.held().clock.ok_or(GrantError::NotHeld)?;
        match shown.until_ms > clock.now_ms() {
            true => Ok(()),
            false => Err(GrantError::Over(node.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::cluster::grant::LIFETIME_MS;
    use protocol::transport::{Authority, Role, Sealer};

    fn node(name: &str) -> NodeName {
        name.parse().unwrap()
    }

    fn key() -> InstanceKey {
        InstanceKey { job: "job".to_owned(), epoch: 3, instance: InstanceId(2) }
    }

    #[test]
    fn both_ends_want_a_grant_for_that_image_and_those_two() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::open(folder.path()).unwrap();
        let sealer = Sealer::new(&authority.issue(&Role::Coordinator).unwrap()).unwrap();
        let (a, b, c) = (node("a"), node("b"), node("c"));
        let grants = |name: &NodeName| Grants::new(name.clone(), authority.trust());
        let (here, there) = (grants(&a), grants(&b));
        let now = 1_700_000_000_000;
        there.keep(Vec::new(), now);
        assert!(matches!(here.to_offer(&key(), &b), Err(GrantError::NotHeld)));
        let offer = Grant::new(Scope::offer(&key(), &a, &b), now, &sealer).unwrap();
        let fetch = Grant::new(Scope::fetch("job", (InstanceId(2), 7), &b, &a), now, &sealer);
        here.keep(vec![offer, fetch.unwrap()], now);
        let offer = here.to_offer(&key(), &b).unwrap();
        there.may_offer(&a, Some(&offer), &key()).unwrap();
        let image = (InstanceId(2), 7);
        let fetch = here.to_fetch("job", image, &b).unwrap();
        there.may_fetch(&a, Some(&fetch), "job", image).unwrap();

        assert!(matches!(there.may_fetch(&a, None, "job", image), Err(GrantError::NotShown(_))));
        // For another image, for another way, shown by another node, to another node.
        let other = (InstanceId(2), 8);
        let refused = there.may_fetch(&a, Some(&fetch), "job", other);
        assert!(matches!(refused, Err(GrantError::Other(_))));
        there.may_fetch(&a, Some(&offer), "job", image).unwrap_err();
        there.may_fetch(&c, Some(&fetch), "job", image).unwrap_err();
        let third = grants(&c);
        third.keep(Vec::new(), now);
        third.may_fetch(&a, Some(&fetch), "job", image).unwrap_err();
        let mut stolen = fetch.clone();
        stolen.scope.to = c.clone();
        let refused = there.may_fetch(&c, Some(&stolen), "job", image);
        assert!(matches!(refused, Err(GrantError::Forged { .. })));

        // Its time is the coordinator's.
        there.keep(Vec::new(), now + LIFETIME_MS);
        let refused = there.may_fetch(&a, Some(&fetch), "job", image);
        assert!(matches!(refused, Err(GrantError::Over(_))));
        here.keep(Vec::new(), now + LIFETIME_MS);
        assert!(matches!(here.to_fetch("job", image, &b), Err(GrantError::NotHeld)));
    }
}
