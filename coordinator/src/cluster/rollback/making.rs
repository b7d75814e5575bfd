//! How an epoch begins, fails, and comes to run.

use super::damaged::DamagedCopies;
use super::plan;
use crate::cluster::decisions;
use crate::cluster::entry::{Cause, ClusterEntry, DepartedDaemon, RollbackRecord};
use crate::cluster::event::Now;
use crate::cluster::job::instances::{Live, Stage as InstanceStage};
use crate::cluster::job::{Job, State};
use crate::cluster::shared::Shared;
use crate::cluster::text;
use crate::history::CommittedState;
use protocol::agent::{CheckpointNumber, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::agent::{OuterSocket, RelaySide};
use std::collections::{BTreeMap, BTreeSet};

/// Times in a row that machines may fail to make an epoch.
const MOST_FAILED_MAKES: u32 = 2;

/// What follows when a machine has failed to make an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextTry {
    /// The same plan: the user wants it on that machine, and what failed may have been a moment's.
    Same,
    /// Without that machine.
    Elsewhere,
    /// None.
    No,
}

impl NextTry {
    /// After so many failures in a row, the last of them of this machine, if it is known.
    fn after(failed: u32, node: Option<&NodeName>, pins: &BTreeMap<NodeName, u32>) -> Self {
        let most = MOST_FAILED_MAKES + u32::from(!pins.is_empty());
        match failed {
            failed if failed >= most => Self::No,
            1 if node.is_some_and(|node| pins.contains_key(node)) => Self::Same,
            _ => Self::Elsewhere,
        }
    }
}

/// How far the making of an epoch is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cluster) enum Stage {
    /// Machines that have not said yet that nothing older is left on them.
    Killing { awaited: BTreeSet<NodeName>, warned: bool },
    /// For machines or images.
    Waiting { reason: String },
    /// The first instance is being started.
    Launching,
    /// Instances whose images are not there yet.
    Preparing { awaited: BTreeSet<InstanceId> },
    /// Instances that are not complete yet.
    Restoring { awaited: BTreeSet<InstanceId> },
    /// Instances that do not run yet.
    Starting { awaited: BTreeSet<InstanceId> },
}

/// An epoch that is being made.
#[derive(Debug)]
pub(in crate::cluster) struct Making {
    pub(in crate::cluster) stage: Stage,
    pub(in crate::cluster) deadline: Option<u64>,
    pub(in crate::cluster) record: RollbackRecord,
    /// Times in a row that machines failed to make it.
    pub(super) failed_makes: u32,
    pub(super) avoid: BTreeSet<NodeName>,
    pub(super) damaged: DamagedCopies,
    /// Of whom the user was told last that they are not restored: a second try need not repeat it.
    pub(super) told_departed: Vec<DepartedDaemon>,
    pub(super) force: bool,
    pub(super) sockets: BTreeMap<InstanceId, Vec<OuterSocket>>,
    pub(super) sides: BTreeMap<InstanceId, Vec<RelaySide>>,
    pub(super) outputs: BTreeMap<InstanceId, Vec<RelaySide>>,
}

/// The sides of relays that an instance has.
#[derive(Debug)]
pub(in crate::cluster) struct RelayEnds {
    /// All of them.
    pub(in crate::cluster) sides: Vec<RelaySide>,
    /// Those out of which comes what processes have written.
    pub(in crate::cluster) outputs: Vec<RelaySide>,
}

/// What an epoch begins with.
#[derive(Debug)]
pub(in crate::cluster) struct Beginning {
    pub(in crate::cluster) cause: Cause,
    pub(in crate::cluster) checkpoint: Option<CheckpointNumber>,
    /// Rollbacks without a commit, this one included.
    pub(in crate::cluster) failures: u32,
    /// What is known of the way so far.
    pub(in crate::cluster) record: RollbackRecord,
    pub(in crate::cluster) failed_makes: u32,
    pub(in crate::cluster) avoid: BTreeSet<NodeName>,
    pub(in crate::cluster) damaged: DamagedCopies,
    /// Of whom the user was told last that they are not restored.
    pub(in crate::cluster) told_departed: Vec<DepartedDaemon>,
    pub(in crate::cluster) force: bool,
}

