//! Checkpoints that are not taken: given up, tried again, or waited for until nothing is left of them.

use super::phase::{Abandoning, Phase, Taking, limit, tell};
use super::{JobMachine, Life, Waiter};
use crate::event::{Action, Notice, Time};
use crate::history::Entry;
use protocol::agent::{AgentCommand, CheckpointNumber, InstanceId, Step};
use protocol::control::Reply;
use std::collections::BTreeSet;

/// How often a checkpoint that failed for a passing reason is tried again at once.
const MOST_ATTEMPTS: u32 = 5;
/// From the first failure to the next attempt, in nanoseconds; later ones wait longer.
const FIRST_PAUSE: u64 = 20_000_000;

impl JobMachine {
    /// A step of the checkpoint in flight failed somewhere.
    pub(super) fn one_failed(
        &mut self,
        now: Time,
        checkpoint: CheckpointNumber,
        step: Step,
        reason: String,
        passing: bool,
        out: &mut Vec<Action>,
    ) {
        // It may have been given up for another agent's failure already.
        let Phase::Taking(taking) = &self.phase else { return };
        if taking.number != checkpoint {
            return;
        }
        if passing && !taking.recorded && self.attempts < MOST_ATTEMPTS {
            self.try_again(now, reason, out);
        } else {
            self.fail(now, step, reason, out);
        }
    }

    /// A failure on the coordinator's own side.
    pub(super) fn own_failure(
        &mut self,
        now: Time,
        checkpoint: CheckpointNumber,
        reason: String,
        out: &mut Vec<Action>,
    ) {
        if let Phase::Taking(taking) = &self.phase {
            if taking.number == checkpoint {
                let step = taking.step;
                self.fail(now, step, reason, out);
            }
        }
    }

    /// A step failed: the checkpoint is given up, unless the log has it already.
    pub(super) fn fail(&mut self, now: Time, step: Step, reason: String, out: &mut Vec<Action>) {
        let Some(taking) = self.phase.taking("give up a checkpoint") else { return };
        let checkpoint = taking.number;
        let steps = taking.step_times(now);
        if taking.recorded {
            out.push(Action::Notify(Notice::Warning(format!(
                "checkpoint {checkpoint} is committed, but its mark beside the image failed: \
                 {reason}"
            ))));
            // Nothing older is collected before a mark has succeeded.
            self.announce(now, out);
            return;
        }
        taking.spans.give_up(&reason);
        let agents = taking.agents.clone();
        self.attempts = 0;
        self.park = false;
        self.drop_checkpoint(out);
        self.append(Entry::Abandoned { checkpoint, reason: reason.clone(), again: false }, out);
        let text = format!("take checkpoint {checkpoint}: {step}: {reason}");
        for Waiter { ticket, .. } in std::mem::take(&mut self.joined) {
            out.push(Action::Reply { ticket, reply: Reply::Failed(text.clone()) });
        }
        let failure = Some((step, reason.clone()));
        let again = self.last_failure == failure;
        self.last_failure = failure;
        out.push(Action::Notify(Notice::Abandoned { checkpoint, step, reason, steps, again }));
        if let Life::Ended(status) = self.life {
            self.finish(now, status, out);
            return;
        }
        self.give_up(now, checkpoint, agents);
    }

    /// A step failed for a reason that passes: the whole checkpoint is taken once more, soon, for
    /// the same callers.
    fn try_again(&mut self, now: Time, reason: String, out: &mut Vec<Action>) {
        let Some(taking) = self.phase.taking("take a checkpoint again") else { return };
        taking.spans.give_up(&reason);
        let (checkpoint, agents) = (taking.number, taking.agents.clone());
        self.attempts += 1;
        let pause = FIRST_PAUSE.saturating_mul(u64::from(self.attempts));
        self.retry_at = Some(now.nanos.saturating_add(pause));
        self.drop_checkpoint(out);
        self.append(Entry::Abandoned { checkpoint, reason, again: true }, out);
        let joined = std::mem::take(&mut self.joined);
        self.waiting.splice(0..0, joined);
        if let Life::Ended(status) = self.life {
            self.finish(now, status, out);
            return;
        }
        self.give_up(now, checkpoint, agents);
    }

