//! Random histories of an open farm: tasks come one by one, are cancelled and run again, with kills at any moment.

use ckptd_farm::{
    Action, Attempt, Entry, Event, Farm, Found, How, Limits, Outcome, Reach, Settings, Stage, Task,
    Try, Verdict, What,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The most tasks of a history.
const MOST: usize = 60;

/// A task's process.
#[derive(Debug, Clone, Copy)]
struct Process {
    attempt: Attempt,
    kept: bool,
    /// It may still be on its way back from its checkpoint.
    restored: bool,
}

/// How a task stands by the journal.
#[derive(Debug, Clone, Copy, Default)]
struct Standing {
    /// How it has ended, since somebody has wanted it to be run.
    ended: Option<Verdict>,
    /// How often it was tried.
    tried: Attempt,
    /// How often it had been tried when it was last to be run again.
    before: Attempt,
    retried: u32,
}

/// What outlives a kill: tasks, the journal, checkpoints. And what does not: processes.
struct World {
    random: fastrand::Rng,
    settings: Settings,
    tasks: Vec<Limits>,
    now: Duration,
    journal: Vec<Entry>,
    /// Entries that a loss of power leaves.
    synced: usize,
    standing: BTreeMap<Task, Standing>,
    checkpoints: BTreeMap<Task, Attempt>,
    processes: BTreeMap<Task, Process>,
    saving: BTreeSet<Task>,
    /// Those that somebody has cancelled since the farm was last begun.
    cancelled: BTreeSet<Task>,
    recordable: bool,
    kills: u32,
    cancels: u32,
    retries: u32,
    over: Option<Outcome>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let settings = Settings {
            slots: random.usize(1..6),
            retries: random.u32(0..2),
            checkpoint: random.bool().then(|| Duration::from_secs(random.u64(1..30))),
            ..Settings::default()
        };
        Self {
            random,
            settings,
            tasks: Vec::new(),
            now: Duration::ZERO,
            journal: Vec::new(),
            synced: 0,
            standing: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            processes: BTreeMap::new(),
            saving: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            recordable: true,
            kills: 0,
            cancels: 0,
            retries: 0,
            over: None,
        }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.u32(0..one_in) == 0
    }

    fn any(&mut self) -> Task {
        Task(self.random.u32(1..=self.tasks.len().max(1) as u32))
    }

    /// One part of the farm's life: until it ends, or everything is killed. `closes`: it ends once it is idle.
    fn live(&mut self, closes: bool) {
        let found: Vec<Found> = self
            .checkpoints
            .iter()
            .map(|(task, attempt)| Found { task: *task, attempt: *attempt, what: What::Checkpoint })
            .collect();
        let tasks = self.tasks.clone();
        let mut farm = Farm::open(self.settings, tasks, self.journal.clone(), found);
        (self.over, self.recordable) = (None, true);
        self.act(&mut farm, Event::Clock);
        for _ in 0..20_000 {
            if self.over.is_some() {
                return;
            }
            if self.chance(400) {
                return self.kill();
            }
            if self.chance(400) {
                let reach = if self.random.bool() { Reach::Farm } else { Reach::All };
                self.act(&mut farm, Event::Interrupt(reach));
            } else if closes && self.chance(4) && farm.is_idle() {
                self.act(&mut farm, Event::Close);
            } else {
                let event = self.next_event(&farm);
                self.act(&mut farm, event);
            }
            if self.chance(10) && self.recordable {
                self.synced = self.journal.len();
            }
        }
        panic!("it does not come to its end: {farm:?}");
    }

    fn next_event(&mut self, farm: &Farm) -> Event {
        let running: Vec<Task> = self.processes.keys().copied().collect();
        let one = running.get(self.random.usize(0..running.len().max(1))).copied();
        match (self.random.u32(0..16), one) {
            (0..=1, _) if self.tasks.len() < MOST => {
                let limits = Limits {
                    timeout: self.chance(4).then(|| Duration::from_secs(self.random.u64(1..60))),
                    retries: self.chance(4).then(|| self.random.u32(0..3)),
                };
                self.tasks.push(limits);
                Event::Added(limits)
            }
            (2, _) => {
                let task = self.any();
                if matches!(farm.stage(task), Stage::Running | Stage::Queued | Stage::Stuck)
                    && !farm.is_ending()
                {
                    self.cancels += 1;
                    self.cancelled.insert(task);
                }
                Event::Cancel(task)
            }
            (3, _) => {
                let task = self.any();
                let tried = self.standing.get(&task).copied().unwrap_or_default();
                // Nobody wants the same one to be run for ever.
                match tried.retried < 3 {
                    true => Event::Retry(task),
                    false => Event::Clock,
                }
            }
            (4, _) if self.chance(10) => {
                self.settings.slots = self.random.usize(1..6);
                Event::Slots(self.settings.slots)
            }
            (5, _) if self.chance(10) || !self.recordable => {
                self.recordable = !self.recordable;
                Event::Recordable(self.recordable)
            }
            (6..=9, Some(task)) => self.end(task),
            (10, Some(task)) if self.processes[&task].kept => {
                self.checkpoints.insert(task, self.processes[&task].attempt);
                Event::Clock
            }
            (11..=12, _) if !self.saving.is_empty() => {
                let task = *self.saving.iter().next().expect("there is one");
                self.saving.remove(&task);
                let is_saved = self.processes.contains_key(&task) && self.random.bool();
                if is_saved {
                    self.checkpoints.insert(task, self.processes[&task].attempt);
                }
                Event::Saved(task, is_saved)
            }
            _ => {
                self.now = farm.deadline().unwrap_or(self.now).max(self.now);
                Event::Clock
            }
        }
    }

    fn end(&mut self, task: Task) -> Event {
        self.processes.remove(&task);
        Event::Ended(
            task,
            match self.random.u32(0..8) {
                0 => How::Signalled(15),
                1 => How::Signalled(11),
                2..=3 => How::Exited(self.random.u8(..)),
                _ => How::Exited(0),
            },
        )
    }

    fn act(&mut self, farm: &mut Farm, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in farm.step(self.now, event) {
                self.perform(action, &mut events);
            }
        }
    }

    fn perform(&mut self, action: Action, events: &mut Vec<Event>) {
        assert!(self.over.is_none(), "{action:?} after the end");
        match action {
            Action::Begin(task, attempt) | Action::Restore(task, attempt) => {
                let standing = self.standing.entry(task).or_default();
                assert!(standing.ended.is_none(), "{task:?} is begun after {standing:?}");
                assert_eq!(attempt, standing.tried + 1, "{task:?} is begun, {standing:?}");
                assert!(!self.cancelled.contains(&task), "{task:?} is begun, and was cancelled");
                assert!(!self.processes.contains_key(&task), "{task:?} runs already");
                assert!(self.recordable, "{task:?} is begun while nothing can be recorded");
                let restored = matches!(action, Action::Restore(..));
                let kept = self.checkpoints.get(&task) == Some(&attempt);
                assert_eq!(restored, kept, "{action:?}");
                match self.random.u32(0..20) {
                    0 => return events.push(Event::NotNow(task)),
                    1 if restored => return events.push(Event::NotRestored(task)),
                    _ => {}
                }
                let process = Process { attempt, kept: restored, restored };
                self.processes.insert(task, process);
            }
            Action::Keep(task) => {
                if let Some(process) = self.processes.get_mut(&task) {
                    process.kept = true;
                }
            }
            Action::Save(task) => _ = self.saving.insert(task),
            Action::Unsaved(_) => {}
            Action::Terminate(task) => {
                let on_its_way = self.processes.get(&task).is_some_and(|process| process.restored);
                if on_its_way && self.chance(3) {
                    // What brings it back has heard it first.
                    self.processes.remove(&task);
                    events.push(Event::NotRestored(task));
                } else if self.chance(2) && self.processes.remove(&task).is_some() {
                    let how = if self.chance(2) { How::Exited(0) } else { How::Signalled(15) };
                    events.push(Event::Ended(task, how));
                }
            }
            Action::Kill(task) => {
                if self.processes.remove(&task).is_some() {
                    events.push(Event::Ended(task, How::Signalled(9)));
                }
            }
            Action::Forget(task, attempt) => {
                if self.checkpoints.get(&task) == Some(&attempt) {
                    self.checkpoints.remove(&task);
                }
            }
            Action::Record(entry) => self.record(entry),
            Action::Finish(outcome) => {
                assert!(self.processes.is_empty(), "it finishes while tasks run");
                self.over = Some(outcome);
            }
        }
    }

    fn record(&mut self, entry: Entry) {
        match entry {
            Entry::Ended(Try { task, attempt, verdict, .. }) => {
                let standing = self.standing.entry(task).or_default();
                assert!(standing.ended.is_none(), "{entry:?} after {standing:?}");
                let was_cancelled = self.cancelled.remove(&task);
                assert_eq!(was_cancelled, verdict == Verdict::Cancelled, "{entry:?}");
                let limits = self.tasks[task.0 as usize - 1];
                let retries = limits.retries.unwrap_or(self.settings.retries);
                let is_last = attempt == standing.before + retries + 1;
                assert!(verdict.is_right() || was_cancelled || is_last, "{entry:?} {standing:?}");
            }
            Entry::Failed(Try { task, .. }) => {
                assert!(!self.cancelled.contains(&task), "{entry:?} of what was cancelled");
            }
            Entry::Retried { .. } => self.retries += 1,
            Entry::Skipped { .. } | Entry::Reopened => panic!("nobody has asked for that"),
        }
        note(&mut self.standing, entry);
        self.journal.push(entry);
    }

    /// Everything is killed, or the power fails.
    fn kill(&mut self) {
        self.kills += 1;
        if self.chance(3) {
            let left = self.random.usize(self.synced..=self.journal.len());
            self.journal.truncate(left);
            self.standing.clear();
            for entry in self.journal.clone() {
                note(&mut self.standing, entry);
            }
        }
        self.synced = self.journal.len();
    }

    fn expect_counted(&self, outcome: Outcome) {
        let ended = self.standing.values().filter_map(|standing| standing.ended);
        let (right, wrong): (Vec<_>, Vec<_>) = ended.partition(|verdict| verdict.is_right());
        assert_eq!((outcome.right as usize, outcome.failed as usize), (right.len(), wrong.len()));
        let all = outcome.right + outcome.failed + outcome.stuck + outcome.left;
        assert_eq!(all as usize, self.tasks.len(), "{outcome:?}");
    }
}

