//! Frames over a stream, with limits.

use super::TransportError;
use bytes::{Buf, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// The longest header in bytes: an environment can be 2 MiB (execve(2)), whose JSON form is
/// several times as long.
pub const MAX_HEADER: usize = 32 * 1024 * 1024;

/// The longest body in bytes.
pub const MAX_BODY: usize = 1024 * 1024;

/// Bytes of the two lengths.
const PREFIX: usize = 8;

/// By how much the buffer grows for a message of which that much has not come yet: a peer that
/// only says that it will send a lot gets no memory for that.
const GROWTH: usize = 256 * 1024;

/// The bytes of a frame.
///
/// # Errors
/// [`TransportError::TooLong`], or a message that has no JSON form.
pub fn encode<S: Serialize>(message: &S, body: &[u8]) -> Result<Bytes, TransportError> {
    let mut frame = vec![0; PREFIX];
    serde_json::to_writer(&mut frame, message)?;
    let header = frame.len() - PREFIX;
    check("header", header as u64, MAX_HEADER)?;
    check("body", body.len() as u64, MAX_BODY)?;
    let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    frame[..4].copy_from_slice(&length(header));
    frame[4..PREFIX].copy_from_slice(&length(body.len()));
    frame.extend_from_slice(body);
    Ok(frame.into())
}

fn check(part: &'static str, length: u64, limit: usize) -> Result<(), TransportError> {
    let limit = limit as u64;
    if length > limit { Err(TransportError::TooLong { part, length, limit }) } else { Ok(()) }
}

/// What a buffer begins with.
#[derive(Debug)]
pub enum Taken<R> {
    /// A message, now taken out, and its body.
    Message(R, Bytes),
    /// Part of one: the buffer must hold that many bytes.
    Lacking(usize),
}

/// Takes the first message out of what was received.
///
/// # Errors
/// Where it exceeds the limits, which is found before it is there, or is malformed; nothing that
/// follows can be read after that.
pub fn take<R: DeserializeOwned>(
    buffer: &mut BytesMut,
    max_header: usize,
    max_body: usize,
) -> Result<Taken<R>, TransportError> {
    if buffer.len() < PREFIX {
        return Ok(Taken::Lacking(PREFIX));
    }
    let mut lengths = &buffer[..PREFIX];
    let (header, body) = (lengths.get_u32(), lengths.get_u32());
    check("header", header.into(), max_header)?;
    check("body", body.into(), max_body)?;
    let (header, body) = (header as usize, body as usize);
    if buffer.len() < PREFIX + header + body {
        return Ok(Taken::Lacking(PREFIX + header + body));
    }
    buffer.advance(PREFIX);
    let header = buffer.split_to(header);
    let body = buffer.split_to(body).freeze();
    Ok(Taken::Message(crate::json::read(&header)?, body))
}

/// Sends messages of one type.
#[derive(Debug)]
pub struct FrameSender<S> {
    stream: WriteHalf<TlsStream<TcpStream>>,
    messages: PhantomData<fn(S)>,
}

impl<S: Serialize> FrameSender<S> {
    /// Sends a message, and returns when the kernel has it. Not to be cancelled: part of the
    /// message may be on its way.
    ///
    /// # Errors
    /// Where it is too long (nothing was sent then), or the connection is broken.
    pub async fn send(&mut self, message: &S, body: &[u8]) -> Result<(), TransportError> {
        self.send_encoded(&encode(message, body)?).await
    }
}

impl<S> FrameSender<S> {
    /// Sends whole frames as [`encode`] makes them.
    pub(super) async fn send_encoded(&mut self, frames: &[u8]) -> Result<(), TransportError> {
        let send = async {
            self.stream.write_all(frames).await?;
            self.stream.flush().await
        };
        send.await.map_err(TransportError::io("send"))
    }

    /// Says that nothing more comes.
    pub async fn close(&mut self) {
        // The other side may have gone already.
        let _ = self.stream.shutdown().await;
    }

    pub(super) fn retype<T>(self) -> FrameSender<T> {
        FrameSender { stream: self.stream, messages: PhantomData }
    }
}

/// Receives messages of one type.
#[derive(Debug)]
pub struct FrameReceiver<R> {
    stream: ReadHalf<TlsStream<TcpStream>>,
    buffer: BytesMut,
    max_header: usize,
    max_body: usize,
    messages: PhantomData<fn() -> R>,
}

impl<R: DeserializeOwned> FrameReceiver<R> {
    /// The next message with its body; None when the other side has gone between two messages.
    /// May be cancelled without loss.
    ///
    /// # Errors
    /// Where a message exceeds the limits, is malformed or cut off, or the connection is broken;
    /// nothing can be received after that.
    pub async fn receive(&mut self) -> Result<Option<(R, Bytes)>, TransportError> {
        loop {
            match take(&mut self.buffer, self.max_header, self.max_body)? {
                Taken::Message(message, body) => return Ok(Some((message, body))),
                Taken::Lacking(wanted) => {
                    if !self.fill(wanted).await? {
                        return match self.buffer.is_empty() {
                            true => Ok(None),
                            false => Err(TransportError::Truncated),
                        };
                    }
                }
            }
        }
    }

    /// Reads what there is; false at the end.
    async fn fill(&mut self, wanted: usize) -> Result<bool, TransportError> {
        let lacking = wanted.saturating_sub(self.buffer.len());
        self.buffer.reserve(lacking.clamp(4096, GROWTH));
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(0) => Ok(false),
            Ok(_) => Ok(true),
            // Who is killed takes no leave (close_notify); and the reset of its last words counts
            // as its end.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(TransportError::io("receive")(error)),
        }
    }
}

