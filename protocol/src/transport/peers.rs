//! Agents that connect to each other.

use super::TransportError;
use super::{
    Acceptor, Connection, Fingerprint, Greeting, Guest, Holder, Identity, RefusalKind, Refusals,
    Role,
};
use crate::cluster::NodeName;
use crate::cluster::peer::PeerMessage;
use crate::cluster::succession::{FromSuccessor, ToSuccessor};
use crate::task;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Peers that wait to be taken by [`PeerListener::accept`].
const WAITING: usize = 16;

/// Who may connect: the members that the coordinator has named last, each by its one certificate.
#[derive(Debug, Clone, Default)]
pub struct Members(Arc<RwLock<BTreeMap<NodeName, Fingerprint>>>);

impl Members {
    /// None but these from now on.
    pub fn set(&self, members: impl IntoIterator<Item = (NodeName, Fingerprint)>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = members.into_iter().collect();
    }

    /// Whether that certificate is the one by which a node of this name is a member.
    #[must_use]
    pub fn admits(&self, name: &NodeName, certificate: &Fingerprint) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name) == Some(certificate)
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
    /// The agent of that node, by that certificate.
    Peer(NodeName, Fingerprint, PeerConnection),
    /// One with a certificate of the role coordinator.
    Successor(SuccessorConnection),
}

/// Listens for other agents.
#[derive(Debug)]
pub struct PeerListener {
    peers: mpsc::Receiver<Arrival>,
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl PeerListener {
    /// Listens at an address; port 0: any. Only members are let in; the others are told why not.
    ///
    /// # Errors
    /// Where the address can't be had.
    pub async fn bind(
        identity: &Identity,
        address: SocketAddr,
        members: Members,
    ) -> Result<Self, TransportError> {
        let listener = TcpListener::bind(address)
            .await
            .map_err(TransportError::io(format!("listen at {address}")))?;
        let address = listener.local_addr().map_err(TransportError::io("find the own address"))?;
        let acceptor = Arc::new(Acceptor::new(identity.credentials())?);
        let (sender, peers) = mpsc::channel(WAITING);
        let task = task::spawn(listen(listener, acceptor, members, sender));
        Ok(Self { peers, address, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next one. May be cancelled without loss.
    pub async fn accept(&mut self) -> Option<Arrival> {
        self.peers.recv().await
    }
}

impl Drop for PeerListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(
    listener: TcpListener,
    acceptor: Arc<Acceptor>,
    members: Members,
    peers: mpsc::Sender<Arrival>,
) {
    let refusals = Refusals::default();
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => {
                let (acceptor, members, peers) =
                    (Arc::clone(&acceptor), members.clone(), peers.clone());
                let refusals = refusals.clone();
                task::spawn(async move {
                    match admit(&acceptor, &members, stream).await {
                        // Nobody waits any more: the connection closes.
                        Ok(peer) => drop(peers.send(peer).await),
                        Err(error) => refusals.tell(remote, &error),
                    }
                });
            }
            Err(error) => {
                // Such as too many open files: others may end meanwhile.
                tracing::warn!("failed to accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn admit(
    acceptor: &Acceptor,
    members: &Members,
    stream: TcpStream,
) -> Result<Arrival, TransportError> {
    let guest = acceptor.accept(stream).await?;
    match known(&guest, members) {
        Ok((Role::Agent(node), certificate)) => {
            Ok(Arrival::Peer(node, certificate, guest.welcome().await?))
        }
        Ok((Role::Coordinator, _)) => Ok(Arrival::Successor(guest.welcome().await?)),
        Err(reason) => {
            guest.refuse(RefusalKind::Certificate, &reason).await;
            Err(TransportError::Unfit(reason))
        }
    }
}

fn known(guest: &Guest, members: &Members) -> Result<(Role, Fingerprint), String> {
    match (guest.holder(), guest.greeting()) {
        (Holder::Stranger { reason, .. }, _) => Err(reason.clone()),
        (Holder::Member { .. }, Greeting::Join { .. }) => {
            Err("an agent can't let anybody join: the coordinator does".to_owned())
        }
        (
            Holder::Member { role: role @ Role::Coordinator, certificate },
            Greeting::Successor { .. },
        ) => Ok((role.clone(), certificate.clone())),
        (
            Holder::Member { role: role @ Role::Agent(node), certificate },
            Greeting::Member { .. },
        ) if members.admits(node, certificate) => Ok((role.clone(), certificate.clone())),
        (Holder::Member { role: Role::Agent(node), .. }, Greeting::Member { .. }) => {
            Err(format!("{node} is not, or no longer, a member"))
        }
        (Holder::Member { role, .. }, _) => {
            Err(format!("its certificate is for {role}, which has nothing to say here"))
        }
    }
}
