//! Random histories: thousands of tasks, kills at any moment, full disks, checkpoints that fail. Each has a seed.

use ckptd_farm::{
    Action, Attempt, Entry, Event, Farm, Found, Graph, Halt, How, Order, Outcome, Plan, Reach,
    Settings, Task, Verdict, What,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// A task's process.
#[derive(Debug, Clone, Copy)]
struct Process {
    attempt: Attempt,
    restored: bool,
    kept: bool,
}

/// What outlives a kill: the disk. And what does not: processes.
struct World {
    random: fastrand::Rng,
    settings: Settings,
    total: u32,
    /// What waits for what, in every other history.
    plan: Option<Plan>,
    /// Of each task those that it waits for.
    parents: HashMap<Task, Vec<Task>>,
    now: Duration,
    journal: Vec<Entry>,
    /// The tasks that have ended by it.
    ended: BTreeSet<Task>,
    /// Those of them that have ended right.
    right: BTreeSet<Task>,
    /// How often those had failed that somebody wanted to be tried again.
    reopened: HashMap<Task, Attempt>,
    /// Entries that a loss of power leaves.
    synced: usize,
    checkpoints: BTreeMap<Task, Attempt>,
    /// Ends that only the keeper of the checkpoints has seen.
    seen_ends: BTreeMap<Task, (Attempt, u8)>,
    processes: BTreeMap<Task, Process>,
    saving: BTreeSet<Task>,
    /// Those that were asked to end, or killed.
    ended_by_farm: BTreeSet<Task>,
    recordable: bool,
    /// How often each try was begun from its beginning.
    begun: HashMap<(Task, Attempt), u32>,
    kills: u32,
    over: Option<Outcome>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let settings = Settings {
            slots: random.usize(1..20),
            timeout: random.bool().then(|| Duration::from_secs(random.u64(5..100))),
            retries: random.u32(0..4),
            halt: (random.u8(0..4) == 0).then(|| {
                let urgency = if random.bool() { "now" } else { "soon" };
                let counted = ["fail", "success", "done"][random.usize(0..3)];
                format!("{urgency},{counted}={}", random.u32(1..40))
                    .parse::<Halt>()
                    .expect("a halt")
            }),
            checkpoint: random.bool().then(|| Duration::from_secs(random.u64(1..30))),
            ..Settings::default()
        };
        let total = if random.u8(0..10) == 0 { random.u32(1000..4000) } else { random.u32(0..200) };
        let (plan, parents) = match random.bool() {
            true => plan(&mut random, total),
            false => (None, HashMap::new()),
        };
        Self {
            random,
            settings,
            total,
            plan,
            parents,
            now: Duration::ZERO,
            journal: Vec::new(),
            ended: BTreeSet::new(),
            right: BTreeSet::new(),
            reopened: HashMap::new(),
            synced: 0,
            checkpoints: BTreeMap::new(),
            seen_ends: BTreeMap::new(),
            processes: BTreeMap::new(),
            saving: BTreeSet::new(),
            ended_by_farm: BTreeSet::new(),
            recordable: true,
            begun: HashMap::new(),
            kills: 0,
            over: None,
        }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.u32(0..one_in) == 0
    }

    fn has_ended(&self, wanted: Task) -> bool {
        self.ended.contains(&wanted)
    }

    /// One part of the run: until it finishes or everything is killed.
    fn live(&mut self) {
        let found = self.found();
        let mut farm = match self.plan.clone() {
            Some(plan) => Farm::of_plan(self.settings, plan, self.journal.clone(), found),
            None => Farm::new(self.settings, self.total, self.journal.clone(), found),
        };
        self.over = None;
        self.recordable = true;
        self.act(&mut farm, Event::Clock);
        let interrupts = self.chance(3);
        for _ in 0..20 * (self.total + 20) {
            if self.over.is_some() {
                return;
            }
            if self.chance(2000) {
                return self.kill();
            }
            // Whoever waits for a last checkpoint loses patience.
            let is_impatient = !self.saving.is_empty() && self.chance(5);
            if interrupts && (is_impatient || self.chance(500)) {
                let reach = self.interrupt();
                self.act(&mut farm, Event::Interrupt(reach));
            } else {
                let event = self.next_event(&farm);
                self.act(&mut farm, event);
            }
            if self.chance(10) && self.recordable {
                self.synced = self.journal.len();
            }
        }
        assert!(self.over.is_some(), "it does not come to its end: {farm:?}");
    }

    /// By a terminal's key, or by who asks all processes to end: from then on no end is a task's own.
    fn interrupt(&mut self) -> Reach {
        if self.random.bool() {
            return Reach::Farm;
        }
        self.ended_by_farm.extend(self.processes.keys());
        Reach::All
    }

    fn found(&mut self) -> Vec<Found> {
        let mut found: Vec<Found> = self
            .seen_ends
            .iter()
            .map(|(task, (attempt, status))| Found {
                task: *task,
                attempt: *attempt,
                what: What::End(*status),
            })
            .collect();
        found.extend(
            self.checkpoints.iter().filter(|(task, _)| !self.seen_ends.contains_key(task)).map(
                |(task, attempt)| Found { task: *task, attempt: *attempt, what: What::Checkpoint },
            ),
        );
        found
    }

    fn next_event(&mut self, farm: &Farm) -> Event {
        if !self.recordable && self.chance(3) {
            self.recordable = true;
            return Event::Recordable(true);
        }
        if self.recordable && self.chance(300) {
            self.recordable = false;
            return Event::Recordable(false);
        }
        let running: Vec<Task> = self.processes.keys().copied().collect();
        let saving: Vec<Task> = self.saving.iter().copied().collect();
        match self.random.u32(0..10) {
            0..=5 if !running.is_empty() => {
                let task = running[self.random.usize(0..running.len())];
                self.end(task)
            }
            6 if !running.is_empty() => {
                let task = running[self.random.usize(0..running.len())];
                match self.processes.get_mut(&task) {
                    Some(process) if process.kept && self.random.bool() => {
                        self.checkpoints.insert(task, process.attempt);
                        Event::Clock
                    }
                    Some(process) if process.kept => {
                        process.kept = false;
                        Event::NotKept(task)
                    }
                    _ => Event::WroteTooMuch(task),
                }
            }
            7 if !saving.is_empty() => {
                let task = saving[self.random.usize(0..saving.len())];
                self.save(task)
            }
            _ => {
                self.now = farm.deadline().unwrap_or(self.now).max(self.now);
                Event::Clock
            }
        }
    }

    fn end(&mut self, task: Task) -> Event {
        let process = self.processes.remove(&task).expect("it runs");
        if self.chance(20) {
            return Event::Ended(task, How::Signalled(11));
        }
        if self.chance(20) {
            return Event::Ended(task, How::Signalled(15));
        }
        let status = if self.chance(4) { self.random.u8(..) } else { 0 };
        if process.kept {
            self.seen_ends.insert(task, (process.attempt, status));
        }
        Event::Ended(task, How::Exited(status))
    }

    /// A last checkpoint is there, and its task ends after that; or none could be had.
    fn save(&mut self, task: Task) -> Event {
        self.saving.remove(&task);
        let is_saved = self.processes.contains_key(&task) && self.random.bool();
        if is_saved {
            let attempt = self.processes[&task].attempt;
            self.checkpoints.insert(task, attempt);
        }
        Event::Saved(task, is_saved)
    }

    fn act(&mut self, farm: &mut Farm, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in farm.step(self.now, event) {
                self.perform(action, &mut events);
            }
            assert!(farm.running() <= self.settings.slots, "more run than there are slots");
        }
    }

    fn perform(&mut self, action: Action, events: &mut Vec<Event>) {
        assert!(self.over.is_none(), "{action:?} after the end");
        match action {
            Action::Begin(task, attempt) => {
                assert!(!self.has_ended(task), "{task:?} is begun after its end");
                let checkpoint = self.checkpoints.get(&task);
                assert!(
                    checkpoint != Some(&attempt),
                    "{task:?} is begun although there is a checkpoint"
                );
                assert!(!self.processes.contains_key(&task), "{task:?} runs already");
                self.expect_parents(task);
                assert!(self.recordable, "{task:?} is begun while nothing can be recorded");
                assert!(attempt <= self.allowed(task), "{task:?} is tried too often");
                if self.chance(100) {
                    return events.push(Event::NotNow(task));
                }
                *self.begun.entry((task, attempt)).or_default() += 1;
                self.ended_by_farm.remove(&task);
                self.processes.insert(task, Process { attempt, restored: false, kept: false });
            }
            Action::Restore(task, attempt) => {
                assert!(!self.has_ended(task), "{task:?} is restored after its end");
                assert_eq!(
                    self.checkpoints.get(&task),
                    Some(&attempt),
                    "{task:?} has no such checkpoint"
                );
                self.expect_parents(task);
                match self.random.u32(0..20) {
                    0 => events.push(Event::NotNow(task)),
                    1 => events.push(Event::NotRestored(task)),
                    _ => {
                        self.ended_by_farm.remove(&task);
                        let process = Process { attempt, restored: true, kept: true };
                        self.processes.insert(task, process);
                    }
                }
            }
            Action::Keep(task) => {
                let process = self.processes.get_mut(&task).expect("it runs");
                assert!(!process.restored && self.settings.checkpoint.is_some());
                process.kept = true;
            }
            Action::Save(task) => {
                if let Some(process) = self.processes.get_mut(&task) {
                    process.kept = true;
                }
                self.saving.insert(task);
            }
            Action::Unsaved(_) => {}
            Action::Terminate(task) => {
                self.ended_by_farm.insert(task);
                if self.chance(2) && self.processes.remove(&task).is_some() {
                    let how = if self.chance(2) { How::Exited(0) } else { How::Signalled(15) };
                    events.push(Event::Ended(task, how));
                }
            }
            Action::Kill(task) => {
                if self.processes.remove(&task).is_some() {
                    self.ended_by_farm.insert(task);
                    events.push(Event::Ended(task, How::Signalled(9)));
                }
            }
            Action::Forget(task, attempt) => {
                if self.checkpoints.get(&task) == Some(&attempt) {
                    self.checkpoints.remove(&task);
                }
                if self.seen_ends.get(&task).is_some_and(|(seen, _)| *seen == attempt) {
                    self.seen_ends.remove(&task);
                }
            }
            Action::Record(Entry::Skipped { task, because }) => {
                assert!(self.ended.insert(task), "{task:?} ends twice");
                assert!(!self.is_right(because) && self.ended.contains(&because), "{task:?}");
                self.journal.push(Entry::Skipped { task, because });
            }
            Action::Record(Entry::Reopened | Entry::Retried { .. }) => {
                panic!("nobody has asked for that")
            }
            Action::Record(entry @ (Entry::Failed(tried) | Entry::Ended(tried))) => {
                let is_own = matches!(tried.verdict, Verdict::Exited(_) | Verdict::Signalled(_));
                assert!(
                    !is_own || !self.ended_by_farm.contains(&tried.task),
                    "{entry:?} is the farm's doing"
                );
                if let Entry::Ended(tried) = entry {
                    assert!(self.ended.insert(tried.task), "{:?} ends twice", tried.task);
                    let is_right = tried.verdict == Verdict::Exited(0);
                    assert!(is_right || tried.attempt == self.allowed(tried.task));
                    if is_right {
                        self.right.insert(tried.task);
                    }
                }
                self.journal.push(entry);
            }
            Action::Finish(outcome) => {
                assert!(self.processes.is_empty(), "it finishes while tasks run");
                self.over = Some(outcome);
            }
        }
    }

    /// All have ended right that it waits for.
    fn expect_parents(&self, task: Task) {
        let left =
            self.parents.get(&task).into_iter().flatten().find(|parent| !self.is_right(**parent));
        assert!(left.is_none(), "{task:?} begins before the end of {left:?}");
    }

    fn is_right(&self, task: Task) -> bool {
        self.right.contains(&task)
    }

    /// The last time that a task may be tried.
    fn allowed(&self, task: Task) -> Attempt {
        self.reopened.get(&task).copied().unwrap_or(0) + self.settings.retries + 1
    }

    /// What has ended by the journal.
    fn recall(&mut self) {
        (self.ended, self.right) = (BTreeSet::new(), BTreeSet::new());
        self.reopened.clear();
        let mut failed: HashMap<Task, Attempt> = HashMap::new();
        for entry in &self.journal {
            match entry {
                Entry::Ended(tried) => {
                    self.ended.insert(tried.task);
                    match tried.verdict.is_right() {
                        true => _ = self.right.insert(tried.task),
                        false => _ = failed.insert(tried.task, tried.attempt),
                    }
                }
                Entry::Skipped { task, .. } => _ = self.ended.insert(*task),
                Entry::Reopened => {
                    self.ended = self.right.clone();
                    self.reopened.extend(failed.drain());
                }
                Entry::Failed(_) | Entry::Retried { .. } => {}
            }
        }
    }

    /// Somebody wants to have tried again what has failed.
    fn reopen(&mut self) {
        self.journal.push(Entry::Reopened);
        self.synced = self.journal.len();
        self.recall();
    }

    /// Nothing is left that could be run: what has not ended waits for what is stuck.
    fn expect_all_done(&self) {
        let stuck: BTreeSet<Task> = self.checkpoints.keys().copied().collect();
        let tried: BTreeSet<Task> = self.journal.iter().filter_map(ended).collect();
        for task in (1..=self.total).map(Task) {
            let waits = |parent: &Task| !self.is_right(*parent);
            let has_reason = stuck.contains(&task)
                || self.parents.get(&task).is_some_and(|parents| parents.iter().any(waits));
            assert!(self.has_ended(task) || has_reason, "{task:?} could have been run");
            let is_skipped = self.has_ended(task) && !tried.contains(&task);
            assert!(!is_skipped || has_reason, "{task:?} is skipped without a reason");
        }
    }

    /// Everything is killed, or the power fails.
    fn kill(&mut self) {
        self.kills += 1;
        self.processes.clear();
        self.saving.clear();
        self.ended_by_farm.clear();
        if self.chance(3) {
            let left = self.random.usize(self.synced..=self.journal.len());
            self.journal.truncate(left);
            self.recall();
        }
        self.synced = self.journal.len();
    }
}

