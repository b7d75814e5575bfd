//! The certificate that the page shows where other machines can connect: one that an administrator gives, or its own.
//!
//! ```text
//! STATE/http-certificate.pem, STATE/http-key.pem     its own: signed by itself, of the curve P-256, which browsers know
//! ```
//!
//! The cluster's authority signs by Ed25519, which browsers don't take. Whoever looks compares the fingerprint that the
//! coordinator prints with what the browser shows. A file that is replaced, as when a certificate is renewed, is noticed.

use coordinator::cluster::PageCertificate;
use nix::fcntl::OFlag;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyIdMethod, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, RemoteKeyPair, SerialNumber, SignatureAlgorithm,
    date_time_ymd,
};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::TLS13;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use webpki::{EndEntityCert, KeyUsage};

/// The page's own certificate.
const CERTIFICATE: &str = "http-certificate.pem";
/// Its key.
const KEY: &str = "http-key.pem";
/// How long an own certificate is good: whoever has told a program to believe in it need not do so again.
const LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// So long before its end another own certificate is made when the page begins.
const RENEWED_BEFORE: Duration = Duration::from_secs(30 * 24 * 3600);
/// How far the clock of whoever looks may be behind.
const BEHIND: Duration = Duration::from_secs(24 * 3600);
/// Bytes of an identifier of a key (RFC 7093, section 2, method 1).
const IDENTIFIER: usize = 20;
/// The largest file that is read, in bytes.
const LARGEST: u64 = 256 * 1024;
/// How often it is looked whether the files are others.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Why there is no certificate; the text fits after "failed to serve the page: ".
#[derive(Debug, Error)]
pub enum CertificateError {
    /// A file can't be read or written.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Everybody on the machine can read the key.
    #[error("use {}: everybody can read it: chmod o= it, and have a new one made if somebody may have", .0.display())]
    Open(PathBuf),
    /// A file holds something else.
    #[error("use {}: {reason}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// No certificate can be made.
    #[error("make a certificate: {0}")]
    Make(String),
}

/// The files of a certificate, PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The certificate, and after it those that lead to an authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Files {
    /// The page's own ones, which are made where they are not there, are for other names, or end soon.
    ///
    /// # Errors
    /// Where they can't be read or made.
    pub fn own(state: &Path, names: &[String]) -> Result<Self, CertificateError> {
        let files = Self { certificate: state.join(CERTIFICATE), key: state.join(KEY) };
        let is_there = files.certificate.exists() && files.key.exists();
        // One that does not fit its key was not written to its end.
        if !is_there || !files.are_for(names)? || files.ends_soon()? || files.load().is_err() {
            files.make(names, LIFETIME)?;
        }
        Ok(files)
    }

    fn are_for(&self, names: &[String]) -> Result<bool, CertificateError> {
        let chain = self.chain()?;
        let certificate = EndEntityCert::try_from(&chain[0])
            .map_err(|error| unfit(&self.certificate, error.to_string()))?;
        let is_for = |name: &String| {
            let name = ServerName::try_from(name.as_str());
            name.is_ok_and(|name| certificate.verify_is_valid_for_subject_name(&name).is_ok())
        };
        Ok(names.iter().all(is_for))
    }

    /// Whether too little is left of it, so that a start is the time for another.
    fn ends_soon(&self) -> Result<bool, CertificateError> {
        let left = end(&self.chain()?[0]).map(|end| end.saturating_sub(since_1970()));
        Ok(left.is_some_and(|left| left < RENEWED_BEFORE))
    }

    fn make(&self, names: &[String], lifetime: Duration) -> Result<(), CertificateError> {
        let failed = |error: rcgen::Error| CertificateError::Make(error.to_string());
        let refused = |reason: &str| CertificateError::Make(reason.to_owned());
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let random = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(algorithm, &random)
            .map_err(|_| refused("the system has no randomness"))?;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, der.as_ref(), &random)
            .map_err(|reason| refused(&reason.to_string()))?;
        let pair = KeyPair::from_remote(Box::new(Signing { pair, random })).map_err(failed)?;
        let mut parameters = CertificateParams::new(names.to_vec()).map_err(failed)?;
        let mut subject = DistinguishedName::new();
        subject.push(DnType::CommonName, "ckptd page");
        parameters.distinguished_name = subject;
        // Of its own for each certificate, and a positive number (RFC 5280, section 4.1.2.2).
        let mut serial = [0; 16];
        protocol::transport::random(&mut serial).map_err(|error| refused(&error.to_string()))?;
        serial[0] = serial[0] & 0x7f | 0x40;
        parameters.serial_number = Some(SerialNumber::from_slice(&serial));
        let identifier = digest(&SHA256, pair.public_key_raw()).as_ref()[..IDENTIFIER].to_vec();
        parameters.key_identifier_method = KeyIdMethod::PreSpecified(identifier);
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let now = since_1970();
        let at = |since_1970: Duration| date_time_ymd(1970, 1, 1) + since_1970;
        parameters.not_before = at(now.saturating_sub(BEHIND));
        parameters.not_after = at(now.saturating_add(lifetime));
        let certificate = parameters.self_signed(&pair).map_err(failed)?;
        let key = pem::Pem::new("PRIVATE KEY", der.as_ref());
        let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        write(&self.key, &pem::encode_config(&key, lines))?;
        write(&self.certificate, &certificate.pem())
    }

    fn chain(&self) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
        let (text, _) = read(&self.certificate)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        let chain = chain.map_err(|error| unfit(&self.certificate, error.to_string()))?;
        if chain.is_empty() {
            return Err(unfit(&self.certificate, "there is no certificate in it (PEM)".to_owned()));
        }
        Ok(chain)
    }

    fn load(&self) -> Result<Usable, CertificateError> {
        let chain = self.chain()?;
        let (text, mode) = read(&self.key)?;
        if mode & 0o007 != 0 {
            return Err(CertificateError::Open(self.key.clone()));
        }
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes())
            .map_err(|error| unfit(&self.key, format!("there is no key in it (PEM): {error}")))?;
        let (fingerprint, end) = (fingerprint(&chain[0]), end(&chain[0]));
        let failed = |error: rustls::Error| unfit(&self.certificate, error.to_string());
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(failed)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(failed)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Usable { acceptor: TlsAcceptor::from(Arc::new(config)), fingerprint, end })
    }

    /// What tells these files from others of the same names. Their modes count: what may not be read may be changed to.
    fn mark(&self) -> Option<[(u64, i64, i64); 2]> {
        let of = |path: &Path| {
            let about = std::fs::metadata(path).ok()?;
            Some((about.ino(), about.ctime(), about.ctime_nsec()))
        };
        Some([of(&self.certificate)?, of(&self.key)?])
    }
}

