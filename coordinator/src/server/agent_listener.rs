//! The port on which agents connect.

use super::admission::{Admitted, SharedAdmission};
use super::driver::Incoming;
use crate::server::wall_ms;
use protocol::cluster::agent::{FromAgent, ToAgent};
use protocol::cluster::succession::Followed;
use protocol::cluster::{NodeName, Term};
use protocol::task;
use protocol::transport::{
    Acceptor, Connection, Fingerprint, FrameReceiver, Greeting, Guest, Holder, Outbox, RefusalKind,
    Refusals, Reply, Role, TransportError, Trust,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// From the greeting to the first message.
const HELLO_LIMIT: Duration = Duration::from_secs(10);

/// Bytes that may wait to be sent to an agent.
const MAX_WAITING: usize = 64 * 1024 * 1024;

/// What all connections at the port have in common.
#[derive(Clone)]
struct Port {
    admission: SharedAdmission,
    /// The next connection's number, rising in the order in which nodes are admitted: a newer one replaces an older one.
    connections: Arc<AtomicU64>,
    own: Arc<Followed>,
    incoming: mpsc::Sender<Incoming>,
    refusals: Refusals,
}

/// Takes agents' connections for ever.
pub async fn listen(
    listener: TcpListener,
    acceptor: Acceptor,
    admission: SharedAdmission,
    own: Followed,
    incoming: mpsc::Sender<Incoming>,
) {
    let acceptor = Arc::new(acceptor);
    let (connections, own) = (Arc::new(AtomicU64::new(1)), Arc::new(own));
    let port = Port { admission, connections, own, incoming, refusals: Refusals::default() };
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => {
                let (acceptor, port) = (Arc::clone(&acceptor), port.clone());
                task::spawn(async move {
                    let served = match acceptor.accept(stream).await {
                        Ok(guest) => port.serve(guest).await,
                        Err(error) => Err(error),
                    };
                    if let Err(error) = served {
                        port.refusals.tell(remote, &error);
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

/// A coordinator, if it is one.
fn is_successor(guest: &Guest) -> Option<Followed> {
    match (guest.greeting(), guest.holder()) {
        (Greeting::Successor { followed, .. }, Holder::Member { role: Role::Coordinator, .. }) => {
            Some(followed.clone())
        }
        _ => None,
    }
}

/// Of two coordinators the one with the lower term ends.
async fn answer(
    guest: Guest,
    own: &Followed,
    other: Followed,
    incoming: &mpsc::Sender<Incoming>,
) -> Result<(), TransportError> {
    if other.term <= own.term {
        guest.welcome::<ToAgent, FromAgent>().await?;
        return Ok(());
    }
    let reason = format!("the coordinator of term {} ends", own.term);
    guest.refuse(RefusalKind::Superseded, &reason).await;
    // Nobody listens any more when it has ended.
    let _ = incoming.send(Incoming::Superseded(other)).await;
    Ok(())
}

impl Port {
    async fn serve(&self, guest: Guest) -> Result<(), TransportError> {
        match is_successor(&guest) {
            Some(other) => answer(guest, &self.own, other, &self.incoming).await,
            None => self.take(guest).await,
        }
    }

    async fn take(&self, guest: Guest) -> Result<(), TransportError> {
        let remote = guest.remote();
        let (admitted, authority, trust) = {
            let mut admission = self.admission.lock().unwrap_or_else(PoisonError::into_inner);
            let admitted = admission.admit(guest.holder(), guest.greeting(), wall_ms());
            (admitted, admission.authority().pem().to_owned(), admission.authority().trust())
        };
        match admitted {
            Ok(Admitted::Agent(node, key)) => {
                let coordinators = Coordinators { term: self.own.term, trust };
                let connection = self.connections.fetch_add(1, Ordering::Relaxed);
                converse(guest, node, key, connection, &self.incoming, &coordinators).await
            }
            Ok(Admitted::Renewed(node, certified)) => {
                tracing::info!("{node} gets a new certificate");
                let certificate = certified.certificate;
                guest.hand_over(Reply::Renewed { certificate, authority }).await
            }
            Ok(Admitted::Joined(node, certified)) => {
                tracing::info!("{node} has joined from {remote}");
                // Before it can connect as what it is now.
                if self.incoming.send(Incoming::Joined { node }).await.is_err() {
                    return Ok(());
                }
                let certificate = certified.certificate;
                guest.hand_over(Reply::Joined { certificate, authority }).await
            }
            Err(error) => {
                // Before it hears of it: who looks here then finds why.
                self.refusals.tell(remote, &error);
                guest.refuse(error.kind(), &error.to_string()).await;
                Ok(())
            }
        }
    }
}

/// By what a claim that there is a newer coordinator is judged.
struct Coordinators {
    /// The own term.
    term: Term,
    trust: Trust,
}

impl Coordinators {
    /// A member's word for a higher term is nothing: this coordinator would end for good. The newer one's seal counts.
    fn check(&self, hello: &FromAgent, node: &NodeName) -> Result<(), TransportError> {
        let FromAgent::Hello { term, followed, .. } = hello else { return Ok(()) };
        if *term <= self.term {
            return Ok(());
        }
        let unproven = |why: &str| {
            TransportError::Unfit(format!("{node} tells of a coordinator of term {term}: {why}"))
        };
        match followed {
            Some(followed) if followed.term == *term => {
                followed.check(&self.trust).map_err(|error| unproven(&error.to_string()))
            }
            _ => Err(unproven("it has no seal")),
        }
    }
}

/// Hands on what a member's agent says, until one of the two has enough.
async fn converse(
    guest: Guest,
    node: NodeName,
    key: Fingerprint,
    connection: u64,
    incoming: &mpsc::Sender<Incoming>,
    coordinators: &Coordinators,
) -> Result<(), TransportError> {
    let link: Connection<ToAgent, FromAgent> = guest.welcome().await?;
    let remote = link.remote;
    let is_here = link.remote.ip() == link.local.ip();
    let (sender, mut receiver) = link.split();
    let first = timeout(HELLO_LIMIT, receiver.receive())
        .await
        .map_err(|_| TransportError::TooSlow(format!("{node}"), HELLO_LIMIT.as_secs()))??;
    let Some((hello @ FromAgent::Hello { .. }, _)) = first else {
        return match first {
            // It only wanted to know whether it is a member.
            None => Ok(()),
            Some(_) => Err(TransportError::Unfit(format!("{node} did not begin with hello"))),
        };
    };
    coordinators.check(&hello, &node)?;
    let outbox = Outbox::before(sender, MAX_WAITING);
    let (closer, mut closed) = mpsc::channel(1);
    let connected = Incoming::Connected {
        node: node.clone(),
        key,
        connection,
        outbox: outbox.clone(),
        closer,
        remote,
        is_here,
    };
    let hello = Incoming::Message {
        node: node.clone(),
        connection,
        message: Box::new(hello),
        body: Vec::new(),
    };
    for event in [connected, hello] {
        if incoming.send(event).await.is_err() {
            return Ok(());
        }
    }
    let ended = tokio::select! {
        ended = hand_on(&mut receiver, &node, connection, incoming) => ended,
        () = outbox.closed() => Ok(()),
        // Dropped by the driver.
        _ = closed.recv() => Ok(()),
    };
    // Nobody listens any more when the coordinator itself ends.
    let _ = incoming.send(Incoming::Disconnected { node, connection }).await;
    ended
}

async fn hand_on(
    receiver: &mut FrameReceiver<FromAgent>,
    node: &NodeName,
    connection: u64,
    incoming: &mpsc::Sender<Incoming>,
) -> Result<(), TransportError> {
    while let Some((message, body)) = receiver.receive().await? {
        let node = node.clone();
        let (message, body) = (Box::new(message), body.to_vec());
        if incoming.send(Incoming::Message { node, connection, message, body }).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}
