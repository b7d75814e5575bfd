//! Whether a job moves some of its processes to other machines: to nodes that have joined, or come back, since it began;
//! or from machines that have become slower to others. Decided when a checkpoint falls due; if it pays, the job is parked
//! at that checkpoint and goes on from it. A machine that has been slower or faster for some seconds brings the checkpoint forward, if the move
//! pays: with half a minute from one to the next, a rank on a throttled phone would hold all others back for so long. A newcomer for which it does not pay stays one, and so does a machine that
//! has changed.

use super::entry::{Cause, Expected};
use super::event::Now;
use super::job::ahead::Errand;
use super::job::migration::{Altered, Verdict};
use super::job::{Job, State};
use super::placement::{self, Advice, Machine, NoMachine, Outlook};
use super::rollback::plan;
use super::shared::Shared;
use crate::event::Event;
use crate::fault;
use crate::settings::Departures;
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use std::collections::{BTreeMap, BTreeSet};

/// What a restore takes besides its bytes, in seconds, while none has been measured.
const FIRST_RESTORE: f64 = 0.5;
/// Bytes that are fetched and restored in a second, likewise.
const FIRST_RATE: f64 = 400e6;

/// For what a job might be moved.
struct Occasion {
    newcomers: BTreeSet<NodeName>,
    /// Machines that have changed, with what they get done now in what they got done.
    changed: BTreeMap<NodeName, f64>,
}

impl Job {
    /// The job is placed as it is by how fast machines are now.
    pub(super) fn note_paces(&mut self, shared: &Shared) {
        self.migration.paces.note(&self.machines(shared));
        self.migration.altered = Altered::default();
    }

    /// A machine has told how fast it is now.
    pub(super) fn note_pace(&mut self, now: Now, shared: &mut Shared, node: &NodeName) {
        let Some(member) = shared.members.get(node) else {
            return fault::tell("note a machine's speed", "a member of that name");
        };
        let rate = plan::machine(node, member, 0).rate();
        let changed = self.migration.paces.has_changed(node, rate);
        // A job that does not run is placed anew before it does.
        let State::Running(running) = &self.state else { return };
        if !self.migration.altered.is_steady(node, changed, now.nanos)
            || !running.machine.may_hurry()
        {
            return;
        }
        self.migration.altered.look_later(now.nanos);
        self.evaluate_migration(now, shared, false);
        if self.migration.cause.is_some() {
            if let State::Running(running) = &mut self.state {
                running.machine.hurry(now);
            }
            self.advance(now, shared, Event::Clock);
        }
    }

    /// A checkpoint is about to be taken: is it to be the beginning of a move? `begins`: it is taken whatever comes out.
    pub(super) fn evaluate_migration(&mut self, now: Now, shared: &mut Shared, begins: bool) {
        self.migration.cause = None;
        self.migration.verdict = None;
        let machines = self.machines(shared);
        let newcomers: BTreeSet<NodeName> = machines
            .iter()
            .map(|machine| &machine.name)
            .filter(|node| !self.ledger.familiar.contains(*node))
            .cloned()
            .collect();
        let mut changed = self.migration.paces.changed(&machines);
        changed.retain(|node, _| !newcomers.contains(node));
        let occasion = Occasion { newcomers, changed };
        if !occasion.newcomers.is_empty() || !occasion.changed.is_empty() {
            if let Some((advice, outlook)) = self.advice(now, &machines, &occasion) {
                self.migration.verdict = Some(occasion.verdict(&advice, &outlook));
                self.migration.cause =
                    advice.pays.then(|| occasion.cause(&advice, &outlook)).flatten();
            }
        }
        match self.migration.cause.as_ref().map(Cause::takers) {
            Some(takers) => {
                let takers = takers.into_iter().collect();
                // What is to be moved goes ahead first.
                if !self.is_sent_ahead(now, shared, Errand::Share, &takers, begins) {
                    self.migration.cause = None;
                }
            }
            None => self.drop_ahead_for(Errand::Share),
        }
        let moves = self.migration.cause.is_some();
        let departures = self.departures(now);
        if let State::Running(running) = &mut self.state {
            running.machine.note_departures(departures);
            running.machine.park_next(moves);
        }
    }

    /// Machines, and what other jobs run there.
    fn machines(&self, shared: &Shared) -> Vec<Machine> {
        let busy = shared.busy(Some(&self.ledger.id));
        let (members, on) = (&shared.members, self.nodes());
        plan::machines(&self.ledger, members, &busy, &BTreeSet::new(), &on).machines
    }

    fn advice(
        &self,
        now: Now,
        machines: &[Machine],
        occasion: &Occasion,
    ) -> Option<(Advice, Outlook)> {
        let newest = self.last_checkpoint()?;
        let images = self.ledger.images.get(&newest)?;
        let known: BTreeSet<InstanceId> = images.keys().copied().collect();
        let present: BTreeSet<InstanceId> = self.live.present().map(|(number, _)| number).collect();
        if known != present {
            // Processes have come or gone since: after the next checkpoint it is known which.
            return None;
        }
        let targets: BTreeSet<NodeName> = if occasion.changed.is_empty() {
            occasion.newcomers.clone()
        } else {
            machines.iter().map(|machine| machine.name.clone()).collect()
        };
        let inputs = plan::inputs(&self.ledger.works, images);
        let outlook = self.expected_time(now, placement::crowd(&inputs, machines));
        let wishes = plan::wishes(&self.ledger);
        let advice: Result<Option<Advice>, NoMachine> =
            placement::advise(&inputs, machines, &wishes, &targets, outlook);
        advice.ok().flatten().map(|advice| (advice, outlook))
    }

