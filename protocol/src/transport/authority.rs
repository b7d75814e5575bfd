//! A cluster's certificate authority, made with the cluster, and exchanged where its key may be in other hands.

use super::credentials::{certificates_of, pem_of, read, write};
use super::crypto::{Key, identifier, random};
use super::{Credentials, Fingerprint, Role, TransportError, Trust};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ED25519,
    PublicKeyData, SerialNumber, SignatureAlgorithm, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use webpki::EndEntityCert;

/// The key, and after it those of before.
const KEY: &str = "authority-key.pem";
/// The certificate, and after it those of before.
const CERTIFICATE: &str = "authority.pem";

/// Authorities of before that are kept for members who have not come since. Those of older ones have to join again.
const MOST_BEFORE: usize = 8;

/// How long a member's certificate is said to hold.
const LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// What precedes the 32 bytes of an Ed25519 key in its DER form (RFC 8410, section 4).
const ED25519_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0];

/// Signs the certificates of a cluster's members.
///
/// Those of members hold for 30 days, and are renewed when they connect. No date shuts anybody out, though: clocks of phones
/// can't be trusted, machines sleep for longer, and who is a member is looked up at each connection.
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
    /// The fingerprint of its key.
    pub key: Fingerprint,
}

impl Authority {
    /// The authority in this folder, made if there is none; of several the one that counts.
    ///
    /// # Errors
    /// Where its files can't be read, written or used.
    pub fn open(folder: &Path) -> Result<Self, TransportError> {
        Ok(Authorities::open(folder)?.current)
    }

