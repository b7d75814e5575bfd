//! The server's side of a handshake.

use super::credentials::server;
use super::greeting::MAX_GREETING;
use super::places::{Place, PlaceLimits, Places, source};
use super::verify::identify;
use super::{
    Connection, Credentials, Greeting, Holder, RefusalKind, Reply, TLS_HANDSHAKE, TransportError,
};
use crate::cluster::VERSIONS;
use rustls::pki_types::CertificateDer;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// From the connection to the greeting.
pub(super) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// How long a refusal may take.
const REFUSAL_LIMIT: Duration = Duration::from_secs(2);

/// Connections at a time of which it is not known yet who they are. Some are for addresses alone from which members have
/// come before.
const UNKNOWN: PlaceLimits = PlaceLimits { all: 96, each: 24, kept: 32 };

/// Addresses that are remembered.
const MAX_KNOWN: usize = 8192;

/// What a server shows, and by what it knows members. Clones are the same: what is put in place of it counts for all
/// connections from then on.
#[derive(Clone)]
pub(super) struct Front(Arc<RwLock<Shows>>);

#[derive(Clone)]
struct Shows {
    tls: TlsAcceptor,
    /// The cluster's, and those of before.
    authorities: Vec<CertificateDer<'static>>,
}

impl Front {
    /// `credentials`: the own ones, then those of authorities of before, for clients that believe in no other.
    pub fn new(credentials: &[Credentials]) -> Result<Self, TransportError> {
        let tls = TlsAcceptor::from(server(credentials)?);
        let authorities = credentials.iter().map(|own| own.authority().clone()).collect();
        Ok(Self(Arc::new(RwLock::new(Shows { tls, authorities }))))
    }

    /// Shows that from now on.
    pub fn exchange(&self, other: &Self) {
        let other = other.shows();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = other;
    }

    fn shows(&self) -> Shows {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front").finish_non_exhaustive()
    }
}

/// Takes connections and finds out whose they are.
pub struct Acceptor {
    front: Front,
    places: Places<IpAddr>,
    /// Where members have come from.
    known: Mutex<BTreeSet<IpAddr>>,
    limit: Duration,
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acceptor").finish_non_exhaustive()
    }
}

/// Somebody who has said who it is, and waits for an answer.
#[derive(Debug)]
pub struct Guest {
    connection: Connection<Reply, Greeting>,
    greeting: Greeting,
    holder: Holder,
    /// Of a stranger, who has it until it is answered.
    _place: Option<Place<IpAddr>>,
}

impl Acceptor {
    /// One that shows the first of these credentials, and one of the others to those who hint that they know its authority
    /// alone.
    ///
    /// # Errors
    /// Where they can't be used.
    pub fn new(credentials: &[Credentials]) -> Result<Self, TransportError> {
        Ok(Self::at(Front::new(credentials)?))
    }

    /// One that shows what stands there.
    pub(super) fn at(front: Front) -> Self {
        let (places, known) = (Places::new(UNKNOWN), Mutex::default());
        Self { front, places, known, limit: HANDSHAKE_LIMIT }
    }

    /// The same with another limit for a handshake.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The handshake, up to the greeting. Run it in a task of its own: a client may be slow.
    ///
    /// # Errors
    /// Where the client is none of ours, is too slow, or says something else; it has been told then,
    /// where it could be.
    pub async fn accept(&self, stream: TcpStream) -> Result<Guest, TransportError> {
        let remote = stream.peer_addr().map_err(TransportError::io("accept"))?;
        let from = source(remote.ip());
        let known = self.knows(from);
        let place = self.places.enter(from, known).ok_or_else(|| {
            TransportError::Unfit(
                "there are too many connections already that wait for an answer".to_owned(),
            )
        })?;
        let greeted = tokio::select! {
            greeted = timeout(self.limit, self.greet(stream, remote)) => greeted,
            () = place.lost() => {
                return Err(TransportError::Unfit(
                    "it had not said who it is when others came, and went to make room".to_owned(),
                ));
            }
        };
        let mut guest = greeted
            .map_err(|_| TransportError::TooSlow("client".to_owned(), self.limit.as_secs()))??;
        match guest.holder {
            Holder::Member { .. } => {
                let mut known = self.known();
                if known.len() < MAX_KNOWN {
                    known.insert(from);
                }
            }
            Holder::Stranger { .. } => {
                place.secure();
                guest._place = Some(place);
            }
        }
        Ok(guest)
    }