impl Beginning {
    /// For a cause that came to be known just now.
    pub(in crate::cluster) fn of(
        now: Now,
        cause: Cause,
        checkpoint: Option<CheckpointNumber>,
    ) -> Self {
        let expected = cause.expected();
        let nodes = Some(cause.nodes()).filter(|nodes| nodes.len() > 1).unwrap_or_default();
        let record = RollbackRecord {
            reason: cause.word().to_owned(),
            node: cause.node().cloned(),
            nodes,
            expected,
            checkpoint,
            lost_at_ms: now.unix_ms,
            declared_ms: now.unix_ms,
            ..RollbackRecord::default()
        };
        Self {
            cause,
            checkpoint,
            failures: 0,
            record,
            failed_makes: 0,
            avoid: BTreeSet::new(),
            damaged: DamagedCopies::default(),
            told_departed: Vec::new(),
            force: false,
        }
    }
}

impl Job {
    /// Begins an epoch: everything older is void from here on.
    pub(in crate::cluster) fn begin_epoch(
        &mut self,
        now: Now,
        shared: &mut Shared,
        begin: Beginning,
    ) {
        let nodes = self.nodes();
        self.nodes_with_stale_instances.extend(nodes);
        self.nodes_with_stale_instances.append(&mut self.live.given_up_on);
        self.nodes_with_stale_instances.retain(|node| !shared.members.is_gone(node));
        let epoch = self.ledger.next_epoch();
        let moves = begin.cause.is_move();
        let killed = &self.nodes_with_stale_instances;
        decisions::epoch(&self.ledger.id, epoch, begin.checkpoint, &begin.cause, killed);
        self.record(
            shared,
            ClusterEntry::EpochBegun {
                job: self.ledger.id.clone(),
                epoch,
                checkpoint: begin.checkpoint,
                rollbacks: begin.failures,
                cause: begin.cause,
                at_ms: now.unix_ms,
            },
        );
        self.live = Live::default();
        shared.occupied.remove(&self.ledger.id);
        let what = if moves { "moved: try again" } else { "rolled back" };
        self.tickets
            .fail_all(shared, &format!("finish what was asked for: the job is being {what}"));
        self.state = State::Making(Box::new(Making {
            stage: Stage::Killing {
                awaited: self.nodes_with_stale_instances.clone(),
                warned: false,
            },
            deadline: Some(now.nanos.saturating_add(shared.settings.rollback.kill)),
            record: RollbackRecord { checkpoint: begin.checkpoint, ..begin.record },
            failed_makes: begin.failed_makes,
            avoid: begin.avoid,
            damaged: begin.damaged,
            told_departed: begin.told_departed,
            force: begin.force,
            sockets: BTreeMap::new(),
            sides: BTreeMap::new(),
            outputs: BTreeMap::new(),
        }));
        for node in &self.nodes_with_stale_instances {
            self.kill_below(shared, node, epoch);
        }
        self.after_killing(now, shared);
    }

    /// The checkpoint to go back to: the newest committed one on the way to the job as it is.
    pub(in crate::cluster) fn last_checkpoint(&self) -> Option<CheckpointNumber> {
        self.ledger.history.retained(1).last().copied()
    }

    /// The job stands still behind its newest checkpoint: it goes on from there, on other machines.
    pub(in crate::cluster) fn go_on_elsewhere(
        &mut self,
        now: Now,
        shared: &mut Shared,
        cause: Cause,
    ) {
        let checkpoint = self.last_checkpoint();
        let taken = checkpoint.and_then(|number| self.ledger.history.record(number));
        let since = taken.map_or(now.unix_ms, |record| record.taken_at_ms);
        let failures = self.ledger.failures;
        let mut begin = Beginning { failures, ..Beginning::of(now, cause, checkpoint) };
        begin.record.lost_at_ms = since;
        self.migration.withdraw();
        self.console.take_back_input(checkpoint);
        self.begin_epoch(now, shared, begin);
    }