fn ended(entry: &Entry) -> Option<Task> {
    match entry {
        Entry::Ended(tried) => Some(tried.task),
        _ => None,
    }
}

/// Tasks that wait for some of those before them, in numbers that are in no order.
fn plan(random: &mut fastrand::Rng, total: u32) -> (Option<Plan>, HashMap<Task, Vec<Task>>) {
    let mut tasks: Vec<Task> = (1..=total).map(Task).collect();
    random.shuffle(&mut tasks);
    let mut edges = Vec::new();
    let mut parents: HashMap<Task, Vec<Task>> = HashMap::new();
    for (place, task) in tasks.iter().enumerate() {
        for _ in 0..random.usize(0..4).min(place) {
            let parent = tasks[random.usize(place.saturating_sub(30)..place)];
            edges.push((parent, *task));
            parents.entry(*task).or_default().push(parent);
        }
    }
    let orders = [Order::Fifo, Order::Lifo, Order::LifoHrf, Order::RankHrf];
    let graph = Graph::new(total, edges).expect("there is no cycle");
    let kinds = (0..=total).map(|_| random.u32(0..4)).collect();
    (Some(Plan { graph, kinds, order: orders[random.usize(0..4)] }), parents)
}

fn ends_of(world: &World) -> (u32, u32, u32) {
    let mut skipped = BTreeSet::new();
    for entry in &world.journal {
        match entry {
            Entry::Skipped { task, .. } => _ = skipped.insert(*task),
            Entry::Reopened => skipped.clear(),
            Entry::Ended(_) | Entry::Failed(_) | Entry::Retried { .. } => {}
        }
    }
    let (right, skipped) = (world.right.len() as u32, skipped.len() as u32);
    (right, world.ended.len() as u32 - right - skipped, skipped)
}

