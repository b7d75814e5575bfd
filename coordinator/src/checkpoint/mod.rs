//! The state machine of one job.
//!
//! Its concerns, each in its file: [`checkpoint`] takes one checkpoint after the other, whose state is a
//! [`phase`], [`failing`] gives up those that can't be had, [`ending`] brings the job to its end, [`instances`] is for
//! jobs on a cluster, whose agents come and go, and this file deals out the events.

mod ending;
mod failing;
mod instances;
mod phase;
mod spans;
mod steps;

use crate::event::{Action, Event, Notice, Outcome, Ticket, Time};
use crate::history::{Entry, History};
use crate::settings::{Chosen, Departures, Settings};
use ending::Ending;
use phase::Phase;
use protocol::agent::{AgentCommand, AgentEvent, CheckpointNumber, ExitKind, InstanceId, Step};
use protocol::control::{InFlight, Reply};
use std::collections::BTreeSet;

/// Callers that may wait at one time; more are refused.
const MAX_WAITING: usize = 1024;

/// Somebody who waits for a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waiter {
    ticket: Ticket,
    then_stop: bool,
}

/// The coordinator of one job: a pure state machine.
///
/// What it promises, and what `tests/properties.rs` checks over thousands of histories: at most
/// one checkpoint is in flight; none is committed that was not written by every agent; a frozen
/// job is always told to resume, or its checkpoint abandoned; numbers only grow; the last
/// committed checkpoint is never collected.
#[derive(Debug)]
pub struct JobMachine {
    job: String,
    settings: Settings,
    agents: BTreeSet<InstanceId>,
    history: History,
    life: Life,
    phase: Phase,
    ending: Option<Ending>,
    /// Callers who wait for the checkpoint in flight.
    joined: Vec<Waiter>,
    /// Callers who came too late for the one in flight, and wait for the next.
    waiting: Vec<Waiter>,
    interval: Option<u64>,
    /// Why it is that, where this machine has chosen it.
    chosen: Option<Chosen>,
    departures: Departures,
    due: Option<u64>,
    /// No checkpoint is begun for the moment.
    held: bool,
    /// Checkpoints that somebody reads: they stay although there are newer ones.
    read: BTreeSet<CheckpointNumber>,
    /// At the next checkpoint the job is not let go, since it is to go on elsewhere.
    park: bool,
    /// The same, but no checkpoint is begun for that.
    parks_next: bool,
    /// Attempts in a row that failed for a passing reason.
    attempts: u32,
    /// When the next attempt is to be made.
    retry_at: Option<u64>,
    processes: Option<u32>,
    /// Why the checkpoint before was given up, and at which step; None: it was committed.
    last_failure: Option<(Step, String)>,
    /// Whether the user has stopped the job.
    suspended: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Life {
    /// Not started yet.
    Fresh,
    /// The job runs.
    Running,
    /// The job has ended; a commit that was under way is being finished.
    Ended(ExitKind),
    /// [`Action::Finish`] was given.
    Over,
}

impl JobMachine {
    /// The machine of a job whose processes are held by these agents.
    #[must_use]
    pub fn new(
        job: String,
        settings: Settings,
        history: History,
        agents: impl IntoIterator<Item = InstanceId>,
    ) -> JobMachine {
        JobMachine {
            job,
            settings,
            agents: agents.into_iter().collect(),
            history,
            life: Life::Fresh,
            phase: Phase::Idle,
            ending: None,
            joined: Vec::new(),
            waiting: Vec::new(),
            interval: settings.interval.first(),
            chosen: None,
            departures: Departures::default(),
            due: None,
            held: false,
            read: BTreeSet::new(),
            park: false,
            parks_next: false,
            attempts: 0,
            retry_at: None,
            processes: None,
            last_failure: None,
            suspended: false,
        }
    }

    /// Tells whether the user has stopped the job, for the record of checkpoints.
    pub fn note_suspended(&mut self, suspended: bool) {
        self.suspended = suspended;
    }

