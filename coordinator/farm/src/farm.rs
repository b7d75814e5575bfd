//! The state machine.

mod open;
mod recorded;
mod running;
mod waiting;

use crate::entry::{Entry, Try, Verdict};
use crate::event::{Action, Event, Found, How, Outcome, Reach};
use crate::flow::{Flow, Plan};
use crate::settings::{Counted, Halt, Limits, Settings, Urgency};
use crate::task::{Attempt, Task, TaskSet};
pub use open::Stage;
use running::{Running, State};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// Many tasks, of which some run at a time.
///
/// What it promises, and what `tests/histories.rs` checks over random histories with kills at any moment: each task ends
/// once in what is recorded; none is begun after that; none is begun from its beginning of which there is a checkpoint; no
/// more run at a time than there are slots; none begins before all have ended right that it waits for; and it finishes when
/// all have ended, or says how many have not. An open one gets more tasks, and finishes when it is closed; each of its tasks
/// ends once since somebody has wanted it to be run again.
#[derive(Debug)]
pub struct Farm {
    settings: Settings,
    total: u32,
    /// All before it have been begun, or are in one of the queues.
    next: u32,
    ended: TaskSet,
    /// Those that `next` passes over: they are in a queue, or came from one.
    apart: TaskSet,
    /// Those that are begun first: put back, or to go on from checkpoints.
    first: VecDeque<(Task, Origin)>,
    /// Those that failed and are tried again when no others are left.
    again: VecDeque<Task>,
    /// How often those have failed that are not over.
    failures: HashMap<Task, u32>,
    /// How often those had failed when somebody wanted them to be tried again.
    reopened: HashMap<Task, u32>,
    /// Those that have not ended right, and the last time that each was tried.
    wrong: BTreeMap<Task, Attempt>,
    /// Those that could not be brought back.
    stuck: BTreeSet<Task>,
    /// What holds for some tasks in the place of the settings.
    limits: HashMap<Task, Limits>,
    /// Whether more tasks may come.
    is_open: bool,
    /// Tasks that wait for others, where there are such.
    flow: Option<Flow>,
    /// Those that are not run, which is to be recorded, and why.
    skipped: Vec<(Task, Task)>,
    running: BTreeMap<Task, Running>,
    /// Ends that were found when the run went on, to be recorded.
    found: Vec<(Task, Attempt, Verdict)>,
    /// Checkpoints that were found, and are of no use.
    useless: Vec<(Task, Attempt)>,
    phase: Phase,
    /// Nothing is begun before that.
    paused_until: Option<Duration>,
    is_recordable: bool,
    /// Somebody has interrupted it twice: it waits for nothing any more.
    is_urgent: bool,
    /// Whoever has interrupted it may have asked its tasks to end, too.
    are_tasks_asked: bool,
    outcome: Outcome,
    /// Of those that ended since it was made: right, failed.
    since: (u32, u32),
}

/// What a task begins from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Beginning,
    Checkpoint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Tasks are begun.
    Going,
    /// Those that run come to their ends.
    Draining,
    /// Those that run are brought to an end.
    Stopping,
    /// Finished.
    Over,
}

impl Farm {
    /// So many tasks, of which that much was recorded and found.
    #[must_use]
    pub fn new(
        settings: Settings,
        total: u32,
        recorded: impl IntoIterator<Item = Entry>,
        found: impl IntoIterator<Item = Found>,
    ) -> Self {
        Self::of(settings, Vec::new(), total, None, recorded, found)
    }

    /// Tasks that wait for others, of which that much was recorded and found.
    #[must_use]
    pub fn of_plan(
        settings: Settings,
        plan: Plan,
        recorded: impl IntoIterator<Item = Entry>,
        found: impl IntoIterator<Item = Found>,
    ) -> Self {
        let flow = Flow::new(plan);
        Self::of(settings, Vec::new(), flow.total(), Some(flow), recorded, found)
    }

