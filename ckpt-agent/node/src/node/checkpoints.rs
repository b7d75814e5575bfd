//! Steps of a checkpoint that are more than one instance's own: the console is drained, images are copied before they
//! count as written, marks are put beside images and copies.

use protocol::agent::{
    AgentCommand, AgentEvent, CheckpointNumber, CommitRecord, ImageSummary, InstanceId, Step,
};
use protocol::cluster::agent::InstanceReport;
use protocol::cluster::{InstanceKey, NodeName};
use protocol::compact::KeptImages;

use super::instance::{Committing, Instance};
use super::{Node, Voice};
use crate::names::is_job_id;
use crate::{Action, ConsoleOrder, Copied, CopyImage, Kept};

/// What a commit waits for on a node: the mark beside the image, and those beside its copies.
const MARKS: u8 = 2;

impl Node {
    pub(super) fn command(&mut self, key: &InstanceKey, command: AgentCommand) {
        if command == AgentCommand::Kill {
            return self.kill_instances(std::slice::from_ref(key));
        }
        let alive = self.instances.get_mut(key).filter(|known| known.lives());
        let Some(instance) = alive else { return self.refuse(key, &command) };
        let voice = &mut self.voice;
        let passed_on = Action::Command(key.clone(), command.clone());
        match command {
            AgentCommand::Quiesce { checkpoint } => instance.pause_relays(voice, checkpoint),
            AgentCommand::Commit { checkpoint, record } => {
                voice.act(passed_on);
                instance.commit_copies(voice, &self.own.name, checkpoint, record);
            }
            AgentCommand::Abandon { checkpoint } => {
                voice.act(passed_on);
                instance.abandon_copies(voice, checkpoint);
            }
            _ => voice.act(passed_on),
        }
    }

    /// The instance is not here, or not yet.
    fn refuse(&mut self, key: &InstanceKey, command: &AgentCommand) {
        let (checkpoint, step) = match command {
            AgentCommand::Freeze { checkpoint } => (*checkpoint, Step::Freeze),
            AgentCommand::Quiesce { checkpoint } => (*checkpoint, Step::Quiesce),
            AgentCommand::Snapshot { checkpoint } => (*checkpoint, Step::Snapshot),
            AgentCommand::Resume { checkpoint } => (*checkpoint, Step::Resume),
            AgentCommand::Write { checkpoint } => (*checkpoint, Step::Write),
            AgentCommand::Commit { checkpoint, .. } => (*checkpoint, Step::Commit),
            AgentCommand::Abandon { checkpoint } => {
                let event = AgentEvent::Abandoned { checkpoint: *checkpoint };
                return self.voice.report(key, event);
            }
            // Nobody waits for an answer to the others.
            _ => return,
        };
        let reason = format!("instance {key} is not on {}", self.own.name);
        self.voice.fail(key, checkpoint, step, reason);
    }

    pub(super) fn drain(&mut self, key: &InstanceKey, checkpoint: CheckpointNumber, parks: bool) {
        match self.instances.get_mut(key).filter(|instance| instance.console) {
            Some(instance) => {
                // What relays into the console hold then belongs to the checkpoint.
                instance.withheld |= !instance.sinks.is_empty();
                let drain = ConsoleOrder::Drain { checkpoint, parks };
                self.voice.act(Action::Console(key.clone(), drain));
            }
            None => {
                let reason = "the job's console is not here".to_owned();
                self.voice.fail(key, checkpoint, Step::Drain, reason);
            }
        }
    }

    /// An image is committed, and nobody has said so here.
    pub(super) fn mark(&mut self, job: String, instance: InstanceId, record: CommitRecord) {
        if !is_job_id(&job) {
            return tracing::warn!(job, "the coordinator names a job that can't be");
        }
        let here = self
            .instances
            .iter()
            .find(|(key, known)| key.job == job && key.instance == instance && known.lives());
        let Some((key, _)) = here else {
            let record = Box::new(record);
            return self.voice.act(Action::Mark { job, instance, record });
        };
        // It may be the one that has it open.
        let (key, checkpoint) = (key.clone(), record.checkpoint);
        self.command(&key, AgentCommand::Commit { checkpoint, record });
    }