    /// Begins the checkpoint that is to be tried again, once its time has come.
    pub(super) fn retry(&mut self, now: Time, out: &mut Vec<Action>) {
        if self.retry_at.is_some_and(|at| now.nanos >= at) && self.may_begin() {
            self.begin(now, out);
        }
    }

    /// Waits until these agents have let go of a checkpoint.
    pub(super) fn give_up(
        &mut self,
        now: Time,
        number: CheckpointNumber,
        awaited: BTreeSet<InstanceId>,
    ) {
        self.phase = Phase::Abandoning(Abandoning {
            number,
            awaited,
            repeat_at: now.nanos.saturating_add(self.settings.limits.abandon),
            repeated: false,
        });
    }

    /// Lets a job go on where it is that was to go on elsewhere; its checkpoint stays.
    pub(super) fn give_up_parked(
        &mut self,
        now: Time,
        checkpoint: CheckpointNumber,
        agents: BTreeSet<InstanceId>,
        out: &mut Vec<Action>,
    ) {
        tell(&agents, &AgentCommand::Abandon { checkpoint }, out);
        self.give_up(now, checkpoint, agents);
    }

    /// A signal is to reach the job: it is not kept standing for a move.
    pub(super) fn unpark(&mut self, now: Time, out: &mut Vec<Action>) {
        self.park = false;
        if let Phase::Taking(Taking { parks: true, recorded: false, step, .. }) = &self.phase {
            let step = *step;
            self.fail(now, step, "the job is being ended".to_owned(), out);
        }
    }

    /// Goes on with a job that may have been left in the middle of this checkpoint.
    pub(super) fn abandon_unknown(
        &mut self,
        now: Time,
        checkpoint: CheckpointNumber,
        out: &mut Vec<Action>,
    ) {
        let reason = "the coordinator was started again".to_owned();
        self.append(Entry::Abandoned { checkpoint, reason, again: false }, out);
        self.tell_all(&AgentCommand::Abandon { checkpoint }, out);
        self.give_up(now, checkpoint, self.agents.clone());
    }

    /// An agent can't be reached for the moment: the job is not kept frozen for its sake.
    pub(super) fn unheard(
        &mut self,
        now: Time,
        agent: InstanceId,
        reason: &str,
        out: &mut Vec<Action>,
    ) {
        // Without a checkpoint in flight nothing stands still.
        let Phase::Taking(taking) = &self.phase else { return };
        let step = taking.step;
        let stands = step < Step::Write || (taking.parks && !taking.recorded);
        if stands && taking.agents.contains(&agent) {
            self.fail(now, step, reason.to_owned(), out);
        }
    }

    /// An agent has no process of the job left. An image that it has in hand is written to its
    /// end.
    pub(super) fn leave_checkpoint(&mut self, now: Time, agent: InstanceId, out: &mut Vec<Action>) {
        match &mut self.phase {
            Phase::Taking(taking) if taking.agents.contains(&agent) => match taking.step {
                Step::Freeze if taking.awaited.contains(&agent) => {
                    taking.agents.remove(&agent);
                    taking.awaited.remove(&agent);
                    if taking.agents.is_empty() {
                        self.fail(now, Step::Freeze, "no process is left".to_owned(), out);
                    } else if taking.awaited.is_empty() {
                        self.next_step(now, out);
                    }
                }
                // It is in the log: what its machine does not know of it yet, it is told when it next connects.
                Step::Commit if taking.recorded => {
                    taking.agents.remove(&agent);
                    let awaited = taking.awaited.remove(&agent);
                    if awaited && taking.awaited.is_empty() {
                        self.next_step(now, out);
                    }
                }
                Step::Write | Step::Commit if !taking.parks || taking.recorded => {}
                step => {
                    let reason = format!("the processes of instance {} ended", agent.0);
                    self.fail(now, step, reason, out);
                }
            },
            _ => {}
        }
        if let Phase::Abandoning(abandoning) = &mut self.phase {
            abandoning.awaited.remove(&agent);
            if abandoning.awaited.is_empty() {
                self.phase = Phase::Idle;
                self.begin_if_waited_for(now, out);
            }
        }
    }

    /// Tells every agent to give up the checkpoint in flight, without waiting for it.
    pub(super) fn drop_checkpoint(&mut self, out: &mut Vec<Action>) {
        if let Phase::Taking(Taking { number, recorded: false, agents, .. }) = &self.phase {
            tell(agents, &AgentCommand::Abandon { checkpoint: *number }, out);
        }
        self.phase = Phase::Idle;
    }

