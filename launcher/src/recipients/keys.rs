//! Recipients and identities: keys of age, and keys of SSH that people have already.

use super::KeyError;
use crate::cli::RecipientArguments;
use age::ssh;
use age::x25519;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The most recipients of an archive: an import bounds the head that it reads, and theirs has room in it.
pub const MOST_RECIPIENTS: usize = 64;
/// The longest file of keys, in bytes.
const LONGEST: u64 = 1 << 20;
/// How a secret key of age begins, and one of a plugin of age.
const SECRETS: [&str; 3] = ["AGE-SECRET-KEY-", "AGE-PLUGIN-", "-----BEGIN "];

/// For whom an archive is encrypted.
pub struct Recipients(Vec<Box<dyn age::Recipient>>);

impl Recipients {
    /// Those that the command line names; None where it names none.
    pub fn named(arguments: &RecipientArguments) -> Result<Option<Self>, KeyError> {
        let mut all = Vec::new();
        for (number, key) in (1..).zip(&arguments.recipient) {
            let place = match arguments.recipient.len() {
                1 => "what --recipient gives".to_owned(),
                _ => format!("what --recipient number {number} gives"),
            };
            all.push(recipient(key, place)?);
        }
        for path in &arguments.recipients_file {
            listed(path, &mut all)?;
        }
        match all.len() {
            0 => Ok(None),
            1..=MOST_RECIPIENTS => Ok(Some(Self(all))),
            _ => Err(KeyError::TooMany),
        }
    }

    /// Each of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &dyn age::Recipient> {
        self.0.iter().map(AsRef::as_ref)
    }
}

/// One a line, as in a file of `age -R`.
fn listed(path: &Path, all: &mut Vec<Box<dyn age::Recipient>>) -> Result<(), KeyError> {
    let text = read(path)?;
    let before = all.len();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            all.push(recipient(line, format!("line {number} of {}", path.display()))?);
        }
    }
    match all.len() > before {
        true => Ok(()),
        false => Err(KeyError::NoRecipients { path: path.to_owned() }),
    }
}

/// The key is not repeated in an error: it may be a secret that stands in the wrong place.
fn recipient(key: &str, place: String) -> Result<Box<dyn age::Recipient>, KeyError> {
    let key = key.trim();
    if SECRETS.iter().any(|secret| key.starts_with(secret)) {
        return Err(KeyError::Secret { place });
    }
    if let Ok(key) = key.parse::<x25519::Recipient>() {
        return Ok(Box::new(key));
    }
    match key.parse::<ssh::Recipient>() {
        Ok(key) => Ok(Box::new(key)),
        Err(_) => Err(KeyError::NoRecipient { place }),
    }
}

/// The secret keys with which an archive is decrypted.
pub struct Identities(Vec<Box<dyn age::Identity>>);

impl Identities {
    /// Those in these files; None where there is no file.
    pub fn of(files: &[PathBuf]) -> Result<Option<Self>, KeyError> {
        let mut all = Vec::new();
        for path in files {
            identities(path, &mut all)?;
        }
        Ok(Some(Self(all)).filter(|_| !files.is_empty()))
    }

    /// Each of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &dyn age::Identity> {
        self.0.iter().map(AsRef::as_ref)
    }
}

fn identities(path: &Path, all: &mut Vec<Box<dyn age::Identity>>) -> Result<(), KeyError> {
    let text = read(path)?;
    let wrong = || KeyError::NoIdentity { path: path.to_owned() };
    let locked = text.as_bytes().starts_with(super::MAGIC) || text.contains("AGE ENCRYPTED FILE");
    if locked {
        return Err(KeyError::Locked { path: path.to_owned() });
    }
    if text.trim_start().starts_with("-----BEGIN ") {
        return match ssh::Identity::from_buffer(text.trim_start().as_bytes(), None) {
            Ok(key @ ssh::Identity::Unencrypted(_)) => {
                all.push(Box::new(key));
                Ok(())
            }
            Ok(ssh::Identity::Encrypted(_)) => Err(KeyError::Locked { path: path.to_owned() }),
            Ok(ssh::Identity::Unsupported(_)) | Err(_) => Err(wrong()),
        };
    }
    let before = all.len();
    for line in text.lines().map(str::trim) {
        if !line.is_empty() && !line.starts_with('#') {
            let key: x25519::Identity = line.parse().map_err(|_| wrong())?;
            all.push(Box::new(key));
        }
    }
    if all.len() > before { Ok(()) } else { Err(wrong()) }
}

fn read(path: &Path) -> Result<String, KeyError> {
    let failed = |error| KeyError::File { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LONGEST {
        return Err(failed(io::Error::other("it is longer than any file of keys")));
    }
    // An identity that age has encrypted is no text; its beginning is enough to tell what it is.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