    /// Takes an event and says what is to be done, in this order.
    pub fn step(&mut self, now: Time, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        if self.life == Life::Over {
            return self.refuse_when_over(event);
        }
        match event {
            Event::Started { restored_from } => self.started(now, restored_from, &mut out),
            Event::Clock => {}
            Event::Request { ticket } => {
                self.request(now, Waiter { ticket, then_stop: false }, &mut out);
            }
            Event::Park => self.park(now, &mut out),
            Event::Stop { ticket, checkpoint: true } => {
                self.request(now, Waiter { ticket, then_stop: true }, &mut out);
            }
            Event::Stop { ticket, checkpoint: false } => self.stop(now, ticket, &mut out),
            Event::Interrupt { signal, delivered } => {
                self.interrupt(now, signal, delivered, &mut out);
            }
            Event::InputAfterInterrupt => self.input_after_interrupt(),
            Event::Agent { agent, event } => self.agent_event(now, agent, event, &mut out),
            Event::AgentLost { agent, reason } => self.agent_lost(now, agent, &reason, &mut out),
            Event::ConsoleDrained { checkpoint, log_length } => {
                self.drained(now, checkpoint, log_length, &mut out);
            }
            Event::DrainFailed { checkpoint, reason }
            | Event::RecordFailed { checkpoint, reason } => {
                self.own_failure(now, checkpoint, reason, &mut out);
            }
            Event::Recorded { checkpoint } => self.recorded(now, checkpoint, &mut out),
        }
        self.pass_time(now, &mut out);
        out
    }

    /// When the machine next wants an [`Event::Clock`], on the clock of [`Time::nanos`].
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        let (due, retry) = if self.may_begin() { (self.due, self.retry_at) } else { (None, None) };
        [due, retry, self.phase.deadline(), self.ending.as_ref().and_then(Ending::deadline)]
            .into_iter()
            .flatten()
            .min()
    }

    /// What is known of the job.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Processes that the last freeze found.
    #[must_use]
    pub fn processes(&self) -> Option<u32> {
        self.processes
    }

    /// Seconds between checkpoints, rounded up; 0 for only on demand.
    #[must_use]
    pub fn interval_s(&self) -> u64 {
        self.interval.map_or(0, |interval| interval.div_ceil(1_000_000_000))
    }

    /// Why the interval is what it is, where it was chosen from what was measured.
    #[must_use]
    pub fn chosen(&self) -> Option<Chosen> {
        self.chosen
    }

    /// Tells what is known of departures, before a checkpoint.
    pub fn note_departures(&mut self, departures: Departures) {
        self.departures = departures;
    }

