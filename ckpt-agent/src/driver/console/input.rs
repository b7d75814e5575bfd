//! Input for the job, written as fast as the job takes it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use ckpt_node::End;

use super::super::native::Native;

/// Input that may wait for a job that does not read; what comes beyond is dropped, and said.
const MOST: usize = 16 * 1024 * 1024;

/// Where input goes, and what waits.
pub struct Input {
    target: Option<(Native, End)>,
    waiting: VecDeque<u8>,
    ended: bool,
    said: bool,
    /// Nothing is written for the moment.
    held: bool,
}

impl Input {
    /// To that descriptor.
    pub fn new(target: Option<(OwnedFd, End)>) -> io::Result<Self> {
        let target = match target {
            Some((fd, end)) => Some((Native::own(fd)?, end)),
            None => None,
        };
        Ok(Self { target, waiting: VecDeque::new(), ended: false, said: false, held: false })
    }

    /// More; nothing: the end.
    pub fn put(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            self.ended = true;
        } else if self.waiting.len() + bytes.len() > MOST {
            if !std::mem::replace(&mut self.said, true) {
                tracing::warn!("the job does not read its input; some of it is dropped");
            }
        } else if self.target.is_some() && !self.ended {
            self.waiting.extend(bytes);
        }
    }

    /// Writes nothing from now on; what is left, and whether the end follows it.
    pub fn hold(&mut self) -> (Vec<u8>, bool) {
        self.held = true;
        let ended = self.ended && matches!(self.target, Some((_, End::Stdin)));
        (self.waiting.iter().copied().collect(), ended)
    }

    /// Goes on writing.
    pub fn release(&mut self) {
        self.held = false;
    }

    /// Writes something, or closes; says which end was closed. Waits for ever where nothing is to be
    /// done. May be given up at any point.
    pub async fn pump(&mut self) -> Option<End> {
        let Some((native, end)) = self.target.as_ref().filter(|_| !self.held) else {
            return std::future::pending().await;
        };
        let (first, _) = self.waiting.as_slices();
        if first.is_empty() {
            if self.ended && *end == End::Stdin {
                return self.close();
            }
            return std::future::pending().await;
        }
        match native.write(first).await {
            Ok(length) => {
                self.waiting.drain(..length);
                None
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            // The job has closed its input.
            Err(_) => self.close(),
        }
    }

    fn close(&mut self) -> Option<End> {
        self.waiting.clear();
        self.target.take().map(|(_, end)| end).filter(|end| *end == End::Stdin)
    }
}
