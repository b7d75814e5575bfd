//! Which command is called when, and for how long: a state machine without I/O. For each event there is a lane of its own, in
//! which commands are called one after the other: many checkpoints must not keep anybody from hearing of a loss.

use super::hook::{Hook, Kind, Target};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Commands of one event that wait.
pub const MOST_WAITING: usize = 64;

/// How long one may run.
pub const LIMIT: Duration = Duration::from_secs(60);

/// How long one may take to end that was told to.
pub const ENDING: Duration = Duration::from_secs(5);

/// A number for each call.
pub type Run = u64;

/// A command and what it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The event.
    pub kind: Kind,
    /// What is called.
    pub target: Target,
    /// What it reads.
    pub line: String,
}

/// How a call came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// By exit(2).
    Exited(i32),
    /// By a signal.
    Signalled(i32),
    /// It did not even begin.
    NotStarted(String),
}

/// What the queue hears.
#[derive(Debug)]
pub enum Input {
    /// Something happened to the job; the line that tells of it.
    Happened(Kind, String),
    /// A call has ended.
    Ended(Run, How),
    /// The time may have come for something.
    Clock,
    /// Nothing more is going to happen.
    Close,
    /// Nobody waits for what still runs.
    GiveUp,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// A command is called.
    Start(Run, Call),
    /// One is told to end.
    Terminate(Run),
    /// One is ended.
    Kill(Run),
    /// A line for the user.
    Warn(String),
}

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Runs,
    /// It took too long.
    Terminated,
    Killed,
}

#[derive(Debug)]
struct Running {
    run: Run,
    target: Target,
    stage: Stage,
    /// When it is in the next stage.
    until: Duration,
}

#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Call>,
    running: Option<Running>,
    /// Calls that were left out since there was room the last time.
    left_out: u64,
}

/// See the module. Times are those since any moment.
#[derive(Debug)]
pub struct Queue {
    hooks: Vec<Hook>,
    lanes: BTreeMap<Kind, Lane>,
    next: Run,
    /// From when on nobody waits for what still runs; None: something may still happen.
    closes: Option<Duration>,
}

impl Queue {
    /// With nothing to do.
    pub fn new(hooks: Vec<Hook>) -> Self {
        Self { hooks, lanes: BTreeMap::new(), next: 1, closes: None }
    }

    /// Takes one input; what is to be done, in this order.
    pub fn step(&mut self, now: Duration, input: Input) -> Vec<Action> {
        let mut actions = Vec::new();
        match input {
            Input::Happened(kind, line) => self.add(kind, &line, &mut actions),
            Input::Ended(run, how) => self.end(run, &how, &mut actions),
            Input::Clock => {}
            Input::Close => self.close(now),
            Input::GiveUp => self.closes = Some(now),
        }
        self.keep_time(now, &mut actions);
        self.start(now, &mut actions);
        actions
    }

    /// When the time comes for something.
    pub fn deadline(&self) -> Option<Duration> {
        let running = self.lanes.values().filter_map(|lane| lane.running.as_ref());
        let running = running.filter(|one| one.stage != Stage::Killed).map(|one| one.until);
        let waits = self.lanes.values().any(|lane| !lane.waiting.is_empty());
        running.chain(self.closes.filter(|_| waits)).min()
    }

    /// Whether nothing is left to do, now and later.
    pub fn is_done(&self) -> bool {
        let is_empty = |lane: &Lane| lane.running.is_none() && lane.waiting.is_empty();
        self.closes.is_some() && self.lanes.values().all(is_empty)
    }

    fn add(&mut self, kind: Kind, line: &str, actions: &mut Vec<Action>) {
        let lane = self.lanes.entry(kind).or_default();
        for hook in self.hooks.iter().filter(|hook| hook.kind == kind) {
            let (target, line) = (hook.target.clone(), line.to_owned());
            lane.waiting.push_back(Call { kind, target, line });
            if lane.waiting.len() > MOST_WAITING {
                lane.waiting.pop_front();
                if lane.left_out == 0 {
                    let name = kind.name();
                    actions.push(Action::Warn(format!(
                        "on {name}: {MOST_WAITING} commands wait already: the oldest are left out"
                    )));
                }
                lane.left_out += 1;
            }
        }
    }