fn history(seed: u64) -> (u32, u32) {
    let mut world = World::new(seed);
    for _ in 0..200 {
        world.live();
        world.processes.clear();
        world.saving.clear();
        world.ended_by_farm.clear();
        let Some(outcome) = world.over else { continue };
        let counted = (outcome.right, outcome.failed, outcome.skipped);
        assert_eq!(counted, ends_of(&world), "seed {seed}");
        let all = counted.0 + counted.1 + counted.2 + outcome.stuck + outcome.left;
        assert_eq!(all, world.total, "seed {seed}: {outcome:?}");
        if !outcome.interrupted && !outcome.halted {
            world.expect_all_done();
        }
        if outcome.left == 0 && outcome.stuck == 0 {
            assert!(world.checkpoints.is_empty(), "seed {seed}: a checkpoint is left behind");
            if outcome.failed > 0 && world.chance(2) {
                world.reopen();
                continue;
            }
            return (world.total, world.kills);
        }
        let has_reason = outcome.interrupted || outcome.halted || outcome.stuck > 0;
        assert!(has_reason, "seed {seed}: {outcome:?}");
        // Somebody goes on with it, without what has halted it.
        world.settings.halt = None;
    }
    panic!("seed {seed}: it never ends");
}

#[test]
fn every_task_ends_once() {
    let (mut tasks, mut kills) = (0, 0);
    for seed in 0..1500 {
        let outcome = std::panic::catch_unwind(|| history(seed));
        let (more, killed) = outcome.unwrap_or_else(|_| panic!("seed {seed}"));
        (tasks, kills) = (tasks + more, kills + killed);
    }
    assert!(tasks > 100_000 && kills > 200, "the histories are too tame: {tasks} {kills}");
}