    /// An open one: so far with these tasks, of which that much was recorded and found.
    #[must_use]
    pub fn open(
        settings: Settings,
        tasks: Vec<Limits>,
        recorded: impl IntoIterator<Item = Entry>,
        found: impl IntoIterator<Item = Found>,
    ) -> Self {
        // In range: there are no more tasks than numbers for them.
        let total = tasks.len() as u32;
        let mut farm = Self::of(settings, tasks, total, None, recorded, found);
        farm.is_open = true;
        farm
    }

    fn of(
        settings: Settings,
        limits: Vec<Limits>,
        total: u32,
        flow: Option<Flow>,
        recorded: impl IntoIterator<Item = Entry>,
        found: impl IntoIterator<Item = Found>,
    ) -> Self {
        let mut farm = Self {
            settings,
            total,
            next: 1,
            ended: TaskSet::of(total),
            apart: TaskSet::of(total),
            first: VecDeque::new(),
            again: VecDeque::new(),
            failures: HashMap::new(),
            reopened: HashMap::new(),
            wrong: BTreeMap::new(),
            stuck: BTreeSet::new(),
            limits: HashMap::new(),
            is_open: false,
            flow,
            skipped: Vec::new(),
            running: BTreeMap::new(),
            found: Vec::new(),
            useless: Vec::new(),
            phase: Phase::Going,
            paused_until: None,
            is_recordable: true,
            is_urgent: false,
            are_tasks_asked: false,
            outcome: Outcome::default(),
            since: (0, 0),
        };
        for (number, limits) in (1..).zip(limits) {
            farm.limit(Task(number), limits);
        }
        let failed = farm.replay(recorded);
        farm.let_flow(&failed);
        farm.take_all_found(found);
        farm.queue_failures();
        farm.flow_begins();
        farm
    }

    fn attempt(&self, task: Task) -> Attempt {
        self.failures.get(&task).map_or(1, |failures| failures + 1)
    }

