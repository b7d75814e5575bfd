//! The command tree: steps of checkpoints that come from other agents and go on to others, for jobs on many
//! nodes. What is decided is in the crate `command-tree`; here are its connections and its work.
//!
//! A step that another agent passes on bears the coordinator's seal: nobody else can order one, and no member can
//! change job, epoch, checkpoint or step on the way, or use an order a second time. What a member that has
//! gone bad can still do to its subtree: leave it out, answer for it, or be silent. Left out, there is no
//! image to be written, and that checkpoint fails; answered for too early, the checkpoint may be wrong. But
//! only nodes that run processes of the job are in its tree, and such a one might change the memory of its own
//! processes as well. Launch, restore, kill, write, commit and abandon are taken from the coordinator's own
//! connection alone.

mod line;

pub use line::{Door, Queue};

use std::collections::BTreeMap;
use std::time::Duration;

use command_tree::{Act, Line, Member, Own, Works};
use protocol::agent::AgentEvent;
use protocol::cluster::tree::{Operation, TreeMessage};
use protocol::cluster::{InstanceKey, NodeName};
use tokio::time::sleep;

use super::event::{Event, Events};
use super::lease::boot_time;
use super::peers::Peers;

/// What happens to the tree.
#[derive(Debug)]
pub enum TreeEvent {
    /// Another agent has made a line.
    Accepted {
        /// Whose.
        node: NodeName,
        /// The line's number.
        number: u64,
        /// The way back.
        queue: Queue,
    },
    /// Something has come over a line; its seal is good.
    Heard {
        /// Which.
        line: Line,
        /// Its number.
        number: u64,
        /// What.
        message: Box<TreeMessage>,
    },
    /// A line is gone.
    Broken {
        /// Which.
        line: Line,
        /// Its number.
        number: u64,
    },
    /// An instance has answered a step that came by the tree.
    Answered(InstanceKey, AgentEvent),
    /// An own instance has come further.
    Progressed(Operation),
    /// A limit may be over.
    Clock,
}

/// This node's part of the tree.
pub struct Tree {
    pub(super) member: Member,
    lines: BTreeMap<Line, (u64, Queue)>,
    pub(super) works: Works,
    door: Door,
    peers: Peers,
    events: Events,
    /// For which a clock has been set.
    deadline: Option<u64>,
}

impl Tree {
    /// Of this node.
    #[must_use]
    pub fn new(own: NodeName, door: Door, peers: Peers, events: Events) -> Self {
        Self {
            member: Member::new(own),
            lines: BTreeMap::new(),
            works: Works::default(),
            door,
            peers,
            events,
            deadline: None,
        }
    }

    /// What a line has to say. The act that the node itself must see to is left.
    pub(super) fn take(&mut self, event: TreeEvent) -> Vec<Act> {
        match event {
            TreeEvent::Accepted { node, number, queue } => {
                let acts = self.member.accepted(node.clone());
                self.lines.insert(Line { node, ours: false }, (number, queue));
                acts
            }
            TreeEvent::Heard { line, number, message } if self.is_current(&line, number) => {
                self.member.heard(boot_time(), &line, *message)
            }
            TreeEvent::Broken { line, number } if self.is_current(&line, number) => {
                self.lines.remove(&line);
                self.member.broken(&line)
            }
            // Of a connection that was replaced.
            TreeEvent::Heard { .. } | TreeEvent::Broken { .. } => Vec::new(),
            TreeEvent::Answered(key, event) => {
                let own = self.works.answered(&key, &event);
                self.own(own)
            }
            TreeEvent::Progressed(operation) => self.member.progressed(boot_time(), operation),
            TreeEvent::Clock => self.member.pass_time(boot_time()),
        }
    }

    /// No process of an instance is left.
    pub(super) fn ended(&mut self, key: &InstanceKey) -> Vec<Act> {
        let own = self.works.ended(key);
        self.own(own)
    }

    fn own(&mut self, own: Option<(Operation, Own)>) -> Vec<Act> {
        own.map(|(operation, own)| self.member.own(operation, own)).unwrap_or_default()
    }

    /// Lines to nodes that are no members any more are closed.
    pub(super) fn keep_lines(&mut self, is_member: impl Fn(&NodeName) -> bool) -> Vec<Act> {
        let gone: Vec<Line> =
            self.lines.keys().filter(|line| !is_member(&line.node)).cloned().collect();
        gone.into_iter()
            .flat_map(|line| {
                self.lines.remove(&line);
                self.member.broken(&line)
            })
            .collect()
    }

    fn is_current(&self, line: &Line, number: u64) -> bool {
        self.lines.get(line).is_some_and(|(known, _)| *known == number)
    }

    pub(super) fn open(&mut self, node: NodeName) {
        let (number, queue) = self.door.dial(node.clone(), self.peers.clone());
        self.lines.insert(Line { node, ours: true }, (number, queue));
    }

    pub(super) fn send(&self, line: &Line, message: TreeMessage) {
        if let Some((_, queue)) = self.lines.get(line) {
            queue.push(message);
        }
    }

    pub(super) fn clear(&self, line: &Line) {
        if let Some((_, queue)) = self.lines.get(line) {
            queue.clear();
        }
    }

    /// Sees to it that [`TreeEvent::Clock`] comes when it is wanted.
    pub(super) fn set_clock(&mut self) {
        let wanted = self.member.deadline();
        if wanted == self.deadline {
            return;
        }
        self.deadline = wanted;
        let Some(deadline) = wanted else { return };
        let wait = Duration::from_nanos(deadline.saturating_sub(boot_time()));
        let events = self.events.clone();
        tokio::spawn(async move {
            sleep(wait).await;
            events.tell(Event::Tree(Box::new(TreeEvent::Clock)));
        });
    }
}
