//! What the state machine promises, over thousands of random histories of events: replies that
//! are late, repeated, missing or about something else, failures, limits, losses and ends.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

use coordinator::{Action, Entry, Event, History, Interval, JobMachine, Settings, Time};
use proptest::prelude::*;
use protocol::agent::{AgentCommand, AgentEvent, ExitKind, ImageSummary, InstanceId, Step};
use std::collections::{BTreeMap, BTreeSet};

/// What may happen next, as chosen by proptest; the world makes an event of it.
#[derive(Debug, Clone)]
enum Choice {
    /// The agent answers its oldest unanswered command, or fails at it.
    Answer {
        fails: bool,
    },
    /// An earlier event comes once more.
    Repeat(usize),
    /// Time passes, in milliseconds.
    Wait(u32),
    Request,
    Stop {
        checkpoint: bool,
    },
    Interrupt {
        delivered: bool,
    },
    Input,
    Progress,
    /// A report about any number, called for by nothing.
    Stray {
        kind: u8,
        checkpoint: u64,
    },
    /// The agent forgets a command.
    Lose,
    LogFails(bool),
    DrainFails(bool),
    JobEnds(u8),
    AgentLost,
    /// The job is to go on elsewhere: now, or at the next checkpoint.
    Park {
        now: bool,
    },
    /// The coordinator is killed and the job restarted, from which of its checkpoints.
    Restart(usize),
}

fn choice() -> impl Strategy<Value = Choice> {
    prop_oneof![
        40 => Just(Choice::Answer { fails: false }),
        2 => Just(Choice::Answer { fails: true }),
        5 => (0_usize..64).prop_map(Choice::Repeat),
        8 => (0_u32..40_000).prop_map(Choice::Wait),
        6 => Just(Choice::Request),
        1 => any::<bool>().prop_map(|checkpoint| Choice::Stop { checkpoint }),
        1 => any::<bool>().prop_map(|delivered| Choice::Interrupt { delivered }),
        1 => Just(Choice::Input),
        2 => Just(Choice::Progress),
        3 => (0_u8..8, 0_u64..8).prop_map(|(kind, checkpoint)| Choice::Stray { kind, checkpoint }),
        2 => Just(Choice::Lose),
        1 => prop::bool::weighted(0.3).prop_map(Choice::LogFails),
        1 => prop::bool::weighted(0.3).prop_map(Choice::DrainFails),
        1 => any::<u8>().prop_map(Choice::JobEnds),
        1 => Just(Choice::AgentLost),
        3 => any::<bool>().prop_map(|now| Choice::Park { now }),
        2 => (0_usize..4).prop_map(Choice::Restart),
    ]
}

/// The world around the machine, and the judge of it.
struct World {
    machine: JobMachine,
    settings: Settings,
    agents: Vec<InstanceId>,
    now: Time,
    /// The log on disk.
    log: History,
    log_fails: bool,
    drain_fails: bool,
    pending: Vec<(InstanceId, AgentCommand)>,
    sent: Vec<Event>,
    tickets: BTreeSet<u64>,
    next_ticket: u64,
    over: bool,
    // The judge's own account.
    highest: u64,
    in_flight: Option<u64>,
    written: BTreeMap<u64, BTreeSet<InstanceId>>,
    /// Checkpoints whose freeze was sent and that no resume or abandon has followed.
    frozen: BTreeSet<(InstanceId, u64)>,
    /// Those that stood for a move and were let go after the commit.
    let_go: BTreeSet<(InstanceId, u64)>,
    /// The checkpoint behind which the job stands, to go on elsewhere.
    parked: Option<u64>,
    /// How often it has gone on elsewhere.
    moves: u32,
}

impl World {
    fn new(settings: Settings, agents: u32) -> World {
        let agents: Vec<InstanceId> = (0..agents).map(InstanceId).collect();
        let machine = JobMachine::new("job-1".into(), settings, History::default(), agents.clone());
        let mut world = World {
            machine,
            settings,
            agents,
            now: Time::default(),
            log: History::default(),
            log_fails: false,
            drain_fails: false,
            pending: Vec::new(),
            sent: Vec::new(),
            tickets: BTreeSet::new(),
            next_ticket: 0,
            over: false,
            highest: 0,
            in_flight: None,
            written: BTreeMap::new(),
            frozen: BTreeSet::new(),
            let_go: BTreeSet::new(),
            parked: None,
            moves: 0,
        };
        world.feed(Event::Started { restored_from: None });
        world
    }

