//! What an agent does for the command tree.

use crate::shape::split;
use protocol::agent::{CheckpointNumber, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::tree::{
    MOST_FAILURES, MOST_PLACES, Operation, TreeAnswer, TreeCall, TreeCause, TreeFailure, TreeMark,
    TreeMessage, TreeOrder, TreePlace, TreeSum,
};
use std::collections::{BTreeMap, BTreeSet};

/// Operations that may be under way at a member; it refuses more.
const MOST_OPERATIONS: usize = 4096;
/// Jobs of which a member remembers the last operation, or the last checkpoint that was given up; one more, and
/// what is lowest is forgotten.
const MOST_JOBS: usize = 4096;

/// A connection between two members.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line {
    /// The other side.
    pub node: NodeName,
    /// Whether this side made it: it calls, the other side answers.
    pub ours: bool,
}

/// From whom a call comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// Over the member's own connection to it.
    Coordinator,
    /// Another member, over a line that it made.
    Member(NodeName),
}

/// How the own part of an operation came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Own {
    /// All of the member's instances have done it.
    Done(TreeSum),
    /// One has not.
    Failed {
        /// Whether it may well succeed a moment later.
        passing: bool,
        /// One line.
        reason: String,
    },
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Connect to a member. What is sent over the line meanwhile waits. Where that fails:
    /// [`Member::broken`].
    Open(NodeName),
    /// Send over a line, in order.
    Send(Line, TreeMessage),
    /// What waits to be sent over the line is dropped.
    Clear(Line),
    /// Tell the coordinator.
    Report(TreeAnswer),
    /// Do the own part of an order, and say how it came out: [`Member::own`].
    Work(TreeOrder, Vec<InstanceId>),
    /// Nobody waits for the own part any more.
    Forget(Operation),
}

/// A line's marks: the generations that they began.
#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    sent: u64,
    /// None: nothing has come yet.
    seen: Option<u64>,
}

#[derive(Debug)]
struct Running {
    job: String,
    checkpoint: CheckpointNumber,
    caller: Caller,
    /// Those who were called, and how many instances are below each.
    called: BTreeMap<NodeName, u32>,
    own_pending: bool,
    sum: TreeSum,
    deadline: u64,
    limit_ms: u64,
}

/// One member. Times are nanoseconds on a clock that never goes back.
#[derive(Debug)]
pub struct Member {
    own: NodeName,
    generation: TreeMark,
    /// The newest operation of each job in this generation: what is not newer is a repetition.
    newest: BTreeMap<String, u64>,
    /// The newest checkpoint of each job that the coordinator has given up. Numbers of checkpoints only
    /// grow, so it holds in every generation.
    given_up: BTreeMap<String, CheckpointNumber>,
    running: BTreeMap<Operation, Running>,
    lines: BTreeMap<Line, Marks>,
}

impl Member {
    /// The member of that name, which has heard nothing yet.
    #[must_use]
    pub fn new(own: NodeName) -> Self {
        Self {
            own,
            generation: TreeMark { generation: 0, seal: None },
            newest: BTreeMap::new(),
            given_up: BTreeMap::new(),
            running: BTreeMap::new(),
            lines: BTreeMap::new(),
        }
    }