fn unfit(path: &Path, reason: String) -> CertificateError {
    CertificateError::Unfit { path: path.to_owned(), reason }
}

/// The text of a file, and its mode.
fn read(path: &Path) -> Result<(String, u32), CertificateError> {
    let failed = |source| CertificateError::Io { action: "read", path: path.to_owned(), source };
    let flags = OFlag::O_NONBLOCK.bits();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() || about.len() > LARGEST {
        return Err(unfit(path, "it is no file, or too large".to_owned()));
    }
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text).map_err(failed)?;
    Ok((text, about.mode()))
}

fn write(path: &Path, text: &str) -> Result<(), CertificateError> {
    protocol::durable::replace(path, text.as_bytes()).map_err(|source| CertificateError::Io {
        action: "write",
        path: path.to_owned(),
        source,
    })
}

/// As browsers and openssl show it: SHA-256 of the certificate.
fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let mut text = String::new();
    for byte in digest(&SHA256, certificate).as_ref() {
        let colon = if text.is_empty() { "" } else { ":" };
        // Text takes everything.
        let _ = write!(text, "{colon}{byte:02X}");
    }
    text
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Until when a certificate is good, since 1970; None: that can't be read. Looked at from the end of time each has ended,
/// which is found before its signature and its purpose are looked at.
fn end(certificate: &CertificateDer<'_>) -> Option<Duration> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let (algorithms, usage) = (webpki::ALL_VERIFICATION_ALGS, KeyUsage::server_auth());
    let late = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    match certificate.verify_for_usage(algorithms, &[], &[], late, usage, None, None) {
        Err(webpki::Error::CertExpired { not_after, .. }) => {
            Some(Duration::from_secs(not_after.as_secs()))
        }
        _ => None,
    }
}