    fn restart(&mut self, which: usize) {
        let numbers: Vec<u64> = self.log.committed().map(|(r, _)| r.checkpoint).collect();
        let Some(from) = numbers.get(which % numbers.len().max(1)).copied() else { return };
        self.go_on_from(from);
    }

    fn go_on_from(&mut self, from: u64) {
        self.machine =
            JobMachine::new("job-1".into(), self.settings, self.log.clone(), self.agents.clone());
        self.now.nanos = 0;
        // A number whose beginning never became durable was nothing to anyone.
        self.highest = self.log.next_number() - 1;
        self.over = false;
        self.log_fails = false;
        self.pending.clear();
        self.sent.clear();
        self.tickets.clear();
        self.in_flight = None;
        self.frozen.clear();
        self.feed(Event::Started { restored_from: Some(from) });
    }

    fn feed(&mut self, event: Event) {
        let mut events = std::collections::VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            self.sent.push(event.clone());
            if let Event::Agent { agent, event: AgentEvent::Written { checkpoint, .. } } = &event {
                self.written.entry(*checkpoint).or_default().insert(*agent);
            }
            for action in self.machine.step(self.now, event) {
                self.judge(&action);
                match action {
                    Action::Tell { agent, command } => self.pending.push((agent, command)),
                    Action::DrainConsole { checkpoint } => events.push_back(if self.drain_fails {
                        Event::DrainFailed { checkpoint, reason: "full".into() }
                    } else {
                        Event::ConsoleDrained { checkpoint, log_length: 10 }
                    }),
                    Action::Append(entry) => {
                        if !self.log_fails {
                            self.log.apply(&entry);
                        }
                        match entry {
                            Entry::Committed(record) => events.push_back(if self.log_fails {
                                Event::RecordFailed {
                                    checkpoint: record.checkpoint,
                                    reason: "full".into(),
                                }
                            } else {
                                Event::Recorded { checkpoint: record.checkpoint }
                            }),
                            Entry::Begun { checkpoint } if self.log_fails => {
                                events.push_back(Event::RecordFailed {
                                    checkpoint,
                                    reason: "full".into(),
                                });
                            }
                            _ => {}
                        }
                    }
                    Action::Reply { ticket, .. } => {
                        assert!(self.tickets.remove(&ticket), "ticket {ticket} answered twice");
                    }
                    Action::Notify(_) => {}
                    Action::Parked { checkpoint } => self.parked = Some(checkpoint),
                    Action::Finish(_) => {
                        assert!(!self.over, "finished twice");
                        self.over = true;
                    }
                }
            }
        }
        if let Some(checkpoint) = self.parked.take() {
            self.moves += 1;
            self.go_on_from(checkpoint);
        } else if self.over {
            assert!(self.tickets.is_empty(), "callers left waiting: {:?}", self.tickets);
            assert!(self.frozen.is_empty(), "left frozen at the end: {:?}", self.frozen);
            assert_eq!(self.machine.deadline(), None, "a dead machine wants a clock");
        } else {
            // What is frozen is the checkpoint in flight, and its step has a limit.
            let flight = self.machine.in_flight(self.now);
            for (_, number) in &self.frozen {
                assert_eq!(flight.as_ref().map(|flight| flight.checkpoint), Some(*number));
            }
            if flight.is_some() {
                assert!(self.machine.deadline().is_some());
            }
        }
    }

    fn judge(&mut self, action: &Action) {
        match action {
            Action::Append(Entry::Begun { checkpoint }) => {
                assert!(*checkpoint > self.highest, "number {checkpoint} used again");
                self.highest = *checkpoint;
                assert_eq!(self.in_flight, None, "a second one in flight");
                self.in_flight = Some(*checkpoint);
            }
            Action::Append(Entry::Committed(record)) => {
                let number = record.checkpoint;
                assert_eq!(self.in_flight, Some(number));
                let written = self.written.get(&number).cloned().unwrap_or_default();
                assert!(record.agents.iter().all(|agent| written.contains(agent)));
                assert_eq!(record.agents.len(), self.agents.len());
            }
            Action::Append(Entry::Collected { kept }) => self.judge_kept(kept),
            Action::Notify(coordinator::Notice::Committed { record, .. }) => {
                assert!(self.log.record(record.checkpoint).is_some(), "said before recorded");
                self.in_flight = None;
            }
            Action::Notify(coordinator::Notice::Abandoned { checkpoint, .. }) => {
                assert!(self.log.record(*checkpoint).is_none(), "abandoned what is committed");
                if self.in_flight == Some(*checkpoint) {
                    self.in_flight = None;
                }
            }
            Action::Tell { agent, command } => match command {
                AgentCommand::Freeze { checkpoint } => {
                    self.frozen.insert((*agent, *checkpoint));
                }
                AgentCommand::Resume { checkpoint } | AgentCommand::Abandon { checkpoint } => {
                    // One that is to end is let go where it is.
                    let parked = self.frozen.contains(&(*agent, *checkpoint));
                    let ends = parked && self.machine.is_ending();
                    let known = self.log.record(*checkpoint).is_some();
                    // Said again to one that has not answered.
                    let again = self.let_go.contains(&(*agent, *checkpoint));
                    assert!(!known || ends || again, "abandoned a commit");
                    if self.frozen.remove(&(*agent, *checkpoint)) && known {
                        self.let_go.insert((*agent, *checkpoint));
                    }
                }
                AgentCommand::Commit { checkpoint, .. } => {
                    assert!(self.log.record(*checkpoint).is_some(), "marked before recorded");
                }
                AgentCommand::Collect { keep } => self.judge_kept(&keep.clone()),
                _ => {}
            },
            Action::Parked { checkpoint } => {
                assert_eq!(self.log.newest().map(|record| record.checkpoint), Some(*checkpoint));
                for agent in &self.agents {
                    assert!(self.frozen.contains(&(*agent, *checkpoint)), "it does not stand");
                }
            }
            Action::Finish(coordinator::Outcome::Lost { .. }) => self.frozen.clear(),
            _ => {}
        }
    }

    fn judge_kept(&self, kept: &[u64]) {
        let newest = self.machine.history().committed().filter(|(record, state)| {
            *state == coordinator::CommittedState::Current
                && self.log.record(record.checkpoint).is_some()
        });
        let newest: Vec<u64> = newest.map(|(record, _)| record.checkpoint).collect();
        let expected = &newest[newest.len().saturating_sub(self.settings.keep)..];
        assert_eq!(kept, expected, "kept is not what --keep says");
        assert!(!kept.is_empty());
    }

    fn answer(&mut self, fails: bool) {
        if self.pending.is_empty() {
            return;
        }
        let (agent, command) = self.pending.remove(0);
        let failed = |checkpoint, step| AgentEvent::Failed {
            checkpoint,
            step,
            reason: "process 7: no".into(),
            passing: false,
        };
        let event = match command {
            AgentCommand::Freeze { checkpoint } if fails => failed(checkpoint, Step::Freeze),
            AgentCommand::Quiesce { checkpoint } if fails => failed(checkpoint, Step::Quiesce),
            AgentCommand::Snapshot { checkpoint } if fails => failed(checkpoint, Step::Snapshot),
            AgentCommand::Write { checkpoint } if fails => failed(checkpoint, Step::Write),
            AgentCommand::Commit { checkpoint, .. } if fails => failed(checkpoint, Step::Commit),
            AgentCommand::Freeze { checkpoint } => {
                AgentEvent::Frozen { checkpoint, processes: 2, threads: 3 }
            }
            AgentCommand::Quiesce { checkpoint } => AgentEvent::Quiesced { checkpoint },
            AgentCommand::Snapshot { checkpoint } => AgentEvent::SnapshotTaken { checkpoint },
            AgentCommand::Resume { checkpoint } => AgentEvent::Resumed { checkpoint, pause_us: 9 },
            AgentCommand::Write { checkpoint } => {
                AgentEvent::Written { checkpoint, summary: ImageSummary::default() }
            }
            AgentCommand::Commit { checkpoint, .. } => AgentEvent::Committed { checkpoint },
            AgentCommand::Abandon { checkpoint } => AgentEvent::Abandoned { checkpoint },
            AgentCommand::Kill => AgentEvent::Ended { status: ExitKind::Signalled(9) },
            AgentCommand::Collect { .. }
            | AgentCommand::Signal { .. }
            | AgentCommand::Forward { .. } => return,
        };
        self.feed(Event::Agent { agent, event });
    }

    fn happen(&mut self, choice: Choice) {
        match choice {
            Choice::Answer { fails } => self.answer(fails),
            Choice::Repeat(back) => {
                // Callers and starts don't come twice; reports may.
                let old = self.sent.iter().rev().nth(back).cloned();
                if let Some(event @ (Event::Agent { .. } | Event::ConsoleDrained { .. })) = old {
                    self.feed(event);
                }
            }
            Choice::Wait(ms) => {
                self.now.nanos += u64::from(ms) * 1_000_000;
                self.now.unix_ms += u64::from(ms);
                self.feed(Event::Clock);
            }
            Choice::Request => {
                let ticket = self.ticket();
                self.feed(Event::Request { ticket });
            }
            Choice::Stop { checkpoint } => {
                let ticket = self.ticket();
                self.feed(Event::Stop { ticket, checkpoint });
            }
            Choice::Interrupt { delivered } => {
                self.feed(Event::Interrupt { signal: 2, delivered });
            }
            Choice::Input => self.feed(Event::InputAfterInterrupt),
            Choice::Progress => {
                let checkpoint = self.highest;
                let event = AgentEvent::Progress { checkpoint, bytes: self.now.nanos };
                self.feed(Event::Agent { agent: self.agents[0], event });
            }
            Choice::Stray { kind, checkpoint } => {
                let step = Step::Write;
                let event = match kind {
                    0 => AgentEvent::Frozen { checkpoint, processes: 1, threads: 1 },
                    1 => AgentEvent::Quiesced { checkpoint },
                    2 => AgentEvent::SnapshotTaken { checkpoint },
                    3 => AgentEvent::Resumed { checkpoint, pause_us: 1 },
                    4 => AgentEvent::Committed { checkpoint },
                    5 => AgentEvent::Failed {
                        checkpoint,
                        step,
                        reason: "late".into(),
                        passing: false,
                    },
                    6 => AgentEvent::Abandoned { checkpoint },
                    _ => AgentEvent::Warning { text: "hm".into() },
                };
                // From an agent that the job does not have as well.
                let agent = InstanceId(u32::try_from(checkpoint % 4).unwrap());
                self.feed(Event::Agent { agent, event });
            }
            Choice::Lose => {
                if !self.pending.is_empty() {
                    self.pending.remove(0);
                }
            }
            Choice::LogFails(fails) => self.log_fails = fails,
            Choice::DrainFails(fails) => self.drain_fails = fails,
            Choice::JobEnds(status) => self.feed(Event::Agent {
                agent: self.agents[0],
                event: AgentEvent::Ended { status: ExitKind::Exited(status) },
            }),
            Choice::AgentLost => {
                self.feed(Event::AgentLost { agent: self.agents[0], reason: "gone".into() });
            }
            Choice::Park { now: true } => self.feed(Event::Park),
            Choice::Park { now: false } => self.machine.park_next(true),
            Choice::Restart(which) => self.restart(which),
        }
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.tickets.insert(self.next_ticket);
        self.next_ticket
    }
}

