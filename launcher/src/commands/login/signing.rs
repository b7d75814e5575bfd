//! Signatures by ssh-keygen: it knows passphrases, ssh-agent and security keys.

use protocol::cluster::login::NAMESPACE;
use protocol::keys::MAX_SIGNATURE;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use thiserror::Error;

/// Keys that are looked for, in this order.
const USUAL: [&str; 5] = ["id_ed25519", "id_ed25519_sk", "id_ecdsa", "id_ecdsa_sk", "id_rsa"];

/// Why there is no signature.
#[derive(Debug, Error)]
pub enum SigningError {
    /// There is no key.
    #[error("there is no key in {}: 'ssh-keygen -t ed25519' makes one, --key names another", .0.display())]
    NoKey(PathBuf),
    /// It is not known where keys are.
    #[error("HOME is not set: name the key by --key")]
    NoHome,
    /// The program is not there.
    #[error("ssh-keygen signs, and is not installed (Debian's package openssh-client)")]
    NotInstalled,
    /// It can't be run.
    #[error("run ssh-keygen: {0}")]
    Io(#[from] io::Error),
    /// It did not sign.
    #[error("ssh-keygen has not signed with {}: it ended with {status}", key.display())]
    Unsigned {
        /// The key.
        key: PathBuf,
        /// How it ended.
        status: ExitStatus,
    },
}

/// The user's key: the first of the usual ones that is there.
///
/// # Errors
/// Where there is none.
pub fn usual_key() -> Result<PathBuf, SigningError> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    usual_key_in(&PathBuf::from(home.ok_or(SigningError::NoHome)?).join(".ssh"))
}

fn usual_key_in(folder: &Path) -> Result<PathBuf, SigningError> {
    for key in USUAL.map(|name| folder.join(name)) {
        // ssh-agent may have the private half of one whose public half alone is there.
        for key in [key.clone(), key.with_extension("pub")] {
            if key.is_file() {
                return Ok(key);
            }
        }
    }
    Err(SigningError::NoKey(folder.to_owned()))
}

/// Has a text signed. ssh-keygen asks for a passphrase or a touch at the terminal, and says there what is wrong.
///
/// # Errors
/// Where it is not signed.
pub fn sign(key: &Path, text: &str) -> Result<String, SigningError> {
    sign_by("ssh-keygen", key, text)
}

fn sign_by(program: &str, key: &Path, text: &str) -> Result<String, SigningError> {
    let begun = Command::new(program)
        .args(["-q", "-Y", "sign", "-n", NAMESPACE, "-f"])
        .arg(key)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut signer = begun.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => SigningError::NotInstalled,
        _ => SigningError::Io(error),
    })?;
    if let Some(mut input) = signer.stdin.take() {
        match input.write_all(text.as_bytes()) {
            // It ends before it has read all where the key is none: its status tells.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            written => written?,
        }
    }
    let mut signature = String::new();
    if let Some(output) = signer.stdout.take() {
        output.take(MAX_SIGNATURE as u64 + 1).read_to_string(&mut signature)?;
    }
    let status = signer.wait()?;
    match status.success() {
        true => Ok(signature),
        false => Err(SigningError::Unsigned { key: key.to_owned(), status }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::keys::{Signed, UserKey};
    use std::fs;

    #[test]
    fn the_usual_keys_are_found_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let error = usual_key_in(dir.path()).unwrap_err();
        assert!(matches!(error, SigningError::NoKey(_)), "{error}");
        for (name, found) in
            [("id_rsa", "id_rsa"), ("id_ecdsa.pub", "id_ecdsa.pub"), ("id_ed25519", "id_ed25519")]
        {
            fs::write(dir.path().join(name), "").unwrap();
            assert_eq!(usual_key_in(dir.path()).unwrap(), dir.path().join(found));
        }
    }

    #[test]
    fn without_ssh_keygen_one_line_says_so() {
        let error = sign_by("/nowhere/ssh-keygen", Path::new("/x"), "").unwrap_err();
        assert!(error.to_string().contains("not installed (Debian's package"), "{error}");
    }

    #[test]
    fn what_ssh_keygen_signs_is_what_was_to_be_signed() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("id_ed25519");
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"])
            .arg(&key)
            .status()
            .unwrap();
        assert!(made.success());
        let signature = sign(&key, "what is signed\n").unwrap();
        let public = UserKey::parse(&fs::read_to_string(key.with_extension("pub")).unwrap());
        let signed = Signed::parse(&signature, NAMESPACE).unwrap();
        assert_eq!(public.unwrap().check(b"what is signed\n", &signed), Ok(()));
        let none = sign(&dir.path().join("nothing"), "x").unwrap_err();
        assert!(matches!(none, SigningError::Unsigned { .. }), "{none}");
    }
}
