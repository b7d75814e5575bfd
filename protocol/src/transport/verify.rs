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
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

/// The last label of the names in certificates.
const SUFFIX: &str = "ckptd";

/// BLAKE3 of a certificate's DER form, hexadecimal. The default one is no certificate's.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Of a certificate.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(blake3::hash(certificate).to_hex().to_string())
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
    /// One whom the authority has certified.
    Member {
        /// Its role.
        role: Role,
        /// Its certificate.
        certificate: Fingerprint,
    },
    /// Anybody else.
    Stranger {
        /// DER form of the public key (SubjectPublicKeyInfo) that it has proved.
        public_key: Vec<u8>,
        /// Why it is no member.
        reason: String,
    },
}

/// Tells who shows these certificates.
pub(super) fn identify(
    shown: &[CertificateDer<'_>],
    authority: &CertificateDer<'_>,
) -> Result<Holder, TransportError> {
    let unfit = |text: String| TransportError::Unfit(text);
    let (leaf, chain) = shown.split_first().ok_or_else(|| unfit("no certificate".to_owned()))?;
    let certificate = EndEntityCert::try_from(leaf)
        .map_err(|error| unfit(format!("certificate can't be read: {error}")))?;
    let stranger = |reason: &str| Holder::Stranger {
        public_key: certificate.subject_public_key_info().to_vec(),
        reason: reason.to_owned(),
    };
    let anchor = anchor_from_trusted_cert(authority)
        .map_err(|error| unfit(format!("authority's certificate can't be used: {error}")))?;
    let anchors = [anchor];
    let verified = certificate.verify_for_usage(
        ALGORITHMS.all,
        &anchors,
        chain,
        UnixTime::now(),
        KeyUsage::client_auth(),
        None,
        None,
    );
    if verified.is_err() {
        return Ok(stranger("its certificate is not from this cluster's authority"));
    }
    let role = certificate.valid_dns_names().find_map(Role::of_dns_name);
    Ok(match role {
        Some(role) => Holder::Member { role, certificate: Fingerprint::of(leaf) },
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

/// How a client knows the authority.
#[derive(Debug, Clone)]
pub(super) enum Pinned {
    /// By its certificate.
    Certificate(CertificateDer<'static>),
    /// By the fingerprint in a token: the server shows the certificate.
    Fingerprint(Fingerprint),
}

/// Checks that a server is certified by the authority, for the name that it is called by.
#[derive(Debug)]
pub(super) struct ByAuthority {
    pub pinned: Pinned,
    pub provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ByAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let authority = match &self.pinned {
            Pinned::Certificate(certificate) => certificate,
            Pinned::Fingerprint(wanted) => intermediates
                .iter()
                .find(|shown| Fingerprint::of(shown) == *wanted)
                .ok_or(CertificateError::UnknownIssuer)?,
        };
        let anchor =
            anchor_from_trusted_cert(authority).map_err(|_| CertificateError::BadEncoding)?;
        let certificate =
            EndEntityCert::try_from(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        certificate
            .verify_for_usage(
                self.provider.signature_verification_algorithms.all,
                &[anchor],
                &[],
                now,
                KeyUsage::server_auth(),
                None,
                None,
            )
            .map_err(|_| CertificateError::UnknownIssuer)?;
        certificate
            .verify_is_valid_for_subject_name(server_name)
            .map_err(|_| CertificateError::NotValidForName)?;
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
}
