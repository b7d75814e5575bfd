//! Steps of a checkpoint that are more than one instance's own: relays stand still before the engine looks,
//! images are copied before they count as written.

use std::collections::BTreeSet;
use std::time::Duration;

use protocol::agent::{
    AgentCommand, AgentEvent, CheckpointNumber, CommitRecord, ImageSummary, InstanceId, Step,
};
use protocol::cluster::agent::{FromAgent, RelaySide};
use protocol::cluster::{InstanceKey, NodeName};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Node;
use super::instance::Instance;
use crate::daemon::control::RelayState;
use crate::daemon::copies::{self, Wanted};
use crate::daemon::event::{Copied, Event};
use crate::daemon::folders::is_job_id;
use crate::daemon::machine;
use crate::daemon::relay::Order;
use crate::fault;

/// How long relays may take to stand still.
const PAUSE_LIMIT: Duration = Duration::from_secs(2);

impl Node {
    /// The job stands still: what relays have read arrives on the other side before the engine looks.
    pub(super) fn pause_relays(&mut self, key: &InstanceKey, checkpoint: CheckpointNumber) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        instance.paused = Some(checkpoint);
        let waiting: Vec<_> = instance
            .relays
            .iter()
            .filter_map(|relay| Some((relay.side.clone(), relay.pause(checkpoint)?)))
            .collect();
        if waiting.is_empty() {
            return instance.control.command(AgentCommand::Quiesce { checkpoint });
        }
        let (events, key) = (self.parts.events.clone(), key.clone());
        tokio::spawn(async move {
            let all = async {
                let mut states = Vec::new();
                for (side, answer) in waiting {
                    // One that has just carried its last byte has nothing to tell.
                    if let Ok(state) = answer.await {
                        states.push((side, state));
                    }
                }
                states
            };
            let result = timeout(PAUSE_LIMIT, all).await;
            let result = result.map_err(|_| "a relay's other side did not stand still".to_owned());
            events.tell(Event::RelaysPaused(key, checkpoint, result));
        });
    }

    pub(super) fn relays_paused(
        &mut self,
        key: &InstanceKey,
        checkpoint: CheckpointNumber,
        result: Result<Vec<(RelaySide, RelayState)>, String>,
    ) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        if instance.paused != Some(checkpoint) {
            return;
        }
        match result {
            Ok(states) => {
                instance.control.relay_states(states);
                instance.control.command(AgentCommand::Quiesce { checkpoint });
            }
            Err(reason) => {
                instance.control.command(AgentCommand::Abandon { checkpoint });
                self.resume_relays(key);
                let event =
                    AgentEvent::Failed { checkpoint, step: Step::Quiesce, reason, passing: true };
                self.tell(FromAgent::Instance { key: key.clone(), event });
            }
        }
    }

    pub(super) fn resume_relays(&mut self, key: &InstanceKey) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        let withheld = std::mem::take(&mut instance.withheld);
        if instance.paused.take().is_some() || withheld {
            for relay in &instance.relays {
                relay.order(Order::Resume);
            }
        }
    }

    /// What an instance's processes have done is read beside the job, which runs again.
    pub(super) fn look_at_efforts(&mut self, key: &InstanceKey, checkpoint: CheckpointNumber) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        let (init, idle) = (instance.init, self.parts.gauge.idle_permille(instance.init));
        let look = spawn_blocking(move || machine::efforts(init, idle));
        instance.efforts = Some((checkpoint, look));
    }

    /// The image is durable here: now elsewhere.
    pub(super) fn copy(
        &mut self,
        key: &InstanceKey,
        checkpoint: CheckpointNumber,
        summary: ImageSummary,
    ) {
        let read = |instance: &Instance| instance.efforts.as_ref().map(|(number, _)| *number);
        if self.instances.get(key).and_then(read) != Some(checkpoint) {
            // The job stands still, to go on elsewhere.
            self.look_at_efforts(key, checkpoint);
        }
        let whose = self.instances.get(key).map(|instance| self.whose(&instance.record.user));
        let Some(instance) = self.instances.get_mut(key) else { return };
        let wanted = instance.record.settings.copies.saturating_sub(1) as usize;
        let own = self.parts.name.clone();
        let (peers, events) = (self.parts.peers.clone(), self.parts.events.clone());
        let (folder, partners) = (instance.folder.clone(), instance.record.partners.clone());
        let (of, callers) = (key.clone(), !instance.record.settings.fallback);
        let efforts = instance.efforts.take();
        let task = tokio::spawn(async move {
            let place = folder.clone();
            fault::point("copy");
            let gather = move || {
                let user = whose.map(|whose| whose.look_up()).transpose()?.flatten();
                copies::facts(&place, checkpoint, user.as_ref(), callers)
            };
            let facts = spawn_blocking(gather).await;
            let mut facts = facts.unwrap_or_else(|error| Err(error.to_string()));
            if let (Ok(facts), Some((_, efforts))) = (&mut facts, efforts) {
                facts.efforts = efforts.await.ok();
            }
            let mut holders = vec![own.clone()];
            let mut warnings = Vec::new();
            for node in partners.iter().filter(|node| **node != own) {
                if holders.len() > wanted {
                    break;
                }
                match copies::offer(&peers, node, &of, &folder, checkpoint).await {
                    Ok(()) => holders.push(node.clone()),
                    Err(reason) => warnings.push(format!("no copy on {node}: {reason}")),
                }
            }
            fault::point("copied");
            let copied = Copied { key: of, checkpoint, summary, facts, holders, warnings };
            events.tell(Event::Copied(Box::new(copied)));
        });
        instance.copying = Some((checkpoint, task.abort_handle()));
    }

    pub(super) fn copied(&mut self, copied: Copied) {
        let Copied { key, checkpoint, summary, facts, holders, warnings } = copied;
        let Some(instance) = self.instances.get_mut(&key) else { return };
        if instance.copying.take().is_none_or(|(number, _)| number != checkpoint) {
            return;
        }
        instance.copied = Some((checkpoint, holders.clone()));
        let control = instance.control.clone();
        warnings.into_iter().for_each(|text| self.warn(&key, text));
        match facts {
            Ok(facts) => {
                self.tell(FromAgent::Image { key: key.clone(), checkpoint, facts, holders });
                let event = AgentEvent::Written { checkpoint, summary };
                self.tell(FromAgent::Instance { key, event });
            }
            Err(reason) => {
                control.command(AgentCommand::Abandon { checkpoint });
                self.fail(&key, checkpoint, Step::Write, reason);
            }
        }
    }

    pub(super) fn abandon_copies(&mut self, key: &InstanceKey, checkpoint: CheckpointNumber) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        if instance.copying.as_ref().is_some_and(|(number, _)| *number == checkpoint) {
            if let Some((_, task)) = instance.copying.take() {
                task.abort();
            }
        }
        if instance.copied.as_ref().is_some_and(|(number, _)| *number == checkpoint) {
            instance.copied = None;
        }
    }

    /// One more copy of a committed image is to be here.
    pub(super) fn fetch_copy(
        &mut self,
        job: String,
        instance: InstanceId,
        checkpoint: CheckpointNumber,
        holders: Vec<NodeName>,
        digest: String,
    ) {
        let (peers, events, busy) =
            (self.parts.peers.clone(), self.parts.events.clone(), self.parts.busy.clone());
        let folders = self.parts.folders.clone();
        let own = self.parts.name.clone();
        tokio::spawn(async move {
            let result = async {
                if !is_job_id(&job) {
                    return Err(format!("{job:?} is no job's id"));
                }
                let folder = folders.instance(&job, instance);
                let lock = busy.fetching(&folder);
                let _alone = lock.lock().await;
                folders.make_instance(&job, instance).map_err(|error| error.to_string())?;
                let is_here = copies::is_here(&folder, checkpoint).await;
                if !is_here || copies::must_be(&folder, checkpoint, &digest).await.is_err() {
                    let holders: Vec<_> = holders.into_iter().filter(|node| *node != own).collect();
                    let without = BTreeSet::new();
                    let (job, folder, without) = (job.as_str(), folder.as_path(), &without);
                    let digest = digest.as_str();
                    let wanted = Wanted { job, instance, checkpoint, digest, folder, without };
                    let fetched = copies::fetch(&peers, &holders, wanted).await;
                    fetched.map_err(|lacking| lacking.reason)?;
                }
                copies::complete(&folder, checkpoint).await
            };
            let result = result.await;
            events.tell(Event::Fetched(job, instance, checkpoint, result));
        });
    }

    /// The coordinator's log has it: the mark goes beside every copy, too.
    pub(super) fn commit_copies(
        &mut self,
        key: &InstanceKey,
        checkpoint: CheckpointNumber,
        record: &CommitRecord,
    ) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        let holders = match instance.copied.take() {
            Some((number, holders)) if number == checkpoint => holders,
            _ => Vec::new(),
        };
        instance.committing = Some((checkpoint, 2));
        let (own, of, record) = (self.parts.name.clone(), key.clone(), record.clone());
        let (peers, events) = (self.parts.peers.clone(), self.parts.events.clone());
        tokio::spawn(async move {
            let mut result = Ok(());
            for node in holders.iter().filter(|node| **node != own) {
                if let Err(reason) = copies::commit(&peers, node, &of, &record).await {
                    result = Err(format!("the copy on {node} lacks its commit mark: {reason}"));
                }
            }
            fault::point("marked");
            events.tell(Event::Marked(of, checkpoint, result));
        });
    }

    /// What a partner lacks it gets once it is asked for the image: the coordinator's log is the truth.
    pub(super) fn marked(
        &mut self,
        key: &InstanceKey,
        checkpoint: CheckpointNumber,
        result: Result<(), String>,
    ) {
        if let Err(reason) = result {
            self.warn(key, reason);
        }
        self.committed_here(key, checkpoint);
    }

    /// The mark is beside the image here, or beside all copies: when both are, that is said.
    pub(super) fn committed_here(&mut self, key: &InstanceKey, checkpoint: CheckpointNumber) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        match &mut instance.committing {
            Some((number, left)) if *number == checkpoint => {
                *left -= 1;
                if *left > 0 {
                    return;
                }
                instance.committing = None;
            }
            _ => {}
        }
        let event = AgentEvent::Committed { checkpoint };
        self.tell(FromAgent::Instance { key: key.clone(), event });
    }
}