    /// How many tasks run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// How it stands.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        // In range: they are no more than there are tasks.
        let stuck = self.stuck.len() as u32;
        let left = self.total.saturating_sub(self.ended.len() + stuck);
        Outcome { left, stuck, ..self.outcome }
    }

    /// When [`Event::Clock`] has to come if nothing else does.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let all = self.running.values().filter_map(Running::deadline);
        all.chain(self.paused_until).min()
    }

    /// Takes an event and says what is to be done, in this order. What is late counts as that at [`Event::Clock`] alone: before
    /// it comes, all ends have to be told that are known.
    pub fn step(&mut self, now: Duration, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        if self.phase == Phase::Over {
            return out;
        }
        for (task, attempt) in std::mem::take(&mut self.useless) {
            out.push(Action::Forget(task, attempt));
        }
        for (task, attempt, verdict) in std::mem::take(&mut self.found) {
            let tried = Try { task, attempt, verdict, took_ms: 0, restored: true };
            self.conclude(now, tried, true, &mut out);
        }
        self.tell_skipped(&mut out);
        match event {
            Event::Clock => self.look_at_times(now, &mut out),
            Event::Ended(task, how) => self.has_ended(now, task, how, &mut out),
            Event::NotNow(task) => self.put_back(now, task),
            Event::NotRestored(task) => {
                if let Some(running) = self.running.remove(&task) {
                    self.not_restored(now, task, &running, &mut out);
                }
            }
            Event::NotKept(task) => {
                if let Some(running) = self.running.get_mut(&task) {
                    running.cant_be_kept = true;
                }
            }
            Event::Saved(task, is_saved) => self.is_saved(now, task, is_saved, &mut out),
            Event::WroteTooMuch(task) => {
                self.give_up(now, task, Verdict::WroteTooMuch, &mut out);
            }
            Event::Recordable(is_so) => self.is_recordable = is_so,
            Event::Interrupt(reach) => {
                self.are_tasks_asked |= reach == Reach::All;
                self.interrupt(now, &mut out);
            }
            Event::Added(limits) => self.add(limits),
            Event::Cancel(task) => self.cancel(now, task, &mut out),
            Event::Retry(task) => self.retry(task, &mut out),
            Event::Slots(slots) => self.settings.slots = slots,
            Event::Close => self.is_open = false,
        }
        self.tell_skipped(&mut out);
        self.begin_more(now, &mut out);
        self.finish_if_over(&mut out);
        out
    }

    fn has_ended(&mut self, now: Duration, task: Task, how: How, out: &mut Vec<Action>) {
        let Some(running) = self.running.get_mut(&task) else { return };
        match running.state {
            // Whether that was its own end or the last checkpoint's is not known yet.
            State::Saving { .. } => running.ended = Some((how, now)),
            State::Saved => drop(self.running.remove(&task)),
            // One that was asked to end may end as if by itself.
            State::Ending { asked: true, .. } if running.verdict.is_none() => {
                self.running.remove(&task);
            }
            State::Runs if how.may_be_a_stop() => {
                running.state = State::Doubted { until: now + self.settings.doubt, how };
            }
            State::Doubted { .. } => {}
            State::Runs | State::Ending { .. } => self.own_end(now, task, (how, now), out),
        }
    }

    /// A task has ended without having been asked to, or it was given up.
    fn own_end(
        &mut self,
        now: Duration,
        task: Task,
        (how, at): (How, Duration),
        out: &mut Vec<Action>,
    ) {
        let Some(running) = self.running.remove(&task) else { return };
        let is_killed = matches!(running.state, State::Ending { .. });
        let verdict = match (running.verdict, how) {
            (Some(verdict), _) => verdict,
            // Nobody but the farm has ended it: it is not over.
            (None, how) if is_killed && how.may_be_a_stop() => return,
            (None, How::Signalled(_)) if is_killed => return,
            // It may have been asked to before it was killed.
            (None, _) if is_killed && self.are_tasks_asked => return,
            (None, How::Exited(status)) => Verdict::Exited(status),
            (None, How::Signalled(signal)) => Verdict::Signalled(signal),
            (None, How::NoOutput) => Verdict::NoOutput,
        };
        let took = at.saturating_sub(running.began);
        let tried = Try {
            task,
            attempt: running.attempt,
            verdict,
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            restored: running.restored,
        };
        self.conclude(now, tried, running.restored || running.is_kept, out);
    }

    /// Records how a try has ended; `has_checkpoints`: there may be some of it.
    fn conclude(
        &mut self,
        now: Duration,
        tried: Try,
        has_checkpoints: bool,
        out: &mut Vec<Action>,
    ) {
        let Try { task, attempt, verdict, .. } = tried;
        let before = self.reopened.get(&task).copied().unwrap_or(0);
        let is_last = verdict.is_right()
            || verdict == Verdict::Cancelled
            || attempt.saturating_sub(before) > self.retries(task);
        if is_last {
            if !self.ended.insert(task) {
                return;
            }
            out.push(Action::Record(Entry::Ended(tried)));
            self.failures.remove(&task);
            self.count(&tried);
            match verdict.is_right() {
                true => self.since.0 += 1,
                false => self.since.1 += 1,
            }
            self.flow_on(&tried);
        } else {
            out.push(Action::Record(Entry::Failed(tried)));
            self.failures.insert(task, attempt);
            self.apart.insert(task);
            self.again.push_back(task);
        }
        if has_checkpoints {
            out.push(Action::Forget(task, attempt));
        }
        if is_last && self.phase == Phase::Going {
            self.halt_if_due(now, out);
        }
    }

    fn count(&mut self, tried: &Try) {
        if tried.verdict.is_right() {
            self.outcome.right += 1;
        } else {
            self.outcome.failed += 1;
            self.wrong.insert(tried.task, tried.attempt);
        }
    }

    fn halt_if_due(&mut self, now: Duration, out: &mut Vec<Action>) {
        let Some(Halt { urgency, counted, number }) = self.settings.halt else { return };
        let (right, failed) = self.since;
        let so_far = match counted {
            Counted::Fail => failed,
            Counted::Success => right,
            Counted::Done => right + failed,
        };
        if so_far < number {
            return;
        }
        self.outcome.halted = true;
        match urgency {
            Urgency::Soon => self.phase = Phase::Draining,
            Urgency::Now => self.stop(now, out),
        }
    }

    fn interrupt(&mut self, now: Duration, out: &mut Vec<Action>) {
        let again = std::mem::replace(&mut self.outcome.interrupted, true);
        // Whoever has sent that has ended these, too: they are to go on.
        self.running.retain(|_, running| !matches!(running.state, State::Doubted { .. }));
        if !again {
            // A halt may be taking last checkpoints already.
            return match self.phase {
                Phase::Stopping => {}
                _ => self.stop(now, out),
            };
        }
        self.is_urgent = true;
        // Those whose ends nobody could explain: they go on from the checkpoints that they have.
        self.running.retain(|_, running| running.ended.is_none());
        for (task, running) in &mut self.running {
            let asked = match running.state {
                // Whoever looks after what is kept elsewhere may wait for that in vain.
                State::Saved if self.settings.kept_from_start => {
                    out.push(Action::Kill(*task));
                    continue;
                }
                State::Saved | State::Doubted { .. } => continue,
                State::Ending { asked, .. } => asked,
                State::Runs | State::Saving { .. } => false,
            };
            running.state = State::Ending { asked, kill_at: None };
            out.push(Action::Kill(*task));
        }
    }

    /// Brings all that run to an end, with a last checkpoint where that is possible.
    fn stop(&mut self, now: Duration, out: &mut Vec<Action>) {
        self.phase = Phase::Stopping;
        for (task, running) in &mut self.running {
            if !matches!(running.state, State::Runs) {
                continue;
            }
            if self.settings.checkpoint.is_some() && !running.cant_be_kept {
                running.state = State::Saving { until: now + self.settings.saving };
                running.is_kept = true;
                out.push(Action::Save(*task));
            } else {
                running.state =
                    State::Ending { asked: true, kill_at: Some(now + self.settings.grace) };
                out.push(Action::Terminate(*task));
            }
        }
    }

    fn is_saved(&mut self, now: Duration, task: Task, is_saved: bool, out: &mut Vec<Action>) {
        let Some(running) = self.running.get_mut(&task) else { return };
        if !matches!(running.state, State::Saving { .. }) {
            return;
        }
        match (is_saved, running.ended) {
            (true, None) => running.state = State::Saved,
            // A task that was asked to end as well may have done so with any status.
            (false, Some(end @ (How::Exited(_), _)))
                if !end.0.may_be_a_stop() && !self.are_tasks_asked =>
            {
                running.state = State::Runs;
                self.own_end(now, task, end, out);
            }
            // Whoever should have told of the checkpoint may have ended it.
            (_, Some(_)) => drop(self.running.remove(&task)),
            (false, None) => {
                running.state =
                    State::Ending { asked: true, kill_at: Some(now + self.settings.grace) };
                out.push(Action::Terminate(task));
            }
        }
    }

    /// Ends a try that is a failed one for this reason.
    fn give_up(&mut self, now: Duration, task: Task, verdict: Verdict, out: &mut Vec<Action>) {
        let Some(running) = self.running.get_mut(&task) else { return };
        if running.state == State::Runs {
            running.verdict = Some(verdict);
            running.state = State::Ending { asked: true, kill_at: Some(now + self.settings.grace) };
            out.push(Action::Terminate(task));
        }
    }

    fn put_back(&mut self, now: Duration, task: Task) {
        let Some(running) = self.running.remove(&task) else { return };
        // Of what is kept from its beginning there may be something, however it has begun.
        let is_kept = running.restored || self.settings.kept_from_start;
        let origin = if is_kept { Origin::Checkpoint } else { Origin::Beginning };
        self.apart.insert(task);
        self.first.push_front((task, origin));
        self.paused_until = Some(now + self.settings.pause);
    }

    fn look_at_times(&mut self, now: Duration, out: &mut Vec<Action>) {
        let (mut timeouts, mut unsaved, mut own_ends) = (Vec::new(), Vec::new(), Vec::new());
        for (task, running) in &mut self.running {
            match running.state {
                State::Ending { asked, kill_at: Some(at) } if at <= now => {
                    running.state = State::Ending { asked, kill_at: None };
                    out.push(Action::Kill(*task));
                }
                State::Saving { until } if until <= now => unsaved.push(*task),
                State::Doubted { until, how } if until <= now => {
                    own_ends.push((*task, (how, until.saturating_sub(self.settings.doubt))));
                }
                State::Runs if running.timeout_at.is_some_and(|at| at <= now) => {
                    timeouts.push(*task);
                }
                State::Runs if running.keep_at.is_some_and(|at| at <= now) => {
                    running.keep_at = None;
                    running.is_kept = true;
                    out.push(Action::Keep(*task));
                }
                _ => {}
            }
        }
        for task in unsaved {
            out.push(Action::Unsaved(task));
            self.is_saved(now, task, false, out);
        }
        for task in timeouts {
            self.give_up(now, task, Verdict::TimedOut, out);
        }
        // Last: one of them may halt the run, and those that took too long have no right to a checkpoint any more.
        for (task, end) in own_ends {
            self.own_end(now, task, end, out);
        }
    }

    fn begin_more(&mut self, now: Duration, out: &mut Vec<Action>) {
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until = None;
        }
        let may_begin =
            self.phase == Phase::Going && self.is_recordable && self.paused_until.is_none();
        while may_begin && self.running.len() < self.settings.slots {
            let Some((task, origin)) = self.take_next() else { return };
            let attempt = self.attempt(task);
            let restored = origin == Origin::Checkpoint;
            let timeout = self.timeout(task);
            let running = Running::of(&self.settings, timeout, now, attempt, restored);
            self.running.insert(task, running);
            out.push(match origin {
                Origin::Beginning => Action::Begin(task, attempt),
                Origin::Checkpoint => Action::Restore(task, attempt),
            });
        }
    }

    fn take_next(&mut self) -> Option<(Task, Origin)> {
        if let Some(first) = self.first.pop_front() {
            return Some(first);
        }
        if let Some(flow) = &mut self.flow {
            if let Some(task) = flow.take(self.settings.slots) {
                return Some((task, Origin::Beginning));
            }
        }
        while self.flow.is_none() && self.next <= self.total {
            let task = Task(self.next);
            self.next += 1;
            if !self.ended.contains(task) && !self.apart.contains(task) {
                return Some((task, Origin::Beginning));
            }
        }
        self.again.pop_front().map(|task| (task, Origin::Beginning))
    }

    fn has_more(&mut self) -> bool {
        if let Some(flow) = &self.flow {
            // What waits for those that can't be brought back waits on.
            return !flow.is_empty() || !self.first.is_empty() || !self.again.is_empty();
        }
        while self.next <= self.total
            && (self.ended.contains(Task(self.next)) || self.apart.contains(Task(self.next)))
        {
            self.next += 1;
        }
        self.next <= self.total || !self.first.is_empty() || !self.again.is_empty()
    }

    fn finish_if_over(&mut self, out: &mut Vec<Action>) {
        // What could not be recorded yet is no end.
        let waits_for_records = !self.is_recordable && !self.is_urgent;
        if !self.running.is_empty() || waits_for_records {
            return;
        }
        if self.phase == Phase::Going && (self.is_open || self.has_more()) {
            return;
        }
        self.phase = Phase::Over;
        out.push(Action::Finish(self.outcome()));
    }
}