    pub(super) fn check_limits(&mut self, now: Time, out: &mut Vec<Action>) {
        match &mut self.phase {
            Phase::Taking(taking) if now.nanos >= taking.deadline => {
                let step = taking.step;
                let allowed = limit(&self.settings.limits, step) / 1_000_000_000;
                let moved = step == Step::Write || !taking.progress.is_empty();
                let what = if moved { "no progress for" } else { "no answer in" };
                let whom = taking.awaited_in_words();
                self.fail(now, step, format!("{what} {allowed} s{whom}"), out);
            }
            Phase::Abandoning(abandoning) if now.nanos >= abandoning.repeat_at => {
                abandoning.repeat_at = now.nanos.saturating_add(self.settings.limits.abandon);
                let first = !std::mem::replace(&mut abandoning.repeated, true);
                let checkpoint = abandoning.number;
                let awaited = abandoning.awaited.clone();
                for agent in awaited {
                    let command = AgentCommand::Abandon { checkpoint };
                    out.push(Action::Tell { agent, command });
                }
                if first {
                    let text = format!("the agent has not let go of checkpoint {checkpoint} yet");
                    out.push(Action::Notify(Notice::Warning(text.clone())));
                    let text = format!("checkpoint the job: {text}");
                    for Waiter { ticket, .. } in std::mem::take(&mut self.waiting) {
                        out.push(Action::Reply { ticket, reply: Reply::Failed(text.clone()) });
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::history::History;
    use crate::settings::{SECOND, Settings};
    use protocol::agent::AgentEvent;

    fn at(seconds: u64) -> Time {
        Time { nanos: seconds * SECOND, unix_ms: seconds * 1000 }
    }

    /// A job of these agents whose freeze begins at once.
    fn freezing(agents: &[u32]) -> JobMachine {
        let agents = agents.iter().map(|number| InstanceId(*number));
        let settings = Settings::default();
        let mut machine = JobMachine::new("j".to_owned(), settings, History::default(), agents);
        machine.step(at(0), Event::Started { restored_from: None });
        machine.step(at(0), Event::Request { ticket: 1 });
        machine
    }

    /// Why the freeze is given up when its time has passed.
    fn reason_in_the_end(machine: &mut JobMachine) -> String {
        let actions = machine.step(at(11), Event::Clock);
        let reason = actions.into_iter().find_map(|action| match action {
            Action::Notify(Notice::Abandoned { reason, .. }) => Some(reason),
            _ => None,
        });
        reason.unwrap()
    }

    fn says(machine: &mut JobMachine, agent: u32, event: AgentEvent) {
        machine.step(at(2), Event::Agent { agent: InstanceId(agent), event });
    }

    #[test]
    fn a_step_that_does_not_end_tells_what_it_was_doing() {
        let mut machine = freezing(&[0]);
        let doing = |doing: &str| AgentEvent::Doing { checkpoint: 1, doing: doing.to_owned() };
        says(&mut machine, 0, doing("stopping thread 8 of process 7 of this machine"));
        says(&mut machine, 0, doing("waiting for thread 8 of process 7 of this machine"));
        let reason = reason_in_the_end(&mut machine);
        let last = "waiting for thread 8 of process 7 of this machine";
        assert_eq!(reason, format!("no answer in 10 s from the agent (last: {last})"));
    }

    #[test]
    fn who_has_not_answered_is_named() {
        let mut machine = freezing(&[3, 4, 5]);
        says(&mut machine, 3, AgentEvent::Frozen { checkpoint: 1, processes: 1, threads: 1 });
        let reason = reason_in_the_end(&mut machine);
        assert_eq!(reason, "no answer in 10 s from 2 of 3 instances, instance 4 among them");
        let mut machine = freezing(&[3, 4]);
        says(&mut machine, 3, AgentEvent::Frozen { checkpoint: 1, processes: 1, threads: 1 });
        let long = AgentEvent::Doing { checkpoint: 1, doing: "x".repeat(100_000) };
        says(&mut machine, 4, long);
        let reason = reason_in_the_end(&mut machine);
        assert!(reason.starts_with("no answer in 10 s from instance 4 (last: xx"), "{reason}");
        assert!(reason.len() < 400, "{reason}");
    }
}
