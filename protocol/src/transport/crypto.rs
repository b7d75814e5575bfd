//! The algorithms of a cluster: Ed25519 for keys, X25519 for the exchange of keys, the ciphers of TLS 1.3. Both sides are ckptd,
//! so there is nothing else to talk to: what is not here cannot be negotiated down to, and is not in the executable.

use super::TransportError;
use rcgen::{KeyPair, PKCS_ED25519, RemoteKeyPair, SignatureAlgorithm};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls::SignatureScheme;
use rustls::crypto::ring::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::crypto::ring::{kx_group, sign};
use rustls::crypto::{
    CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, WebPkiSupportedAlgorithms,
};
use rustls::pki_types::PrivateKeyDer;
use std::sync::Arc;
use webpki::ring::ED25519;

const PEM_LABEL: &str = "PRIVATE KEY";

/// Bytes of an identifier of a key (RFC 7093, section 2, method 1).
const IDENTIFIER: usize = 20;

/// Signatures that are accepted.
pub(super) static ALGORITHMS: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[ED25519],
    mapping: &[(SignatureScheme::ED25519, &[ED25519])],
};

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            TLS13_AES_256_GCM_SHA384,
            TLS13_AES_128_GCM_SHA256,
            TLS13_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups: vec![kx_group::X25519],
        signature_verification_algorithms: ALGORITHMS,
        secure_random: &System,
        key_provider: &System,
    })
}

/// Fills bytes with what nobody can guess.
///
/// # Errors
/// Where the system has no randomness.
pub fn random(bytes: &mut [u8]) -> Result<(), rustls::Error> {
    let filled = ring::rand::SecureRandom::fill(&SystemRandom::new(), bytes);
    filled.map_err(|_| rustls::Error::FailedToGetRandomBytes)
}

/// The first bytes of a hash, as certificates name keys by them.
pub(super) fn identifier(of: &[u8]) -> Vec<u8> {
    digest(&SHA256, of).as_ref()[..IDENTIFIER].to_vec()
}

#[derive(Debug)]
struct System;

impl SecureRandom for System {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        random(bytes).map_err(|_| GetRandomFailed)
    }
}

impl KeyProvider for System {
    fn load_private_key(
        &self,
        key: PrivateKeyDer<'static>,
    ) -> Result<Arc<dyn rustls::sign::SigningKey>, rustls::Error> {
        match &key {
            PrivateKeyDer::Pkcs8(key) => sign::any_eddsa_type(key),
            _ => Err(rustls::Error::General("the key is not of PKCS #8".to_owned())),
        }
    }
}

/// A private key.
pub(super) struct Key {
    /// For certificates.
    pub pair: KeyPair,
    /// PKCS #8, DER.
    pub der: Vec<u8>,
}

impl Key {
    /// A fresh one.
    pub fn generate() -> Result<Self, TransportError> {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| rustls::Error::FailedToGetRandomBytes)?;
        Self::from_der(made.as_ref().to_vec())
    }

    /// All of a text that [`Key::pem`] has written.
    pub fn all_from_pem(text: &str) -> Result<Vec<Self>, TransportError> {
        let found = pem::parse_many(text);
        let found = found.map_err(|error| TransportError::Unfit(error.to_string()))?;
        if found.is_empty() {
            return Err(TransportError::Unfit("there is no key in it".to_owned()));
        }
        found.into_iter().map(|one| Self::from_der(one.into_contents())).collect()
    }

    fn from_der(der: Vec<u8>) -> Result<Self, TransportError> {
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der)
            .map_err(|reason| TransportError::Unfit(format!("no key of Ed25519: {reason}")))?;
        Ok(Self { pair: KeyPair::from_remote(Box::new(Signing(key)))?, der })
    }

    /// Its text form.
    pub fn pem(&self) -> String {
        let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        pem::encode_config(&pem::Pem::new(PEM_LABEL, self.der.clone()), lines)
    }
}

struct Signing(Ed25519KeyPair);

impl RemoteKeyPair for Signing {
    fn public_key(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(self.0.sign(message).as_ref().to_vec())
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_from_its_text() {
        let key = Key::generate().unwrap();
        let text = key.pem();
        let again = Key::all_from_pem(&text).unwrap().remove(0);
        assert_eq!(again.pair.public_key_raw(), key.pair.public_key_raw());
        assert!(text.starts_with("-----BEGIN PRIVATE KEY-----\n") && again.pem() == text);
        assert!(Key::all_from_pem("no key").is_err());
        // An elliptic curve of another kind: P-256, from `openssl genpkey`.
        let foreign = "-----BEGIN PRIVATE KEY-----\n\
            MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgOGyFfsnecvPtyOhN\n\
            aET7MDk5KgHjNlvm6DE6i4JauiGhRANCAASbEpiyvMNEh7CLpOQhT0kEFbbsJCp0\n\
            kQy8cAaPkYE8eek3yEoXJWLMsBvtcO0wtKaRAFXm8vs8pXgfEfCDJVPq\n\
            -----END PRIVATE KEY-----\n";
        let error = Key::all_from_pem(foreign).err().unwrap().to_string();
        assert!(error.contains("no key of Ed25519: WrongAlgorithm"), "{error}");
    }

    #[test]
    fn randomness_differs() {
        let (mut one, mut other) = ([0; 32], [0; 32]);
        random(&mut one).unwrap();
        random(&mut other).unwrap();
        assert_ne!(one, other);
    }
}