#[test]
fn what_was_asked_for_while_a_job_was_held_is_done_afterwards() {
    let settings = Settings { interval: Interval::OnDemand, ..Settings::default() };
    let agent = InstanceId(1);
    let mut machine = JobMachine::new("job-1".into(), settings, History::default(), [agent]);
    machine.step(Time::default(), Event::Started { restored_from: None });
    machine.hold(true);
    assert_eq!(machine.step(Time::default(), Event::Request { ticket: 1 }), []);
    assert_eq!(machine.step(Time::default(), Event::Clock), []);
    machine.hold(false);
    let begun = machine.step(Time::default(), Event::Clock);
    let command = AgentCommand::Freeze { checkpoint: 1 };
    assert!(begun.contains(&Action::Tell { agent, command }), "{begun:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn promises_hold(
        agents in 1_u32..4,
        keep in 1_usize..4,
        every in prop_oneof![Just(None), (1_u64..60).prop_map(Some)],
        choices in prop::collection::vec(choice(), 1..250),
    ) {
        let interval = every.map_or(Interval::OnDemand, |s| Interval::Every(s * 1_000_000_000));
        let mut world = World::new(Settings { interval, keep, ..Settings::default() }, agents);
        for choice in choices {
            world.happen(choice);
        }
    }

    #[test]
    fn a_job_that_is_to_go_elsewhere_is_parked_once(before in 0_usize..12, every in 1_u64..40) {
        let interval = Interval::Every(every * 1_000_000_000);
        let mut world = World::new(Settings { interval, ..Settings::default() }, 2);
        world.happen(Choice::Request);
        for _ in 0..before {
            world.answer(false);
        }
        world.happen(Choice::Park { now: true });
        for _ in 0..40 {
            world.answer(false);
        }
        prop_assert_eq!(world.moves, 1);
        prop_assert!(world.frozen.is_empty());
    }

    #[test]
    fn an_agent_that_answers_brings_every_request_to_a_commit(requests in 1_usize..20) {
        let settings = Settings { interval: Interval::OnDemand, ..Settings::default() };
        let mut world = World::new(settings, 2);
        for _ in 0..requests {
            world.happen(Choice::Request);
        }
        for _ in 0..100 {
            world.answer(false);
        }
        prop_assert!(world.tickets.is_empty());
        // The first caller's is begun at once; the others join it, since it is not frozen yet.
        prop_assert_eq!(world.log.newest().map(|record| record.checkpoint), Some(1));
    }
}

