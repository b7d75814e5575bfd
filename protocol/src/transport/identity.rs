//! An agent's membership: its key, its certificate, and where the coordinator is.

use super::acceptor::{Front, HANDSHAKE_LIMIT};
use super::authority::serial_of;
use super::credentials::{certificate_of, certificates_of, client, pem_of, read, write};
use super::crypto::Key;
use super::greeting::MAX_GREETING;
use super::verify::{Pinned, identify};
use super::{
    Connection, Credentials, Fingerprint, Greeting, Holder, Precedence, RefusalKind, Reply, Role,
    Token, TransportError, Trust,
};
use crate::cluster::agent::{FromAgent, ToAgent};
use crate::cluster::peer::PeerMessage;
use crate::cluster::succession::Followed;
use crate::cluster::{NodeName, VERSIONS};
use rcgen::CertificateParams;
use rustls::ClientConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

const KEY: &str = "key.pem";
/// The own certificate. Once it was renewed, the authority's that has signed it comes after it, so that both change at
/// once.
const CERTIFICATE: &str = "cert.pem";
/// The authority's certificate, as it was when this machine joined.
const AUTHORITY: &str = "ca.pem";
const ADDRESSES: &str = "coordinator";
/// Which coordinator is followed, once it is not the one that was joined any more.
const FOLLOWED: &str = "followed.json";

/// How long one address may take to answer.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// What a machine needs to be a member.
#[derive(Debug)]
pub struct Identity {
    name: NodeName,
    current: RwLock<Current>,
    trust: Trust,
    /// The authority that the cluster had when this machine joined.
    origin: Option<Fingerprint>,
    /// Where the coordinator was when this machine joined, as the token says.
    joined: Vec<String>,
    followed: RwLock<Followed>,
    /// Where it is kept whom it follows.
    folder: Option<PathBuf>,
}

/// What the coordinator renews.
#[derive(Debug)]
struct Current {
    credentials: Arc<Credentials>,
    /// For the way to the coordinator.
    client: Arc<ClientConfig>,
    front: Front,
}

impl Current {
    fn new(credentials: Credentials) -> Result<Self, TransportError> {
        let client = credentials.client()?;
        let front = Front::new(std::slice::from_ref(&credentials))?;
        Ok(Self { credentials: Arc::new(credentials), client, front })
    }

    /// As [`CERTIFICATE`] has it.
    fn pem(&self) -> String {
        let own = [self.credentials.certificate(), self.credentials.authority()];
        own.into_iter().map(pem_of).collect()
    }
}

impl Identity {
    /// The identity in this folder if it belongs to the token's cluster and the coordinator still
    /// takes it, else one for which the token is used, kept there from then on. While no coordinator
    /// answers, an identity that is there counts.
    ///
    /// # Errors
    /// Where there is none and the token gives none; where it has another name than the one asked
    /// for.
    pub async fn open(
        folder: &Path,
        token: &Token,
        name: &NodeName,
    ) -> Result<Self, TransportError> {
        let Some(mut identity) = Self::load(folder)? else {
            return Self::join(folder, token, name).await;
        };
        if !identity.is_of(&token.authority) {
            return Self::join(folder, token, name).await;
        }
        if identity.name != *name {
            return Err(TransportError::Unfit(format!(
                "this machine is a member already, by the name of {}: give it that one by --name, \
                 or remove {} first",
                identity.name,
                folder.display(),
            )));
        }
        identity.joined.clone_from(&token.addresses);
        write(&folder.join(ADDRESSES), &addresses_text(&token.addresses))?;
        match identity.connect_coordinator().await {
            // Turned out, and invited again.
            Err(error) if error.refusal() == Some(RefusalKind::Certificate) => {
                Self::join(folder, token, name).await.map_err(|second| match second.refusal() {
                    Some(RefusalKind::Token) | None => error,
                    Some(_) => second,
                })
            }
            // It is waited for until both are of one version.
            Err(error) if error.refusal() == Some(RefusalKind::Version) => Ok(identity),
            Err(error) if error.refusal().is_some() => Err(error),
            Err(error @ TransportError::Impostor { .. }) => Err(error),
            Ok(_) | Err(_) => Ok(identity),
        }
    }