    /// What has rolled the job back so far.
    fn departures(&self, now: Now) -> Departures {
        let lost = self.ledger.rollbacks.iter().filter(|record| record.reason == "lost").count();
        let ran_ms = now.unix_ms.saturating_sub(self.ledger.created_at_ms);
        Departures {
            count: u32::try_from(lost).unwrap_or(u32::MAX),
            ran_ns: ran_ms.saturating_mul(1_000_000),
            machines: u32::try_from(self.ledger.instances.nodes().len()).unwrap_or(u32::MAX),
        }
    }

    fn expected_time(&self, now: Now, crowd: f64) -> Outlook {
        let since = |at_ms: u64| now.unix_ms.saturating_sub(at_ms) as f64 / 1e3;
        Outlook {
            ran: since(self.ledger.created_at_ms),
            settled: match self.ledger.rollbacks.last() {
                Some(_) => since(self.ledger.epoch_at_ms),
                None => f64::INFINITY,
            },
            cost: self.cost_of_move(crowd),
        }
    }

    /// For how many seconds the job would stand still: as long as for its last move; before there was one, as
    /// long as its newest checkpoint took to be durable, where the job did not compete with the writing, and what a restore of
    /// so many bytes may take.
    fn cost_of_move(&self, crowd: f64) -> f64 {
        let last = self.ledger.rollbacks.iter().rev().find(|record| record.is_move());
        if let Some((record, running)) = last.and_then(|last| Some((last, last.running_ms?))) {
            return running.saturating_sub(record.lost_at_ms) as f64 / 1e3;
        }
        self.ledger.history.newest().map_or(FIRST_RESTORE, |record| {
            let write = record.committed_at_ms.saturating_sub(record.taken_at_ms) as f64 / 1e3;
            write / crowd + FIRST_RESTORE + record.summary.bytes as f64 / FIRST_RATE
        })
    }
}

impl Occasion {
    fn cause(&self, advice: &Advice, outlook: &Outlook) -> Option<Cause> {
        let millis = |seconds: f64| (seconds * 1e3) as u64;
        let permille = |ratio: f64| (ratio * 1e3).round() as u32;
        let expected = Expected {
            faster_permille: permille(advice.faster),
            gain_ms: millis(advice.gain),
            cost_ms: millis(outlook.cost),
            pace_permille: None,
        };
        let mut takers = advice.takers.iter().cloned();
        let mut changed = self.changed.iter();
        match changed.next() {
            Some((node, ratio)) if !advice.takers.is_subset(&self.newcomers) => {
                Some(Cause::Speed {
                    node: node.clone(),
                    with: changed.map(|(node, _)| node.clone()).collect(),
                    takers: takers.collect(),
                    expected: Expected { pace_permille: Some(permille(*ratio)), ..expected },
                })
            }
            _ => Some(Cause::Join { node: takers.next()?, with: takers.collect(), expected }),
        }
    }

    fn verdict(&self, advice: &Advice, outlook: &Outlook) -> Verdict {
        let newcomers: Vec<&str> = self.newcomers.iter().map(NodeName::as_str).collect();
        let changed: Vec<String> =
            self.changed.iter().map(|(node, ratio)| format!("{node} ({ratio:.2} times)")).collect();
        let is_of_speeds = !changed.is_empty();
        let names = if is_of_speeds { changed.join(", ") } else { newcomers.join(", ") };
        let text = describe(is_of_speeds, &names, advice, outlook);
        Verdict { is_of_speeds, text }
    }
}

fn describe(is_of_speeds: bool, names: &str, advice: &Advice, outlook: &Outlook) -> String {
    let subject = if is_of_speeds {
        format!("changed: {names}; to move processes")
    } else {
        names.to_owned()
    };
    if advice.takers.is_empty() {
        let reason = "no machine has more to do for its speed";
        return if is_of_speeds {
            format!("changed: {names}; nothing to move: {reason}")
        } else {
            format!("{names} would take nothing over: {reason}")
        };
    }
    let faster = advice.faster;
    let (gain, cost) = (advice.gain, outlook.cost);
    let verdict = if advice.pays {
        if is_of_speeds { "some are moved" } else { "it gets its share" }
    } else if gain > cost {
        "not yet: too small a part, or too soon after the last move"
    } else {
        "not yet"
    };
    format!(
        "{subject} would make it {faster:.2} times as fast: {gain:.1} s saved if it runs as long again, for \
         {cost:.1} s of standing still; {verdict}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lasts_is_looked_at_and_ever_more_rarely() {
        const SECOND: u64 = 1_000_000_000;
        let node = NodeName::try_from("node1".to_owned()).unwrap();
        let mut altered = Altered::default();
        assert!(!altered.is_steady(&node, true, 5 * SECOND));
        assert!(!altered.is_steady(&node, false, 6 * SECOND) && !altered.since.contains_key(&node));
        assert!(!altered.is_steady(&node, true, 7 * SECOND) && altered.since.contains_key(&node));
        assert!(altered.is_steady(&node, true, 9 * SECOND));
        altered.look_later(9 * SECOND);
        assert!(!altered.is_steady(&node, true, 18 * SECOND));
        assert!(altered.is_steady(&node, true, 19 * SECOND));
        altered.look_later(19 * SECOND);
        assert!(!altered.is_steady(&node, true, 38 * SECOND));
        assert!(altered.is_steady(&node, true, 39 * SECOND));
    }
}