    /// The job has to go back, for this cause.
    pub(in crate::cluster) fn roll_back(&mut self, now: Now, shared: &mut Shared, cause: Cause) {
        let begin = match &self.state {
            State::Over => return,
            State::Running(running) if running.machine.is_ending() => {
                // Nobody wants it back.
                self.kill_all(now, shared);
                return;
            }
            State::Running(_) => {
                let checkpoint = self.last_checkpoint();
                let mut begin = Beginning::of(now, cause, checkpoint);
                if let Cause::Lost { node } = &begin.cause {
                    let heard = shared.members.get(node).map(|member| member.heard.unix_ms);
                    begin.record.lost_at_ms = heard.unwrap_or(now.unix_ms);
                }
                begin
            }
            State::Making(making) => Beginning {
                cause,
                checkpoint: self.ledger.checkpoint,
                failures: 0,
                record: making.record.clone(),
                failed_makes: making.failed_makes,
                avoid: making.avoid.clone(),
                damaged: making.damaged.clone(),
                told_departed: making.told_departed.clone(),
                force: making.force,
            },
        };
        let failures = self.ledger.failures.saturating_add(1);
        let most = self.ledger.settings().max_restarts;
        if failures > most {
            let reason = format!("it was rolled back {most} times without a new commit");
            self.give_up(now, shared, &reason);
            return;
        }
        self.begin_epoch(now, shared, Beginning { failures, ..begin });
    }

    /// A machine failed at a step of the making.
    pub(in crate::cluster) fn make_failed(
        &mut self,
        now: Now,
        shared: &mut Shared,
        node: Option<&NodeName>,
        reason: &str,
    ) {
        let first_run = self.ledger.epoch == 1;
        // A late word about an epoch that was given up.
        let State::Making(making) = &mut self.state else { return };
        making.failed_makes += 1;
        let next = NextTry::after(making.failed_makes, node, &self.ledger.settings().place);
        if next != NextTry::Same {
            making.avoid.extend(node.cloned());
        }
        let again = next == NextTry::No;
        if again && !self.leavers_needed(&shared.members).is_empty() {
            // It could go on where it was, if nobody went.
            self.stuck = Some(reason.to_owned());
            self.console.say(shared, &format!("warning: {reason}"));
            self.roll_back(now, shared, Cause::Again { reason: reason.to_owned() });
        } else if first_run || again {
            self.give_up(now, shared, reason);
        } else {
            self.console.say(shared, &format!("warning: {reason}; trying once more"));
            self.roll_back(now, shared, Cause::Again { reason: reason.to_owned() });
        }
    }

    /// A machine was declared gone, or turned out.
    pub(in crate::cluster) fn node_gone(&mut self, now: Now, shared: &mut Shared, node: &NodeName) {
        self.nodes_with_stale_instances.remove(node);
        if self.is_over() {
            return;
        }
        let lost = self.live.present().filter(|(_, instance)| instance.record.node == *node);
        if { lost }.any(|(number, _)| !self.has_succeeded_without(number)) {
            self.roll_back(now, shared, Cause::Lost { node: node.clone() });
            return;
        }
        if let State::Making(making) = &mut self.state {
            if let Stage::Killing { awaited, .. } = &mut making.stage {
                awaited.remove(node);
            }
        }
        self.after_killing(now, shared);
        self.plan_if_waiting(now, shared);
        self.await_no_more(now, shared, Some(node));
    }

    /// A machine has nothing older than this epoch any more.
    pub(in crate::cluster) fn killed(
        &mut self,
        now: Now,
        shared: &mut Shared,
        node: &NodeName,
        below: u64,
    ) {
        if below < self.ledger.epoch {
            return;
        }
        self.nodes_with_stale_instances.remove(node);
        if let State::Making(making) = &mut self.state {
            if let Stage::Killing { awaited, .. } = &mut making.stage {
                awaited.remove(node);
            }
        }
        self.after_killing(now, shared);
    }

    fn after_killing(&mut self, now: Now, shared: &mut Shared) {
        if let State::Making(making) = &self.state {
            if matches!(&making.stage, Stage::Killing { awaited, .. } if awaited.is_empty()) {
                self.plan(now, shared);
            }
        }
    }

    pub(in crate::cluster) fn plan_if_waiting(&mut self, now: Now, shared: &mut Shared) {
        if let State::Making(making) = &self.state {
            if matches!(making.stage, Stage::Waiting { .. }) {
                self.plan(now, shared);
            }
        }
    }

