//! What the coordinator wants.

use std::time::Duration;

use protocol::agent::AgentCommand;
use protocol::cluster::agent::ToAgent;

use super::Node;
use crate::{Action, ConsoleOrder, Ending};

impl Node {
    /// One arm for each message, in a table without steps of its own.
    pub(super) fn obey(&mut self, message: ToAgent, body: Vec<u8>) {
        let is_first = matches!(message, ToAgent::Welcome { .. } | ToAgent::Refused { .. });
        if !self.is_welcome() && !is_first {
            return tracing::warn!("the coordinator said something before its welcome");
        }
        match message {
            ToAgent::Welcome { coordinator, heartbeat_ms, lease_ms, epochs } => {
                let millis = Duration::from_millis;
                self.welcome(&coordinator, millis(heartbeat_ms), millis(lease_ms), &epochs);
            }
            ToAgent::Refused { reason } => {
                // It may have been told to keep no copy any more, which must not end with this process.
                self.voice.act(Action::AwaitReplica);
                self.voice.act(Action::End(Ending::Refused(reason)));
            }
            ToAgent::Heard { sequence } => self.heard(sequence),
            ToAgent::Peers { peers, expelled } => {
                self.members = peers.iter().map(|peer| peer.name.clone()).collect();
                self.voice.act(Action::SetPeers { peers, expelled });
                self.tree_members_changed();
            }
            ToAgent::PeersChanged { there, gone, expelled } => {
                self.members.retain(|name| !gone.contains(name));
                self.members.extend(there.iter().map(|peer| peer.name.clone()));
                self.voice.act(Action::ChangePeers { there, gone, expelled });
                self.tree_members_changed();
            }
            ToAgent::Launch(order) => self.launch(*order),
            ToAgent::Instance { key, command } => {
                if let AgentCommand::Abandon { checkpoint } = command {
                    self.tree_abandoned(&key.job, checkpoint);
                }
                self.command(&key, command);
            }
            ToAgent::Tree(call) => self.tree_ordered(*call),
            ToAgent::TreeReset(mark) => self.tree_reset(mark),
            ToAgent::Drain { key, checkpoint, parks } => self.drain(&key, checkpoint, parks),
            ToAgent::Partners { key, nodes } => {
                self.with(&key, |instance, voice| {
                    instance.record.partners = nodes;
                    voice.act(Action::WriteRecord(Box::new(instance.record.clone())));
                });
            }
            ToAgent::Prepare(order) => self.prepare(*order),
            ToAgent::Restore { key, connections, skipped } => {
                self.restore(&key, connections, skipped);
            }
            ToAgent::Go { key, links, fallen } => {
                self.with(&key, |instance, voice| {
                    instance.link(voice, links);
                    if let Some(fallen) = fallen {
                        instance.fall_back(voice, fallen);
                    }
                });
                self.go(&key);
            }
            ToAgent::Links { key, links } => {
                self.with(&key, |instance, voice| instance.link(voice, links));
            }
            ToAgent::Addresses { key, addresses } => {
                if self.instances.contains_key(&key) {
                    self.voice.act(Action::Addresses(key, addresses));
                }
            }
            ToAgent::Kill { job, below } => self.kill_below(job, below),
            ToAgent::Mark { job, instance, record } => self.mark(job, instance, record),
            ToAgent::Keep { job, images } => self.keep(job, images),
            ToAgent::ShellRuns { call, instance, node } => self.shell_runs(&call, instance, node),
            ToAgent::ShellFailed { call, reason } => self.shell_failed(&call, reason),
            ToAgent::ConsoleKept { key, offset } => {
                self.order_console(&key, ConsoleOrder::Kept(offset));
            }
            ToAgent::Input { key } => self.order_console(&key, ConsoleOrder::Input(body)),
            ToAgent::Resize { key, window } => {
                self.order_console(&key, ConsoleOrder::Resize(window));
            }
            ToAgent::Client { client, line } => self.pass_on(client, line),
            ToAgent::Rehearse(order) => self.rehearse(order),
            ToAgent::Look { client, job, images, look } => self.look(client, job, images, look),
            ToAgent::Give { client, job, image, holder } => self.give(client, job, image, holder),
            ToAgent::Adopt(order) => self.adopt(order),
            ToAgent::Replica(order) => self.voice.act(Action::Replica(order, body)),
            ToAgent::Copy { job, instance, checkpoint, holders, digest } => {
                self.voice.act(Action::FetchCopy { job, instance, checkpoint, holders, digest });
            }
            ToAgent::Dmtcp(order) => self.dmtcp(order),
            ToAgent::Stay { reason } => self.stay(&reason),
            // Whoever makes copies keeps them: nothing is decided by them.
            ToAgent::Granted { .. } => {}
            ToAgent::Farewell => {
                tracing::info!("free to go");
                self.voice.act(Action::End(Ending::InOrder));
            }
        }
    }
}