impl<R> FrameReceiver<R> {
    /// Reads and drops everything up to the end.
    pub(super) async fn drain(&mut self) {
        let mut dropped = [0; 4096];
        while matches!(self.stream.read(&mut dropped).await, Ok(length) if length > 0) {}
    }

    pub(super) fn retype<T>(self) -> FrameReceiver<T> {
        FrameReceiver {
            stream: self.stream,
            buffer: self.buffer,
            max_header: MAX_HEADER,
            max_body: MAX_BODY,
            messages: PhantomData,
        }
    }
}

/// A connection whose other side is known: this side sends `S` and receives `R`.
#[derive(Debug)]
pub struct Connection<S, R> {
    /// The way there.
    pub sender: FrameSender<S>,
    /// The way back.
    pub receiver: FrameReceiver<R>,
    /// This side's address.
    pub local: SocketAddr,
    /// The other side's.
    pub remote: SocketAddr,
}

impl<S, R> Connection<S, R> {
    /// Over an established stream, with limits for its first messages.
    pub(super) fn over(
        stream: TlsStream<TcpStream>,
        max_header: usize,
    ) -> Result<Self, TransportError> {
        let tcp = stream.get_ref().0;
        let local = tcp.local_addr().map_err(TransportError::io("find the own address"))?;
        let remote =
            tcp.peer_addr().map_err(TransportError::io("find the other side's address"))?;
        let (reading, writing) = tokio::io::split(stream);
        Ok(Self {
            sender: FrameSender { stream: writing, messages: PhantomData },
            receiver: FrameReceiver {
                stream: reading,
                buffer: BytesMut::new(),
                max_header,
                max_body: 0,
                messages: PhantomData,
            },
            local,
            remote,
        })
    }

    /// The same connection, with other messages from now on and their limits.
    pub(super) fn retype<S2, R2>(self) -> Connection<S2, R2> {
        Connection {
            sender: self.sender.retype(),
            receiver: self.receiver.retype(),
            local: self.local,
            remote: self.remote,
        }
    }

    /// The two ways.
    #[must_use]
    pub fn split(self) -> (FrameSender<S>, FrameReceiver<R>) {
        (self.sender, self.receiver)
    }
}
