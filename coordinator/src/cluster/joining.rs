//! A share for newcomers: whether a job moves some of its processes to nodes that have joined, or come back, since
//! it began. Decided when a checkpoint falls due; if it pays, the job is parked at that checkpoint and goes on from it
//! on more machines. A newcomer for which it does not pay stays one.

use super::entry::{Cause, Expected};
use super::event::Now;
use super::job::{Job, State};
use super::placement::{self, Advice, NoMachine, Outlook};
use super::rollback::plan;
use super::shared::Shared;
use protocol::agent::AgentId;
use protocol::cluster::NodeName;
use std::collections::{BTreeMap, BTreeSet};

/// What a restore takes besides its bytes, in seconds, while none has been measured.
const FIRST_RESTORE: f64 = 0.5;
/// Bytes that are fetched and restored in a second, likewise.
const FIRST_RATE: f64 = 400e6;

impl Job {
    /// A checkpoint is about to be taken: is it to be the beginning of a move?
    pub(super) fn weigh_joining(&mut self, now: Now, shared: &Shared) {
        self.joins = None;
        let newcomers: BTreeSet<NodeName> = shared
            .members
            .usable()
            .map(|(node, _)| node)
            .filter(|node| !self.ledger.familiar.contains(*node))
            .cloned()
            .collect();
        let advice = if newcomers.is_empty() {
            self.outlook = None;
            None
        } else {
            self.advice(now, shared, &newcomers)
        };
        if let Some((advice, outlook)) = advice {
            self.outlook = Some(describe(&newcomers, &advice, &outlook));
            self.joins = advice.pays.then(|| cause(&advice, &outlook)).flatten();
        }
        let moves = self.joins.is_some();
        if let State::Running(running) = &mut self.state {
            running.machine.park_next(moves);
        }
    }

    fn advice(
        &self,
        now: Now,
        shared: &Shared,
        newcomers: &BTreeSet<NodeName>,
    ) -> Option<(Advice, Outlook)> {
        let newest = self.last_checkpoint()?;
        let images = self.ledger.images.get(&newest)?;
        let known: BTreeSet<AgentId> = images.keys().copied().collect();
        let present: BTreeSet<AgentId> = self.live.present().map(|(number, _)| number).collect();
        if known != present {
            // Processes have come or gone since: after the next checkpoint it is known which.
            return None;
        }
        let mut busy: BTreeMap<NodeName, u32> = BTreeMap::new();
        for (_, occupied) in shared.occupied.iter().filter(|(job, _)| **job != self.ledger.id) {
            for (node, count) in occupied {
                *busy.entry(node.clone()).or_default() += count;
            }
        }
        let machines = plan::machines(&shared.members, &busy, &BTreeSet::new());
        let inputs = plan::inputs(images);
        let outlook = self.expected_time(now);
        let wishes = plan::wishes(&self.ledger);
        let advice: Result<Option<Advice>, NoMachine> =
            placement::advise(&inputs, &machines, &wishes, newcomers, outlook);
        advice.ok().flatten().map(|advice| (advice, outlook))
    }

    fn expected_time(&self, now: Now) -> Outlook {
        let since = |at_ms: u64| now.unix_ms.saturating_sub(at_ms) as f64 / 1e3;
        Outlook {
            ran: since(self.ledger.created_at_ms),
            settled: match self.ledger.rollbacks.last() {
                Some(_) => since(self.ledger.epoch_at_ms),
                None => f64::INFINITY,
            },
            cost: self.cost_of_move(),
        }
    }

    /// For how many seconds the job would stand still: as long as for its last move; before there was one, as
    /// long as its newest checkpoint took to be durable, and what a restore of so many bytes may take.
    fn cost_of_move(&self) -> f64 {
        let last = self.ledger.rollbacks.iter().rev().find(|record| record.is_move());
        if let Some((record, running)) = last.and_then(|last| Some((last, last.running_ms?))) {
            return running.saturating_sub(record.lost_at_ms) as f64 / 1e3;
        }
        self.ledger.history.newest().map_or(FIRST_RESTORE, |record| {
            let write = record.committed_at_ms.saturating_sub(record.taken_at_ms) as f64 / 1e3;
            write + FIRST_RESTORE + record.summary.bytes as f64 / FIRST_RATE
        })
    }
}

fn cause(advice: &Advice, outlook: &Outlook) -> Option<Cause> {
    let mut takers = advice.takers.iter().cloned();
    let millis = |seconds: f64| (seconds * 1e3) as u64;
    Some(Cause::Join {
        node: takers.next()?,
        with: takers.collect(),
        expected: Expected {
            faster_permille: (advice.faster * 1e3).round() as u32,
            gain_ms: millis(advice.gain),
            cost_ms: millis(outlook.cost),
        },
    })
}

/// For `ckptd status`.
fn describe(newcomers: &BTreeSet<NodeName>, advice: &Advice, outlook: &Outlook) -> String {
    let names: Vec<&str> = newcomers.iter().map(NodeName::as_str).collect();
    let names = names.join(", ");
    if advice.takers.is_empty() {
        return format!("{names} would take nothing over: no machine has more to do for its speed");
    }
    let faster = advice.faster;
    let (gain, cost) = (advice.gain, outlook.cost);
    let verdict = if advice.pays {
        "it gets its share"
    } else if gain > cost {
        "not yet: too small a part, or too soon after the last move"
    } else {
        "not yet"
    };
    format!(
        "{names} would make it {faster:.2} times as fast: {gain:.1} s saved if it runs as long again, for \
         {cost:.1} s of standing still; {verdict}"
    )
}
