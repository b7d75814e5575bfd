//! Sending without waiting.

use super::frame::encode;
use super::{FrameSender, TransportError};
use crate::task;
use bytes::Bytes;
use serde::Serialize;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use thiserror::Error;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// Why a message was not taken.
#[derive(Debug, Error)]
pub enum OutboxError {
    /// The receiver does not take what is sent fast enough.
    #[error("{0} bytes wait to be sent: it is too slow")]
    Full(usize),
    /// The connection is gone.
    #[error("connection is closed")]
    Closed,
    /// The message can't be sent at all.
    #[error(transparent)]
    Message(#[from] TransportError),
}

/// A queue in front of a sender, bounded in bytes. Clones share it; when the last is gone, what is
/// queued is sent and the connection closed.
#[derive(Debug)]
pub struct Outbox<S> {
    queue: UnboundedSender<Bytes>,
    waiting: Arc<AtomicUsize>,
    limit: usize,
    messages: PhantomData<fn(S)>,
}

/// A message as it is sent, written once for all who get it.
#[derive(Debug)]
pub struct Written<S> {
    frame: Bytes,
    messages: PhantomData<fn(S)>,
}

impl<S: Serialize> Written<S> {
    /// A message with its body.
    ///
    /// # Errors
    /// Where it is too long.
    pub fn of(message: &S, body: &[u8]) -> Result<Self, OutboxError> {
        Ok(Self { frame: encode(message, body)?, messages: PhantomData })
    }
}

impl<S> Clone for Outbox<S> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            waiting: Arc::clone(&self.waiting),
            limit: self.limit,
            messages: PhantomData,
        }
    }
}

impl<S: Serialize + 'static> Outbox<S> {
    /// A queue for at most that many bytes, and the task that sends them; to be called within a
    /// tokio runtime.
    #[must_use]
    pub fn before(sender: FrameSender<S>, limit: usize) -> Self {
        let (queue, taken) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        task::spawn(carry(sender, taken, Arc::clone(&waiting)));
        Self { queue, waiting, limit, messages: PhantomData }
    }

    /// Queues a message. A queue that is not empty takes no message beyond its limit.
    ///
    /// # Errors
    /// Where the receiver is too slow or gone, or the message too long.
    pub fn send(&self, message: &S, body: &[u8]) -> Result<(), OutboxError> {
        self.send_written(&Written::of(message, body)?)
    }

    /// As [`send`](Self::send), for a message that others get, too.
    ///
    /// # Errors
    /// Likewise.
    pub fn send_written(&self, message: &Written<S>) -> Result<(), OutboxError> {
        let frame = message.frame.clone();
        let before = self.waiting.fetch_add(frame.len(), Ordering::Relaxed);
        if before > 0 && before + frame.len() > self.limit {
            self.waiting.fetch_sub(frame.len(), Ordering::Relaxed);
            return Err(OutboxError::Full(before));
        }
        self.queue.send(frame).map_err(|_| OutboxError::Closed)
    }

    /// Bytes that wait to be sent.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Resolves when the connection can't be sent over any more.
    pub async fn closed(&self) {
        self.queue.closed().await;
    }
}

async fn carry<S>(
    mut sender: FrameSender<S>,
    mut queue: UnboundedReceiver<Bytes>,
    waiting: Arc<AtomicUsize>,
) {
    while let Some(frame) = queue.recv().await {
        let sent = sender.send_encoded(&frame).await;
        waiting.fetch_sub(frame.len(), Ordering::Relaxed);
        if let Err(error) = sent {
            tracing::debug!(%error, "send");
            return;
        }
    }
    sender.close().await;
}
