//! Steps of a checkpoint that are more than one instance's own: the console is drained, images are copied before they
//! count as written, marks are put beside images and copies.

use protocol::agent::{
    AgentCommand, AgentEvent, CheckpointNumber, CommitRecord, ImageSummary, InstanceId, Step,
};
use protocol::cluster::InstanceKey;
use protocol::cluster::agent::InstanceReport;
use protocol::compact::KeptImages;

use super::Node;
use super::instance::Committing;
use crate::names::is_job_id;
use crate::{Action, ConsoleOrder, Copied, CopyImage, Kept};

/// What a commit waits for on a node: the mark beside the image, and those beside its copies.
const MARKS: u8 = 2;

impl Node {
    pub(super) fn command(&mut self, key: &InstanceKey, command: AgentCommand) {
        if command == AgentCommand::Kill {
            return self.kill_instances(std::slice::from_ref(key));
        }
        if !self.instances.get(key).is_some_and(|known| known.lives()) {
            return self.refuse(key, &command);
        }
        let passed_on = Action::Command(key.clone(), command.clone());
        match command {
            AgentCommand::Quiesce { checkpoint } => self.pause_relays(key, checkpoint),
            AgentCommand::Commit { checkpoint, record } => {
                self.voice.act(passed_on);
                self.commit_copies(key, checkpoint, record);
            }
            AgentCommand::Abandon { checkpoint } => {
                self.voice.act(passed_on);
                self.abandon_copies(key, checkpoint);
            }
            _ => self.voice.act(passed_on),
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
        self.fail(key, checkpoint, step, reason);
    }

    /// Says that a step failed, for an instance that can't say it itself.
    fn fail(
        &mut self,
        key: &InstanceKey,
        checkpoint: CheckpointNumber,
        step: Step,
        reason: String,
    ) {
        let event = AgentEvent::Failed { checkpoint, step, reason, passing: false };
        self.voice.report(key, event);
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
                self.fail(key, checkpoint, Step::Drain, reason);
            }
        }
    }

    /// What an instance's processes have done is read beside the job, which runs again.
    pub(super) fn read_efforts(&mut self, key: &InstanceKey, checkpoint: CheckpointNumber) {
        if let Some(instance) = self.instances.get_mut(key) {
            instance.efforts = Some(checkpoint);
            self.voice.act(Action::ReadEfforts(key.clone()));
        }
    }

    /// The image is durable here: now elsewhere.
    pub(super) fn copy(
        &mut self,
        key: &InstanceKey,
        checkpoint: CheckpointNumber,
        summary: ImageSummary,
    ) {
        let read = self.instances.get(key).and_then(|instance| instance.efforts);
        if read != Some(checkpoint) {
            // The job stands still, to go on elsewhere.
            self.read_efforts(key, checkpoint);
        }
        let Some(instance) = self.instances.get_mut(key) else { return };
        instance.efforts = None;
        instance.copying = Some(checkpoint);
        let record = &instance.record;
        let others = record.partners.iter().filter(|node| **node != self.own.name);
        self.voice.act(Action::CopyImage(Box::new(CopyImage {
            key: key.clone(),
            checkpoint,
            summary,
            user: record.user.clone(),
            partners: others.cloned().collect(),
            copies: record.settings.copies.saturating_sub(1) as usize,
            callers: !record.settings.fallback,
        })));
    }

    pub(super) fn copied(&mut self, copied: Copied) {
        let Copied { key, checkpoint, summary, facts, holders, warnings } = copied;
        let Some(instance) = self.instances.get_mut(&key) else { return };
        if instance.copying.take_if(|number| *number == checkpoint).is_none() {
            // It was given up.
            return;
        }
        instance.copied = Some((checkpoint, holders.clone()));
        warnings.into_iter().for_each(|text| self.voice.warn(&key, text));
        match facts {
            Ok(facts) => {
                self.voice.report(&key, InstanceReport::Image { checkpoint, facts, holders });
                let event = AgentEvent::Written { checkpoint, summary };
                self.voice.report(&key, event);
            }
            Err(reason) => {
                let abandon = AgentCommand::Abandon { checkpoint };
                self.voice.act(Action::Command(key.clone(), abandon));
                self.fail(&key, checkpoint, Step::Write, reason);
            }
        }
    }

    pub(super) fn abandon_copies(&mut self, key: &InstanceKey, checkpoint: CheckpointNumber) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        if instance.copying.take_if(|number| *number == checkpoint).is_some() {
            self.voice.act(Action::StopCopying(key.clone()));
        }
        instance.copied.take_if(|(number, _)| *number == checkpoint);
    }

    /// The coordinator's log has it: the mark goes beside every copy, too.
    fn commit_copies(
        &mut self,
        key: &InstanceKey,
        checkpoint: CheckpointNumber,
        record: CommitRecord,
    ) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        let copied = instance.copied.take().filter(|(number, _)| *number == checkpoint);
        let mut holders = copied.map(|(_, holders)| holders).unwrap_or_default();
        holders.retain(|node| *node != self.own.name);
        instance.committing = Some(Committing { checkpoint, left: MARKS });
        let record = Box::new(record);
        self.voice.act(Action::MarkCopies { key: key.clone(), record, holders });
    }

    /// What a partner lacks it gets once it is asked for the image: the coordinator's log is the truth.
    pub(super) fn marked(
        &mut self,
        key: &InstanceKey,
        checkpoint: CheckpointNumber,
        result: Result<(), String>,
    ) {
        if let Err(reason) = result {
            self.voice.warn(key, reason);
        }
        self.committed_here(key, checkpoint);
    }

    /// The mark is beside the image here, or beside all copies: when both are, that is said.
    pub(super) fn committed_here(&mut self, key: &InstanceKey, checkpoint: CheckpointNumber) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        if let Some(committing) = &mut instance.committing {
            if committing.checkpoint == checkpoint {
                committing.left -= 1;
                if committing.left > 0 {
                    return;
                }
                instance.committing = None;
            }
        }
        let event = AgentEvent::Committed { checkpoint };
        self.voice.report(key, event);
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