    /// Whether the job is being ended.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.ending.is_some() || self.life == Life::Over
    }

    /// The checkpoint in flight, as `ckptd status` shows it.
    #[must_use]
    pub fn in_flight(&self, now: Time) -> Option<InFlight> {
        self.phase.in_flight(now)
    }

    /// Milliseconds until the next checkpoint falls due.
    #[must_use]
    pub fn due_in_ms(&self, now: Time) -> Option<u64> {
        self.due.map(|due| due.saturating_sub(now.nanos) / 1_000_000)
    }

    fn may_begin(&self) -> bool {
        self.life == Life::Running
            && self.ending.is_none()
            && !self.held
            && self.phase == Phase::Idle
    }

    fn append(&mut self, entry: Entry, out: &mut Vec<Action>) {
        self.history.apply(&entry);
        out.push(Action::Append(entry));
    }

    fn tell_all(&self, command: &AgentCommand, out: &mut Vec<Action>) {
        for agent in &self.agents {
            out.push(Action::Tell { agent: *agent, command: command.clone() });
        }
    }

    fn started(
        &mut self,
        now: Time,
        restored_from: Option<CheckpointNumber>,
        out: &mut Vec<Action>,
    ) {
        if self.life != Life::Fresh {
            return;
        }
        self.life = Life::Running;
        self.append(Entry::Started { at_ms: now.unix_ms, restored_from }, out);
        self.due = self.interval.map(|interval| now.nanos.saturating_add(interval));
    }

    fn request(&mut self, now: Time, waiter: Waiter, out: &mut Vec<Action>) {
        let refusal = if self.life == Life::Fresh {
            Some("checkpoint the job: it has not started yet; try again")
        } else if self.ending.is_some() || self.life != Life::Running {
            Some("checkpoint the job: it is being ended")
        } else if self.joined.len() + self.waiting.len() >= MAX_WAITING {
            Some("checkpoint the job: too many callers wait already; try again later")
        } else if self.phase.is_stuck() {
            Some("checkpoint the job: the agent has not let go of the last checkpoint yet")
        } else {
            None
        };
        if let Some(refusal) = refusal {
            out.push(Action::Reply {
                ticket: waiter.ticket,
                reply: Reply::Failed(refusal.to_owned()),
            });
            return;
        }
        // The caller expects its own past in the checkpoint, so one whose job stands still or has
        // been copied already will not do.
        let moves = waiter.then_stop && self.phase.is_parking();
        if self.phase.is_before_frozen() && !moves {
            self.joined.push(waiter);
        } else {
            self.waiting.push(waiter);
        }
        self.begin_if_waited_for(now, out);
    }

    fn agent_event(
        &mut self,
        now: Time,
        agent: InstanceId,
        event: AgentEvent,
        out: &mut Vec<Action>,
    ) {
        // One that has left may have an image in hand.
        if !self.agents.contains(&agent) && !self.phase.takes_from(agent) {
            return;
        }
        match event {
            AgentEvent::Warning { text } => out.push(Action::Notify(Notice::Warning(text))),
            AgentEvent::Ended { status } => self.ended(now, status, out),
            AgentEvent::Lost { reason } => self.agent_lost(now, agent, &reason, out),
            event => self.checkpoint_event(now, agent, event, out),
        }
    }

    fn agent_lost(&mut self, now: Time, agent: InstanceId, reason: &str, out: &mut Vec<Action>) {
        if !self.agents.remove(&agent) {
            return;
        }
        self.drop_checkpoint(out);
        self.tell_all(&AgentCommand::Kill, out);
        self.append(Entry::Ended { at_ms: now.unix_ms, status: None, asked: false }, out);
        let text = format!("keep the job: its agent is gone: {reason}");
        self.answer_all(&Reply::Failed(text), out);
        self.life = Life::Over;
        out.push(Action::Finish(Outcome::Lost { reason: reason.to_owned() }));
    }

    fn answer_all(&mut self, reply: &Reply, out: &mut Vec<Action>) {
        let ending = self.ending.take().map(Ending::into_tickets).unwrap_or_default();
        let waiting = self.joined.drain(..).chain(self.waiting.drain(..));
        for ticket in waiting.map(|waiter| waiter.ticket).chain(ending) {
            out.push(Action::Reply { ticket, reply: reply.clone() });
        }
    }

    fn refuse_when_over(&self, event: Event) -> Vec<Action> {
        match event {
            Event::Request { ticket } | Event::Stop { ticket, .. } => {
                vec![Action::Reply {
                    ticket,
                    reply: Reply::Failed("reach the job: it has ended".to_owned()),
                }]
            }
            _ => Vec::new(),
        }
    }

    fn pass_time(&mut self, now: Time, out: &mut Vec<Action>) {
        if self.life == Life::Over {
            return;
        }
        self.check_limits(now, out);
        self.check_grace(now, out);
        if self.life != Life::Running {
            return;
        }
        self.retry(now, out);
        // What was asked for while the job was held.
        self.begin_if_waited_for(now, out);
        if let (Some(due), Some(interval)) = (self.due, self.interval) {
            // One that is held only comes later.
            let held = self.held && self.phase == Phase::Idle;
            if now.nanos >= due && !held {
                // A tick that falls due while a checkpoint is in flight is skipped, and so are
                // those that a sleeping machine has missed.
                let missed = (now.nanos - due) / interval + 1;
                self.due = Some(due.saturating_add(interval.saturating_mul(missed)));
                if self.may_begin() {
                    self.begin(now, out);
                }
            }
        }
    }
}
