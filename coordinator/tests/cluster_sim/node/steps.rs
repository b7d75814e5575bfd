//! The steps of a checkpoint, on one machine.

use super::facts::facts;
use super::{Image, Instance, Life, Node, Out};
use crate::random::Random;
use protocol::agent::{AgentCommand, AgentEvent, ExitKind, Step};
use protocol::cluster::InstanceKey;
use protocol::cluster::agent::FromAgent;

impl Node {
    pub(super) fn command(
        &mut self,
        now: u64,
        key: InstanceKey,
        command: AgentCommand,
        random: &mut Random,
        out: &mut Vec<Out>,
    ) {
        let Some(instance) = self.instances.get_mut(&key) else { return };
        let mut tell = |event| {
            let key = key.clone();
            out.push(Out::Send(FromAgent::Instance { key, event }, Vec::new()));
        };
        // What was written can be committed all the same.
        let heeded = matches!(command, AgentCommand::Kill | AgentCommand::Commit { .. });
        if instance.life == Life::Ended && !heeded {
            return;
        }
        let fails = random.chance(20);
        let mut failed = |instance: &mut Instance, checkpoint, step| {
            instance.frozen = None;
            instance.quiesced = false;
            instance.snapshot = None;
            AgentEvent::Failed {
                checkpoint,
                step,
                reason: "process 7: no".to_owned(),
                passing: random.chance(300),
            }
        };
        match command {
            AgentCommand::Freeze { checkpoint } if fails => {
                tell(failed(instance, checkpoint, Step::Freeze));
            }
            AgentCommand::Freeze { checkpoint } => {
                if instance.ended.is_none() {
                    instance.frozen.get_or_insert((checkpoint, now));
                    instance.frozen = instance.frozen.map(|(_, since)| (checkpoint, since));
                    instance.quiesced = false;
                    tell(AgentEvent::Frozen { checkpoint, processes: 2, threads: 2 });
                }
            }
            AgentCommand::Quiesce { checkpoint } => {
                if fails {
                    tell(failed(instance, checkpoint, Step::Quiesce));
                } else if instance.frozen.is_some_and(|(number, _)| number == checkpoint) {
                    instance.quiesced = true;
                    tell(AgentEvent::Quiesced { checkpoint });
                }
            }
            AgentCommand::Snapshot { checkpoint } => {
                if fails {
                    tell(failed(instance, checkpoint, Step::Snapshot));
                } else if instance.frozen.is_some_and(|(number, _)| number == checkpoint) {
                    instance.snapshot = Some((checkpoint, instance.app.clone()));
                    tell(AgentEvent::SnapshotTaken { checkpoint });
                }
            }
            AgentCommand::Resume { checkpoint } => {
                if instance.frozen.is_some_and(|(number, _)| number == checkpoint) {
                    instance.frozen = None;
                }
                tell(AgentEvent::Resumed { checkpoint, pause_us: 1000 });
            }
            AgentCommand::Write { checkpoint } => {
                if fails {
                    tell(failed(instance, checkpoint, Step::Write));
                } else if let Some((number, state)) = instance.snapshot.clone() {
                    if number == checkpoint {
                        let image = Image { facts: facts(&state), state };
                        let name = (key.job.clone(), key.instance, checkpoint);
                        let partners = instance.partners.clone();
                        self.disk.insert(name.clone(), image.clone());
                        for partner in partners {
                            out.push(Out::Copy(partner, name.clone(), image.clone()));
                        }
                    }
                } else if self.disk.contains_key(&(key.job.clone(), key.instance, checkpoint)) {
                    let name = (key.job.clone(), key.instance, checkpoint);
                    let image = self.disk[&name].clone();
                    out.push(Out::Copy(self.name.clone(), name, image));
                }
            }
            AgentCommand::Commit { checkpoint, .. } => {
                instance.snapshot = None;
                tell(AgentEvent::Committed { checkpoint });
            }
            AgentCommand::Abandon { checkpoint } => {
                if instance.frozen.is_some_and(|(number, _)| number == checkpoint) {
                    instance.frozen = None;
                }
                if instance.snapshot.as_ref().is_some_and(|(number, _)| *number == checkpoint) {
                    instance.snapshot = None;
                }
                tell(AgentEvent::Abandoned { checkpoint });
            }
            AgentCommand::Kill | AgentCommand::Signal { .. } | AgentCommand::Forward { .. } => {
                let signal = match command {
                    AgentCommand::Signal { signal } | AgentCommand::Forward { signal } => signal,
                    _ => 9,
                };
                if instance.app.root {
                    let status = ExitKind::Signalled(signal);
                    instance.ended = Some(status);
                    instance.life = Life::Ended;
                    instance.frozen = None;
                    out.push(Out::Send(FromAgent::RootEnded { key, status }, Vec::new()));
                } else if matches!(command, AgentCommand::Kill) {
                    self.instances.remove(&key);
                    out.push(Out::Send(FromAgent::Empty { key }, Vec::new()));
                }
            }
            AgentCommand::Collect { .. } | AgentCommand::Hold | AgentCommand::Release => {}
        }
    }
}
