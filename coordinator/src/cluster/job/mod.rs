//! One job: what the log says of it (`ledger`), and what only this run of the coordinator knows.

pub(super) mod addresses;
pub(super) mod ahead;
pub(super) mod console;
pub(super) mod ending;
mod events;
mod happenings;
pub(super) mod hosts;
pub(super) mod instances;
pub(super) mod ledger;
pub(super) mod migration;
pub(super) mod naming;
mod notes;
pub(super) mod partners;
mod past;
mod readers;
mod rehearsed;
mod replay;
pub(super) mod resting;
pub(super) mod roster;
pub(super) mod running;
pub(super) mod shell;
pub(super) mod tickets;
pub(super) mod tree_use;

use super::decisions;
use super::entry::{Cause, ClusterEntry, InstanceRecord};
use super::event::ClientId;
use super::rollback::{Arrival, Making};
use super::shared::Shared;
use crate::fault;
use ahead::Ahead;
use console::Console;
use instances::Live;
use ledger::Ledger;
use migration::Migration;
use notes::Notes;
use protocol::agent::{CheckpointNumber, InstanceId};
use protocol::cluster::agent::{InstanceSettings, ToAgent};
use protocol::cluster::client::Answer;
use protocol::cluster::settings::Daemons;
use protocol::cluster::{InstanceKey, NodeName};
use protocol::launch::StreamKind;
use rehearsed::Rehearsed;
use running::{HeldEnd, Running};
use std::collections::{BTreeMap, BTreeSet};
use tickets::Tickets;

/// What is being done with a job.
#[derive(Debug)]
pub(super) enum State {
    /// Its instances are being made: at its beginning, or after a loss.
    Making(Box<Making>),
    /// It runs.
    Running(Box<Running>),
    /// It has ended, or was given up.
    Over,
}

impl State {
    /// The epoch that is being made, for a step that is taken only while there is one. Without one, the fault is our
    /// own: it is told, and the step left out.
    pub(super) fn making(&mut self, step: &'static str) -> Option<&mut Making> {
        match self {
            Self::Making(making) => Some(making),
            Self::Running(_) | Self::Over => {
                fault::tell(step, "an epoch that is being made");
                None
            }
        }
    }

    /// What an instance's part leads to, where an epoch is being made that waits for it.
    pub(super) fn arrival<T>(
        &mut self,
        arrive: impl FnOnce(&mut Making) -> Arrival<T>,
    ) -> Arrival<T> {
        match self {
            Self::Making(making) => arrive(making),
            Self::Running(_) | Self::Over => Arrival::Stale,
        }
    }

    /// The end of the job's first process, while it is not to count yet.
    pub(super) fn held_end(&mut self) -> Option<&mut HeldEnd> {
        match self {
            Self::Running(running) => running.held.as_mut(),
            Self::Making(_) | Self::Over => None,
        }
    }

    /// As [`State::making`], to be looked at.
    pub(super) fn made(&self, step: &'static str) -> Option<&Making> {
        match self {
            Self::Making(making) => Some(making),
            Self::Running(_) | Self::Over => {
                fault::tell(step, "an epoch that is being made");
                None
            }
        }
    }
}

/// One job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) ledger: Ledger,
    pub(super) state: State,
    /// This epoch's instances.
    pub(super) live: Live,
    pub(super) console: Console,
    /// Machines on which instances of older epochs may still be.
    pub(super) nodes_with_stale_instances: BTreeSet<NodeName>,
    pub(super) migration: Migration,
    /// Images that go ahead of a move.
    pub(super) ahead: Option<Ahead>,
    /// When it may be parked once more, after an attempt that may have failed.
    pub(super) park_again: Option<u64>,
    /// What it was to be parked for last, where nodes were drained: they may be let off before its commit.
    pub(super) drained_for: Option<Cause>,
    /// Why it could not be made without nodes that are about to go.
    pub(super) stuck: Option<String>,
    /// Rehearsals of its restart that nobody asked for but its settings.
    pub(super) rehearsed: Rehearsed,
    pub(super) tickets: Tickets,
    /// Commands that take a checkpoint elsewhere.
    readers: BTreeMap<ClientId, CheckpointNumber>,
    /// Lines of commands that its user wants called.
    notes: Notes,
}