fn note(standing: &mut BTreeMap<Task, Standing>, entry: Entry) {
    match entry {
        Entry::Ended(Try { task, attempt, verdict, .. }) => {
            let standing = standing.entry(task).or_default();
            (standing.ended, standing.tried) = (Some(verdict), attempt);
        }
        Entry::Failed(Try { task, attempt, .. }) => {
            standing.entry(task).or_default().tried = attempt
        }
        Entry::Retried { task } => {
            let standing = standing.entry(task).or_default();
            assert!(standing.ended.is_some_and(|verdict| !verdict.is_right()), "{entry:?}");
            (standing.ended, standing.before) = (None, standing.tried);
            standing.retried += 1;
        }
        Entry::Skipped { .. } | Entry::Reopened => {}
    }
}

fn history(seed: u64) -> World {
    let mut world = World::new(seed);
    for part in 0..200 {
        world.live(part > 0);
        world.processes.clear();
        world.saving.clear();
        world.cancelled.clear();
        let Some(outcome) = world.over else { continue };
        world.expect_counted(outcome);
        if outcome.left == 0 && outcome.stuck == 0 && world.tasks.len() == MOST {
            assert!(world.checkpoints.is_empty(), "seed {seed}: a checkpoint is left behind");
            return world;
        }
        let has_reason = outcome.interrupted || outcome.left == 0;
        assert!(has_reason, "seed {seed}: {outcome:?}");
    }
    panic!("seed {seed}: it never ends");
}

