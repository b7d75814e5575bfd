//! Carries links over the cluster's encrypted connections.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use protocol::cluster::NodeName;
use protocol::task;
use protocol::transport::{Connection, Identity, Precedence, RefusalKind, TransportError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::channel;

use super::link::{CoordinatorLink, Dial, DialError, Link, PeerLink, Promise, Refusal, WAITING};
use super::whereabouts::Validity;

/// Makes connections as the member that an identity names.
#[derive(Debug)]
pub struct Carrier {
    identity: Arc<Identity>,
}

impl Carrier {
    /// As that member.
    #[must_use]
    pub fn new(identity: Arc<Identity>) -> Self {
        Self { identity }
    }
}

impl Dial for Carrier {
    fn coordinator(&self) -> Promise<'_, Result<(CoordinatorLink, IpAddr), Refusal>> {
        Box::pin(async {
            match self.identity.connect_coordinator().await {
                Ok(connection) => {
                    let local = connection.local.ip();
                    Ok((carry(connection), local))
                }
                Err(error) => Err(refused(&error)),
            }
        })
    }

    fn peer(
        &self,
        node: NodeName,
        address: SocketAddr,
        validity: Validity,
        precedence: Precedence,
    ) -> Promise<'_, Result<PeerLink, DialError>> {
        Box::pin(async move {
            let key = validity.key().clone();
            let mut over = Box::pin(validity.over());
            let connection = tokio::select! {
                connection = self.identity.connect_peer_with(&node, address, &key, precedence) => connection,
                () = &mut over => return Err(DialError::Changed(node)),
            };
            Ok(carry_until(connection?, over))
        })
    }
}

/// A coordinator of another version is about to be upgraded, or to be followed by one of this.
fn refused(error: &TransportError) -> Refusal {
    match error.refusal() {
        None | Some(RefusalKind::Version) => Refusal::Passing(error.to_string()),
        Some(_) => Refusal::Final(error.to_string()),
    }
}

/// A link over a connection. Either side's end closes it: what was sent before still arrives.
pub fn carry<Out, In>(connection: Connection<Out, In>) -> Link<Out, In>
where
    Out: Serialize + Send + Sync + 'static,
    In: DeserializeOwned + Send + 'static,
{
    carry_until(connection, std::future::pending())
}

/// The same; but it is broken off as soon as the future is ready.
pub fn carry_until<Out, In>(
    connection: Connection<Out, In>,
    until: impl Future<Output = ()> + Send + 'static,
) -> Link<Out, In>
where
    Out: Serialize + Send + Sync + 'static,
    In: DeserializeOwned + Send + 'static,
{
    let remote = connection.remote;
    let (mut sender, mut receiver) = connection.split();
    let (to, mut outgoing) = channel::<(Out, Vec<u8>)>(WAITING);
    let (incoming, from) = channel(WAITING);
    let sending = task::spawn(async move {
        while let Some((message, body)) = outgoing.recv().await {
            if let Err(error) = sender.send(&message, &body).await {
                tracing::debug!(%remote, %error, "send");
                return;
            }
        }
        sender.close().await;
    });
    let mut receiving = task::spawn(async move {
        loop {
            let received = tokio::select! {
                received = receiver.receive() => received,
                () = incoming.closed() => return,
            };
            match received {
                Ok(Some((message, body))) => {
                    if incoming.send((message, Vec::from(body))).await.is_err() {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%remote, %error, "a connection is broken");
                    return;
                }
            }
        }
    });
    task::spawn(async move {
        tokio::select! {
            _ = &mut receiving => {}
            () = until => {
                tracing::debug!(%remote, "broken off: an address has changed, or the member was turned out");
                sending.abort();
                receiving.abort();
            }
        }
    });
    Link { to, from }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_waited_for() {
        let refused = |kind| refused(&TransportError::Refused { kind, reason: "why".to_owned() });
        let passing = Refusal::Passing("why".to_owned());
        assert_eq!(refused(RefusalKind::Version), passing);
        assert_eq!(refused(RefusalKind::Certificate), Refusal::Final("why".to_owned()));
        assert!(matches!(super::refused(&TransportError::Closed), Refusal::Passing(_)));
    }
}