impl Job {
    pub(super) fn new(ledger: Ledger) -> Self {
        Self {
            ledger,
            state: State::Over,
            live: Live::default(),
            console: Console::at(0, 0),
            nodes_with_stale_instances: BTreeSet::new(),
            migration: Migration::default(),
            ahead: None,
            park_again: None,
            drained_for: None,
            stuck: None,
            rehearsed: Rehearsed::default(),
            tickets: Tickets::default(),
            readers: BTreeMap::new(),
            notes: Notes::default(),
        }
    }

    /// Writes an entry about this job and takes it into account.
    pub(super) fn record(&mut self, shared: &mut Shared, entry: ClusterEntry) {
        decisions::of_job(&self.ledger, &entry);
        self.ledger.apply(&entry);
        shared.append(entry);
    }

    pub(super) fn key(&self, instance: InstanceId) -> InstanceKey {
        InstanceKey { job: self.ledger.id.clone(), epoch: self.ledger.epoch, instance }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    pub(super) fn root_key(&self) -> Option<InstanceKey> {
        self.ledger.root().map(|instance| self.key(instance))
    }

    pub(super) fn root_node(&self) -> Option<NodeName> {
        let root = self.ledger.root()?;
        self.ledger.instances.get(&root).map(|record| record.node.clone())
    }

    pub(super) fn has_terminal(&self) -> bool {
        let launch = &self.ledger.request.launch;
        [launch.stdin, launch.stdout, launch.stderr].contains(&StreamKind::Terminal)
    }

    pub(super) fn instance_settings(&self) -> InstanceSettings {
        let settings = self.ledger.settings();
        InstanceSettings {
            external: settings.external,
            copies: settings.copies,
            rewire_connect: settings.rewire_connect,
            fallback: settings.daemons == Daemons::Fallback,
            cpu_baseline: settings.cpu_baseline,
        }
    }

    /// Tells those who asked for the job that it runs.
    pub(super) fn announce_start(&mut self, shared: &mut Shared) {
        let answer = Answer::Started {
            job: self.ledger.id.clone(),
            name: self.ledger.name.clone(),
            terminal: self.has_terminal(),
            at: self.log_place(),
        };
        self.console.announce_start(shared, &answer);
    }

    /// Tells a machine to end everything of this job below an epoch.
    pub(super) fn kill_below(&self, shared: &mut Shared, node: &NodeName, below: u64) {
        shared.send(node, ToAgent::Kill { job: self.ledger.id.clone(), below });
    }

    /// A client is gone; the job runs on.
    pub(super) fn client_gone(&mut self, client: &ClientId) {
        self.console.detach(client);
        self.tickets.client_gone(client);
        self.reader_gone(client);
    }

    /// This epoch's instances with their records.
    pub(super) fn records(&self) -> impl Iterator<Item = (InstanceId, &InstanceRecord)> {
        self.ledger.instances.iter().map(|(instance, record)| (*instance, record))
    }

    /// Machines that have instances of this epoch.
    pub(super) fn nodes(&self) -> BTreeSet<NodeName> {
        self.ledger.instances.nodes().cloned().collect()
    }

    /// When this job next wants the time.
    pub(super) fn deadline(&self) -> Option<u64> {
        let own = match &self.state {
            State::Making(making) => making.deadline(),
            State::Running(running) => running.machine.deadline(),
            State::Over => None,
        };
        let ahead = self.ahead.as_ref().filter(|_| self.is_running()).and_then(Ahead::deadline);
        [own, ahead, self.live.deadline(), self.live.rest.over_at].into_iter().flatten().min()
    }
}