struct Signing {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl RemoteKeyPair for Signing {
    fn public_key(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signed = self.pair.sign(&self.random, message);
        Ok(signed.map_err(|_| rcgen::Error::RingUnspecified)?.as_ref().to_vec())
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// How the page speaks TLS.
pub struct Tls {
    files: Files,
    is_own: bool,
    now: Mutex<Loaded>,
}

/// What files hold.
struct Usable {
    acceptor: TlsAcceptor,
    fingerprint: String,
    end: Option<Duration>,
}

struct Loaded {
    usable: Usable,
    mark: Option<[(u64, i64, i64); 2]>,
    looked: Instant,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// By the certificate in these files.
    ///
    /// # Errors
    /// Where they can't be used.
    pub fn of(files: Files) -> Result<Self, CertificateError> {
        let mark = files.mark();
        let now = Mutex::new(Loaded { usable: files.load()?, mark, looked: Instant::now() });
        Ok(Self { files, is_own: false, now })
    }

    /// By the page's own one, see [`Files::own`].
    ///
    /// # Errors
    /// Where it can't be used or made.
    pub fn own(state: &Path, names: &[String]) -> Result<Self, CertificateError> {
        Ok(Self { is_own: true, ..Self::of(Files::own(state, names)?)? })
    }

    /// The fingerprint of the certificate.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).usable.fingerprint.clone()
    }

    /// Until when the certificate is good, as the coordinator is told; None: that can't be read.
    #[must_use]
    pub fn certificate(&self) -> Option<PageCertificate> {
        let end = self.now.lock().unwrap_or_else(PoisonError::into_inner).usable.end?;
        let ends_ms = u64::try_from(end.as_millis()).unwrap_or(u64::MAX);
        Some(PageCertificate { ends_ms, is_own: self.is_own })
    }

    /// What makes the next connection one of TLS. `now`: the time.
    pub(crate) fn acceptor(&self, now: Instant) -> TlsAcceptor {
        let mut loaded = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(loaded.looked) >= LOOK_AGAIN {
            loaded.looked = now;
            let mark = self.files.mark();
            if mark != loaded.mark {
                loaded.mark = mark;
                match self.files.load() {
                    Ok(usable) => loaded.usable = usable,
                    Err(error) => {
                        tracing::warn!(
                            "the page keeps the certificate that it had: failed to {error}"
                        );
                    }
                }
            }
        }
        loaded.usable.acceptor.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn an_own_certificate_stays_as_long_as_its_names_do() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = names(&["localhost", "127.0.0.1", "head", "2001:db8::1"]);
        let files = Files::own(dir.path(), &wanted).unwrap();
        let first = Tls::of(files.clone()).unwrap().fingerprint();
        assert_eq!(first.len(), 32 * 3 - 1);
        assert_eq!(fs::metadata(&files.key).unwrap().mode() & 0o7777, 0o600);
        Files::own(dir.path(), &wanted[..2]).unwrap();
        assert_eq!(Tls::of(files.clone()).unwrap().fingerprint(), first);
        Files::own(dir.path(), &names(&["10.0.0.9"])).unwrap();
        assert_ne!(Tls::of(files).unwrap().fingerprint(), first);
    }

    #[test]
    fn a_certificate_that_is_renewed_is_shown_and_a_broken_one_is_not() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let own = |dir: &Path| Files::own(dir, &names(&["localhost"])).unwrap();
        let (files, renewed) = (own(dir.path()), own(other.path()));
        let tls = Tls::of(files.clone()).unwrap();
        let (first, later) = (tls.fingerprint(), Instant::now() + LOOK_AGAIN);
        fs::rename(&renewed.certificate, &files.certificate).unwrap();
        // Its key is not there yet.
        tls.acceptor(later);
        assert_eq!(tls.fingerprint(), first);
        fs::rename(&renewed.key, &files.key).unwrap();
        tls.acceptor(later);
        assert_eq!(tls.fingerprint(), first, "it does not look again at once");
        tls.acceptor(later + LOOK_AGAIN);
        assert_ne!(tls.fingerprint(), first);
    }

    #[test]
    fn an_own_certificate_that_ends_soon_is_made_anew_and_until_then_told() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = names(&["localhost"]);
        let files = Files::own(dir.path(), &wanted).unwrap();
        let days_left = |tls: &Tls| {
            let PageCertificate { ends_ms, is_own } = tls.certificate().unwrap();
            (ends_ms.saturating_sub(since_1970().as_millis() as u64) / 1000 / 3600 / 24, is_own)
        };
        let site = Tls::of(files.clone()).unwrap();
        assert!((3649..=3650).contains(&days_left(&site).0) && !days_left(&site).1);
        files.make(&wanted, Duration::from_secs(31 * 24 * 3600)).unwrap();
        assert!(matches!(days_left(&Tls::own(dir.path(), &wanted).unwrap()), (30..=31, true)));
        // A page that runs shows what it has, and tells.
        files.make(&wanted, Duration::from_secs(29 * 24 * 3600)).unwrap();
        site.acceptor(Instant::now() + LOOK_AGAIN);
        assert!(matches!(days_left(&site), (28..=29, false)));
        assert!(days_left(&Tls::own(dir.path(), &wanted).unwrap()).0 > 3000);
        // One that has ended is told, too.
        files.make(&wanted, Duration::ZERO).unwrap();
        site.acceptor(Instant::now() + 2 * LOOK_AGAIN);
        assert_eq!(days_left(&site), (0, false));
    }

    #[test]
    fn files_that_are_no_certificate_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::own(dir.path(), &names(&["localhost"])).unwrap();
        fs::set_permissions(&files.key, Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Tls::of(files.clone()), Err(CertificateError::Open(_))));
        fs::set_permissions(&files.key, Permissions::from_mode(0o640)).unwrap();
        Tls::of(files.clone()).unwrap();
        let exchanged = Files { certificate: files.key.clone(), key: files.certificate.clone() };
        assert!(matches!(Tls::of(exchanged), Err(CertificateError::Unfit { .. })));
        let missing = Files { key: dir.path().join("none"), ..files.clone() };
        assert!(matches!(Tls::of(missing), Err(CertificateError::Io { .. })));
        let folder = Files { key: dir.path().to_owned(), ..files.clone() };
        assert!(matches!(Tls::of(folder), Err(CertificateError::Unfit { .. })));
        let other = tempfile::tempdir().unwrap();
        let foreign = Files::own(other.path(), &names(&["localhost"])).unwrap();
        let mixed = Files { key: foreign.key, ..files };
        assert!(matches!(Tls::of(mixed), Err(CertificateError::Unfit { .. })));
    }
}