    /// `kept`: certificates that were made of such keys. Made again from the same key one signs alike, but its text is
    /// kept, since tokens name its hash.
    fn of(key: Key, kept: &[CertificateDer<'static>]) -> Result<Self, TransportError> {
        let issuer = parameters(&key.pair).self_signed(&key.pair)?;
        let public = public_key(issuer.der())?;
        let known = kept.iter().find(|kept| public_key(kept).is_ok_and(|of| of == public));
        let certificate = known.unwrap_or(issuer.der()).clone();
        let pem = pem_of(&certificate);
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
        Ok(CertifiedNode { certificate: certificate.pem(), key: Fingerprint::of_key(public_key) })
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

/// DER form of the public key that a certificate is of (SubjectPublicKeyInfo).
fn public_key(certificate: &CertificateDer<'_>) -> Result<Vec<u8>, TransportError> {
    let certificate = EndEntityCert::try_from(certificate)
        .map_err(|error| TransportError::Unfit(format!("certificate can't be read: {error}")))?;
    Ok(certificate.subject_public_key_info().to_vec())
}

/// All authorities of a cluster.
#[derive(Debug)]
pub struct Authorities {
    folder: PathBuf,
    current: Authority,
    /// Those that it has replaced, the newest first: members that have not come since believe in them.
    before: Vec<Authority>,
}

impl Authorities {
    /// Those in this folder; one is made if there is none.
    ///
    /// # Errors
    /// Where their files can't be read, written or used.
    pub fn open(folder: &Path) -> Result<Self, TransportError> {
        let path = folder.join(KEY);
        let damaged =
            |reason: String| TransportError::File { action: "use", path: path.clone(), reason };
        let keys = match read(&path)? {
            Some(text) => Key::all_from_pem(&text).map_err(|error| damaged(error.to_string()))?,
            None => Vec::new(),
        };
        let found = read(&folder.join(CERTIFICATE))?;
        let kept = certificates_of(found.as_deref().unwrap_or_default())?;
        let has_key = |of: &CertificateDer<'_>| {
            public_key(of).is_ok_and(|of| keys.iter().any(|key| key.pair.public_key_der() == of))
        };
        if kept.first().is_some_and(|newest| !has_key(newest)) {
            return Err(damaged("the key of the newest authority is not in it".to_owned()));
        }
        let mut all = keys.into_iter().map(|key| Authority::of(key, &kept));
        let current = match all.next() {
            Some(current) => current?,
            None => Authority::of(Key::generate()?, &[])?,
        };
        let before = all.collect::<Result<Vec<_>, _>>()?;
        let all = Self { folder: folder.to_owned(), current, before };
        // A new one, or one that was not written to its end.
        if found.as_deref() != Some(&all.certificates()) {
            all.keep()?;
        }
        Ok(all)
    }

    /// Fingerprints of those whose certificates are in a folder, which need not have their keys.
    ///
    /// # Errors
    /// Where they can't be read.
    pub fn known_in(folder: &Path) -> Result<Vec<Fingerprint>, TransportError> {
        let text = read(&folder.join(CERTIFICATE))?.unwrap_or_default();
        Ok(certificates_of(&text)?.iter().map(Fingerprint::of).collect())
    }

    /// The one that certifies.
    #[must_use]
    pub fn current(&self) -> &Authority {
        &self.current
    }

    /// Fingerprints of those that it has replaced, the newest first.
    pub fn before(&self) -> impl Iterator<Item = Fingerprint> {
        self.before.iter().map(Authority::fingerprint)
    }

    /// A new one certifies from now on.
    ///
    /// # Errors
    /// Where it can't be made or written. The one of before certifies on, then.
    pub fn exchange(&mut self) -> Result<(), TransportError> {
        let fresh = Authority::of(Key::generate()?, &[])?;
        let old = std::mem::replace(&mut self.current, fresh);
        self.before.insert(0, old);
        if let Err(error) = self.keep() {
            self.current = self.before.remove(0);
            return Err(error);
        }
        Ok(())
    }

    /// Forgets those of before in which nobody believes any more, and the oldest where there are too many.
    ///
    /// # Errors
    /// Where that can't be written.
    pub fn forget(
        &mut self,
        is_needed: impl Fn(&Fingerprint) -> bool,
    ) -> Result<(), TransportError> {
        let known = self.before.len();
        self.before.retain(|old| is_needed(&old.fingerprint()));
        self.before.truncate(MOST_BEFORE);
        if self.before.len() == known { Ok(()) } else { self.keep() }
    }

    /// Fresh credentials of the coordinator: those that count, then such for members that believe in an authority of before.
    ///
    /// # Errors
    /// Where the system has no randomness.
    pub fn coordinators(&self) -> Result<Vec<Credentials>, TransportError> {
        let all = std::iter::once(&self.current).chain(&self.before);
        all.map(|authority| authority.issue(&Role::Coordinator)).collect()
    }

    fn certificates(&self) -> String {
        std::iter::once(&self.current).chain(&self.before).map(Authority::pem).collect()
    }

    /// The keys first: a certificate is made again from its key.
    fn keep(&self) -> Result<(), TransportError> {
        let all = std::iter::once(&self.current).chain(&self.before);
        let keys: String = all.map(|authority| authority.key.pem()).collect();
        write(&self.folder.join(KEY), &keys)?;
        write(&self.folder.join(CERTIFICATE), &self.certificates())
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
    if let Role::Agent(_) = role {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        parameters.not_after = date_time_ymd(1970, 1, 1) + since_1970.saturating_add(LIFETIME);
    }
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
        assert_eq!(Key::all_from_pem(OLD_KEY).unwrap()[0].pem(), OLD_KEY);
        authority.issue(&Role::Coordinator).unwrap();
    }

    #[test]
    fn authorities_of_before_are_kept_until_nobody_needs_them() {
        let folder = tempfile::tempdir().unwrap();
        let mut all = Authorities::open(folder.path()).unwrap();
        let first = all.current().fingerprint();
        all.exchange().unwrap();
        let second = all.current().fingerprint();
        assert_ne!(first, second);
        // As if the machine had stopped after the keys.
        std::fs::write(folder.path().join(CERTIFICATE), all.before[0].pem()).unwrap();
        let mut all = Authorities::open(folder.path()).unwrap();
        assert_eq!(all.current().fingerprint(), second);
        assert_eq!(all.before().collect::<Vec<_>>(), std::slice::from_ref(&first));
        assert_eq!(all.coordinators().unwrap().len(), 2);
        for _ in 0..MOST_BEFORE {
            all.exchange().unwrap();
        }
        all.forget(|_| true).unwrap();
        let again = Authorities::open(folder.path()).unwrap();
        assert_eq!(again.before.len(), MOST_BEFORE);
        assert!(again.before().all(|old| old != first) && again.before().any(|old| old == second));
        all.forget(|old| *old == second).unwrap();
        let again = Authorities::open(folder.path()).unwrap();
        assert_eq!(again.before().collect::<Vec<_>>(), [second]);
        assert_eq!(again.current().fingerprint(), all.current().fingerprint());
    }
}
