//! What the coordinator tells both ends of a connection, and nobody else. It never crosses the wire between them.

use std::fmt;

use protocol::cluster::InstanceKey;

/// Bytes of a secret, and of all that is made of it.
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
}

impl fmt::Debug for Secret {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Secret(..)")
    }
}

/// The name of a pair of ends on the wire: tells a port which of its orders somebody has come for, and proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PairName(pub(super) [u8; LENGTH]);

/// Two ends that belong together: their name, and the key by which they know each other.
///
/// The coordinator draws a secret for each pair alone, so the key stands for the two instances and their open files. Job
/// and epoch are in it, too: both ends know them, whatever the network makes of addresses. Those of the connection are
/// not: behind a translator, or at an agent that listens at all addresses, the two ends see different ones.
#[derive(Clone)]
pub struct Pair {
    name: PairName,
    key: [u8; LENGTH],
}

impl Pair {
    /// The pair to which the coordinator has given this secret, in the job and epoch of an instance.
    pub fn new(secret: &Secret, instance: &InstanceKey) -> Self {
        let derived = |purpose| {
            let mut hasher = blake3::Hasher::new_derive_key(purpose);
            hasher.update(&secret.0);
            hasher.update(&instance.epoch.to_le_bytes());
            // The last one, as nothing else here has a length of its own.
            hasher.update(instance.job.as_bytes());
            *hasher.finalize().as_bytes()
        };
        Self {
            name: PairName(derived("ckptd 2026 wire between agents: name of a pair")),
            key: derived("ckptd 2026 wire between agents: key of a pair"),
        }
    }

    pub(super) fn name(&self) -> PairName {
        self.name
    }

    pub(super) fn key(&self) -> &[u8; LENGTH] {
        &self.key
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Pair(..)")
    }
}
