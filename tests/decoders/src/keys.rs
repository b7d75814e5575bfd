//! Users' keys and signatures, in the forms of SSH.

use crate::random::Random;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::cluster::login::NAMESPACE;
use protocol::keys::{Signed, UserKey};

/// Reads the bytes as text; and as what the base64 of a key of each kind, and of a signature, holds, so that no alphabet
/// hides what they say.
pub fn read(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let key = UserKey::parse(&text);
    let signed = Signed::parse(&text, NAMESPACE);
    check(key.ok().as_ref(), signed.ok().as_ref());
    let encoded = STANDARD.encode(bytes);
    let signed = Signed::parse(&armoured(&encoded), NAMESPACE).ok();
    for kind in ["ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa", "sk-ssh-ed25519@openssh.com"] {
        let key = UserKey::parse(&format!("{kind} {encoded} of somebody")).ok();
        check(key.as_ref(), signed.as_ref());
    }
    let fixed = [
        key_of("ssh-ed25519", &ed25519()),
        key_of("ecdsa-sha2-nistp256", &p256()),
        key_of("ssh-rsa", &rsa()),
    ];
    for key in fixed.into_iter().flatten() {
        check(Some(&key), signed.as_ref());
    }
}

fn check(key: Option<&UserKey>, signed: Option<&Signed>) {
    if let (Some(key), Some(signed)) = (key, signed) {
        // Nobody has signed it.
        assert!(key.check(b"what nobody has signed", signed).is_err());
    }
    if let Some(key) = key {
        let again =
            UserKey::parse(&key.line()).map(|again| again.fingerprint() == key.fingerprint());
        assert!(matches!(again, Ok(true)), "a key is another one when it is read again");
    }
}

fn key_of(kind: &str, blob: &[u8]) -> Option<UserKey> {
    UserKey::parse(&format!("{kind} {}", STANDARD.encode(blob))).ok()
}

/// As ssh-keygen writes it: lines of 70 characters.
fn armoured(encoded: &str) -> String {
    let lines: Vec<&str> = encoded
        .as_bytes()
        .chunks(70)
        .map(|line| std::str::from_utf8(line).unwrap_or_default())
        .collect();
    let body = lines.join("\n");
    format!("-----BEGIN SSH SIGNATURE-----\n{body}\n-----END SSH SIGNATURE-----\n")
}

/// Parts, each with its length in front (RFC 4251, section 5).
fn parts(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend(u32::try_from(part.len()).unwrap_or_default().to_be_bytes());
        bytes.extend(*part);
    }
    bytes
}

fn ed25519() -> Vec<u8> {
    parts(&[b"ssh-ed25519", &[7; 32]])
}

fn p256() -> Vec<u8> {
    let point = [&[4][..], &[9; 64]].concat();
    parts(&[b"ecdsa-sha2-nistp256", b"nistp256", &point])
}

fn rsa() -> Vec<u8> {
    let modulus = [&[0][..], &[0xab; 256]].concat();
    parts(&[b"ssh-rsa", &[1, 0, 1], &modulus])
}

fn signature(key: &[u8], hash: &[u8], kind: &[u8], bytes: &[u8]) -> Vec<u8> {
    let made = parts(&[kind, bytes]);
    let rest = parts(&[key, NAMESPACE.as_bytes(), b"", hash, &made]);
    [&b"SSHSIG\0\0\0\x01"[..], &rest].concat()
}

/// Keys and signatures, as bytes and as texts.
pub fn seeds(_: &mut Random) -> Vec<Vec<u8>> {
    let security = parts(&[b"sk-ssh-ed25519@openssh.com", &[7; 32], b"ssh:"]);
    let numbers = parts(&[&[5; 32], &[6; 32]]);
    let signatures = [
        signature(&ed25519(), b"sha512", b"ssh-ed25519", &[1; 64]),
        signature(&p256(), b"sha256", b"ecdsa-sha2-nistp256", &numbers),
        signature(&rsa(), b"sha512", b"rsa-sha2-512", &[3; 256]),
        [signature(&security, b"sha512", b"sk-ssh-ed25519@openssh.com", &[1; 64]), vec![1; 5]]
            .concat(),
    ];
    let texts = signatures.iter().map(|bytes| armoured(&STANDARD.encode(bytes)).into_bytes());
    let mut seeds: Vec<Vec<u8>> = texts.collect();
    let line = format!("ssh-ed25519 {} of somebody\n", STANDARD.encode(ed25519()));
    seeds.push(line.into_bytes());
    seeds.extend([ed25519(), p256(), rsa(), security]);
    seeds.extend(signatures);
    seeds
}
