//! What tells a peer from a stranger.

use std::fmt;

/// Bytes of a secret and of its answer.
pub const LENGTH: usize = 32;

/// 32 random bytes that both ends of a connection were told.
#[derive(Clone)]
pub struct Secret([u8; LENGTH]);

impl Secret {
    /// From its bytes.
    pub fn new(bytes: [u8; LENGTH]) -> Self {
        Self(bytes)
    }

    /// From 64 hexadecimal digits, as messages carry it.
    pub fn from_hex(text: &str) -> Option<Self> {
        if text.len() != 2 * LENGTH || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; LENGTH];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// What the active side sends.
    pub(super) fn bytes(&self) -> &[u8; LENGTH] {
        &self.0
    }

    /// What the passive side answers: shows that it knows the secret, too.
    pub fn answer(&self) -> [u8; LENGTH] {
        *blake3::keyed_hash(&self.0, b"ckptd wire: passive side").as_bytes()
    }

    /// Whether these are its bytes, in a time that does not depend on them.
    pub fn is(&self, bytes: &[u8; LENGTH]) -> bool {
        same(&self.0, bytes)
    }
}

/// Compares in a time that does not depend on the content.
pub(super) fn same(left: &[u8; LENGTH], right: &[u8; LENGTH]) -> bool {
    let difference = left.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(difference) == 0
}

impl fmt::Debug for Secret {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Secret(..)")
    }
}