    /// A committed checkpoint before this one whose images are not all lost.
    pub(super) fn older_checkpoint(
        &self,
        shared: &Shared,
        than: CheckpointNumber,
    ) -> Option<CheckpointNumber> {
        self.ledger
            .history
            .committed()
            .rev()
            .filter(|(record, state)| *state == CommittedState::Current && record.checkpoint < than)
            .map(|(record, _)| record.checkpoint)
            .find(|number| {
                self.ledger.images.get(number).is_some_and(|images| {
                    images.values().all(|image| {
                        image.holders.iter().any(|holder| !shared.members.is_gone(holder))
                    })
                })
            })
    }

    /// Stops until something changes: a machine comes, or one is declared gone.
    pub(super) fn wait_for(&mut self, now: Now, shared: &mut Shared, reason: String) {
        let limit = shared.settings.rollback.machines;
        let Some(making) = self.state.making("wait for machines") else { return };
        if matches!(making.stage, Stage::Waiting { .. }) {
            making.stage = Stage::Waiting { reason };
            return;
        }
        making.stage = Stage::Waiting { reason: reason.clone() };
        making.deadline = Some(now.nanos.saturating_add(limit));
        decisions::waits(&self.ledger, &reason);
        self.console.say(shared, &format!("the job waits: {reason}"));
    }

    /// The time of a step has passed.
    pub(in crate::cluster) fn check_making(&mut self, now: Now, shared: &mut Shared) {
        // Only an epoch that is being made has times to be kept.
        let State::Making(making) = &mut self.state else { return };
        if making.deadline.is_none_or(|deadline| now.nanos < deadline) {
            return;
        }
        making.deadline = None;
        let late = |awaited: &BTreeSet<InstanceId>, live: &Live| {
            awaited.first().and_then(|instance| live.node(*instance)).cloned()
        };
        match &mut making.stage {
            Stage::Killing { awaited, warned } => {
                if !std::mem::replace(warned, true) {
                    let names: Vec<&str> = awaited.iter().map(NodeName::as_str).collect();
                    let line = format!(
                        "waiting until {} has ended its part of the job, or is declared gone",
                        names.join(", ")
                    );
                    self.console.say(shared, &line);
                }
            }
            Stage::Waiting { reason } => {
                let reason = reason.clone();
                self.give_up(now, shared, &reason);
            }
            Stage::Launching => {
                let node = self.root_node();
                self.made_late(now, shared, node, "started");
            }
            Stage::Preparing { awaited } => {
                let node = late(awaited, &self.live);
                self.made_late(now, shared, node, "given its images");
            }
            Stage::Restoring { awaited } => {
                let node = late(awaited, &self.live);
                self.made_late(now, shared, node, "restored");
            }
            Stage::Starting { awaited } => {
                let node = late(awaited, &self.live);
                self.made_late(now, shared, node, "let go");
            }
        }
    }

    /// A step of the making took too long on a machine, or, where it is not known, somewhere.
    fn made_late(&mut self, now: Now, shared: &mut Shared, node: Option<NodeName>, done: &str) {
        let place = node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
        let reason = format!("the job was not {done} in time{place}");
        self.make_failed(now, shared, node.as_ref(), &reason);
    }

    /// All instances run.
    pub(super) fn complete(&mut self, now: Now, shared: &mut Shared) {
        let Some(making) = self.state.making("end the making of an epoch") else { return };
        making.record.running_ms = Some(now.unix_ms);
        let record = std::mem::take(&mut making.record);
        let cause = self.ledger.cause.clone();
        if self.ledger.epoch > 1 {
            let line = self.goes_on(now, &cause, &record);
            self.console.say(shared, &line);
            self.mark_always(shared, &line);
        }
        let rollback = match record.reason.as_str() {
            "run" | "restart" => None,
            _ => Some(Box::new(record)),
        };
        let links = self
            .live
            .instances
            .iter()
            .map(|(number, instance)| (*number, instance.links.clone()))
            .collect();
        for instance in self.live.instances.values_mut() {
            if instance.stage == InstanceStage::Restoring {
                instance.stage = InstanceStage::Running;
            }
        }
        let (job, epoch) = (self.ledger.id.clone(), self.ledger.epoch);
        self.record(shared, ClusterEntry::Running { job, epoch, rollback, links });
        self.run(now, shared, false);
        self.announce_start(shared);
        // What happened while others were still being let go.
        let ended: Vec<InstanceId> = self
            .ledger
            .instances
            .keys()
            .copied()
            .filter(|number| {
                let found = self.live.instances.get(number);
                found.is_some_and(|instance| instance.stage == InstanceStage::Ended)
            })
            .collect();
        for instance in ended {
            self.remove_ended(now, shared, instance);
        }
        if self.live.root_end.is_some() {
            self.weigh_end(now, shared);
        }
    }

