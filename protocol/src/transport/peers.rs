//! Agents that connect to each other.

use super::TransportError;
use super::{
    Acceptor, Connection, Fingerprint, Greeting, Guest, Holder, Identity, RefusalKind, Role,
};
use crate::cluster::NodeName;
use crate::cluster::peer::PeerMessage;
use crate::cluster::succession::{FromSuccessor, ToSuccessor};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::net::TcpStream;

/// Who may connect: the members that the coordinator has named last, each by its one key.
#[derive(Debug, Clone, Default)]
pub struct Members(Arc<RwLock<BTreeMap<NodeName, Fingerprint>>>);

impl Members {
    /// None but these from now on.
    pub fn set(&self, members: impl IntoIterator<Item = (NodeName, Fingerprint)>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = members.into_iter().collect();
    }

    /// Whether that key is the one by which a node of this name is a member.
    #[must_use]
    pub fn admits(&self, name: &NodeName, key: &Fingerprint) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name) == Some(key)
    }
}

/// A peer's connection.
pub type PeerConnection = Connection<PeerMessage, PeerMessage>;

/// The connection of a coordinator that carries on for a lost one.
pub type SuccessorConnection = Connection<ToSuccessor, FromSuccessor>;

/// Somebody who has connected, and proved who it is.
#[derive(Debug)]
// As short-lived as a message.
#[allow(clippy::large_enum_variant)]
pub enum Arrival {
    /// The agent of that node, by that key.
    Peer(NodeName, Fingerprint, PeerConnection),
    /// One with a certificate of the role coordinator.
    Successor(SuccessorConnection),
}

/// Lets in those who connect to an agent: members, and coordinators that carry on for a lost one. Who listens is
/// somebody else's business.
#[derive(Debug)]
pub struct PeerDoor {
    acceptor: Acceptor,
    members: Members,
}

impl PeerDoor {
    /// One that shows this identity. Only members are let in; the others are told why not.
    ///
    /// # Errors
    /// Where the identity's credentials can't be used.
    pub fn new(identity: &Identity, members: Members) -> Result<Self, TransportError> {
        Ok(Self { acceptor: Acceptor::at(identity.front()), members })
    }

    /// Whether members have come from that address, or, of IPv6, from its network.
    #[must_use]
    pub fn knows(&self, address: IpAddr) -> bool {
        self.acceptor.knows(address)
    }

    /// Finds out who has connected. Run it in a task of its own: a client may be slow, and has
    /// [`Acceptor`]'s limits.
    ///
    /// # Errors
    /// Where it is not let in; it has been told then, where it could be.
    pub async fn admit(&self, stream: TcpStream) -> Result<Arrival, TransportError> {
        let guest = self.acceptor.accept(stream).await?;
        match known(&guest, &self.members) {
            Ok((Role::Agent(node), key)) => Ok(Arrival::Peer(node, key, guest.welcome().await?)),
            Ok((Role::Coordinator, _)) => Ok(Arrival::Successor(guest.welcome().await?)),
            Err(reason) => {
                guest.refuse(RefusalKind::Certificate, &reason).await;
                Err(TransportError::Unfit(reason))
            }
        }
    }
}

fn known(guest: &Guest, members: &Members) -> Result<(Role, Fingerprint), String> {
    match (guest.holder(), guest.greeting()) {
        // The authority may have been exchanged, and one of the two may not have heard of it yet. The key is proved, and the
        // coordinator has named it.
        (
            Holder::Stranger { public_key, claims: Some(role @ Role::Agent(node)), .. },
            Greeting::Member { .. },
        ) if members.admits(node, &Fingerprint::of_key(public_key)) => {
            Ok((role.clone(), Fingerprint::of_key(public_key)))
        }
        (Holder::Stranger { reason, .. }, _) => Err(reason.clone()),
        (Holder::Member { .. }, Greeting::Join { .. }) => {
            Err("an agent can't let anybody join: the coordinator does".to_owned())
        }
        (Holder::Member { role: role @ Role::Coordinator, shown }, Greeting::Successor { .. }) => {
            Ok((role.clone(), shown.key.clone()))
        }
        (Holder::Member { role: role @ Role::Agent(node), shown }, Greeting::Member { .. })
            if members.admits(node, &shown.key) =>
        {
            Ok((role.clone(), shown.key.clone()))
        }
        (Holder::Member { role: Role::Agent(node), .. }, Greeting::Member { .. }) => {
            Err(format!("{node} is not, or no longer, a member"))
        }
        (Holder::Member { role, .. }, _) => {
            Err(format!("its certificate is for {role}, which has nothing to say here"))
        }
    }
}
