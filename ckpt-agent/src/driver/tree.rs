//! The command tree: steps of checkpoints that come from other agents and go on to others, for jobs on many
//! nodes. What is decided is in the crate `command-tree`; here are its connections,
//! which serve nothing else: an order must not stand behind the bytes of a relay or an image.
//!
//! A step that another agent passes on bears the coordinator's seal: nobody else can order one, and no member can
//! change job, epoch, checkpoint or step on the way, or use an order a second time. What a member that has
//! gone bad can still do to its subtree: leave it out, answer for it, or be silent. Left out, there is no
//! image to be written, and that checkpoint fails; answered for too early, the checkpoint may be wrong. But
//! only nodes that run processes of the job are in its tree, and such a one might change the memory of its own
//! processes as well. Launch, restore, kill, write, commit and abandon are taken from the coordinator's own
//! connection alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use command_tree::Line;
use protocol::cluster::NodeName;
use protocol::cluster::peer::PeerMessage;
use protocol::cluster::tree::TreeMessage;
use protocol::task;
use protocol::transport::Trust;
use tokio::sync::mpsc::{Receiver, Sender};

use super::line_queue::{Queue, Waiting};
use super::link::{Message, PeerLink};
use super::peers::Peers;
use super::report::{Report, Reports};

/// Where lines come in, and from where they are made.
#[derive(Clone)]
pub struct Lines {
    trust: Trust,
    reports: Reports,
    numbers: Arc<AtomicU64>,
}

impl Lines {
    /// For orders that are sealed as `trust` wants it.
    #[must_use]
    pub fn new(trust: Trust, reports: Reports) -> Self {
        Self { trust, reports, numbers: Arc::default() }
    }

    fn line(&self) -> (u64, Queue, Arc<Waiting>) {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let waiting = Arc::<Waiting>::default();
        (number, Queue::of(waiting.clone()), waiting)
    }

    /// Makes a line; what is sent meanwhile waits.
    pub fn dial(&self, node: NodeName, peers: Peers) -> (u64, Queue) {
        let (number, queue, waiting) = self.line();
        let lines = self.clone();
        task::spawn(async move {
            match peers.dial(&node).await {
                Ok(link) => {
                    tracing::info!(%node, "command tree: connected");
                    lines.carry(Line { node, ours: true }, number, link, &waiting).await;
                }
                Err(reason) => {
                    tracing::warn!(%node, "command tree: {reason}");
                    let line = Line { node, ours: true };
                    lines.reports.tell(Report::LineBroken { line, number });
                }
            }
        });
        (number, queue)
    }

    /// Serves a line that another agent has made, until it ends. `first` has come over it already.
    pub async fn serve(&self, node: NodeName, link: PeerLink, first: TreeMessage) {
        let (number, queue, waiting) = self.line();
        let line = Line { node: node.clone(), ours: false };
        self.reports.tell(Report::LineAccepted { node, number, queue });
        if self.heard(&line, number, first) {
            self.carry(line, number, link, &waiting).await;
        } else {
            self.reports.tell(Report::LineBroken { line, number });
        }
    }

    /// Both ways at once: neither waits for the other.
    async fn carry(&self, line: Line, number: u64, link: PeerLink, waiting: &Waiting) {
        let PeerLink { to, from } = link;
        tokio::select! {
            () = write(waiting, to) => {}
            () = self.read(&line, number, from) => {}
        }
        self.reports.tell(Report::LineBroken { line, number });
    }

    async fn read(&self, line: &Line, number: u64, mut from: Receiver<Message<PeerMessage>>) {
        while let Some((message, _)) = from.recv().await {
            match message {
                PeerMessage::Tree(message) => {
                    if !self.heard(line, number, *message) {
                        return;
                    }
                }
                _ => return tracing::warn!(node = %line.node, "it has mistaken the connection"),
            }
        }
    }

    /// Passes a message on, if it may be said. Who says what it may not is not listened to any more.
    fn heard(&self, line: &Line, number: u64, message: TreeMessage) -> bool {
        if let Err(error) = message.check(&self.trust) {
            tracing::warn!(node = %line.node, "refused what it passes on: {error}");
            return false;
        }
        let message = Box::new(message);
        self.reports.tell(Report::LineHeard { line: line.clone(), number, message });
        true
    }
}

async fn write(waiting: &Waiting, to: Sender<Message<PeerMessage>>) {
    while let Some(message) = waiting.next().await {
        if to.send((PeerMessage::Tree(Box::new(message)), Vec::new())).await.is_err() {
            return;
        }
    }
}