#[test]
fn who_leaves_while_it_writes_is_waited_for() {
    let agents = [InstanceId(1), InstanceId(2)];
    let settings = Settings { interval: Interval::OnDemand, ..Settings::default() };
    let mut machine = JobMachine::new("job-1".into(), settings, History::default(), agents);
    let now = Time::default();
    machine.step(now, Event::Started { restored_from: None });
    machine.step(now, Event::Request { ticket: 1 });
    let checkpoint = 1;
    let all = |machine: &mut JobMachine, event: &dyn Fn() -> AgentEvent| {
        let say = |agent| machine.step(now, Event::Agent { agent, event: event() });
        agents.into_iter().flat_map(say).collect::<Vec<_>>()
    };
    all(&mut machine, &|| AgentEvent::Frozen { checkpoint, processes: 1, threads: 1 });
    machine.step(now, Event::ConsoleDrained { checkpoint, log_length: 0 });
    all(&mut machine, &|| AgentEvent::Quiesced { checkpoint });
    all(&mut machine, &|| AgentEvent::SnapshotTaken { checkpoint });
    all(&mut machine, &|| AgentEvent::Resumed { checkpoint, pause_us: 1 });
    machine.remove_agent(now, InstanceId(2));
    assert!(machine.has_in_hand(InstanceId(2)));
    let told =
        all(&mut machine, &|| AgentEvent::Written { checkpoint, summary: ImageSummary::default() });
    let committed = |action: &Action| matches!(action, Action::Append(Entry::Committed(record)) if record.agents.iter().eq(&agents));
    assert!(told.iter().any(committed), "{told:?}");
    let told = machine.step(now, Event::Recorded { checkpoint });
    let marks = |action: &&Action| {
        matches!(action, Action::Tell { command: AgentCommand::Commit { .. }, .. })
    };
    assert_eq!(told.iter().filter(marks).count(), 2);
    all(&mut machine, &|| AgentEvent::Committed { checkpoint });
    assert!(!machine.has_in_hand(InstanceId(2)));
}

