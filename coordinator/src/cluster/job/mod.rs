//! One job: what the log says of it (`ledger`), and what only this run of the coordinator knows.

pub(super) mod addresses;
pub(super) mod console;
pub(super) mod ending;
pub(super) mod hosts;
pub(super) mod instances;
pub(super) mod ledger;
pub(super) mod naming;
pub(super) mod partners;
mod replay;
pub(super) mod resting;
pub(super) mod running;
pub(super) mod shell;

use super::decisions;
use super::entry::{Cause, ClusterEntry, InstanceRecord};
use super::event::ClientId;
use super::joining::{Altered, Verdict};
use super::placement::Paces;
use super::rehearsals::Rehearsed;
use super::rollback::Making;
use super::shared::Shared;
use crate::event::Ticket;
use console::{Attached, Console};
use instances::Live;
use ledger::Ledger;
use protocol::agent::InstanceId;
use protocol::cluster::agent::{InstanceSettings, ToAgent};
use protocol::cluster::client::Answer;
use protocol::cluster::settings::Daemons;
use protocol::cluster::{InstanceKey, NodeName};
use protocol::launch::StreamKind;
use running::Running;
use std::collections::{BTreeMap, BTreeSet};

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
                told_as_fault(step);
                None
            }
        }
    }

    /// As [`State::making`], to be looked at.
    pub(super) fn made(&self, step: &'static str) -> Option<&Making> {
        match self {
            Self::Making(making) => Some(making),
            Self::Running(_) | Self::Over => {
                told_as_fault(step);
                None
            }
        }
    }
}

fn told_as_fault(step: &'static str) {
    tracing::error!("a fault of ckptd's own: asked to {step} while no epoch is being made");
    debug_assert!(false, "asked to {step} while no epoch is being made");
}

/// One job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) ledger: Ledger,
    pub(super) state: State,
    /// This epoch's instances.
    pub(super) live: Live,
    pub(super) console: Console,
    pub(super) attached: Vec<Attached>,
    /// Machines on which instances of older epochs may still be.
    pub(super) nodes_with_stale_instances: BTreeSet<NodeName>,
    /// Why it is to be moved at its next checkpoint, to newcomers or for machines' speeds.
    pub(super) joins: Option<Cause>,
    /// What was found about that, for listings.
    pub(super) verdict: Option<Verdict>,
    /// How fast machines were when it was last placed.
    pub(super) paces: Paces,
    /// Machines that are faster or slower than they were then.
    pub(super) altered: Altered,
    /// When it may be parked once more, after an attempt that may have failed.
    pub(super) park_again: Option<u64>,
    /// Why it could not be made without nodes that are about to go.
    pub(super) stuck: Option<String>,
    /// Rehearsals of its restart that nobody asked for but its settings.
    pub(super) rehearsed: Rehearsed,
    /// Callers who wait for something.
    pub(super) tickets: BTreeMap<Ticket, ClientId>,
    next_ticket: Ticket,
}

impl Job {
    pub(super) fn new(ledger: Ledger) -> Self {
        Self {
            ledger,
            state: State::Over,
            live: Live::default(),
            console: Console::at(0, 0),
            attached: Vec::new(),
            nodes_with_stale_instances: BTreeSet::new(),
            joins: None,
            verdict: None,
            paces: Paces::default(),
            altered: Altered::default(),
            park_again: None,
            stuck: None,
            rehearsed: Rehearsed::default(),
            tickets: BTreeMap::new(),
            next_ticket: 1,
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

    /// Somebody waits for an answer.
    pub(super) fn ticket(&mut self, client: ClientId) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.tickets.insert(ticket, client);
        ticket
    }

    pub(super) fn answer_ticket(&mut self, shared: &mut Shared, ticket: Ticket, answer: Answer) {
        if let Some(client) = self.tickets.remove(&ticket) {
            shared.answer_last(&client, answer);
        }
    }

    /// Everybody who waits is told that it can't be had.
    pub(super) fn fail_tickets(&mut self, shared: &mut Shared, reason: &str) {
        for client in std::mem::take(&mut self.tickets).into_values() {
            shared.fail(&client, reason);
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
        for attached in &mut self.attached {
            if !std::mem::replace(&mut attached.started, true) {
                shared.answer(&attached.client, answer.clone());
                if attached.detach {
                    shared.close(&attached.client);
                }
            }
        }
        self.attached.retain(|attached| !attached.detach);
    }

    /// Tells a machine to end everything of this job below an epoch.
    pub(super) fn kill_below(&self, shared: &mut Shared, node: &NodeName, below: u64) {
        shared.send(node, ToAgent::Kill { job: self.ledger.id.clone(), below });
    }

    /// A client is gone; the job runs on.
    pub(super) fn client_gone(&mut self, client: &ClientId) {
        self.detach(client);
        self.tickets.retain(|_, waiting| waiting != client);
    }

    /// This epoch's instances with their records.
    pub(super) fn records(&self) -> impl Iterator<Item = (InstanceId, &InstanceRecord)> {
        self.ledger.instances.iter().map(|(instance, record)| (*instance, record))
    }

    /// Machines that have instances of this epoch.
    pub(super) fn nodes(&self) -> BTreeSet<NodeName> {
        self.records().map(|(_, record)| record.node.clone()).collect()
    }

    /// When this job next wants the time.
    pub(super) fn deadline(&self) -> Option<u64> {
        let own = match &self.state {
            State::Making(making) => making.deadline,
            State::Running(running) => running.machine.deadline(),
            State::Over => None,
        };
        [own, self.live.deadline(), self.live.rest.over_at].into_iter().flatten().min()
    }
}