    /// The generation that counts.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.generation
    }

    /// Whether nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether the line is clean: both sides have sent the mark of the own generation.
    #[must_use]
    pub fn is_clean(&self, line: &Line) -> bool {
        let own = self.generation.generation;
        self.lines.get(line).is_some_and(|marks| marks.sent == own && marks.seen == Some(own))
    }

    /// When [`Member::pass_time`] is wanted.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.running.values().map(|running| running.deadline).min()
    }

    /// Another member has made a connection; an older one of its is gone.
    pub fn accepted(&mut self, node: NodeName) -> Vec<Act> {
        let mut out = self.broken(&Line { node: node.clone(), ours: false });
        self.introduce(Line { node, ours: false }, &mut out);
        out
    }

    /// A line is gone, or could not be made.
    pub fn broken(&mut self, line: &Line) -> Vec<Act> {
        let mut out = Vec::new();
        if self.lines.remove(line).is_none() {
            return out;
        }
        let node = &line.node;
        let hit = |running: &Running| match line.ours {
            true => running.called.contains_key(node),
            false => running.caller == Caller::Member(node.clone()),
        };
        let operations: Vec<Operation> =
            self.running.iter().filter(|(_, running)| hit(running)).map(|(id, _)| *id).collect();
        for operation in operations {
            if line.ours {
                let reason = format!("{} has lost the connection to it", self.own);
                let failure = TreeFailure::new(node.clone(), TreeCause::Lost, reason);
                self.fail(operation, vec![failure], &mut out);
            } else if let Some(running) = self.running.remove(&operation) {
                // Nobody is left who could be told.
                forget(operation, &running, &mut out);
            }
        }
        out
    }

    /// Something has come over a line. Seals have been checked.
    pub fn heard(&mut self, now: u64, line: &Line, message: TreeMessage) -> Vec<Act> {
        let mut out = Vec::new();
        let Some(marks) = self.lines.get_mut(line) else { return out };
        match message {
            TreeMessage::Mark(mark) => {
                marks.seen = Some(mark.generation);
                self.adopt(mark, &mut out);
            }
            // Of before the reset.
            _ if marks.seen != Some(self.generation.generation) => {}
            TreeMessage::Call(call) if !line.ours => {
                self.call(now, Caller::Member(line.node.clone()), call, &mut out);
            }
            TreeMessage::Answer(answer) if line.ours => {
                self.answered(&line.node, answer, &mut out);
            }
            TreeMessage::Progress(operation) if line.ours => {
                let called = |running: &Running| running.called.contains_key(&line.node);
                self.extend(now, operation, called, &mut out);
            }
            TreeMessage::Call(_) | TreeMessage::Answer(_) | TreeMessage::Progress(_) => {}
        }
        out
    }

    /// The coordinator itself calls.
    pub fn ordered(&mut self, now: u64, call: TreeCall) -> Vec<Act> {
        let mut out = Vec::new();
        self.call(now, Caller::Coordinator, call, &mut out);
        out
    }

    /// The coordinator begins a generation.
    pub fn reset(&mut self, mark: TreeMark) -> Vec<Act> {
        let mut out = Vec::new();
        self.adopt(mark, &mut out);
        out
    }

    /// The own part of an operation came out.
    pub fn own(&mut self, operation: Operation, own: Own) -> Vec<Act> {
        let mut out = Vec::new();
        let Some(running) = self.running.get_mut(&operation).filter(|known| known.own_pending)
        else {
            return out;
        };
        running.own_pending = false;
        match own {
            Own::Done(sum) => {
                running.sum.add(&sum);
                self.finish_if_done(operation, &mut out);
            }
            Own::Failed { passing, reason } => {
                let cause = TreeCause::Step { passing };
                let failure = TreeFailure::new(self.own.clone(), cause, reason);
                self.fail(operation, vec![failure], &mut out);
            }
        }
        out
    }

    /// The own part of an operation goes on: whoever waits for it waits for its whole limit again.
    pub fn progressed(&mut self, now: u64, operation: Operation) -> Vec<Act> {
        let mut out = Vec::new();
        self.extend(now, operation, |running| running.own_pending, &mut out);
        out
    }

    /// A checkpoint of a job is given up, by the coordinator's own word: nobody waits for its steps, and
    /// what comes for it later is refused.
    pub fn abandoned(&mut self, job: &str, checkpoint: CheckpointNumber) -> Vec<Act> {
        let mut out = Vec::new();
        let known = self.given_up.get(job).copied().unwrap_or(0);
        remember(&mut self.given_up, job, checkpoint.max(known));
        self.running.retain(|operation, running| {
            let given_up = running.job == job && running.checkpoint == checkpoint;
            if given_up {
                forget(*operation, running, &mut out);
            }
            !given_up
        });
        out
    }

    /// Whoever has not answered within the limit is named.
    pub fn pass_time(&mut self, now: u64) -> Vec<Act> {
        let mut out = Vec::new();
        let late: Vec<Operation> = self
            .running
            .iter()
            .filter(|(_, running)| now >= running.deadline)
            .map(|(operation, _)| *operation)
            .collect();
        for operation in late {
            let Some(running) = self.running.get(&operation) else { continue };
            let limit = running.limit_ms;
            let own = running.own_pending.then(|| self.own.clone());
            let failures = own
                .into_iter()
                .chain(running.called.keys().cloned())
                .map(|node| {
                    TreeFailure::new(node, TreeCause::Lost, format!("no answer in {limit} ms"))
                })
                .collect();
            self.fail(operation, failures, &mut out);
        }
        out
    }

    /// The first word over a new line.
    fn introduce(&mut self, line: Line, out: &mut Vec<Act>) {
        let mark = self.generation.clone();
        self.lines.insert(line.clone(), Marks { sent: mark.generation, seen: None });
        out.push(Act::Send(line, TreeMessage::Mark(mark)));
    }

    fn adopt(&mut self, mark: TreeMark, out: &mut Vec<Act>) {
        if mark.generation <= self.generation.generation {
            return;
        }
        for (operation, running) in std::mem::take(&mut self.running) {
            forget(operation, &running, out);
        }
        self.newest.clear();
        for (line, marks) in &mut self.lines {
            marks.sent = mark.generation;
            out.push(Act::Clear(line.clone()));
            out.push(Act::Send(line.clone(), TreeMessage::Mark(mark.clone())));
        }
        self.generation = mark;
    }

    fn call(&mut self, now: u64, caller: Caller, call: TreeCall, out: &mut Vec<Act>) {
        let TreeCall { order, seal, places, limit_ms, margin_ms } = call;
        let operation = order.operation;
        let checked = self.check(&order, &places);
        let nobody = || "the call names no node".to_owned();
        let (place, subtrees) = match checked.and_then(|()| split(places).ok_or_else(nobody)) {
            Ok(divided) => divided,
            Err(reason) => {
                let failures = vec![TreeFailure::new(self.own.clone(), TreeCause::Lost, reason)];
                let answer = TreeAnswer { operation, failures, sum: TreeSum::default() };
                return self.tell(&caller, answer, out);
            }
        };
        remember(&mut self.newest, &order.job, operation.number);
        let mut called = BTreeMap::new();
        let below_ms = limit_ms.saturating_sub(margin_ms);
        for places in subtrees {
            let Some(first) = places.first() else { continue };
            let node = first.node.clone();
            let count: usize = places.iter().map(|place| place.instances.len()).sum();
            called.insert(node.clone(), u32::try_from(count).unwrap_or(u32::MAX));
            let line = Line { node, ours: true };
            if !self.lines.contains_key(&line) {
                out.push(Act::Open(line.node.clone()));
                self.introduce(line.clone(), out);
            }
            let (order, seal) = (order.clone(), seal.clone());
            let call = TreeCall { order, seal, places, limit_ms: below_ms, margin_ms };
            out.push(Act::Send(line, TreeMessage::Call(call)));
        }
        let own_pending = !place.instances.is_empty();
        let deadline = now.saturating_add(limit_ms.saturating_mul(1_000_000));
        let running = Running {
            job: order.job.clone(),
            checkpoint: order.checkpoint,
            caller,
            called,
            own_pending,
            sum: TreeSum::default(),
            deadline,
            limit_ms,
        };
        self.running.insert(operation, running);
        if own_pending {
            out.push(Act::Work(order, place.instances));
        }
        self.finish_if_done(operation, out);
    }

    fn check(&self, order: &TreeOrder, places: &[TreePlace]) -> Result<(), String> {
        let Operation { generation, number } = order.operation;
        if generation != self.generation.generation {
            return Err(format!(
                "it is in generation {}, the call is of {generation}",
                self.generation.generation
            ));
        }
        if self.newest.get(&order.job).is_some_and(|newest| number <= *newest) {
            return Err("it has been called before".to_owned());
        }
        if self.given_up.get(&order.job).is_some_and(|given_up| order.checkpoint <= *given_up) {
            return Err(format!("checkpoint {} has been given up", order.checkpoint));
        }
        if places.first().is_none_or(|place| place.node != self.own) {
            return Err(format!("the call is not for {}", self.own));
        }
        if places.len() > MOST_PLACES {
            return Err(format!("the call has more than {MOST_PLACES} places"));
        }
        let mut names = BTreeSet::new();
        if !places.iter().all(|place| names.insert(&place.node)) {
            return Err("the call names a node twice".to_owned());
        }
        if self.running.len() >= MOST_OPERATIONS {
            return Err(format!("{MOST_OPERATIONS} operations are under way already"));
        }
        Ok(())
    }

    fn answered(&mut self, node: &NodeName, answer: TreeAnswer, out: &mut Vec<Act>) {
        let TreeAnswer { operation, mut failures, sum } = answer;
        // Another's answer may have ended it; and only a node that was called, and has not answered, has a say.
        let Some(running) = self.running.get_mut(&operation) else { return };
        let Some(expected) = running.called.get(node).copied() else { return };
        if failures.is_empty() && sum.instances != expected {
            let reason = format!("{} of {expected} instances have answered", sum.instances);
            failures.push(TreeFailure::new(node.clone(), TreeCause::Lost, reason));
        }
        if !failures.is_empty() {
            return self.fail(operation, failures, out);
        }
        running.called.remove(node);
        running.sum.add(&sum);
        self.finish_if_done(operation, out);
    }

    fn finish_if_done(&mut self, operation: Operation, out: &mut Vec<Act>) {
        let done = |running: &Running| running.called.is_empty() && !running.own_pending;
        if !self.running.get(&operation).is_some_and(done) {
            return;
        }
        if let Some(Running { caller, sum, .. }) = self.running.remove(&operation) {
            self.tell(&caller, TreeAnswer { operation, failures: Vec::new(), sum }, out);
        }
    }

    /// An operation has failed: that goes up at once, and is forgotten.
    fn fail(&mut self, operation: Operation, mut failures: Vec<TreeFailure>, out: &mut Vec<Act>) {
        // It fails once, whatever else goes wrong with it.
        let Some(running) = self.running.remove(&operation) else { return };
        forget(operation, &running, out);
        failures.truncate(MOST_FAILURES);
        let failures = failures
            .into_iter()
            .map(|failure| TreeFailure::new(failure.node, failure.cause, failure.reason))
            .collect();
        self.tell(&running.caller, TreeAnswer { operation, failures, sum: running.sum }, out);
    }

    fn extend(
        &mut self,
        now: u64,
        operation: Operation,
        is_awaited: impl FnOnce(&Running) -> bool,
        out: &mut Vec<Act>,
    ) {
        // It may be over, or be waited for no longer where the word comes from.
        let running = self.running.get_mut(&operation);
        let Some(running) = running.filter(|found| is_awaited(found)) else { return };
        running.deadline = now.saturating_add(running.limit_ms.saturating_mul(1_000_000));
        // The coordinator hears of it from the instance itself.
        if let Caller::Member(node) = &running.caller {
            let line = Line { node: node.clone(), ours: false };
            if self.lines.contains_key(&line) {
                out.push(Act::Send(line, TreeMessage::Progress(operation)));
            }
        }
    }

    fn tell(&self, caller: &Caller, answer: TreeAnswer, out: &mut Vec<Act>) {
        match caller {
            Caller::Coordinator => out.push(Act::Report(answer)),
            Caller::Member(node) => {
                let line = Line { node: node.clone(), ours: false };
                if self.lines.contains_key(&line) {
                    out.push(Act::Send(line, TreeMessage::Answer(answer)));
                }
            }
        }
    }
}

fn remember(numbers: &mut BTreeMap<String, u64>, job: &str, number: u64) {
    if numbers.len() >= MOST_JOBS && !numbers.contains_key(job) {
        let lowest = numbers.iter().min_by_key(|(_, number)| **number);
        if let Some(job) = lowest.map(|(job, _)| job.clone()) {
            numbers.remove(&job);
        }
    }
    numbers.insert(job.to_owned(), number);
}

fn forget(operation: Operation, running: &Running, out: &mut Vec<Act>) {
    if running.own_pending {
        out.push(Act::Forget(operation));
    }
}
