//! A cluster's certificate authority, made with the cluster.

use super::credentials::{certificate_of, read, write};
use super::crypto::{Key, identifier, random};
use super::{Credentials, Fingerprint, Role, TransportError, Trust};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ED25519,
    PublicKeyData, SerialNumber, SignatureAlgorithm,
};
use rustls::pki_types::CertificateDer;
use std::path::Path;

const KEY: &str = "authority-key.pem";
const CERTIFICATE: &str = "authority.pem";

/// What precedes the 32 bytes of an Ed25519 key in its DER form (RFC 8410, section 4).
const ED25519_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0];

/// Signs the certificates of a cluster's members.
///
/// Certificates do not run out: clocks of phones can't be trusted, and who is a member is looked up
/// at each connection.
pub struct Authority {
    key: Key,
    issuer: Certificate,
    pem: String,
    certificate: CertificateDer<'static>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority")
            .field("fingerprint", &self.fingerprint())
            .finish_non_exhaustive()
    }
}

/// A freshly signed certificate.
#[derive(Debug)]
pub struct CertifiedNode {
    /// PEM form.
    pub certificate: String,
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
}

impl Authority {
    /// The authority in this folder, made if there is none.
    ///
    /// # Errors
    /// Where its files can't be read, written or used.
    pub fn open(folder: &Path) -> Result<Self, TransportError> {
        let key_path = folder.join(KEY);
        let key = match read(&key_path)? {
            Some(pem) => Key::from_pem(&pem).map_err(|error| TransportError::File {
                action: "use",
                path: key_path,
                reason: error.to_string(),
            })?,
            None => {
                let key = Key::generate()?;
                write(&key_path, &key.pem())?;
                key
            }
        };
        // Made again from the same key it signs alike; its text is kept, since tokens name its hash.
        let issuer = parameters(&key.pair).self_signed(&key.pair)?;
        let path = folder.join(CERTIFICATE);
        let pem = match read(&path)? {
            Some(pem) => pem,
            None => {
                write(&path, &issuer.pem())?;
                issuer.pem()
            }
        };
        let certificate = certificate_of(&pem)?;
        Ok(Self { key, issuer, pem, certificate })
    }

    /// A key for a purpose of its own, which whoever has the authority's key can derive again.
    #[must_use]
    pub fn derived_key(&self, purpose: &str) -> [u8; 32] {
        blake3::derive_key(purpose, &self.key.der)
    }

    /// The fingerprint of its certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// In the coordinators that it has certified.
    #[must_use]
    pub fn trust(&self) -> Trust {
        Trust::in_authority(self.certificate.clone())
    }

    /// Its certificate, PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Certifies a key for a role.
    ///
    /// # Errors
    /// Where the key (DER, SubjectPublicKeyInfo) is none that ckptd makes.
    pub fn certify(&self, role: &Role, public_key: &[u8]) -> Result<CertifiedNode, TransportError> {
        let key = public_key
            .strip_prefix(&ED25519_PREFIX)
            .and_then(|key| key.try_into().ok())
            .map(Ed25519)
            .ok_or_else(|| TransportError::Unfit("its key is not an Ed25519 key".to_owned()))?;
        let certificate = member(role)?.signed_by(&key, &self.issuer, &self.key.pair)?;
        Ok(CertifiedNode {
            certificate: certificate.pem(),
            fingerprint: Fingerprint::of(certificate.der()),
        })
    }

    /// A fresh key with a certificate for a role.
    ///
    /// # Errors
    /// Where the system has no randomness.
    pub fn issue(&self, role: &Role) -> Result<Credentials, TransportError> {
        let key = Key::generate()?;
        let certificate = member(role)?.signed_by(&key.pair, &self.issuer, &self.key.pair)?;
        Credentials::from_pem(&key.pem(), &certificate.pem(), &self.pem)
    }
}

/// A public key.
struct Ed25519([u8; 32]);

impl PublicKeyData for Ed25519 {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &SignatureAlgorithm {
        &PKCS_ED25519
    }
}

fn parameters(key: &KeyPair) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    let id = blake3::hash(key.public_key_raw()).to_hex();
    parameters.distinguished_name = named(&format!("ckptd cluster {}", &id[..16]));
    // Authorities of before have these two.
    parameters.key_identifier_method = KeyIdMethod::PreSpecified(identifier(&key.public_key_der()));
    parameters.serial_number = Some(serial_of(key));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    parameters
}

/// The same for the same key; a positive number.
pub(super) fn serial_of(key: &KeyPair) -> SerialNumber {
    let mut serial = identifier(key.public_key_raw());
    serial[0] &= 0x7f;
    SerialNumber::from_slice(&serial)
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn member(role: &Role) -> Result<CertificateParams, TransportError> {
    let name = role.dns_name();
    let mut parameters = CertificateParams::new(vec![name.clone()])?;
    parameters.distinguished_name = named(&name);
    // Of its own for each certificate, also for the same key: a revoked one must not come back as
    // the same.
    let mut serial = [0; 16];
    random(&mut serial)?;
    // A positive number (RFC 5280, section 4.1.2.2).
    serial[0] = serial[0] & 0x7f | 0x40;
    parameters.serial_number = Some(SerialNumber::from_slice(&serial));
    parameters.use_authority_key_identifier_extension = true;
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a cluster that an earlier ckptd has made, by rcgen's own keys.
    const OLD_KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
MFECAQEwBQYDK2VwBCIEIG+Qw85V0TTsypUCpqDUpTPLwuQA0G8g72W3DqoWhpSi\n\
gSEAeSBx3Pnts66hYEDhXBZCF0v5no+rdGrGiBE+VKFrVsY=\n\
-----END PRIVATE KEY-----\n";
    const OLD_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n\
MIIBXDCCAQ6gAwIBAgIURKTwP5Si8U1+uFRiIRVzRtIxUQwwBQYDK2VwMCkxJzAl\n\
BgNVBAMMHmNrcHRkIGNsdXN0ZXIgOTg1Yzg0YWZjNTYxMDViNTAgFw03NTAxMDEw\n\
MDAwMDBaGA80MDk2MDEwMTAwMDAwMFowKTEnMCUGA1UEAwweY2twdGQgY2x1c3Rl\n\
ciA5ODVjODRhZmM1NjEwNWI1MCowBQYDK2VwAyEAeSBx3Pnts66hYEDhXBZCF0v5\n\
no+rdGrGiBE+VKFrVsajRjBEMA8GA1UdDwEB/wQFAwMHBAAwHQYDVR0OBBYEFKY5\n\
vIXksQjnSdKs3fFZvDLRA/oeMBIGA1UdEwEB/wQIMAYBAf8CAQAwBQYDK2VwA0EA\n\
Jg1P0QRQaYzp0Q0qC0pTgHJhkTc2bZrd5Awp6xmXLVQZ3jp6Uz+Mo21XHMbn06hx\n\
ve1rQPEAJch5XNlaf5HYAA==\n\
-----END CERTIFICATE-----\n";

    #[test]
    fn an_authority_of_before_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(KEY), OLD_KEY).unwrap();
        let authority = Authority::open(folder.path()).unwrap();
        // Ed25519 signs the same twice.
        assert_eq!(authority.pem(), OLD_CERTIFICATE);
        assert_eq!(Key::from_pem(OLD_KEY).unwrap().pem(), OLD_KEY);
        authority.issue(&Role::Coordinator).unwrap();
    }
}
