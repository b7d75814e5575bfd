//! Bringing a job to its end: the signal that was asked for, then TERM, then KILL.

use super::{JobMachine, Life};
use crate::event::{Action, Notice, Outcome, Ticket, Time};
use crate::history::Entry;
use protocol::agent::{AgentCommand, ExitKind};
use protocol::control::Reply;

/// SIGTERM, the same on every architecture of Linux (signal(7)).
const SIGTERM: i32 = 15;
/// SIGKILL, likewise.
const SIGKILL: i32 = 9;

/// A job that is being ended.
#[derive(Debug)]
pub(super) struct Ending {
    stage: Stage,
    deadline: Option<u64>,
    /// Whether the job got a signal of its terminal, which it may as well live on with.
    by_terminal: bool,
    tickets: Vec<Ticket>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Asked,
    Terminated,
    Killed,
}

impl Ending {
    pub(super) fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    pub(super) fn into_tickets(self) -> Vec<Ticket> {
        self.tickets
    }
}

impl JobMachine {
    pub(super) fn stop(&mut self, now: Time, ticket: Ticket, out: &mut Vec<Action>) {
        if self.life == Life::Fresh {
            let reply = Reply::Failed("stop the job: it has not started yet; try again".into());
            out.push(Action::Reply { ticket, reply });
            return;
        }
        match &mut self.ending {
            Some(ending) => {
                ending.by_terminal = false;
                ending.tickets.push(ticket);
            }
            None => {
                self.begin_ending(now, Stage::Terminated, false, out);
                if let Some(ending) = &mut self.ending {
                    ending.tickets.push(ticket);
                }
                self.send(SIGTERM, out);
            }
        }
    }

    pub(super) fn interrupt(
        &mut self,
        now: Time,
        signal: i32,
        delivered: bool,
        out: &mut Vec<Action>,
    ) {
        if self.life == Life::Fresh {
            return;
        }
        match self.ending.as_ref().map(|ending| ending.stage) {
            None => {
                let stage = if signal == SIGTERM { Stage::Terminated } else { Stage::Asked };
                self.begin_ending(now, stage, delivered, out);
                if !delivered {
                    self.send(signal, out);
                }
            }
            Some(stage) => self.escalate(now, stage, out),
        }
    }

    /// A program that lives on after a terminal's signal, and reads what is typed, is no job to
    /// be ended by it: an interactive interpreter.
    pub(super) fn input_after_interrupt(&mut self) {
        let idle = |ending: &Ending| {
            ending.by_terminal && ending.stage == Stage::Asked && ending.tickets.is_empty()
        };
        if self.ending.as_ref().is_some_and(idle) {
            self.ending = None;
        }
    }

    fn begin_ending(&mut self, now: Time, stage: Stage, by_terminal: bool, out: &mut Vec<Action>) {
        self.ending = Some(Ending {
            stage,
            deadline: Some(now.nanos.saturating_add(self.settings.limits.grace)),
            by_terminal,
            tickets: Vec::new(),
        });
        self.unpark(now, out);
        let text = "checkpoint the job: it is being ended";
        for waiter in std::mem::take(&mut self.waiting) {
            out.push(Action::Reply {
                ticket: waiter.ticket,
                reply: Reply::Failed(text.to_owned()),
            });
        }
    }

    fn send(&self, signal: i32, out: &mut Vec<Action>) {
        self.tell_all(&AgentCommand::Signal { signal }, out);
        out.push(Action::Notify(Notice::Ending { signal }));
    }

    /// Ends the job in a way that it can ignore less than the one of the stage before.
    fn escalate(&mut self, now: Time, before: Stage, out: &mut Vec<Action>) {
        if let Some(ending) = &mut self.ending {
            ending.by_terminal = false;
            ending.deadline = Some(now.nanos.saturating_add(self.settings.limits.grace));
            ending.stage = match before {
                Stage::Asked => Stage::Terminated,
                Stage::Terminated | Stage::Killed => Stage::Killed,
            };
        }
        match before {
            Stage::Asked => self.send(SIGTERM, out),
            // Repeated for as long as the end has not been reported.
            Stage::Terminated | Stage::Killed => {
                self.tell_all(&AgentCommand::Kill, out);
                if before == Stage::Terminated {
                    out.push(Action::Notify(Notice::Ending { signal: SIGKILL }));
                }
            }
        }
    }

    pub(super) fn check_grace(&mut self, now: Time, out: &mut Vec<Action>) {
        let passed = |ending: &&Ending| ending.deadline().is_some_and(|at| now.nanos >= at);
        if let Some(stage) = self.ending.as_ref().filter(passed).map(|ending| ending.stage) {
            self.escalate(now, stage, out);
        }
    }

    pub(super) fn ended(&mut self, now: Time, status: ExitKind, out: &mut Vec<Action>) {
        if !matches!(self.life, Life::Running) {
            return;
        }
        // A commit whose record may be in the log already is finished first, so that what is said
        // of the newest checkpoint is true.
        if self.is_committing() {
            self.life = Life::Ended(status);
            if let Some(ending) = &mut self.ending {
                ending.deadline = None;
            }
            return;
        }
        self.drop_checkpoint(out);
        self.finish(now, status, out);
    }

    pub(super) fn finish(&mut self, now: Time, status: ExitKind, out: &mut Vec<Action>) {
        let asked = self.ending.is_some();
        self.append(Entry::Ended { at_ms: now.unix_ms, status: Some(status), asked }, out);
        let newest = self.history.newest().map(|record| record.checkpoint);
        let stopping = self.ending.take().map(Ending::into_tickets).unwrap_or_default();
        for ticket in stopping {
            let reply = Reply::Ended { status, checkpoint: newest };
            out.push(Action::Reply { ticket, reply });
        }
        self.answer_all(&Reply::Failed("checkpoint the job: it has ended".to_owned()), out);
        self.life = Life::Over;
        out.push(Action::Finish(Outcome::Ended { status, asked }));
    }
}