/// A machine whose two agents are at the snapshot, since 0 s.
fn at_the_snapshot() -> JobMachine {
    let agents = [InstanceId(1), InstanceId(2)];
    let settings = Settings { interval: Interval::OnDemand, ..Settings::default() };
    let mut machine = JobMachine::new("job-1".into(), settings, History::default(), agents);
    let (now, checkpoint) = (Time::default(), 1);
    machine.step(now, Event::Started { restored_from: None });
    machine.step(now, Event::Request { ticket: 1 });
    for agent in agents {
        let event = AgentEvent::Frozen { checkpoint, processes: 1, threads: 1 };
        machine.step(now, Event::Agent { agent, event });
    }
    machine.step(now, Event::ConsoleDrained { checkpoint, log_length: 0 });
    for agent in agents {
        machine.step(now, Event::Agent { agent, event: AgentEvent::Quiesced { checkpoint } });
    }
    machine
}

fn is_abandoned(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Append(Entry::Abandoned { .. })))
}

fn at(seconds: u64) -> Time {
    Time { nanos: seconds * 1_000_000_000, ..Time::default() }
}

#[test]
fn who_copies_memory_is_waited_for_as_long_as_it_goes_on() {
    let mut machine = at_the_snapshot();
    let copied = |machine: &mut JobMachine, seconds, agent, bytes| {
        let event = AgentEvent::Progress { checkpoint: 1, bytes };
        machine.step(at(seconds), Event::Agent { agent: InstanceId(agent), event })
    };
    // The first has copied more than the second ever will, and stands still from then on.
    copied(&mut machine, 1, 1, 1 << 40);
    for seconds in (5..100).step_by(5) {
        copied(&mut machine, seconds, 2, seconds);
        let passed = machine.step(at(seconds + 4), Event::Clock);
        assert!(!is_abandoned(&passed), "{seconds} s: {passed:?}");
    }
    // What does not move is none.
    copied(&mut machine, 100, 2, 95);
    assert!(is_abandoned(&machine.step(at(105), Event::Clock)));
}