/// What waits for a task that has failed is skipped, and tried again with it; what has ended right is not.
#[test]
fn what_failed_is_tried_again_with_what_waited_for_it() {
    // 1 → 2 → 3, and 4 alone.
    let plan = || {
        let graph = Graph::new(4, vec![(Task(1), Task(2)), (Task(2), Task(3))]).expect("a graph");
        Plan { graph, kinds: Vec::new(), order: Order::Fifo }
    };
    let settings = Settings { slots: 9, ..Settings::default() };
    let end = |farm: &mut Farm, task, status| {
        farm.step(Duration::ZERO, Event::Ended(Task(task), How::Exited(status)))
    };
    let mut journal = Vec::new();
    let mut note = |actions: &[Action]| {
        let entry = |action: &Action| match action {
            Action::Record(entry) => Some(*entry),
            _ => None,
        };
        journal.extend(actions.iter().filter_map(entry));
        actions.last().cloned()
    };
    let mut farm = Farm::of_plan(settings, plan(), [], []);
    let begun = farm.step(Duration::ZERO, Event::Clock);
    assert_eq!(begun, [Action::Begin(Task(1), 1), Action::Begin(Task(4), 1)]);
    note(&end(&mut farm, 4, 0));
    let outcome = Outcome { right: 1, failed: 1, skipped: 2, ..Outcome::default() };
    assert_eq!(note(&end(&mut farm, 1, 1)), Some(Action::Finish(outcome)));
    journal.push(Entry::Reopened);
    let mut farm = Farm::of_plan(settings, plan(), journal, []);
    assert_eq!(farm.step(Duration::ZERO, Event::Clock), [Action::Begin(Task(1), 2)]);
    assert_eq!(end(&mut farm, 1, 0)[1..], [Action::Begin(Task(2), 1)]);
    assert_eq!(end(&mut farm, 2, 0)[1..], [Action::Begin(Task(3), 1)]);
    let outcome = Outcome { right: 4, ..Outcome::default() };
    assert_eq!(end(&mut farm, 3, 0)[1..], [Action::Finish(outcome)]);
}

