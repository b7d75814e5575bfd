//! Signatures in the form of `ssh-keygen -Y sign` (OpenSSH's PROTOCOL.sshsig), and those of security keys in them
//! (PROTOCOL.u2f).

use super::fingerprint;
use ring::digest::{SHA256, SHA512, digest};
use ring::signature::{ED25519, UnparsedPublicKey, VerificationAlgorithm};
use ssh_key::public::KeyData;
use ssh_key::{Algorithm, HashAlg, SshSig};
use thiserror::Error;

/// The longest signature that is read, in bytes of its text: one of RSA with 8192 bits has 3,600.
pub const MAX_SIGNATURE: usize = 8192;

/// In front of all that is signed in this form, so that it can't be taken for anything else.
const PREAMBLE: &[u8] = b"SSHSIG";

/// What a security key adds to a signature: its flags, and how often it has signed.
const TRAILER: usize = 5;
/// That somebody has touched it.
const TOUCHED: u8 = 1;

/// Why a signature does not count.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SignatureError {
    /// It is much too long.
    #[error("it is longer than {MAX_SIGNATURE} bytes")]
    Long,
    /// It can't be read.
    #[error("it is no signature of ssh-keygen: {0}")]
    Unreadable(String),
    /// It is for something else.
    #[error("it was made for {0:?}, not for this")]
    Namespace(String),
    /// Another key has made it.
    #[error("another key has made it")]
    Key,
    /// It is made in a way that is not taken.
    #[error("it is of the kind {0}, which is not taken for that key")]
    Kind(String),
    /// It is not true.
    #[error("it is not of what was to be signed")]
    False,
    /// Nobody has touched the security key.
    #[error("the security key was not touched")]
    Untouched,
}

/// A signature that was read, and not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    signature: SshSig,
    fingerprint: String,
}

impl Signed {
    /// Reads the text that `ssh-keygen -Y sign -n NAMESPACE` has written.
    ///
    /// # Errors
    /// Where it is none, or for something else.
    pub fn parse(text: &str, namespace: &str) -> Result<Self, SignatureError> {
        if text.len() > MAX_SIGNATURE {
            return Err(SignatureError::Long);
        }
        let unreadable = |error: ssh_key::Error| SignatureError::Unreadable(error.to_string());
        let signature = SshSig::from_pem(text).map_err(unreadable)?;
        if signature.version() != SshSig::VERSION {
            let reason = format!("its version is {}", signature.version());
            return Err(SignatureError::Unreadable(reason));
        }
        if signature.namespace() != namespace {
            let found: String = signature.namespace().chars().take(64).collect();
            return Err(SignatureError::Namespace(found));
        }
        let fingerprint = fingerprint(signature.public_key()).map_err(unreadable)?;
        Ok(Self { signature, fingerprint })
    }

    /// The key that it says has made it, as [`super::UserKey::fingerprint`].
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Whether that key has signed that message.
    pub(super) fn check(&self, key: &KeyData, message: &[u8]) -> Result<(), SignatureError> {
        if key != self.signature.public_key() {
            return Err(SignatureError::Key);
        }
        let data = self.signed_data(message)?;
        let bytes = self.signature.signature_bytes();
        match (key, self.signature.algorithm()) {
            (KeyData::Ed25519(key), Algorithm::Ed25519) => {
                verify(&ED25519, key.as_ref(), &data, bytes)
            }
            (KeyData::SkEd25519(key), Algorithm::SkEd25519) => {
                let (data, bytes) = touched(key.application(), &data, bytes)?;
                verify(&ED25519, key.public_key().as_ref(), &data, bytes)
            }
            #[cfg(feature = "all-keys")]
            (key, kind) => other::check(key, &kind, &data, bytes),
            #[cfg(not(feature = "all-keys"))]
            (_, kind) => Err(SignatureError::Kind(kind.as_str().to_owned())),
        }
    }

    /// What the key has really signed.
    fn signed_data(&self, message: &[u8]) -> Result<Vec<u8>, SignatureError> {
        let (name, hash) = match self.signature.hash_alg() {
            HashAlg::Sha256 => ("sha256", digest(&SHA256, message)),
            HashAlg::Sha512 => ("sha512", digest(&SHA512, message)),
            other => return Err(SignatureError::Kind(other.as_str().to_owned())),
        };
        let mut data = PREAMBLE.to_vec();
        let parts = [
            self.signature.namespace().as_bytes(),
            self.signature.reserved(),
            name.as_bytes(),
            hash.as_ref(),
        ];
        for part in parts {
            let length = u32::try_from(part.len()).map_err(|_| SignatureError::Long)?;
            data.extend(length.to_be_bytes());
            data.extend(part);
        }
        Ok(data)
    }
}

