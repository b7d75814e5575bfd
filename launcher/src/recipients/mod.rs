//! Archives that are encrypted for recipients, in the format of age (age-encryption.org/v1).
//!
//! - `keys`: recipients and identities, as people write them.
//! - `header`: the head of an encrypted archive, bounded before anything parses it.
//! - `sealed`: what encrypts and decrypts. Without the cargo feature `recipients`, `without` stands for both.

#[cfg(feature = "recipients")]
mod header;
#[cfg(feature = "recipients")]
mod keys;
#[cfg(feature = "recipients")]
mod sealed;
#[cfg(not(feature = "recipients"))]
mod without;

#[cfg(feature = "recipients")]
pub use keys::{Identities, Recipients};
#[cfg(feature = "recipients")]
pub use sealed::{Decrypting, Encrypting};
#[cfg(not(feature = "recipients"))]
pub use without::{Decrypting, Encrypting, Identities, Recipients};

use std::io::{self, Cursor, Read, Write};
#[cfg(feature = "recipients")]
use std::path::PathBuf;
use thiserror::Error;

/// What begins every archive that is encrypted in this format, whatever its version.
const MAGIC: &[u8] = b"age-encryption.org/";
/// What begins one that was made text by `age --armor`.
const ARMOR: &[u8] = b"-----BEGIN AGE ENCRYPTED FILE-----";

/// Why an archive is not encrypted or decrypted; the text is a cause.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The feature is missing.
    #[cfg(not(feature = "recipients"))]
    #[error(
        "this ckptd is built without keys for archives, as those for phones are: encrypt and decrypt by 'age', with - for \
         the archive here"
    )]
    Without,
    /// A recipient can't be parsed.
    #[cfg(feature = "recipients")]
    #[error("{place} is no recipient: age1..., ssh-ed25519 ... or ssh-rsa ... is one")]
    NoRecipient {
        /// Where it stands.
        place: String,
    },
    /// It is a secret where a public key is due.
    #[cfg(feature = "recipients")]
    #[error("{place} is a secret key: give the public one that belongs to it")]
    Secret {
        /// Where it stands.
        place: String,
    },
    /// Nobody could read the archive.
    #[cfg(feature = "recipients")]
    #[error("{} names no recipient", path.display())]
    NoRecipients {
        /// The file.
        path: PathBuf,
    },
    /// There are more than any import reads.
    #[cfg(feature = "recipients")]
    #[error("there are more than {} recipients", keys::MOST_RECIPIENTS)]
    TooMany,
    /// A file can't be read.
    #[cfg(feature = "recipients")]
    #[error("read {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// An identity needs a passphrase.
    #[cfg(feature = "recipients")]
    #[error(
        "the key in {path} has a passphrase, for which ckptd does not ask: 'age -d -i {path} ARCHIVE | ckptd import -' does",
        path = path.display()
    )]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// An identity can't be parsed.
    #[cfg(feature = "recipients")]
    #[error(
        "{} holds no secret key of age (AGE-SECRET-KEY-1...), nor one of SSH (ed25519 or RSA)",
        path.display()
    )]
    NoIdentity {
        /// The file.
        path: PathBuf,
    },
    /// An archive is encrypted, and no key is given.
    #[cfg(feature = "recipients")]
    #[error("it is encrypted: name the file with your secret key by --identity FILE")]
    Needed,
    /// An archive is encrypted in a way that takes the program of age.
    #[error("it is {0}, which ckptd does not read: 'age -d ARCHIVE | ckptd import -' does")]
    Other(&'static str),
    /// No key given opens it.
    #[cfg(feature = "recipients")]
    #[error("it is encrypted for others: none of the keys given opens it")]
    Foreign,
    /// Its head is damaged, or was changed.
    #[cfg(feature = "recipients")]
    #[error("it is encrypted, and its head was cut short or changed: have it copied again")]
    Head,
    /// It has a newer version.
    #[cfg(feature = "recipients")]
    #[error("it is encrypted in a newer form of age than this ckptd knows: use a newer ckptd")]
    Newer,
    /// It can't be written or read.
    #[error("{0}")]
    Stream(#[from] io::Error),
}

/// What writes an archive: as it is, or encrypted.
pub enum Sealing<W: Write> {
    /// As it is.
    Plain(W),
    /// Encrypted.
    Encrypting(Encrypting<W>),
}

impl<W: Write> Sealing<W> {
    /// Encrypts for these recipients, if there are any.
    pub fn of(recipients: Option<&Recipients>, out: W) -> Result<Self, KeyError> {
        match recipients {
            Some(recipients) => Ok(Self::Encrypting(Encrypting::of(recipients, out)?)),
            None => Ok(Self::Plain(out)),
        }
    }

    /// Writes what the end takes; what all went to.
    pub fn finish(self) -> io::Result<W> {
        match self {
            Self::Plain(out) => Ok(out),
            Self::Encrypting(out) => out.finish(),
        }
    }
}

impl<W: Write> Write for Sealing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(bytes),
            Self::Encrypting(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.flush(),
            Self::Encrypting(out) => out.flush(),
        }
    }
}

/// An archive from its first byte on, of which some bytes have been looked at.
type Looked<R> = io::Chain<Cursor<Vec<u8>>, R>;

/// What reads an archive: as it is, or decrypted.
pub enum Opened<R: Read> {
    /// It is not encrypted.
    Plain(Looked<R>),
    /// It is decrypted.
    Decrypting(Box<Decrypting<Looked<R>>>),
}

impl<R: Read> Opened<R> {
    /// Looks whether it is encrypted, and decrypts it then.
    pub fn of(mut from: R, identities: Option<&Identities>) -> Result<Self, KeyError> {
        let mut start = Vec::new();
        from.by_ref().take(ARMOR.len() as u64).read_to_end(&mut start)?;
        let (encrypted, armored) = (start.starts_with(MAGIC), start.starts_with(ARMOR));
        let from = Cursor::new(start).chain(from);
        match (encrypted, armored) {
            (true, _) => Ok(Self::Decrypting(Box::new(Decrypting::of(from, identities)?))),
            (_, true) => Err(KeyError::Other("encrypted and made text")),
            (false, false) => Ok(Self::Plain(from)),
        }
    }
}

impl<R: Read> Read for Opened<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(from) => from.read(into),
            Self::Decrypting(from) => from.read(into),
        }
    }
}
