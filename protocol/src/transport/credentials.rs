//! A key, the certificates that say whose it is, and what TLS makes of them.

use super::crypto::provider;
use super::verify::{AnyClient, ByPin, Pinned, subject};
use super::{Fingerprint, TransportError};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{ClientConfig, DistinguishedName, ServerConfig};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use webpki::EndEntityCert;

/// The largest key or certificate that is read, in bytes.
const MAX_PEM: u64 = 64 * 1024;

/// A key with its certificate and the authority's.
#[derive(Debug)]
pub struct Credentials {
    key: PrivateKeyDer<'static>,
    certificate: CertificateDer<'static>,
    authority: CertificateDer<'static>,
    fingerprint: Fingerprint,
}

impl Credentials {
    /// From the PEM forms.
    ///
    /// # Errors
    /// Where one of them can't be read.
    pub fn from_pem(key: &str, certificate: &str, authority: &str) -> Result<Self, TransportError> {
        let malformed = |what| move |error| TransportError::Unfit(format!("{what}: {error}"));
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
        Self::new(
            key.map_err(malformed("read the key"))?,
            certificate_of(certificate)?,
            certificate_of(authority)?,
        )
    }

    /// Of a key, its certificate, and that of who signed it.
    pub(super) fn new(
        key: PrivateKeyDer<'static>,
        certificate: CertificateDer<'static>,
        authority: CertificateDer<'static>,
    ) -> Result<Self, TransportError> {
        let fingerprint = {
            let certificate = EndEntityCert::try_from(&certificate).map_err(|error| {
                TransportError::Unfit(format!("certificate can't be read: {error}"))
            })?;
            Fingerprint::of_key(&certificate.subject_public_key_info())
        };
        Ok(Self { key, certificate, authority, fingerprint })
    }

    /// The same key and certificate, with another authority (PEM) that others are checked by.
    ///
    /// # Errors
    /// Where it can't be read.
    pub fn trusting(&self, authority: &str) -> Result<Self, TransportError> {
        Ok(Self {
            key: self.key.clone_key(),
            certificate: self.certificate.clone(),
            authority: certificate_of(authority)?,
            fingerprint: self.fingerprint.clone(),
        })
    }

    /// The authority's certificate.
    #[must_use]
    pub fn authority(&self) -> &CertificateDer<'static> {
        &self.authority
    }

    /// The fingerprint of the own key.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint.clone()
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }

    pub(super) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// How a client that has these credentials speaks TLS to coordinators of the same cluster.
    pub(super) fn client(&self) -> Result<Arc<ClientConfig>, TransportError> {
        self.client_of(Pinned::Authority(self.authority.clone()))
    }

    /// How it speaks to a server that it knows by something else.
    pub(super) fn client_of(&self, pinned: Pinned) -> Result<Arc<ClientConfig>, TransportError> {
        client(pinned, self.chain(), self.key.clone_key())
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.clone(), self.authority.clone()]
    }
}

/// What a server shows: of several certificates the one of the authority in which the client believes, as it hints, else
/// the first.
#[derive(Debug)]
struct ByHint(Vec<(DistinguishedName, Arc<CertifiedKey>)>);

impl ResolvesServerCert for ByHint {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let hints = hello.certificate_authorities().unwrap_or_default();
        let hinted =
            |name: &DistinguishedName| hints.iter().any(|hint| hint.as_ref() == name.as_ref());
        let found = self.0.iter().find(|(name, _)| hinted(name)).or_else(|| self.0.first());
        found.map(|(_, shown)| Arc::clone(shown))
    }
}

/// How a server speaks TLS that has these credentials, the first of which are its own, and the others those of before.
pub(super) fn server(credentials: &[Credentials]) -> Result<Arc<ServerConfig>, TransportError> {
    let provider = provider();
    let mut shown = Vec::new();
    for own in credentials {
        let certified = CertifiedKey::from_der(own.chain(), own.key.clone_key(), &provider)?;
        shown.push((subject(&own.authority)?, Arc::new(certified)));
    }
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(AnyClient(provider)))
        .with_cert_resolver(Arc::new(ByHint(shown)));
    // Each connection shows its certificate again, so that one who was turned out is noticed.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// How a client speaks TLS.
pub(super) fn client(
    pinned: Pinned,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ClientConfig>, TransportError> {
    let provider = provider();
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ByPin::new(pinned, provider)?))
        .with_client_auth_cert(chain, key)?;
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The first certificate of a PEM text.
pub(super) fn certificate_of(pem: &str) -> Result<CertificateDer<'static>, TransportError> {
    CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| TransportError::Unfit(format!("read a certificate: {error}")))
}

/// All certificates of a PEM text.
pub(super) fn certificates_of(pem: &str) -> Result<Vec<CertificateDer<'static>>, TransportError> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| TransportError::Unfit(format!("read certificates: {error}")))
}

/// The PEM form of a certificate.
pub(super) fn pem_of(certificate: &CertificateDer<'_>) -> String {
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new("CERTIFICATE", certificate.to_vec()), lines)
}

/// Reads a file that may be missing.
pub(super) fn read(path: &Path) -> Result<Option<String>, TransportError> {
    let failed =
        |reason: String| TransportError::File { action: "read", path: path.to_owned(), reason };
    match fs::metadata(path) {
        Ok(found) if found.len() > MAX_PEM => return Err(failed("it is too large".to_owned())),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error.to_string())),
    }
    fs::read_to_string(path).map(Some).map_err(|error| failed(error.to_string()))
}

/// Writes a file that only its owner can read, so that it is there whole or not at all.
pub(super) fn write(path: &Path, text: &str) -> Result<(), TransportError> {
    crate::durable::replace(path, text.as_bytes()).map_err(|error| TransportError::File {
        action: "write",
        path: path.to_owned(),
        reason: error.to_string(),
    })
}
