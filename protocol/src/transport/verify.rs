//! Who holds a certificate.

use super::TransportError;
use super::crypto::ALGORITHMS;
use crate::cluster::NodeName;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, SignatureScheme};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

/// The last label of the names in certificates.
const SUFFIX: &str = "ckptd";

/// By what somebody is known: of an authority, BLAKE3 of its certificate's DER form; of a member, BLAKE3 of its public key,
/// which stays the same when the certificate is renewed. Hexadecimal. The default one is nobody's.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Of an authority, by its certificate.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(blake3::hash(certificate).to_hex().to_string())
    }

    /// Of a member, by its public key (SubjectPublicKeyInfo, DER).
    #[must_use]
    pub fn of_key(public_key: &[u8]) -> Self {
        Self(blake3::hash(public_key).to_hex().to_string())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a certificate of the authority makes of its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// The cluster's coordinator.
    Coordinator,
    /// The agent of a node.
    Agent(NodeName),
}

impl Role {
    /// The name in the certificate.
    #[must_use]
    pub fn dns_name(&self) -> String {
        match self {
            Self::Coordinator => format!("coordinator.{SUFFIX}"),
            Self::Agent(node) => format!("{node}.agent.{SUFFIX}"),
        }
    }

    fn of_dns_name(name: &str) -> Option<Self> {
        let labels: Vec<&str> = name.split('.').collect();
        match labels[..] {
            ["coordinator", SUFFIX] => Some(Self::Coordinator),
            [node, "agent", SUFFIX] => node.parse().ok().map(Self::Agent),
            _ => None,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coordinator => f.write_str("the coordinator"),
            Self::Agent(node) => write!(f, "the agent of {node}"),
        }
    }
}

/// Who is at the other end, by the certificate whose key it has proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// One whom an authority of the cluster has certified.
    Member {
        /// Its role.
        role: Role,
        /// Its certificate.
        shown: Shown,
    },
    /// Anybody else.
    Stranger {
        /// DER form of the public key (SubjectPublicKeyInfo) that it has proved.
        public_key: Vec<u8>,
        /// Who it says that it is: its certificate proves nothing of that.
        claims: Option<Role>,
        /// Why it is no member.
        reason: String,
    },
}

/// The certificate that a member has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// By what it is known.
    pub key: Fingerprint,
    /// The hash of the whole certificate: by that, registers of before know members.
    pub certificate: Fingerprint,
    /// DER form of the public key (SubjectPublicKeyInfo).
    pub public_key: Vec<u8>,
    /// Whether it is to be renewed: it is of an authority of before, or runs out soon.
    pub is_due: bool,
}

/// Before a certificate runs out, it is renewed for so long.
const RENEWAL: Duration = Duration::from_secs(20 * 24 * 3600);

/// Whether a certificate is one of this authority's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Certified {
    /// And has a while to go.
    Fresh,
    /// And runs out soon, has run out, or is of a time to come.
    Due,
    /// It is not.
    Not,
}

/// Whether the authority has certified it, today or at another time. No date ever shuts a member out: clocks of phones are
/// set wrong, machines sleep for months, and who is a member is looked up at each connection.
fn certified(
    certificate: &EndEntityCert<'_>,
    authority: &CertificateDer<'_>,
    usage: KeyUsage,
) -> Result<Certified, webpki::Error> {
    let anchors = [anchor_from_trusted_cert(authority)?];
    let at = |time: UnixTime| {
        let algorithms = ALGORITHMS.all;
        certificate.verify_for_usage(algorithms, &anchors, &[], time, usage, None, None).map(drop)
    };
    let another = |time| if at(time).is_ok() { Certified::Due } else { Certified::Not };
    let now = UnixTime::now();
    Ok(match at(now) {
        Ok(()) => {
            let soon = Duration::from_secs(now.as_secs()).saturating_add(RENEWAL);
            let soon = UnixTime::since_unix_epoch(soon);
            if at(soon).is_ok() { Certified::Fresh } else { Certified::Due }
        }
        Err(webpki::Error::CertExpired { not_after, .. }) => another(not_after),
        Err(webpki::Error::CertNotValidYet { not_before, .. }) => another(not_before),
        Err(_) => Certified::Not,
    })
}