    /// The identity in this folder, if there is one.
    ///
    /// # Errors
    /// Where it is damaged.
    pub fn load(folder: &Path) -> Result<Option<Self>, TransportError> {
        let (Some(key), Some(certificate), Some(authority), Some(addresses)) = (
            read(&folder.join(KEY))?,
            read(&folder.join(CERTIFICATE))?,
            read(&folder.join(AUTHORITY))?,
            read(&folder.join(ADDRESSES))?,
        ) else {
            return Ok(None);
        };
        let damaged = |reason: String| TransportError::File {
            action: "use the membership in",
            path: folder.to_owned(),
            reason: format!("{reason}: remove it and join again with a new token"),
        };
        let origin = Fingerprint::of(
            &certificate_of(&authority).map_err(|error| damaged(error.to_string()))?,
        );
        let chain = certificates_of(&certificate).map_err(|error| damaged(error.to_string()))?;
        let authority = chain.get(1).map_or(authority, pem_of);
        let credentials = Credentials::from_pem(&key, &certificate, &authority)
            .map_err(|error| damaged(error.to_string()))?;
        let joined = addresses.lines().map(str::to_owned).collect();
        let mut identity =
            Self::of(credentials, joined).map_err(|error| damaged(error.to_string()))?;
        identity.origin = Some(origin);
        if let Some(text) = read(&folder.join(FOLLOWED))? {
            let followed =
                crate::json::read(text.as_bytes()).map_err(|error| damaged(error.to_string()))?;
            identity.followed = RwLock::new(followed);
        }
        identity.folder = Some(folder.to_owned());
        Ok(Some(identity))
    }

    /// One of these credentials, for a tool or test that has them from elsewhere.
    ///
    /// # Errors
    /// Where they can't be used.
    pub fn with_credentials(
        name: NodeName,
        credentials: Credentials,
        joined: Vec<String>,
    ) -> Result<Self, TransportError> {
        let trust = Trust::in_authority(credentials.authority().clone());
        let current = RwLock::new(Current::new(credentials)?);
        let (origin, followed) = (None, RwLock::default());
        Ok(Self { name, current, trust, origin, joined, followed, folder: None })
    }

    fn of(credentials: Credentials, joined: Vec<String>) -> Result<Self, TransportError> {
        Self::with_credentials(name_in(&credentials)?, credentials, joined)
    }