    /// Everything of the job goes but these images, and what runs.
    pub(super) fn keep(&mut self, job: String, images: KeptImages) {
        if !is_job_id(&job) {
            return tracing::warn!(job, "the coordinator names a job that can't be");
        }
        let mut kept = Kept { job, images, alive: Default::default(), passing: Default::default() };
        for (key, instance) in self.instances.iter().filter(|(key, _)| key.job == kept.job) {
            if instance.lives() {
                kept.alive.insert(key.instance, key.clone());
            } else {
                kept.passing.insert(key.instance);
            }
        }
        self.voice.act(Action::Keep(Box::new(kept)));
    }
}

impl Instance {
    /// What its processes have done is read beside the job, which runs again.
    pub fn read_efforts(&mut self, voice: &mut Voice, checkpoint: CheckpointNumber) {
        self.efforts = Some(checkpoint);
        voice.act(Action::ReadEfforts(self.key().clone()));
    }

    /// The image is durable here: now elsewhere. `own` is this node.
    pub fn copy(
        &mut self,
        voice: &mut Voice,
        own: &NodeName,
        checkpoint: CheckpointNumber,
        summary: ImageSummary,
    ) {
        if self.efforts != Some(checkpoint) {
            // The job stands still, to go on elsewhere.
            self.read_efforts(voice, checkpoint);
        }
        self.efforts = None;
        self.copying = Some(checkpoint);
        let record = &self.record;
        voice.act(Action::CopyImage(Box::new(CopyImage {
            key: self.key().clone(),
            checkpoint,
            summary,
            user: record.user.clone(),
            partners: record.partners.iter().filter(|node| *node != own).cloned().collect(),
            copies: record.settings.copies.saturating_sub(1) as usize,
            callers: !record.settings.fallback,
        })));
    }

    pub fn copied(&mut self, voice: &mut Voice, copied: Copied) {
        let Copied { key, checkpoint, summary, facts, holders, warnings } = copied;
        if self.copying.take_if(|number| *number == checkpoint).is_none() {
            // It was given up.
            return;
        }
        self.copied = Some((checkpoint, holders.clone()));
        warnings.into_iter().for_each(|text| voice.warn(&key, text));
        match facts {
            Ok(facts) => {
                voice.report(&key, InstanceReport::Image { checkpoint, facts, holders });
                voice.report(&key, AgentEvent::Written { checkpoint, summary });
            }
            Err(reason) => {
                let abandon = AgentCommand::Abandon { checkpoint };
                voice.act(Action::Command(key.clone(), abandon));
                voice.fail(&key, checkpoint, Step::Write, reason);
            }
        }
    }

    pub fn abandon_copies(&mut self, voice: &mut Voice, checkpoint: CheckpointNumber) {
        if self.copying.take_if(|number| *number == checkpoint).is_some() {
            voice.act(Action::StopCopying(self.key().clone()));
        }
        self.copied.take_if(|(number, _)| *number == checkpoint);
    }

    /// The coordinator's log has it: the mark goes beside every copy, too. `own` is this node.
    fn commit_copies(
        &mut self,
        voice: &mut Voice,
        own: &NodeName,
        checkpoint: CheckpointNumber,
        record: CommitRecord,
    ) {
        let copied = self.copied.take().filter(|(number, _)| *number == checkpoint);
        let mut holders = copied.map(|(_, holders)| holders).unwrap_or_default();
        holders.retain(|node| node != own);
        self.committing = Some(Committing { checkpoint, left: MARKS });
        let record = Box::new(record);
        voice.act(Action::MarkCopies { key: self.key().clone(), record, holders });
    }

    /// The mark is beside the image here, or beside all copies: when both are, that is said.
    pub fn committed_here(&mut self, voice: &mut Voice, checkpoint: CheckpointNumber) {
        if let Some(committing) = &mut self.committing {
            if committing.checkpoint == checkpoint {
                committing.left -= 1;
                if committing.left > 0 {
                    return;
                }
                self.committing = None;
            }
        }
        voice.report(self.key(), AgentEvent::Committed { checkpoint });
    }
}