/// Tells who shows these certificates. `authorities`: the cluster's, and those of before that it has replaced. Members of the
/// latter are members still, if their keys are in the list; a coordinator of the latter is none, since the key by which it
/// was certified may be in other hands.
pub(super) fn identify(
    shown: &[CertificateDer<'_>],
    authorities: &[CertificateDer<'_>],
) -> Result<Holder, TransportError> {
    let unfit = |text: String| TransportError::Unfit(text);
    let leaf = shown.first().ok_or_else(|| unfit("no certificate".to_owned()))?;
    let certificate = EndEntityCert::try_from(leaf)
        .map_err(|error| unfit(format!("certificate can't be read: {error}")))?;
    let public_key = certificate.subject_public_key_info().to_vec();
    let named = certificate.valid_dns_names().find_map(Role::of_dns_name);
    let stranger = |reason: &str| Holder::Stranger {
        public_key: public_key.clone(),
        claims: named.clone(),
        reason: reason.to_owned(),
    };
    let mut found = None;
    for (number, authority) in authorities.iter().enumerate() {
        let certified = certified(&certificate, authority, KeyUsage::client_auth())
            .map_err(|error| unfit(format!("authority's certificate can't be used: {error}")))?;
        if certified != Certified::Not {
            found = Some((number > 0, certified));
            break;
        }
    }
    let Some((is_of_before, certified)) = found else {
        return Ok(stranger("its certificate is not from this cluster's authority"));
    };
    Ok(match named.clone() {
        Some(Role::Coordinator) if is_of_before => {
            stranger("its certificate is of an authority that the cluster has replaced")
        }
        Some(role) => {
            let shown = Shown {
                key: Fingerprint::of_key(&public_key),
                certificate: Fingerprint::of(leaf),
                public_key,
                is_due: is_of_before || certified == Certified::Due,
            };
            Holder::Member { role, shown }
        }
        None => stranger("its certificate names no role"),
    })
}

/// Takes every certificate whose key the client proves to have: who that is, is found out after the
/// handshake ([`identify`]), so that it can be told why it is refused.
#[derive(Debug)]
pub(super) struct AnyClient(pub Arc<CryptoProvider>);

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// How a client knows a server.
#[derive(Debug, Clone)]
pub(super) enum Pinned {
    /// By its authority's certificate.
    Authority(CertificateDer<'static>),
    /// By the fingerprint of its authority in a token: the server shows the certificate.
    Fingerprint(Fingerprint),
    /// By its own key, which the coordinator has named: it may have been certified anew since.
    Key(Fingerprint),
}

/// Checks that a server is the one that is meant, by the name by which it is called.
#[derive(Debug)]
pub(super) struct ByPin {
    pinned: Pinned,
    provider: Arc<CryptoProvider>,
    /// The authority's name, from which a coordinator sees which certificate to show.
    hints: Vec<DistinguishedName>,
}

impl ByPin {
    /// One that knows the server by that.
    pub fn new(pinned: Pinned, provider: Arc<CryptoProvider>) -> Result<Self, TransportError> {
        let hints = match &pinned {
            Pinned::Authority(certificate) => vec![subject(certificate)?],
            Pinned::Fingerprint(_) | Pinned::Key(_) => Vec::new(),
        };
        Ok(Self { pinned, provider, hints })
    }
}

/// The name of an authority, as clients of TLS hint at it (RFC 8446, section 4.2.4).
pub(super) fn subject(authority: &CertificateDer<'_>) -> Result<DistinguishedName, TransportError> {
    let anchor = anchor_from_trusted_cert(authority).map_err(|error| {
        TransportError::Unfit(format!("authority's certificate can't be used: {error}"))
    })?;
    Ok(DistinguishedName::in_sequence(&anchor.subject))
}

impl ServerCertVerifier for ByPin {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate =
            EndEntityCert::try_from(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        let authority = match &self.pinned {
            Pinned::Authority(certificate) => Some(certificate),
            Pinned::Fingerprint(wanted) => {
                let found = intermediates.iter().find(|shown| Fingerprint::of(shown) == *wanted);
                Some(found.ok_or(CertificateError::UnknownIssuer)?)
            }
            Pinned::Key(_) => None,
        };
        if let Some(authority) = authority {
            match certified(&certificate, authority, KeyUsage::server_auth()) {
                Ok(Certified::Fresh | Certified::Due) => {}
                Ok(Certified::Not) => return Err(CertificateError::UnknownIssuer.into()),
                Err(_) => return Err(CertificateError::BadEncoding.into()),
            }
        }
        certificate
            .verify_is_valid_for_subject_name(server_name)
            .map_err(|_| CertificateError::NotValidForName)?;
        if let Pinned::Key(wanted) = &self.pinned {
            if Fingerprint::of_key(&certificate.subject_public_key_info()) != *wanted {
                return Err(CertificateError::ApplicationVerificationFailure.into());
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        (!self.hints.is_empty()).then_some(&self.hints)
    }
}