/// Without kills each try is begun once.
#[test]
fn nothing_is_begun_twice() {
    let settings = Settings { slots: 3, retries: 2, ..Settings::default() };
    let mut farm = Farm::new(settings, 100, [], []);
    let mut begun: HashMap<(Task, Attempt), u32> = HashMap::new();
    let mut actions = farm.step(Duration::ZERO, Event::Clock);
    let mut running = Vec::new();
    loop {
        for action in actions {
            match action {
                Action::Begin(task, attempt) => {
                    *begun.entry((task, attempt)).or_default() += 1;
                    running.push(task);
                }
                Action::Finish(outcome) => {
                    assert_eq!((outcome.right, outcome.failed), (90, 10));
                    assert!(begun.values().all(|times| *times == 1));
                    assert_eq!(begun.len(), 90 + 3 * 10);
                    return;
                }
                _ => {}
            }
        }
        let task = running.remove(0);
        let status = u8::from(task.0 % 10 == 0);
        actions = farm.step(Duration::ZERO, Event::Ended(task, How::Exited(status)));
    }
}

/// Who waits in vain for a full disk can end it all the same.
#[test]
fn a_second_interrupt_waits_for_no_records() {
    let mut farm = Farm::new(Settings { slots: 2, ..Settings::default() }, 10, [], []);
    farm.step(Duration::ZERO, Event::Clock);
    farm.step(Duration::ZERO, Event::Recordable(false));
    assert!(
        farm.step(Duration::ZERO, Event::Interrupt(Reach::Farm))
            .contains(&Action::Terminate(Task(1)))
    );
    for task in [Task(1), Task(2)] {
        assert_eq!(farm.step(Duration::ZERO, Event::Ended(task, How::Signalled(15))), []);
    }
    let outcome = Outcome { left: 10, interrupted: true, ..Outcome::default() };
    assert_eq!(farm.step(Duration::ZERO, Event::Interrupt(Reach::Farm)), [Action::Finish(outcome)]);
}