    /// Whether members have come from that address, or, of IPv6, from its network.
    pub(super) fn knows(&self, address: IpAddr) -> bool {
        self.known().contains(&source(address))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeSet<IpAddr>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn greet(
        &self,
        mut stream: TcpStream,
        remote: SocketAddr,
    ) -> Result<Guest, TransportError> {
        tracing::debug!(%remote, "connection");
        stream.set_nodelay(true).map_err(TransportError::io("set TCP_NODELAY"))?;
        let mut first = [0];
        if stream.peek(&mut first).await.map_err(TransportError::io("receive"))? == 0 {
            return Err(TransportError::Closed);
        }
        if first[0] != TLS_HANDSHAKE {
            // Said in plain text, to whom speaks plain text.
            let _ = stream.write_all(b"ckptd: unencrypted connections are refused\n").await;
            return Err(TransportError::Unencrypted);
        }
        let Shows { tls, authorities } = self.front.shows();
        let stream = tls.accept(stream).await.map_err(handshake_error)?;
        let shown = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
        let mut connection = Connection::<Reply, Greeting>::over(stream.into(), MAX_GREETING)?;
        let holder = identify(&shown, &authorities)?;
        match connection.receiver.receive().await {
            Ok(None) => Err(TransportError::Closed),
            Ok(Some((greeting, _))) => {
                let version = greeting.version();
                let guest = Guest { connection, greeting, holder, _place: None };
                if version.common(VERSIONS).is_some() {
                    return Ok(guest);
                }
                let reason = format!(
                    "it speaks version {version} of the cluster's protocol, this side {VERSIONS}: \
                     use the same ckptd everywhere"
                );
                guest.refuse(RefusalKind::Version, &reason).await;
                Err(TransportError::Unfit(reason))
            }
            Err(error) => {
                refuse(connection, RefusalKind::Other, &error.to_string()).await;
                Err(error)
            }
        }
    }
}

impl Guest {
    /// What it said.
    #[must_use]
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Who it is.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Its address.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.connection.remote
    }

    /// Begins the conversation.
    ///
    /// # Errors
    /// Where the connection is broken.
    pub async fn welcome<S, R>(mut self) -> Result<Connection<S, R>, TransportError> {
        self.connection.sender.send(&Reply::Welcome, &[]).await?;
        Ok(self.connection.retype())
    }

    /// Hands over a certificate, [`Reply::Joined`] or [`Reply::Renewed`], and closes: it comes again with that.
    ///
    /// # Errors
    /// Where the connection is broken.
    pub async fn hand_over(mut self, certified: Reply) -> Result<(), TransportError> {
        self.connection.sender.send(&certified, &[]).await?;
        self.connection.sender.close().await;
        Ok(())
    }

    /// Tells it why not, and closes.
    pub async fn refuse(self, kind: RefusalKind, reason: &str) {
        refuse(self.connection, kind, reason).await;
    }
}

async fn refuse(mut connection: Connection<Reply, Greeting>, kind: RefusalKind, reason: &str) {
    let reply = Reply::Refused { kind, reason: reason.to_owned() };
    let say = async {
        // Whether it hears that is its own affair.
        let _ = connection.sender.send(&reply, &[]).await;
        connection.sender.close().await;
        // What is unread when a socket is closed makes the kernel drop what was sent: so it is read.
        connection.receiver.drain().await;
    };
    let _ = timeout(REFUSAL_LIMIT, say).await;
}

fn handshake_error(error: std::io::Error) -> TransportError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::AlertReceived(_)) => TransportError::Unfit(
            "the client does not take this side's certificate: it belongs to another cluster, or \
             looks for somebody else"
                .to_owned(),
        ),
        Some(rustls::Error::NoCertificatesPresented) => {
            TransportError::Unfit("the client shows no certificate".to_owned())
        }
        Some(other) => TransportError::Tls(other.clone()),
        None => TransportError::io("secure the connection")(error),
    }
}