fn verify(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &[u8],
    data: &[u8],
    signature: &[u8],
) -> Result<(), SignatureError> {
    let key = UnparsedPublicKey::new(algorithm, key);
    key.verify(data, signature).map_err(|_| SignatureError::False)
}

/// What a security key signs of those data, and its signature without the trailer.
fn touched<'a>(
    application: &str,
    data: &[u8],
    signature: &'a [u8],
) -> Result<(Vec<u8>, &'a [u8]), SignatureError> {
    let at = signature.len().checked_sub(TRAILER).ok_or(SignatureError::False)?;
    let (signature, trailer) = signature.split_at(at);
    let flags = trailer.first().copied().unwrap_or_default();
    if flags & TOUCHED == 0 {
        return Err(SignatureError::Untouched);
    }
    let mut signed = digest(&SHA256, application.as_bytes()).as_ref().to_vec();
    signed.extend(trailer);
    signed.extend(digest(&SHA256, data).as_ref());
    Ok((signed, signature))
}

/// RSA and the curve P-256.
#[cfg(feature = "all-keys")]
mod other {
    use super::{SignatureError, touched, verify};
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA512,
        RsaParameters, RsaPublicKeyComponents,
    };
    use ssh_key::public::{EcdsaPublicKey, KeyData, RsaPublicKey};
    use ssh_key::{Algorithm, EcdsaCurve, HashAlg};

    /// Bytes of each of the two numbers of a signature by that curve.
    const P256: usize = 32;

    pub(super) fn check(
        key: &KeyData,
        kind: &Algorithm,
        data: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureError> {
        match (key, kind) {
            (
                KeyData::Ecdsa(EcdsaPublicKey::NistP256(key)),
                Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
            ) => verify(&ECDSA_P256_SHA256_FIXED, key.as_bytes(), data, &fixed(signature)?),
            (KeyData::SkEcdsaSha2NistP256(key), Algorithm::SkEcdsaSha2NistP256) => {
                let (data, signature) = touched(key.application(), data, signature)?;
                let point = key.ec_point().as_bytes();
                verify(&ECDSA_P256_SHA256_FIXED, point, &data, &fixed(signature)?)
            }
            (KeyData::Rsa(key), Algorithm::Rsa { hash: Some(HashAlg::Sha256) }) => {
                rsa(&RSA_PKCS1_2048_8192_SHA256, key, data, signature)
            }
            (KeyData::Rsa(key), Algorithm::Rsa { hash: Some(HashAlg::Sha512) }) => {
                rsa(&RSA_PKCS1_2048_8192_SHA512, key, data, signature)
            }
            (_, kind) => Err(SignatureError::Kind(kind.as_str().to_owned())),
        }
    }

    fn rsa(
        parameters: &'static RsaParameters,
        key: &RsaPublicKey,
        data: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureError> {
        let (n, e) = (key.n.as_positive_bytes(), key.e.as_positive_bytes());
        let (n, e) = n.zip(e).ok_or(SignatureError::False)?;
        let key = RsaPublicKeyComponents { n, e };
        key.verify(parameters, data, signature).map_err(|_| SignatureError::False)
    }

    /// The two numbers, each in front of it its length (RFC 5656, section 3.1.2), as ring takes them: of one length.
    fn fixed(mut signature: &[u8]) -> Result<[u8; 2 * P256], SignatureError> {
        let mut fixed = [0; 2 * P256];
        for half in fixed.chunks_exact_mut(P256) {
            let (length, rest) = signature.split_first_chunk().ok_or(SignatureError::False)?;
            let length = u32::from_be_bytes(*length) as usize;
            let number = rest.get(..length).ok_or(SignatureError::False)?;
            signature = &rest[length..];
            let number = number.strip_prefix(&[0]).unwrap_or(number);
            let at = P256.checked_sub(number.len()).ok_or(SignatureError::False)?;
            half[at..].copy_from_slice(number);
        }
        if signature.is_empty() { Ok(fixed) } else { Err(SignatureError::False) }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn numbers_of_any_length_are_brought_to_one() {
            let number = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat();
            let long = [&[0, 0x80][..], &[7; 31]].concat();
            let made = fixed(&[number(&[5]), number(&long)].concat()).unwrap();
            assert_eq!((made[30], made[31], made[32], made[63]), (0, 5, 0x80, 7));
            let short = number(&[5]);
            for wrong in [
                Vec::new(),
                short.clone(),
                [short.clone(), short.clone(), vec![1]].concat(),
                [short, u32::MAX.to_be_bytes().to_vec()].concat(),
                [number(&[1; 34]), number(&[1])].concat(),
            ] {
                assert_eq!(fixed(&wrong), Err(SignatureError::False), "{wrong:?}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::UserKey;
    use super::super::samples::*;
    use super::*;
    use ring::signature::{Ed25519KeyPair, KeyPair};
    use ssh_key::public::{Ed25519PublicKey, SkEd25519};
    use ssh_key::{LineEnding, PublicKey, Signature};

    const NAMESPACE: &str = "ckptd-login";

    fn check(key: &str, signature: &str, message: &[u8]) -> Result<(), SignatureError> {
        let key = UserKey::parse(key).unwrap();
        let signed = Signed::parse(signature, NAMESPACE)?;
        key.check(message, &signed)
    }

    #[test]
    fn what_ssh_keygen_has_signed_counts_and_nothing_else() {
        for (key, signature) in SIGNATURES {
            assert_eq!(check(key, signature, MESSAGE), Ok(()), "{key}");
            assert_eq!(check(key, signature, b"other"), Err(SignatureError::False), "{key}");
            let fingerprint = UserKey::parse(key).unwrap().fingerprint().to_owned();
            assert_eq!(Signed::parse(signature, NAMESPACE).unwrap().fingerprint(), fingerprint);
            // A byte of the signature proper: the last characters of its base64 but the padding.
            let end = signature.find("\n-----END").unwrap() - 8;
            let other = if signature.as_bytes()[end] == b'A' { "B" } else { "A" };
            let mut changed = (*signature).to_owned();
            changed.replace_range(end..=end, other);
            check(key, &changed, MESSAGE).unwrap_err();
        }
        for other in KEYS.iter().skip(1) {
            assert_eq!(check(other.0, ED25519_SIGNATURE, MESSAGE), Err(SignatureError::Key));
        }
        let file = check(ED25519_KEY, ED25519_FILE, MESSAGE);
        assert_eq!(file, Err(SignatureError::Namespace("file".to_owned())));
    }

    #[test]
    fn what_is_no_signature_is_refused() {
        let parse = |text: &str| Signed::parse(text, NAMESPACE).unwrap_err();
        assert_eq!(parse(&"x".repeat(MAX_SIGNATURE + 1)), SignatureError::Long);
        let cut = ED25519_SIGNATURE.lines().filter(|line| line.len() != 70).collect::<String>();
        for text in ["", "hello", &ED25519_SIGNATURE[..100], &cut, ED25519_KEY] {
            assert!(matches!(parse(text), SignatureError::Unreadable(_)), "{text:?}");
        }
    }

    #[cfg(feature = "all-keys")]
    #[test]
    fn weak_and_old_keys_are_refused_by_name() {
        use super::super::KeyError;
        assert_eq!(UserKey::parse(RSA_1024).unwrap_err(), KeyError::Bits(1024));
        for (key, kind) in [(P384, "ecdsa-sha2-nistp384"), (DSA, "ssh-dss")] {
            assert_eq!(UserKey::parse(key).unwrap_err(), KeyError::Kind { kind: kind.to_owned() });
        }
    }

    /// A security key of Ed25519, in software: what it signs of the message, with these flags.
    fn security_key(flags: u8) -> (String, String) {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let public = Ed25519PublicKey(pair.public_key().as_ref().try_into().unwrap());
        let key = KeyData::SkEd25519(SkEd25519::new(public, "ssh:"));
        let data = SshSig::signed_data(NAMESPACE, HashAlg::Sha512, MESSAGE).unwrap();
        let trailer = [flags, 0, 0, 0, 9];
        let parts =
            [digest(&SHA256, b"ssh:").as_ref(), &trailer, digest(&SHA256, &data).as_ref()].concat();
        let bytes = [pair.sign(&parts).as_ref(), &trailer].concat();
        let signature = Signature::new(Algorithm::SkEd25519, bytes).unwrap();
        let signed = SshSig::new(key.clone(), NAMESPACE, HashAlg::Sha512, signature).unwrap();
        (PublicKey::from(key).to_openssh().unwrap(), signed.to_pem(LineEnding::LF).unwrap())
    }

    #[test]
    fn a_security_key_counts_if_it_was_touched() {
        let (key, signature) = security_key(TOUCHED);
        assert_eq!(check(&key, &signature, MESSAGE), Ok(()));
        assert_eq!(check(&key, &signature, b"other"), Err(SignatureError::False));
        let (key, signature) = security_key(0);
        assert_eq!(check(&key, &signature, MESSAGE), Err(SignatureError::Untouched));
    }
}
