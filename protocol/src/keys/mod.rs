//! Keys by which users prove who they are: public keys of SSH, as `authorized_keys` has them (sshd(8)), and the
//! signatures that `ssh-keygen -Y sign` makes with them. Reading is the ssh-key crate's, checking is ring's.
//!
//! - `signature`: what was signed, with which key, and whether that is true.

mod signature;

#[cfg(test)]
mod samples;

pub use signature::{MAX_SIGNATURE, SignatureError, Signed};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::digest::{SHA256, digest};
use ssh_key::PublicKey;
use ssh_key::public::KeyData;
use thiserror::Error;

/// The longest line that is read, in bytes: a key of RSA with 8192 bits has 1,400.
pub const MAX_LINE: usize = 4096;

/// The longest comment that is kept, in bytes.
const MAX_COMMENT: usize = 128;

/// Bits of the modulus of a key of RSA.
#[cfg(feature = "all-keys")]
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// How the names of all kinds of keys begin.
const KINDS: [&str; 3] = ["ssh-", "ecdsa-", "sk-"];

/// Why a text is no key that can be known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyError {
    /// It is much too long.
    #[error("it is longer than {MAX_LINE} bytes")]
    Long,
    /// There is none.
    #[error("there is no key in it")]
    Nothing,
    /// There are several lines.
    #[error("it holds several keys: give one at a time")]
    Several,
    /// It must not be known to anybody.
    #[error("that is a private key, which nobody else is to see: give the file that ends in .pub")]
    Private,
    /// What sshd would heed, and the cluster would not.
    #[error("it has options ({0}), which mean nothing here: give the key alone")]
    Options(String),
    /// It can't be read.
    #[error("it is no public key in the form of authorized_keys: {0}")]
    Unreadable(String),
    /// Keys of that kind are not taken.
    #[error("keys of the kind {kind} are not taken: {taken}", taken = TAKEN)]
    Kind {
        /// Its name.
        kind: String,
    },
    /// It is weak, or larger than anything that would be checked.
    #[error("its modulus has {0} bits: 2048 to 8192 are taken")]
    Bits(usize),
}

/// The kinds that are taken.
#[cfg(feature = "all-keys")]
const TAKEN: &str = "ssh-ed25519, ecdsa-sha2-nistp256, ssh-rsa, sk-ssh-ed25519@openssh.com and \
    sk-ecdsa-sha2-nistp256@openssh.com are";
#[cfg(not(feature = "all-keys"))]
const TAKEN: &str = "this ckptd takes ssh-ed25519 and sk-ssh-ed25519@openssh.com";

/// A public key of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserKey {
    key: PublicKey,
    fingerprint: String,
}

impl UserKey {
    /// Reads one line of `authorized_keys`, or a file that holds one.
    ///
    /// # Errors
    /// Where it is none, has options, or is of a kind that is not taken.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        if text.contains("PRIVATE KEY-----") {
            return Err(KeyError::Private);
        }
        if text.len() > MAX_LINE {
            return Err(KeyError::Long);
        }
        let is_key = |line: &&str| !line.is_empty() && !line.starts_with('#');
        let mut lines = text.lines().map(str::trim).filter(is_key);
        let line = lines.next().ok_or(KeyError::Nothing)?;
        if lines.next().is_some() {
            return Err(KeyError::Several);
        }
        Self::of_line(line)
    }

    fn of_line(line: &str) -> Result<Self, KeyError> {
        let mut words = line.split_whitespace();
        let kind = words.next().ok_or(KeyError::Nothing)?;
        let names_kind = |word: &str| KINDS.iter().any(|known| word.starts_with(known));
        if !names_kind(kind) {
            return Err(match words.any(names_kind) {
                true => KeyError::Options(printable(kind)),
                false => {
                    KeyError::Unreadable(format!("{:?} names no kind of key", printable(kind)))
                }
            });
        }
        let body = words.next().unwrap_or_default();
        let comment = printable(&words.collect::<Vec<_>>().join(" "));
        let unreadable = |error: ssh_key::Error| match error {
            ssh_key::Error::AlgorithmUnknown => KeyError::Kind { kind: printable(kind) },
            error => KeyError::Unreadable(error.to_string()),
        };
        if kind.contains("-cert-") {
            return Err(KeyError::Kind { kind: printable(kind) });
        }
        let mut key = PublicKey::from_openssh(&format!("{kind} {body}")).map_err(unreadable)?;
        key.set_comment(comment);
        check(key.key_data())?;
        let fingerprint = fingerprint(key.key_data()).map_err(unreadable)?;
        Ok(Self { key, fingerprint })
    }

    /// Its name, as `ssh-keygen -l` tells it: `SHA256:` and 43 characters.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Its kind, as `ssh-ed25519`.
    #[must_use]
    pub fn kind(&self) -> String {
        self.key.algorithm().as_str().to_owned()
    }

    /// What its file says of it; of no meaning.
    #[must_use]
    pub fn comment(&self) -> &str {
        self.key.comment()
    }

    /// Its line, without a newline: what [`UserKey::parse`] reads again.
    #[must_use]
    pub fn line(&self) -> String {
        // What was read has a form.
        self.key.to_openssh().unwrap_or_default()
    }

    /// Whether this key has signed that message.
    ///
    /// # Errors
    /// Where it has not.
    pub fn check(&self, message: &[u8], signed: &Signed) -> Result<(), SignatureError> {
        signed.check(self.key.key_data(), message)
    }
}

