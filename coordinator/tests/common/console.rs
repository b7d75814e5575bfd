//! The job's console as a driver of nodes holds it in simulations.

use ckpt_node::{ConsoleOrder, ConsoleReport};
use protocol::cluster::agent::Stream;

/// What the job has written on this machine, and how much of that has been said.
#[derive(Debug, Clone, Default)]
pub struct Console {
    pub bytes: Vec<u8>,
    /// So many bytes are in the job's log.
    pub kept: u64,
    /// Whether the agent knows how much of it came before it.
    pub begun: bool,
    /// The agent wants to know when all output is out.
    pub flushes: bool,
    /// There is more, which the agent has not read.
    pub unread: bool,
}

impl Console {
    /// One of which nobody has seen anything yet.
    pub fn new() -> Self {
        Self { begun: true, ..Self::default() }
    }

    /// What its agent knew is gone.
    pub fn lose_agent(&mut self) {
        self.begun = false;
        self.flushes = false;
    }

    /// The job writes something.
    pub fn write(&mut self, bytes: &[u8]) -> Option<ConsoleReport> {
        let from = self.bytes.len() as u64;
        self.bytes.extend_from_slice(bytes);
        self.begun.then(|| self.piece(from))
    }

    pub fn obey(&mut self, order: ConsoleOrder) -> Vec<ConsoleReport> {
        match order {
            ConsoleOrder::Kept(offset) => {
                self.kept = self.kept.max(offset);
                let mut reports = Vec::new();
                if !std::mem::replace(&mut self.begun, true) {
                    reports.push(self.piece(offset));
                    reports.extend(self.flush());
                }
                reports
            }
            ConsoleOrder::SendAgain if self.begun => vec![self.piece(self.kept)],
            ConsoleOrder::Drain { checkpoint, .. } => {
                vec![ConsoleReport::Drained { checkpoint, offset: self.bytes.len() as u64 }]
            }
            ConsoleOrder::Flush => {
                self.flushes = true;
                self.flush().into_iter().collect()
            }
            ConsoleOrder::SendAgain
            | ConsoleOrder::Release
            | ConsoleOrder::Input(_)
            | ConsoleOrder::Resize(_) => Vec::new(),
        }
    }

    /// That all is out, if the agent waits for it and knows how much there is.
    pub fn flush(&mut self) -> Option<ConsoleReport> {
        let is_out = self.flushes && self.begun && !self.unread;
        is_out.then(|| {
            self.flushes = false;
            ConsoleReport::Flushed
        })
    }

    fn piece(&self, from: u64) -> ConsoleReport {
        // A coordinator that knows of more than was written is not to be believed.
        let bytes = self.bytes[usize::try_from(from).unwrap_or(usize::MAX)..].to_vec();
        ConsoleReport::Piece { offset: from, stream: Stream::Output, bytes }
    }
}
