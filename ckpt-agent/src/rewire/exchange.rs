//! The bytes that lay unread at both ends. Only a peer can put bytes into a socket's receive queue: so
//! each side tells the peer its own, and the peer sends them back.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};

use super::room::Widened;
use super::{MOST_UNREAD, RewireError};
use ckpt_engine::sys::sockopt;

/// Between two looks at a receive queue.
const PAUSE: Duration = Duration::from_millis(1);

/// Fills both ends' receive queues and hands over this end.
pub(super) async fn fill(
    index: usize,
    mut stream: TcpStream,
    queue: &[u8],
    shut_write: bool,
    deadline: Instant,
) -> Result<std::net::TcpStream, RewireError> {
    let broken = |source| RewireError::Broken { index, source };
    // Else the last bytes wait for an acknowledgement.
    stream.set_nodelay(true).map_err(broken)?;
    let widened = Widened::for_bytes(&stream, queue.len());
    let watched = stream.as_fd().try_clone_to_owned().map_err(broken)?;
    let sending = tokio::select! {
        sending = timeout_at(deadline, send_both(&mut stream, queue, shut_write)) => sending,
        // The peer's bytes come back while ours are still on their way.
        () = keep_offering(&widened, &watched) => Ok(Ok(())),
    };
    drop(watched);
    match sending {
        Ok(result) => result.map_err(broken)?,
        Err(_) => return Err(unfilled(index, &stream, queue)),
    }
    loop {
        let there = sockopt::readable(&stream).map_err(broken)?;
        if there == queue.len() {
            break;
        }
        if there > queue.len() {
            let said = format!("{there} bytes came back where {} were told", queue.len());
            return Err(broken(io::Error::new(io::ErrorKind::InvalidData, said)));
        }
        if let Some(error) = stream.take_error().map_err(broken)? {
            return Err(broken(error));
        }
        if Instant::now() >= deadline {
            return Err(unfilled(index, &stream, queue));
        }
        widened.offer(&stream);
        sleep(PAUSE).await;
    }
    widened.give_back(&stream);
    stream.set_nodelay(false).map_err(broken)?;
    let stream = stream.into_std().map_err(broken)?;
    stream.set_nonblocking(false).map_err(broken)?;
    Ok(stream)
}

/// Never ends.
async fn keep_offering(widened: &Widened, socket: &OwnedFd) {
    loop {
        sleep(PAUSE).await;
        widened.offer(socket);
    }
}

fn unfilled(index: usize, stream: &TcpStream, queue: &[u8]) -> RewireError {
    let there = sockopt::readable(stream).unwrap_or(0);
    RewireError::Unfilled { index, bytes: queue.len(), missing: queue.len().saturating_sub(there) }
}

async fn send_both(stream: &mut TcpStream, own: &[u8], shut_write: bool) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    // Both at once: each side may have more than the buffers between them hold.
    let ((), others) = tokio::try_join!(tell(&mut writer, own), hear(reader))?;
    writer.write_all(&others).await?;
    if shut_write {
        writer.shutdown().await?;
    }
    Ok(())
}

async fn tell(writer: &mut (impl AsyncWrite + Unpin), own: &[u8]) -> io::Result<()> {
    writer.write_all(&(own.len() as u64).to_le_bytes()).await?;
    writer.write_all(own).await
}

/// The peer's bytes, and not one more: what follows stays in the queue.
async fn hear(mut reader: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    reader.read_exact(&mut length).await?;
    let length = u64::from_le_bytes(length);
    if length > MOST_UNREAD {
        let said = format!("the peer tells of {length} bytes in flight, over {MOST_UNREAD}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, said));
    }
    let mut bytes = Vec::new();
    reader.take(length).read_to_end(&mut bytes).await?;
    if bytes.len() as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}