#[test]
fn a_snapshot_of_which_nothing_is_heard_is_given_up() {
    let mut machine = at_the_snapshot();
    assert!(!is_abandoned(&machine.step(at(9), Event::Clock)));
    assert!(is_abandoned(&machine.step(at(10), Event::Clock)));
}

#[test]
fn a_reason_is_told_once_until_it_changes_or_a_checkpoint_is_committed() {
    let agent = InstanceId(1);
    let settings = Settings { interval: Interval::OnDemand, ..Settings::default() };
    let mut machine = JobMachine::new("job-1".into(), settings, History::default(), [agent]);
    let now = Time::default();
    machine.step(now, Event::Started { restored_from: None });
    let mut told = Vec::new();
    for (checkpoint, reason) in (1..).zip(["a", "a", "b", "b", "a", "", "a", "a"]) {
        machine.step(now, Event::Request { ticket: checkpoint });
        let mut say = |event| machine.step(now, Event::Agent { agent, event });
        if !reason.is_empty() {
            let (step, reason) = (Step::Freeze, reason.to_owned());
            let failed = AgentEvent::Failed { checkpoint, step, reason, passing: false };
            for action in say(failed) {
                if let Action::Notify(coordinator::Notice::Abandoned { again, .. }) = action {
                    told.push(!again);
                }
            }
            say(AgentEvent::Abandoned { checkpoint });
            assert_eq!(
                machine.history().last_abandoned().map(|(number, _)| number),
                Some(checkpoint)
            );
            continue;
        }
        say(AgentEvent::Frozen { checkpoint, processes: 1, threads: 1 });
        machine.step(now, Event::ConsoleDrained { checkpoint, log_length: 0 });
        let mut say = |event| machine.step(now, Event::Agent { agent, event });
        say(AgentEvent::Quiesced { checkpoint });
        say(AgentEvent::SnapshotTaken { checkpoint });
        say(AgentEvent::Resumed { checkpoint, pause_us: 1 });
        say(AgentEvent::Written { checkpoint, summary: ImageSummary::default() });
        machine.step(now, Event::Recorded { checkpoint });
        machine.step(now, Event::Agent { agent, event: AgentEvent::Committed { checkpoint } });
        assert_eq!(machine.history().newest().map(|record| record.checkpoint), Some(checkpoint));
    }
    assert_eq!(told, [true, false, true, false, true, true, false]);
}