/// Whether keys like this one are taken.
fn check(key: &KeyData) -> Result<(), KeyError> {
    match key {
        KeyData::Ed25519(_) | KeyData::SkEd25519(_) => Ok(()),
        #[cfg(feature = "all-keys")]
        KeyData::Ecdsa(ssh_key::public::EcdsaPublicKey::NistP256(_))
        | KeyData::SkEcdsaSha2NistP256(_) => Ok(()),
        #[cfg(feature = "all-keys")]
        KeyData::Rsa(key) => match key.n.as_positive_bytes() {
            Some(modulus) if RSA_BITS.contains(&bits(modulus)) => Ok(()),
            modulus => Err(KeyError::Bits(modulus.map_or(0, bits))),
        },
        other => Err(KeyError::Kind { kind: other.algorithm().as_str().to_owned() }),
    }
}

/// Of a number without leading zeros.
#[cfg(feature = "all-keys")]
fn bits(number: &[u8]) -> usize {
    let leading = number.first().map_or(0, |first| first.leading_zeros() as usize);
    (number.len() * 8).saturating_sub(leading)
}

/// The name by which `ssh-keygen -l` shows a key.
fn fingerprint(key: &KeyData) -> Result<String, ssh_key::Error> {
    let bytes = PublicKey::from(key.clone()).to_bytes()?;
    Ok(format!("SHA256:{}", STANDARD_NO_PAD.encode(digest(&SHA256, &bytes))))
}

/// As much of a text as a terminal and a log can take.
fn printable(text: &str) -> String {
    let mut kept = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if kept.len() + c.len_utf8() > MAX_COMMENT {
            break;
        }
        kept.push(c);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::samples::{ED25519_FINGERPRINT, ED25519_KEY, KEYS};
    use super::*;

    #[test]
    fn keys_are_read_and_named_as_ssh_keygen_names_them() {
        let key = UserKey::parse(ED25519_KEY).unwrap();
        assert_eq!(key.fingerprint(), ED25519_FINGERPRINT);
        assert_eq!((key.kind().as_str(), key.comment()), ("ssh-ed25519", "alice at desk"));
        assert_eq!(UserKey::parse(&key.line()).unwrap(), key);
        let spaced = format!("# hers\n\n  {}\n", ED25519_KEY.replace(' ', " \t "));
        assert_eq!(UserKey::parse(&spaced).unwrap(), key);
        for (line, kind) in KEYS {
            assert_eq!(UserKey::parse(line).unwrap().kind(), *kind);
        }
    }

    #[test]
    fn what_is_no_key_is_refused_by_name() {
        let body = ED25519_KEY.split(' ').nth(1).unwrap();
        let refused = |text: &str| UserKey::parse(text).unwrap_err();
        assert_eq!(refused("\n# nothing\n"), KeyError::Nothing);
        assert_eq!(refused(&"x".repeat(MAX_LINE + 1)), KeyError::Long);
        assert_eq!(refused(&format!("{ED25519_KEY}\n{ED25519_KEY}")), KeyError::Several);
        assert_eq!(refused("-----BEGIN OPENSSH PRIVATE KEY-----\nb3"), KeyError::Private);
        for options in ["cert-authority", "command=\"sh -c 'id'\"", "restrict,pty"] {
            let error = refused(&format!("{options} {ED25519_KEY}"));
            assert!(matches!(error, KeyError::Options(_)), "{options}: {error}");
        }
        for text in ["hello", "ssh-ed25519", "ssh-ed25519 AAAA", &format!("ssh-ed25519 {body}AAAA")]
        {
            let error = refused(text);
            assert!(matches!(error, KeyError::Unreadable(_)), "{text}: {error}");
        }
        // The name in front is another than the one inside.
        let error = refused(&format!("sk-ssh-ed25519@openssh.com {body}"));
        assert!(matches!(error, KeyError::Kind { .. }), "{error}");
        for kind in ["ssh-dss", "ssh-ed25519-cert-v01@openssh.com", "ssh-xmss@openssh.com"] {
            let error = refused(&format!("{kind} {body}"));
            assert_eq!(error, KeyError::Kind { kind: kind.to_owned() });
        }
        let long = UserKey::parse(&format!("ssh-ed25519 {body} {}", "é".repeat(500))).unwrap();
        assert_eq!(long.comment().len(), MAX_COMMENT);
        let escape = UserKey::parse(&format!("ssh-ed25519 {body} a\x1b[31mb")).unwrap();
        assert_eq!(escape.comment(), "a[31mb");
    }
}