#[test]
fn every_task_ends_once_since_it_was_wanted() {
    let (mut kills, mut cancels, mut retries) = (0, 0, 0);
    for seed in 0..2000 {
        let outcome = std::panic::catch_unwind(|| history(seed));
        let world = outcome.unwrap_or_else(|_| panic!("seed {seed}"));
        (kills, cancels, retries) =
            (kills + world.kills, cancels + world.cancels, retries + world.retries);
    }
    let is_wild = kills > 300 && cancels > 3000 && retries > 3000;
    assert!(is_wild, "the histories are too tame: {kills} {cancels} {retries}");
}

/// An open farm waits for tasks; a task is begun in the step that brings it.
#[test]
fn an_open_farm_waits() {
    let mut farm = Farm::open(Settings::default(), Vec::new(), [], []);
    assert_eq!(farm.step(Duration::ZERO, Event::Clock), []);
    assert!(farm.is_idle());
    let begun = farm.step(Duration::ZERO, Event::Added(Limits::default()));
    assert_eq!(begun, [Action::Begin(Task(1), 1)]);
    assert_eq!((farm.stage(Task(1)), farm.stage(Task(2))), (Stage::Running, Stage::Unknown));
    farm.step(Duration::ZERO, Event::Added(Limits::default()));
    assert_eq!(farm.stage(Task(2)), Stage::Queued);
    let cancelled = farm.step(Duration::ZERO, Event::Cancel(Task(2)));
    assert!(matches!(cancelled[..], [Action::Record(Entry::Ended(Try { attempt: 0, .. }))]));
    farm.step(Duration::ZERO, Event::Ended(Task(1), How::Exited(0)));
    assert!(farm.is_idle());
    // What has ended right is not run again; what was cancelled is, for the first time.
    assert_eq!(farm.step(Duration::ZERO, Event::Retry(Task(1))), []);
    let again = farm.step(Duration::ZERO, Event::Retry(Task(2)));
    let retried = Action::Record(Entry::Retried { task: Task(2) });
    assert_eq!(again, [retried, Action::Begin(Task(2), 1)]);
    farm.step(Duration::ZERO, Event::Ended(Task(2), How::Exited(0)));
    let outcome = Outcome { right: 2, ..Outcome::default() };
    assert_eq!(farm.step(Duration::ZERO, Event::Close), [Action::Finish(outcome)]);
}