    fn current(&self) -> RwLockReadGuard<'_, Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// By what it knows words of the coordinator that others pass on.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.trust.clone()
    }

    /// What it shows to those who connect.
    pub(super) fn front(&self) -> Front {
        self.current().front.clone()
    }

    /// Puts a new certificate of the own key in the place of the one of before, and in the folder. Its authority counts from
    /// then on: the coordinator, which the one of before has certified, has said so.
    ///
    /// # Errors
    /// Where it is somebody else's, or can't be kept.
    fn renew(&self, certificate: &str, authority: &str) -> Result<(), TransportError> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let (own, authority) = (certificate_of(certificate)?, certificate_of(authority)?);
        let credentials = Credentials::new(current.credentials.key(), own, authority.clone())?;
        let is_own = credentials.fingerprint() == current.credentials.fingerprint();
        if !is_own || name_in(&credentials)? != self.name {
            return Err(TransportError::Unfit(
                "the coordinator gave a certificate of somebody else".to_owned(),
            ));
        }
        let next = Current::new(credentials)?;
        if let Some(folder) = &self.folder {
            write(&folder.join(CERTIFICATE), &next.pem())?;
        }
        current.front.exchange(&next.front);
        self.trust.exchange(&authority);
        *current = Current { front: current.front.clone(), ..next };
        tracing::info!("this machine's certificate was renewed");
        Ok(())
    }

    /// Uses a token, and keeps what it gives in the folder.
    ///
    /// # Errors
    /// Where no coordinator answers, it is not the token's, or it refuses.
    pub async fn join(
        folder: &Path,
        token: &Token,
        name: &NodeName,
    ) -> Result<Self, TransportError> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
            TransportError::File {
                action: "create",
                path: folder.to_owned(),
                reason: error.to_string(),
            }
        })?;
        let key = Key::generate()?;
        // It says nothing but which key it is of.
        let mut own = CertificateParams::new(vec![Role::Agent(name.clone()).dns_name()])?;
        own.serial_number = Some(serial_of(&key.pair));
        let own = own.self_signed(&key.pair)?;
        let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.der.clone()));
        let pinned = Pinned::Fingerprint(token.authority.clone());
        let config = client(pinned, vec![own.der().clone()], private)?;
        let greeting = Greeting::Join {
            version: VERSIONS,
            secret: token.secret.expose().to_owned(),
            name: name.to_string(),
        };
        let (reply, _) = first_of(&token.addresses, &config, &greeting).await?;
        let Reply::Joined { certificate, authority } = reply else {
            return Err(TransportError::Unfit("the coordinator gave no certificate".to_owned()));
        };
        if Fingerprint::of(&certificate_of(&authority)?) != token.authority {
            return Err(TransportError::Unfit(
                "the coordinator gave a certificate of another authority".to_owned(),
            ));
        }
        let key = key.pem();
        let credentials = Credentials::from_pem(&key, &certificate, &authority)?;
        let mut identity = Self::of(credentials, token.addresses.clone())?;
        identity.folder = Some(folder.to_owned());
        if identity.name != *name {
            return Err(TransportError::Unfit(format!(
                "the coordinator gave a certificate for {}",
                identity.name
            )));
        }
        // Of another cluster, if there is one.
        remove(&folder.join(FOLLOWED))?;
        // The certificate last: with it the membership is there.
        write(&folder.join(ADDRESSES), &addresses_text(&token.addresses))?;
        write(&folder.join(AUTHORITY), &authority)?;
        write(&folder.join(KEY), &key)?;
        write(&folder.join(CERTIFICATE), &certificate)?;
        Ok(identity)
    }

    /// The node's name.
    #[must_use]
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// Looks for the coordinator at these addresses from now on, and keeps them in the folder.
    ///
    /// # Errors
    /// Where they can't be written.
    pub fn look_at(&mut self, folder: &Path, addresses: Vec<String>) -> Result<(), TransportError> {
        write(&folder.join(ADDRESSES), &addresses_text(&addresses))?;
        self.joined = addresses;
        Ok(())
    }

    /// The fingerprint of the cluster's authority.
    #[must_use]
    pub fn cluster(&self) -> Fingerprint {
        Fingerprint::of(self.current().credentials.authority())
    }

    /// Whether the cluster is the one that has, or had, this authority: the token with which a machine has joined names the
    /// one of that time, and is shown again at each start.
    fn is_of(&self, authority: &Fingerprint) -> bool {
        self.cluster() == *authority || self.origin.as_ref() == Some(authority)
    }

    /// Key and certificates.
    #[must_use]
    pub fn credentials(&self) -> Arc<Credentials> {
        Arc::clone(&self.current().credentials)
    }

    /// Connects to the coordinator, at the first of its addresses that answers. Where it renews this machine's certificate,
    /// that is kept, and the connection is made with the new one.
    ///
    /// # Errors
    /// Where none answers, it is not the cluster's coordinator, or it refuses.
    pub async fn connect_coordinator(
        &self,
    ) -> Result<Connection<FromAgent, ToAgent>, TransportError> {
        let greeting = Greeting::Member { version: VERSIONS };
        let mut renewed = false;
        loop {
            let client = Arc::clone(&self.current().client);
            let (reply, connection) = first_of(&self.addresses(), &client, &greeting).await?;
            match reply {
                Reply::Welcome => return Ok(connection.retype()),
                Reply::Renewed { certificate, authority } if !renewed => {
                    self.renew(&certificate, &authority)?;
                    renewed = true;
                }
                _ => {
                    let text = "the coordinator answers a member as it answers none";
                    return Err(TransportError::Unfit(text.to_owned()));
                }
            }
        }
    }

    /// Where the coordinator is looked for: where the one is that was heard of last, then where it was
    /// when this machine joined.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let mut addresses = self.followed().addresses;
        for address in &self.joined {
            if !addresses.contains(address) {
                addresses.push(address.clone());
            }
        }
        addresses
    }

    /// The coordinator of the highest term that was heard of; of term 0 where it is the one that was
    /// joined.
    #[must_use]
    pub fn followed(&self) -> Followed {
        self.followed.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Follows a coordinator from now on, and after the next start, unless one of a higher term, or
    /// another of the same, was heard of.
    ///
    /// # Errors
    /// Where that can't be kept. The one that is followed instead is told by [`Identity::followed`].
    pub fn follow(&self, coordinator: &Followed) -> Result<bool, TransportError> {
        let mut followed = self.followed.write().unwrap_or_else(PoisonError::into_inner);
        if *coordinator == *followed {
            return Ok(true);
        }
        let same = coordinator.term == followed.term && coordinator.claim == followed.claim;
        if coordinator.term < followed.term || coordinator.term == followed.term && !same {
            return Ok(false);
        }
        if let Some(folder) = &self.folder {
            write(&folder.join(FOLLOWED), &serde_json::to_string(coordinator)?)?;
        }
        *followed = coordinator.clone();
        Ok(true)
    }

    /// Connects to the agent of another node, which is a member by that key.
    ///
    /// # Errors
    /// Where it does not answer, is not that node's agent, or refuses.
    pub async fn connect_peer(
        &self,
        node: &NodeName,
        address: SocketAddr,
        key: &Fingerprint,
    ) -> Result<Connection<PeerMessage, PeerMessage>, TransportError> {
        self.connect_peer_with(node, address, key, Precedence::Equal).await
    }

    /// The same, and whose packets go first.
    ///
    /// # Errors
    /// As [`connect_peer`](Self::connect_peer).
    pub async fn connect_peer_with(
        &self,
        node: &NodeName,
        address: SocketAddr,
        key: &Fingerprint,
        precedence: Precedence,
    ) -> Result<Connection<PeerMessage, PeerMessage>, TransportError> {
        let greeting = Greeting::Member { version: VERSIONS };
        let role = Role::Agent(node.clone());
        let client = self.credentials().client_of(Pinned::Key(key.clone()))?;
        let address = address.to_string();
        let stream = connect(&address).await?;
        precedence.apply(&stream);
        let (_, connection) = greet(stream, &address, &role, &client, &greeting).await?;
        Ok(connection.retype())
    }
}

