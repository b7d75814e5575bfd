//! How the two ends of a pair know each other. Everything has a fixed length, and nothing beyond it is read:
//!
//! ```text
//! active    MARK, the pair's name (32 bytes), a nonce (32)
//! passive   a nonce (32), its proof (32)
//! active    its proof (32)
//! ```
//!
//! A proof is the keyed BLAKE3 of the prover's side, the pair's name and both nonces. Each side's own nonce is in what it
//! checks, so bytes of an earlier conversation prove nothing; the side is, so what one says is of no use as the other's
//! word. The key is derived from the secret, which is not sent. Whoever fails is told nothing: the connection closes.

use std::io::{self, ErrorKind};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::MARK;
use super::secret::{LENGTH, Pair, PairName};

/// Whose word a proof is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Active = 1,
    Passive = 2,
}

type Nonce = [u8; LENGTH];

/// Both nonces of a conversation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nonces {
    pub(super) active: Nonce,
    pub(super) passive: Nonce,
}

/// What this side of the pair says, and nobody else can. [`blake3::Hash`] compares in a time that does not depend on it.
pub(super) fn proof(pair: &Pair, side: Side, nonces: &Nonces) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(pair.key());
    hasher.update(&[side as u8]);
    hasher.update(&pair.name().0);
    hasher.update(&nonces.active);
    hasher.update(&nonces.passive);
    hasher.finalize()
}

/// The active side's part. Whoever is at the other end has proved to know the secret when it returns; its own proof is
/// sent, and what follows it belongs to the connection.
///
/// # Errors
/// The peer has gone, does not wait for this pair (yet), or is not the peer.
pub(super) async fn call(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    pair: &Pair,
) -> io::Result<()> {
    let active = nonce()?;
    // In one piece: the port waits for the first byte alone before it knows what comes.
    let mut hello = vec![MARK];
    hello.extend_from_slice(&pair.name().0);
    hello.extend_from_slice(&active);
    stream.write_all(&hello).await?;
    let passive = read(stream).await?;
    let nonces = Nonces { active, passive };
    let said = blake3::Hash::from_bytes(read(stream).await?);
    if said != proof(pair, Side::Passive, &nonces) {
        return Err(io::Error::new(ErrorKind::InvalidData, "it is not the connection's other end"));
    }
    stream.write_all(proof(pair, Side::Active, &nonces).as_bytes()).await
}

/// Whom somebody who has connected asks for, and its nonce. None: this is no such connection.
///
/// # Errors
/// It has gone.
pub(super) async fn hear(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<(PairName, Nonce)>> {
    if stream.read_u8().await? != MARK {
        return Ok(None);
    }
    Ok(Some((PairName(read(stream).await?), read(stream).await?)))
}

/// The passive side's part after that: whether the other end has proved to know the secret.
///
/// # Errors
/// It has gone, or this machine has no randomness.
pub(super) async fn challenge(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    pair: &Pair,
    active: Nonce,
) -> io::Result<bool> {
    let nonces = Nonces { active, passive: nonce()? };
    let mut answer = nonces.passive.to_vec();
    answer.extend_from_slice(proof(pair, Side::Passive, &nonces).as_bytes());
    stream.write_all(&answer).await?;
    let said = blake3::Hash::from_bytes(read(stream).await?);
    Ok(said == proof(pair, Side::Active, &nonces))
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn nonce() -> io::Result<Nonce> {
    let mut bytes = [0; LENGTH];
    protocol::transport::random(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}
