//! A key, the certificates that say whose it is, and what TLS makes of them.

use super::crypto::provider;
use super::verify::{AnyClient, ByAuthority, Pinned};
use super::{Fingerprint, TransportError};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

/// The largest key or certificate that is read, in bytes.
const MAX_PEM: u64 = 64 * 1024;

/// A key with its certificate and the authority's.
#[derive(Debug)]
pub struct Credentials {
    key: PrivateKeyDer<'static>,
    certificate: CertificateDer<'static>,
    authority: CertificateDer<'static>,
}

impl Credentials {
    /// From the PEM forms.
    ///
    /// # Errors
    /// Where one of them can't be read.
    pub fn from_pem(key: &str, certificate: &str, authority: &str) -> Result<Self, TransportError> {
        let malformed = |what| move |error| TransportError::Unfit(format!("{what}: {error}"));
        Ok(Self {
            key: PrivateKeyDer::from_pem_slice(key.as_bytes())
                .map_err(malformed("read the key"))?,
            certificate: certificate_of(certificate)?,
            authority: certificate_of(authority)?,
        })
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
        })
    }

    /// The authority's certificate.
    #[must_use]
    pub fn authority(&self) -> &CertificateDer<'static> {
        &self.authority
    }

    /// The fingerprint of the own certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }

    pub(super) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// How a server that has these credentials speaks TLS.
    pub(super) fn server(&self) -> Result<Arc<ServerConfig>, TransportError> {
        let provider = provider();
        let mut config = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::new(AnyClient(provider)))
            .with_single_cert(self.chain(), self.key.clone_key())?;
        // Each connection shows its certificate again, so that a revoked one is noticed.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// How a client that has these credentials speaks TLS to members of the same cluster.
    pub(super) fn client(&self) -> Result<Arc<ClientConfig>, TransportError> {
        let pinned = Pinned::Certificate(self.authority.clone());
        client(pinned, self.chain(), self.key.clone_key())
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.clone(), self.authority.clone()]
    }
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
        .with_custom_certificate_verifier(Arc::new(ByAuthority { pinned, provider }))
        .with_client_auth_cert(chain, key)?;
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The first certificate of a PEM text.
pub(super) fn certificate_of(pem: &str) -> Result<CertificateDer<'static>, TransportError> {
    CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| TransportError::Unfit(format!("read a certificate: {error}")))
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
    let temporary = path.with_extension("new");
    let write = || {
        // A leftover may have other permissions.
        let _ = fs::remove_file(&temporary);
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
    };
    write().map_err(|error| TransportError::File {
        action: "write",
        path: path.to_owned(),
        reason: error.to_string(),
    })
}