/// The node whose agent these credentials are of.
fn name_in(credentials: &Credentials) -> Result<NodeName, TransportError> {
    let shown = [credentials.certificate().clone()];
    match identify(&shown, std::slice::from_ref(credentials.authority()))? {
        Holder::Member { role: Role::Agent(name), .. } => Ok(name),
        Holder::Member { role, .. } => {
            Err(TransportError::Unfit(format!("the certificate is for {role}")))
        }
        Holder::Stranger { reason, .. } => Err(TransportError::Unfit(reason)),
    }
}

fn remove(path: &Path) -> Result<(), TransportError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(TransportError::File {
            action: "remove",
            path: path.to_owned(),
            reason: error.to_string(),
        }),
        _ => Ok(()),
    }
}

fn addresses_text(addresses: &[String]) -> String {
    addresses.join("\n") + "\n"
}

/// Dials a coordinator's addresses in turn, until one answers.
async fn first_of(
    addresses: &[String],
    config: &Arc<ClientConfig>,
    greeting: &Greeting,
) -> Result<(Reply, Connection<Greeting, Reply>), TransportError> {
    let mut worst = TransportError::Unreachable(addresses.join(", "));
    for address in addresses {
        match dial(address, &Role::Coordinator, config, greeting).await {
            Ok(made) => return Ok(made),
            Err(error @ TransportError::Refused { .. }) => return Err(error),
            // Somebody else may be listening at an address of another network.
            Err(error @ TransportError::Impostor { .. }) => worst = error,
            Err(error) => tracing::debug!(address, %error, "coordinator's address"),
        }
    }
    Err(worst)
}

/// Connects, shows the certificate, greets, and hears the answer.
pub(super) async fn dial(
    address: &str,
    role: &Role,
    config: &Arc<ClientConfig>,
    greeting: &Greeting,
) -> Result<(Reply, Connection<Greeting, Reply>), TransportError> {
    greet(connect(address).await?, address, role, config, greeting).await
}

async fn connect(address: &str) -> Result<TcpStream, TransportError> {
    let stream = timeout(CONNECT_LIMIT, TcpStream::connect(address))
        .await
        .map_err(|_| TransportError::TooSlow(address.to_owned(), CONNECT_LIMIT.as_secs()))?
        .map_err(TransportError::io(format!("connect to {address}")))?;
    stream.set_nodelay(true).map_err(TransportError::io("set TCP_NODELAY"))?;
    Ok(stream)
}

async fn greet(
    stream: TcpStream,
    address: &str,
    role: &Role,
    config: &Arc<ClientConfig>,
    greeting: &Greeting,
) -> Result<(Reply, Connection<Greeting, Reply>), TransportError> {
    let handshake = async {
        let name = ServerName::try_from(role.dns_name())
            .map_err(|error| TransportError::Unfit(format!("{role}: {error}")))?;
        let stream = TlsConnector::from(Arc::clone(config))
            .connect(name, stream)
            .await
            .map_err(|error| impostor(address, role, error))?;
        let mut connection = Connection::<Greeting, Reply>::over(stream.into(), MAX_GREETING)?;
        connection.sender.send(greeting, &[]).await?;
        match connection.receiver.receive().await? {
            None => Err(TransportError::Closed),
            Some((Reply::Refused { kind, reason }, _)) => {
                Err(TransportError::Refused { kind, reason })
            }
            Some((reply, _)) => Ok((reply, connection)),
        }
    };
    timeout(HANDSHAKE_LIMIT, handshake)
        .await
        .map_err(|_| TransportError::TooSlow(address.to_owned(), HANDSHAKE_LIMIT.as_secs()))?
}

fn impostor(address: &str, role: &Role, error: std::io::Error) -> TransportError {
    let reason = match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)) => {
            "its certificate is not from this cluster's authority".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(
            rustls::CertificateError::NotValidForName
            | rustls::CertificateError::NotValidForNameContext { .. },
        )) => format!("its certificate is not for {role}"),
        Some(rustls::Error::InvalidCertificate(
            rustls::CertificateError::ApplicationVerificationFailure,
        )) => format!("its key is not the one by which {role} is known"),
        Some(rustls::Error::InvalidMessage(_)) => "it does not speak TLS".to_owned(),
        Some(other) => other.to_string(),
        None => return TransportError::io(format!("connect to {address}"))(error),
    };
    TransportError::Impostor { server: address.to_owned(), reason }
}