    fn goes_on(&self, now: Now, cause: &Cause, record: &RollbackRecord) -> String {
        let name = &self.ledger.name;
        let from = match record.checkpoint {
            Some(number) if record.is_move() => {
                format!("job {name} goes on from checkpoint {number}, where it stood")
            }
            Some(number) => {
                let taken = self.ledger.history.record(number).map(|record| record.taken_at_ms);
                let age = taken.map_or(String::new(), |taken| {
                    format!(", {} old", text::age(taken, now.unix_ms))
                });
                format!("job {name} goes on from checkpoint {number}{age}")
            }
            None => format!("job {name} begins anew: it had no committed checkpoint"),
        };
        let why = match (record.reason.as_str(), &record.node, cause) {
            ("lost", Some(node), _) => format!(": {node} is gone"),
            ("leave" | "join" | "speed", Some(_), _) => format!(": {}", moved_for(record)),
            (_, _, Cause::Broken { node, reason }) => format!(": {node}: {reason}"),
            (_, _, Cause::Address { node, address }) => {
                format!(": {node} has another address, {address}")
            }
            _ => String::new(),
        };
        let moved = plan::describe(&record.moves);
        let moved = if moved.is_empty() { moved } else { format!("; {moved}") };
        let without = text::daemons(&self.ledger.departed);
        let without = if without.is_empty() { without } else { format!("; without {without}") };
        format!("{from}{why}{moved}{without}")
    }
}

/// Why a job was moved, and what is expected of it.
pub(in crate::cluster) fn moved_for(record: &RollbackRecord) -> String {
    let nodes: Vec<&str> = if record.nodes.is_empty() {
        record.node.iter().map(NodeName::as_str).collect()
    } else {
        record.nodes.iter().map(NodeName::as_str).collect()
    };
    let names = nodes.join(", ");
    let one = nodes.len() == 1;
    let Some(expected) = &record.expected else {
        return format!("{names} {}", if one { "leaves" } else { "leave" });
    };
    let what = match expected.pace_permille {
        Some(pace) if one => format!("is {:.2} times as fast as it was", f64::from(pace) / 1e3),
        Some(_) => "have become slower or faster".to_owned(),
        None => format!("{} joined", if one { "has" } else { "have" }),
    };
    format!(
        "{names} {what}, {:.2} times as fast expected",
        f64::from(expected.faster_permille) / 1e3
    )
}

#[cfg(test)]
mod tests {
    use super::NextTry;
    use protocol::cluster::NodeName;
    use std::collections::BTreeMap;

    #[test]
    fn a_machine_that_the_user_named_gets_a_second_try() {
        let name = |name: &str| name.parse::<NodeName>().unwrap();
        let (pinned, other) = (name("node2"), name("node3"));
        let pins = BTreeMap::from([(name("node1"), 6), (pinned.clone(), 6)]);
        let tries = |node: Option<&NodeName>, pins: &BTreeMap<NodeName, u32>| {
            [1, 2, 3].map(|failed| NextTry::after(failed, node, pins))
        };
        use NextTry::{Elsewhere, No, Same};
        assert_eq!(tries(Some(&pinned), &pins), [Same, Elsewhere, No]);
        assert_eq!(tries(Some(&other), &pins), [Elsewhere, Elsewhere, No]);
        assert_eq!(tries(None, &pins), [Elsewhere, Elsewhere, No]);
        assert_eq!(tries(Some(&pinned), &BTreeMap::new()), [Elsewhere, No, No]);
    }
}