    fn end(&mut self, run: Run, how: &How, actions: &mut Vec<Action>) {
        let is_it = |lane: &Lane| lane.running.as_ref().is_some_and(|one| one.run == run);
        let Some((kind, lane)) = self.lanes.iter_mut().find(|(_, lane)| is_it(lane)) else {
            return;
        };
        let Some(running) = lane.running.take() else { return };
        let what = match (running.stage, how) {
            (Stage::Runs, How::Exited(0)) => return,
            (Stage::Runs, How::Exited(status)) => format!("ended with status {status}"),
            (Stage::Runs, How::Signalled(signal)) => format!("was ended by signal {signal}"),
            (_, How::NotStarted(reason)) => format!("can't be started: {reason}"),
            _ => format!("was ended: it ran longer than {} s", LIMIT.as_secs()),
        };
        let text = format!("on {}: '{}' {what}", kind.name(), running.target.shown());
        actions.push(Action::Warn(text));
    }

    /// What is called for the job's end has its whole time, one after the other, and everything else as long.
    fn close(&mut self, now: Duration) {
        let last = self.lanes.get(&Kind::Ended);
        let last = last.map_or(0, |lane| lane.waiting.len() + usize::from(lane.running.is_some()));
        let calls = u32::try_from(last.max(1)).unwrap_or(u32::MAX);
        self.closes.get_or_insert(now.saturating_add(LIMIT.saturating_mul(calls)));
    }

    fn keep_time(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let is_closed = self.closes.is_some_and(|closes| now >= closes);
        for (kind, lane) in &mut self.lanes {
            if is_closed && !lane.waiting.is_empty() {
                let (name, number) = (kind.name(), lane.waiting.len());
                lane.waiting.clear();
                actions.push(Action::Warn(format!(
                    "on {name}: commands that waited are left out: {number}"
                )));
            }
            let Some(running) = &mut lane.running else { continue };
            let is_due = now >= running.until;
            match running.stage {
                Stage::Runs if is_due || is_closed => {
                    running.stage = Stage::Terminated;
                    running.until = now.saturating_add(ENDING);
                    actions.push(Action::Terminate(running.run));
                }
                Stage::Terminated if is_due => {
                    running.stage = Stage::Killed;
                    actions.push(Action::Kill(running.run));
                }
                _ => {}
            }
        }
    }

