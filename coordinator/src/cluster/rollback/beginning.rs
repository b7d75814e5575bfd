//! A new epoch begins: why, and from which checkpoint.

use super::making::{Beginning, Making, Stage};
use crate::cluster::decisions;
use crate::cluster::entry::{Cause, ClusterEntry, RollbackRecord};
use crate::cluster::event::Now;
use crate::cluster::job::instances::Live;
use crate::cluster::job::{Job, State};
use crate::cluster::shared::Shared;
use crate::history::CommittedState;
use protocol::agent::CheckpointNumber;
use tracing::debug_span;
use tracing::field::Empty;

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
        let span = debug_span!(
            parent: None,
            "begin epoch",
            job = self.ledger.id,
            epoch,
            checkpoint = begin.checkpoint,
            reason = begin.record.reason,
            moves = Empty,
        );
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
        self.drained_for = None;
        self.ahead = None;
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
            attempts: begin.attempts,
            span,
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
            State::Making(making) => making.again(cause, self.ledger.checkpoint, 0),
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
}