/// A reboot ends every process at once: the tasks' ends come before the word of it.
#[test]
fn what_ends_with_everything_else_goes_on() {
    let of = |how| {
        let mut farm = Farm::new(Settings { slots: 1, ..Settings::default() }, 1, [], []);
        farm.step(Duration::ZERO, Event::Clock);
        assert_eq!(farm.step(Duration::ZERO, Event::Ended(Task(1), how)), []);
        farm
    };
    for how in [How::Signalled(15), How::Signalled(9), How::Exited(128 + 15), How::Exited(129)] {
        let outcome = Outcome { left: 1, interrupted: true, ..Outcome::default() };
        let stopped = of(how).step(Duration::from_secs(1), Event::Interrupt(Reach::Farm));
        assert_eq!(stopped, [Action::Finish(outcome)], "{how:?}");

        let mut alone = of(how);
        assert_eq!(alone.deadline(), Some(Duration::from_secs(2)));
        let own = alone.step(Duration::from_secs(2), Event::Clock);
        let [Action::Record(Entry::Ended(tried)), Action::Finish(_)] = own[..] else {
            panic!("{how:?}: {own:?}")
        };
        assert_eq!(tried.took_ms, 0, "it was over before that was known");
    }
}

/// What answers a reboot's SIGTERM by an ordinary end has not come to its own.
#[test]
fn ends_that_were_asked_for_are_none() {
    for (reach, is_over) in [(Reach::Farm, true), (Reach::All, false)] {
        let checkpoint = Some(Duration::from_secs(1));
        let mut farm = Farm::new(Settings { checkpoint, ..Settings::default() }, 1, [], []);
        farm.step(Duration::ZERO, Event::Clock);
        let asked = farm.step(Duration::ZERO, Event::Interrupt(reach));
        assert_eq!(asked, [Action::Save(Task(1))]);
        farm.step(Duration::ZERO, Event::Ended(Task(1), How::Exited(0)));
        let end = farm.step(Duration::ZERO, Event::Saved(Task(1), false));
        let is_recorded = |action: &Action| matches!(action, Action::Record(_));
        assert_eq!(end.iter().any(is_recorded), is_over, "{reach:?}: {end:?}");
    }
}

/// A task that takes too long and a halt at the same moment: those that are not late still get their last checkpoints.
#[test]
fn a_halt_beside_a_timeout_gives_up_no_checkpoint() {
    let settings = Settings {
        slots: 3,
        timeout: Some(Duration::from_secs(10)),
        checkpoint: Some(Duration::from_secs(1)),
        halt: "now,fail=1".parse().ok(),
        ..Settings::default()
    };
    let mut farm = Farm::new(settings, 3, [], []);
    farm.step(Duration::ZERO, Event::Clock);
    farm.step(Duration::from_secs(8), Event::Ended(Task(1), How::Signalled(9)));
    let late = farm.step(Duration::from_secs(10), Event::Clock);
    let asked = [2, 3].map(|task| Action::Terminate(Task(task)));
    assert!(asked.iter().all(|action| late.contains(action)), "{late:?}");
    assert!(!late.iter().any(|action| matches!(action, Action::Unsaved(_))), "{late:?}");
}
