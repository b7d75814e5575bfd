//! What this node does for the command tree: steps of checkpoints that come from other agents and go on to others.

use std::collections::{BTreeSet, VecDeque};

use command_tree::{Act, Line, Member, Own};
use protocol::agent::{CheckpointNumber, InstanceId};
use protocol::cluster::agent::FromAgent;
use protocol::cluster::tree::{TreeCall, TreeMark, TreeOrder};
use protocol::cluster::{InstanceKey, NodeName};

use super::Node;
use super::voice::TreeWord;
use crate::{Action, BootTime, LineEvent};

/// This node's part of the tree.
#[derive(Debug)]
pub(super) struct Tree {
    member: Member,
    /// Lines that there are, or that are being made.
    lines: BTreeSet<Line>,
}

impl Tree {
    pub fn new(own: NodeName) -> Self {
        Self { member: Member::new(own), lines: BTreeSet::new() }
    }

    /// When the next limit is over.
    pub fn deadline(&self) -> Option<BootTime> {
        self.member.deadline()
    }
}

impl Node {
    pub(super) fn line(&mut self, event: LineEvent) {
        let tree = &mut self.tree;
        let acts = match event {
            LineEvent::Accepted(node) => {
                tree.lines.insert(Line { node: node.clone(), ours: false });
                tree.member.accepted(node)
            }
            LineEvent::Heard(line, message) if tree.lines.contains(&line) => {
                tree.member.heard(self.now, &line, *message)
            }
            LineEvent::Broken(line) if tree.lines.remove(&line) => tree.member.broken(&line),
            // It was closed here.
            LineEvent::Heard(..) | LineEvent::Broken(_) => return,
        };
        self.do_for_tree(acts);
    }

    pub(super) fn tree_clock(&mut self) {
        let acts = self.tree.member.pass_time(self.now);
        self.do_for_tree(acts);
    }

    pub(super) fn tree_ordered(&mut self, call: TreeCall) {
        let acts = self.tree.member.ordered(self.now, call);
        self.do_for_tree(acts);
    }

    pub(super) fn tree_reset(&mut self, mark: TreeMark) {
        let acts = self.tree.member.reset(mark);
        self.do_for_tree(acts);
    }

    /// The coordinator itself gives a checkpoint up.
    pub(super) fn tree_abandoned(&mut self, job: &str, checkpoint: CheckpointNumber) {
        let acts = self.tree.member.abandoned(job, checkpoint);
        self.do_for_tree(acts);
    }

    /// Lines to nodes that are no members any more are closed.
    pub(super) fn tree_members_changed(&mut self) {
        let gone = |line: &&Line| !self.members.contains(&line.node);
        let gone: Vec<Line> = self.tree.lines.iter().filter(gone).cloned().collect();
        for line in gone {
            self.tree.lines.remove(&line);
            self.voice.act(Action::CloseLine(line.clone()));
            let acts = self.tree.member.broken(&line);
            self.do_for_tree(acts);
        }
    }

    /// No process of an instance is left: it answers nothing any more.
    pub(super) fn tree_deserted(&mut self, key: &InstanceKey) {
        if let Some((operation, own)) = self.voice.works.ended(key) {
            let acts = self.tree.member.own(operation, own);
            self.do_for_tree(acts);
        }
    }

    /// What instances have said for the tree in this step.
    pub(super) fn finish_tree(&mut self) {
        while let Some(word) = self.voice.words.pop_front() {
            let acts = match word {
                TreeWord::Answered(key, event) => match self.voice.works.answered(&key, &event) {
                    Some((operation, own)) => self.tree.member.own(operation, own),
                    None => continue,
                },
                TreeWord::Progressed(operation) => self.tree.member.progressed(self.now, operation),
            };
            self.do_for_tree(acts);
        }
    }

    fn do_for_tree(&mut self, acts: Vec<Act>) {
        let mut acts = VecDeque::from(acts);
        while let Some(act) = acts.pop_front() {
            match act {
                Act::Open(node) => {
                    self.tree.lines.insert(Line { node: node.clone(), ours: true });
                    self.voice.act(Action::OpenLine(node));
                }
                Act::Send(line, message) => self.voice.act(Action::SendLine(line, message)),
                Act::Clear(line) => self.voice.act(Action::ClearLine(line)),
                Act::Report(answer) => self.voice.tell(FromAgent::Tree(answer)),
                Act::Work(order, instances) => acts.extend(self.work_for_tree(order, instances)),
                Act::Forget(operation) => self.voice.works.forget(operation),
            }
        }
    }

    /// The own instances are told the step, as if the coordinator had said it to each.
    fn work_for_tree(&mut self, order: TreeOrder, instances: Vec<InstanceId>) -> Vec<Act> {
        if !self.is_welcome() {
            // An instance that stands still must be within reach of the word that lets it go.
            let reason = "it has no connection to the coordinator".to_owned();
            let own = Own::Failed { passing: true, reason };
            return self.tree.member.own(order.operation, own);
        }
        let command = order.step.command(order.checkpoint);
        for key in self.voice.works.begin(order, instances) {
            self.command(&key, command.clone());
        }
        Vec::new()
    }
}