    fn start(&mut self, now: Duration, actions: &mut Vec<Action>) {
        for (kind, lane) in &mut self.lanes {
            if lane.running.is_some() {
                continue;
            }
            let Some(call) = lane.waiting.pop_front() else { continue };
            let run = self.next;
            self.next += 1;
            let (target, until) = (call.target.clone(), now.saturating_add(LIMIT));
            lane.running = Some(Running { run, target, stage: Stage::Runs, until });
            actions.push(Action::Start(run, call));
            if lane.waiting.is_empty() && lane.left_out > 0 {
                let (name, number) = (kind.name(), std::mem::take(&mut lane.left_out));
                actions.push(Action::Warn(format!("on {name}: commands were left out: {number}")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn queue(hooks: &[&str]) -> Queue {
        Queue::new(hooks.iter().map(|hook| hook.parse().unwrap()).collect())
    }

    fn happened(kind: Kind) -> Input {
        Input::Happened(kind, kind.name().to_owned())
    }

    fn started(actions: &[Action]) -> Vec<(Run, String)> {
        let starts = actions.iter().filter_map(|action| match action {
            Action::Start(run, call) => {
                Some((*run, format!("{} {}", call.target.shown(), call.line)))
            }
            _ => None,
        });
        starts.collect()
    }

    fn warnings(actions: &[Action]) -> Vec<&str> {
        let warnings = actions.iter().filter_map(|action| match action {
            Action::Warn(text) => Some(text.as_str()),
            _ => None,
        });
        warnings.collect()
    }

    #[test]
    fn commands_of_one_event_are_called_one_after_the_other_beside_those_of_others() {
        let mut queue = queue(&["lost=a", "ended=b", "lost=c"]);
        assert!(queue.step(at(0), happened(Kind::Checkpoint)).is_empty(), "nobody wants that");
        assert_eq!(started(&queue.step(at(0), happened(Kind::Lost))), [(1, "a lost".into())]);
        assert_eq!(started(&queue.step(at(1), happened(Kind::Ended))), [(2, "b ended".into())]);
        let next = queue.step(at(2), Input::Ended(1, How::Exited(0)));
        assert_eq!((started(&next), next.len()), (vec![(3, "c lost".into())], 1));
        assert!(!queue.is_done());
        for run in [2, 3] {
            assert!(queue.step(at(3), Input::Ended(run, How::Exited(0))).is_empty());
        }
        assert!(!queue.is_done(), "more may come");
        queue.step(at(3), Input::Close);
        assert!(queue.is_done());
    }

    #[test]
    fn whoever_takes_too_long_is_ended() {
        let mut queue = queue(&["failed=sleep"]);
        queue.step(at(0), happened(Kind::Failed));
        assert_eq!(queue.deadline(), Some(LIMIT));
        assert!(queue.step(at(59), Input::Clock).is_empty());
        assert_eq!(queue.step(at(60), Input::Clock), [Action::Terminate(1)]);
        assert!(queue.step(at(64), Input::Clock).is_empty());
        assert_eq!(queue.step(at(65), Input::Clock), [Action::Kill(1)]);
        assert_eq!(queue.deadline(), None);
        let told = queue.step(at(66), Input::Ended(1, How::Signalled(9)));
        assert_eq!(warnings(&told), ["on failed: 'sleep' was ended: it ran longer than 60 s"]);
    }

    #[test]
    fn failures_are_told_in_one_line() {
        let mut queue = queue(&["moved=a\nb"]);
        let mut told = |how| {
            let actions = queue.step(at(0), happened(Kind::Moved));
            let (run, _) = started(&actions)[0].clone();
            let ended = queue.step(at(0), Input::Ended(run, how));
            warnings(&ended).join("\n")
        };
        assert_eq!(told(How::Exited(7)), "on moved: 'a b' ended with status 7");
        assert_eq!(told(How::Signalled(11)), "on moved: 'a b' was ended by signal 11");
        let reason = How::NotStarted("no memory".into());
        assert_eq!(told(reason), "on moved: 'a b' can't be started: no memory");
    }

    #[test]
    fn of_too_many_the_oldest_are_left_out() {
        let mut queue = queue(&["checkpoint=a"]);
        let mut told = Vec::new();
        for number in 0..MOST_WAITING + 4 {
            let actions = queue.step(at(0), Input::Happened(Kind::Checkpoint, number.to_string()));
            told.extend(warnings(&actions).iter().map(ToString::to_string));
        }
        let text =
            format!("on checkpoint: {MOST_WAITING} commands wait already: the oldest are left out");
        assert_eq!(told, [text]);
        let next = queue.step(at(1), Input::Ended(1, How::Exited(0)));
        assert_eq!(started(&next), [(2, "a 4".into())], "1, 2 and 3 are left out");
        for run in 2..=MOST_WAITING as u64 + 1 {
            let actions = queue.step(at(1), Input::Ended(run, How::Exited(0)));
            told.extend(warnings(&actions).iter().map(ToString::to_string));
        }
        assert_eq!(told[1..], ["on checkpoint: commands were left out: 3"]);
    }

    #[test]
    fn the_end_is_waited_for_and_nothing_for_ever() {
        let mut queue = queue(&["ended=a", "ended=b", "checkpoint=c"]);
        for _ in 0..3 {
            queue.step(at(0), happened(Kind::Checkpoint));
        }
        queue.step(at(10), happened(Kind::Ended));
        queue.step(at(10), Input::Close);
        // The first of each runs as long as it may, then the second.
        let late = queue.step(at(70), Input::Clock);
        assert_eq!(late, [Action::Terminate(1), Action::Terminate(2)]);
        let ended = queue.step(at(70), Input::Ended(2, How::Signalled(15)));
        assert_eq!(started(&ended), [(3, "b ended".into())]);
        assert_eq!(queue.step(at(75), Input::Clock), [Action::Kill(1)]);
        let next = queue.step(at(75), Input::Ended(1, How::Signalled(9)));
        assert_eq!(started(&next), [(4, "c checkpoint".into())]);
        let closed = queue.step(at(130), Input::Clock);
        assert_eq!(warnings(&closed), ["on checkpoint: commands that waited are left out: 1"]);
        assert!(closed.contains(&Action::Terminate(3)) && closed.contains(&Action::Terminate(4)));
        for run in [3, 4] {
            queue.step(at(131), Input::Ended(run, How::Signalled(15)));
        }
        assert!(queue.is_done());
    }

    #[test]
    fn what_nobody_waits_for_is_ended_at_once() {
        let mut queue = queue(&["ended=a", "ended=b"]);
        queue.step(at(0), happened(Kind::Ended));
        queue.step(at(0), Input::Close);
        let given_up = queue.step(at(1), Input::GiveUp);
        assert_eq!(given_up.last(), Some(&Action::Terminate(1)));
        queue.step(at(1), Input::Ended(1, How::Signalled(15)));
        assert!(queue.is_done());
    }
}
