//! Checkpoints and restarts: rounds of global barriers.

use super::values::LISTENERS_COMPLETE;
use super::{Action, Checkpoint, Connection, Image, Machine, Notice, Settings, Worker};
use crate::wire::{ImageName, Kind, Message, WorkerState};
use protocol::clock::Time;
use std::collections::BTreeSet;

/// The barrier after which all stand still; its release tells how many they are, which their images keep.
const COUNTED: &str = "DMT:CHECKPOINT";

/// The most barriers in one round: one for each bit of [`Part::passed`].
const MAX_BARRIERS: usize = 64;

/// How long the connecting sides may take to look their listeners up, in nanoseconds.
const LOOKING_UP: u64 = 2_000_000_000;

/// A worker's part in the round.
#[derive(Debug, Clone, Copy, Default)]
pub struct Part {
    takes_part: bool,
    /// The barriers that it has passed, a bit each.
    passed: u64,
    waits: Option<u8>,
    wrote: bool,
    resumed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// None: barriers of plugins in between.
    Free,
    Checkpoint,
    Restart,
}

#[derive(Debug)]
struct Barrier {
    name: String,
    /// Participants that wait at it.
    waiting: usize,
    released: bool,
}

/// A round, or what is between two of them.
#[derive(Debug)]
pub struct Round {
    sort: Sort,
    began: Time,
    /// When it last got on, in nanoseconds.
    progress: u64,
    /// How often it was said who is waited for since.
    told: u32,
    barriers: Vec<Barrier>,
    /// Those who take part and have not resumed.
    active: usize,
    /// Of a checkpoint: those of them who have not written.
    to_write: usize,
    /// Of a checkpoint: how many they were when all stood still.
    counted: Option<usize>,
    images: Vec<Image>,
    unique_names: bool,
    kills: bool,
    failed: Option<String>,
    decided: bool,
    /// Of a restart: how many belong to it, have connected, will not come.
    expected: usize,
    connected: usize,
    departed: usize,
    fetched: BTreeSet<Vec<u8>>,
    dial_at: Option<u64>,
}

impl Round {
    /// No round.
    pub fn free(now: u64) -> Self {
        Self {
            sort: Sort::Free,
            began: Time::default(),
            progress: now,
            told: 0,
            barriers: Vec::new(),
            active: 0,
            to_write: 0,
            counted: None,
            images: Vec::new(),
            unique_names: false,
            kills: false,
            failed: None,
            decided: false,
            expected: 0,
            connected: 0,
            departed: 0,
            fetched: BTreeSet::new(),
            dial_at: None,
        }
    }

    /// The restart of so many processes.
    pub fn restart(now: u64, expected: usize) -> Self {
        Self { sort: Sort::Restart, expected, ..Self::free(now) }
    }

    /// Whether there is none.
    pub fn is_free(&self) -> bool {
        self.sort == Sort::Free
    }

    /// Whether all stand still, so that nobody can join.
    pub fn stands_still(&self) -> bool {
        self.sort == Sort::Checkpoint && self.counted.is_some()
    }

    /// Whether a process may still be restarted in it.
    pub fn may_restart(&self) -> bool {
        self.sort == Sort::Restart && self.not_connected() > 0
    }

    /// How many processes a restart has.
    pub fn expected(&self) -> usize {
        self.expected
    }

    /// How many are still to connect.
    pub fn not_connected(&self) -> usize {
        self.expected.saturating_sub(self.connected + self.departed)
    }

    /// Whether it goes on without some.
    pub fn has_departed(&self) -> bool {
        self.departed > 0
    }

    /// A listener was looked up.
    pub fn fetched(&mut self, key: &[u8]) {
        if self.has_departed() {
            self.fetched.insert(key.to_vec());
        }
    }

    /// The listeners that were looked up.
    pub fn take_fetched(&mut self) -> BTreeSet<Vec<u8>> {
        std::mem::take(&mut self.fetched)
    }

    /// The barrier at which a worker waits.
    pub fn waits_at(&self, part: &Part) -> Option<&str> {
        self.barriers.get(usize::from(part.waits?)).map(|barrier| barrier.name.as_str())
    }

    fn has_part(&self, part: &Part) -> bool {
        self.sort == Sort::Free || (part.takes_part && !part.resumed)
    }

    /// Whether the others wait for this one.
    pub fn is_missing(&self, part: &Part) -> bool {
        let waits = part.waits.is_some();
        match self.sort {
            Sort::Free => !waits && self.barriers.iter().any(|barrier| !barrier.released),
            Sort::Checkpoint if self.to_write > 0 && part.wrote => false,
            _ => self.has_part(part) && !waits,
        }
    }

    /// What waits.
    pub fn awaited(&self) -> String {
        let waiting = self.barriers.iter().find(|barrier| !barrier.released);
        match (waiting, self.sort) {
            (Some(barrier), _) => format!("the barrier {}", barrier.name),
            (None, Sort::Restart) => "the restart".to_owned(),
            (None, _) if self.counted.is_none() => "the checkpoint's first barrier".to_owned(),
            (None, _) if self.to_write > 0 => {
                let last = self.barriers.last().map_or(COUNTED, |barrier| barrier.name.as_str());
                format!("the checkpoint, past the barrier {last},")
            }
            (None, _) => "the checkpoint, which is written,".to_owned(),
        }
    }

    /// When the clock matters to it.
    pub fn deadline(&self, settings: &Settings) -> Option<u64> {
        let waits = self.sort != Sort::Free || !self.barriers.is_empty();
        let patience = settings.patience.saturating_mul(1 << self.told.min(20));
        let hanging = waits.then(|| self.progress.saturating_add(patience));
        [hanging, self.departure(settings), self.dial_at].into_iter().flatten().min()
    }

    fn departure(&self, settings: &Settings) -> Option<u64> {
        let limit = settings.departed_after.filter(|_| self.may_restart())?;
        Some(self.progress.saturating_add(limit))
    }

    fn got_on(&mut self, now: Time) {
        self.progress = now.nanos;
        self.told = 0;
    }
}

impl Machine {
    /// Begins a checkpoint; false where it can't be now.
    pub(super) fn begin_checkpoint(&mut self, now: Time, kills: bool) -> bool {
        if !self.is_running() || self.recording.is_some() || self.killing {
            return false;
        }
        self.group.generation = self.group.generation.wrapping_add(1);
        self.next_checkpoint = None;
        let kills = kills || self.settings.kill_after;
        let active = self.workers.len();
        self.round = Round {
            sort: Sort::Checkpoint,
            began: now,
            active,
            to_write: active,
            kills,
            ..Round::free(now.nanos)
        };
        for worker in self.workers.values_mut() {
            worker.part = Part { takes_part: true, ..Part::default() };
        }
        let notice = Notice::Checkpointing { group: self.group, peers: active };
        self.actions.push(Action::Notice(notice));
        let message = self.do_checkpoint();
        let to = self.workers.keys().copied().collect();
        self.actions.push(Action::Send { to, message });
        true
    }

    fn do_checkpoint(&self) -> Message {
        Message { exit_after: self.round.kills, ..self.to_all(Kind::DoCheckpoint) }
    }

    /// A worker has joined, launched or forked.
    pub(super) fn joined(&mut self, connection: Connection) {
        if self.round.sort == Sort::Checkpoint {
            self.round.active += 1;
            self.round.to_write += 1;
            let message = self.do_checkpoint();
            if let Some(worker) = self.workers.get_mut(&connection) {
                worker.part.takes_part = true;
            }
            self.send(connection, message);
        }
    }

    /// A worker has joined the restart.
    pub(super) fn joined_restart(&mut self, now: Time, connection: Connection) {
        if let Some(worker) = self.workers.get_mut(&connection) {
            worker.part.takes_part = true;
        }
        self.round.active += 1;
        self.round.connected += 1;
        self.round.got_on(now);
        self.release(now);
    }

    /// A worker has begun to execute a program: of the checkpoint that it may have heard of it knows nothing.
    pub(super) fn executed(&mut self, now: Time, connection: Connection) {
        let known = Self::known(&mut self.workers, connection, "note a new program");
        let Some(worker) = known else { return };
        if self.round.sort != Sort::Checkpoint || !self.round.has_part(&worker.part) {
            return;
        }
        worker.part.passed = 0;
        if let Some(index) = worker.part.waits.take() {
            if let Some(barrier) = self.round.barriers.get_mut(usize::from(index)) {
                barrier.waiting -= 1;
            }
        }
        let message = self.do_checkpoint();
        self.send(connection, message);
        self.round.got_on(now);
    }

    /// A worker has reached a barrier.
    pub(super) fn barrier(&mut self, now: Time, connection: Connection, message: Message) {
        self.set_state(connection, message.state);
        let known = Self::known(&mut self.workers, connection, "note a barrier");
        let Some(worker) = known else { return };
        let name = message.name;
        if let Some(at) = self.round.waits_at(&worker.part) {
            if at == name {
                let text =
                    format!("{} reached the barrier {name} twice; once counts", worker.label());
                return self.warn(text);
            }
            let text = format!(
                "{} reached the barrier {name} while it waits at {at}; its connection is closed",
                worker.label()
            );
            self.warn(text);
            return self.drop_connection(now, connection);
        }
        let counts = self.round.has_part(&worker.part);
        let passed = worker.part.passed;
        let known = self
            .round
            .barriers
            .iter()
            .enumerate()
            .position(|(index, barrier)| barrier.name == name && passed & (1 << index) == 0);
        let index = match known {
            Some(index) => index,
            None if self.round.barriers.len() < MAX_BARRIERS && !name.is_empty() => {
                if self.round.is_free() && self.round.barriers.is_empty() {
                    self.round.got_on(now);
                }
                self.round.barriers.push(Barrier { name, waiting: 0, released: false });
                self.round.barriers.len() - 1
            }
            None => {
                let text = format!("{} reached barriers without end; it is closed", worker.label());
                self.warn(text);
                return self.drop_connection(now, connection);
            }
        };
        let barrier = &mut self.round.barriers[index];
        if barrier.released {
            worker.part.passed |= 1 << index;
            let name = barrier.name.clone();
            let message = self.released(&name);
            self.send(connection, message);
        } else {
            worker.part.waits = u8::try_from(index).ok();
            barrier.waiting += usize::from(counts);
        }
        self.release(now);
    }

    fn released(&self, name: &str) -> Message {
        let peers = match self.round.sort {
            Sort::Free => self.workers.len(),
            Sort::Restart => self.round.active,
            Sort::Checkpoint => self.round.counted.unwrap_or(self.round.active),
        };
        let mut payload = name.as_bytes().to_vec();
        payload.push(0);
        Message {
            name: name.to_owned(),
            exit_after: self.round.kills,
            peers: u32::try_from(peers).unwrap_or(u32::MAX),
            payload,
            ..self.to_all(Kind::BarrierReleased)
        }
    }

    /// Releases the barriers that all have reached.
    pub(super) fn release(&mut self, now: Time) {
        if self.round.not_connected() > 0 {
            return;
        }
        let all = if self.round.is_free() { self.workers.len() } else { self.round.active };
        if all == 0 {
            return;
        }
        while let Some(index) = self
            .round
            .barriers
            .iter()
            .position(|barrier| !barrier.released && barrier.waiting >= all)
        {
            self.round.barriers[index].released = true;
            self.round.got_on(now);
            let name = self.round.barriers[index].name.clone();
            if self.round.sort == Sort::Checkpoint && name == COUNTED {
                self.round.counted = Some(self.round.active);
            }
            if self.round.has_departed() && name == LISTENERS_COMPLETE {
                self.round.dial_at = Some(now.nanos.saturating_add(LOOKING_UP));
            }
            let mut to = Vec::with_capacity(self.round.barriers[index].waiting);
            for (connection, worker) in &mut self.workers {
                if worker.part.waits.is_some_and(|at| usize::from(at) == index) {
                    worker.part.waits = None;
                    worker.part.passed |= 1 << index;
                    to.push(*connection);
                }
            }
            let message = self.released(&name);
            self.actions.push(Action::Send { to, message });
        }
        if self.round.is_free() && self.round.barriers.iter().all(|barrier| barrier.released) {
            self.round.barriers.clear();
            for worker in self.workers.values_mut() {
                worker.part = Part::default();
            }
        }
    }

    /// A worker has written its image.
    pub(super) fn image(&mut self, now: Time, connection: Connection, message: &Message) {
        let standing = self.round.stands_still();
        let known = Self::known(&mut self.workers, connection, "note an image");
        let Some(worker) = known else { return };
        if !standing || !self.round.has_part(&worker.part) || worker.part.wrote {
            let text = format!("{} told of an image that nobody had asked for", worker.label());
            return self.warn(text);
        }
        worker.part.wrote = true;
        self.round.to_write -= 1;
        match ImageName::of(&message.payload) {
            Ok(name) => self.round.images.push(Image {
                name,
                identity: worker.identity,
                program: worker.program.to_string(),
                remote: worker.remote,
                owner: worker.owner,
            }),
            Err(error) => {
                self.round.failed = Some(format!("{} sent {error}", worker.label()));
            }
        }
        self.round.unique_names |= message.kind == Kind::UniqueImageName;
        self.set_state(connection, WorkerState::Checkpointed);
        self.round.got_on(now);
        self.decide(now);
    }

    /// A worker goes on.
    pub(super) fn resuming(&mut self, now: Time, connection: Connection, state: WorkerState) {
        self.set_state(connection, state);
        let known = Self::known(&mut self.workers, connection, "note that a worker goes on");
        let Some(worker) = known else { return };
        if self.round.is_free() || !self.round.has_part(&worker.part) {
            return;
        }
        worker.part.resumed = true;
        self.round.active -= 1;
        if let Some(at) = worker.part.waits.take() {
            self.round.barriers[usize::from(at)].waiting -= 1;
        }
        if self.round.sort == Sort::Checkpoint && !worker.part.wrote {
            self.round.to_write -= 1;
            self.round.failed = Some(format!("{} went on without an image", worker.label()));
        }
        self.go_on(now);
    }

    /// A worker has gone, and is out of the list already.
    pub(super) fn departed(&mut self, now: Time, _connection: Connection, worker: &Worker) {
        let counts = self.round.has_part(&worker.part);
        if let Some(at) = worker.part.waits.filter(|_| counts) {
            self.round.barriers[usize::from(at)].waiting -= 1;
        }
        if counts && !self.round.is_free() {
            self.round.active -= 1;
            if self.round.sort == Sort::Checkpoint && !worker.part.wrote {
                self.round.to_write -= 1;
                // Before, the others did not count it.
                if self.round.counted.is_some() {
                    let text = format!("{} ended before its image was written", worker.label());
                    self.round.failed.get_or_insert(text);
                }
            }
        }
        let begun = self.round.barriers.iter().any(|barrier| barrier.released);
        if self.round.sort == Sort::Restart && worker.part.takes_part && !begun {
            self.round.connected -= 1;
        }
        self.go_on(now);
        if self.workers.is_empty() {
            self.round = Round::free(now.nanos);
            self.answer_blocked_unless_recording();
            self.admit_held(now);
        }
    }

    fn answer_blocked_unless_recording(&mut self) {
        if self.recording.is_none() {
            self.answer_blocked(false);
        }
    }

    /// After somebody is not waited for any more.
    fn go_on(&mut self, now: Time) {
        self.release(now);
        self.decide(now);
        self.end_round(now);
    }

    /// Once all images are written: the checkpoint counts, or it does not.
    fn decide(&mut self, now: Time) {
        let round = &mut self.round;
        if round.sort != Sort::Checkpoint || round.decided || round.to_write > 0 {
            return;
        }
        if round.counted.is_none() && round.active > 0 {
            return;
        }
        round.decided = true;
        let counted = round.counted.unwrap_or(0);
        let images = std::mem::take(&mut round.images);
        let failed = round.failed.take().or_else(|| match counted {
            0 => Some("all processes ended before it".to_owned()),
            counted if counted != images.len() => {
                Some(format!("{} of {counted} images were written", images.len()))
            }
            _ => None,
        });
        if let Some(reason) = failed {
            let notice = Notice::Failed { group: self.group, reason };
            self.actions.push(Action::Notice(notice));
            return self.answer_blocked(false);
        }
        self.recording = Some(self.group.generation);
        self.ending |= round.kills;
        let checkpoint = Checkpoint {
            group: self.group,
            begun_at_ms: round.began.unix_ms,
            took_us: now.nanos.saturating_sub(round.began.nanos) / 1000,
            images,
            unique_names: round.unique_names,
            interval: self.interval,
            kills: round.kills,
        };
        self.actions.push(Action::Commit(Box::new(checkpoint)));
    }

    fn end_round(&mut self, now: Time) {
        if self.round.is_free() || self.round.active > 0 || self.round.not_connected() > 0 {
            return;
        }
        if self.round.sort == Sort::Restart && !self.workers.is_empty() {
            let peers = self.round.connected;
            let notice = Notice::Restarted { group: self.group, peers };
            self.actions.push(Action::Notice(notice));
        }
        self.round = Round::free(now.nanos);
        for worker in self.workers.values_mut() {
            worker.part = Part::default();
        }
        self.schedule(now);
        self.admit_held(now);
    }

    pub(super) fn round_clock(&mut self, now: Time) {
        if self.round.departure(&self.settings).is_some_and(|due| due <= now.nanos) {
            let departed = self.round.not_connected();
            self.round.departed = departed;
            self.round.got_on(now);
            self.warn(format!(
                "{departed} of {} processes have not connected: the restart goes on without them, and their peers' \
                 connections to them are silent",
                self.round.expected
            ));
            self.go_on(now);
        }
        if self.round.dial_at.is_some_and(|due| due <= now.nanos) {
            self.round.dial_at = None;
            self.dial_for_departed();
        }
        let since = now.nanos.saturating_sub(self.round.progress);
        let waits = !self.round.is_free() || !self.round.barriers.is_empty();
        let patience = self.settings.patience.saturating_mul(1 << self.round.told.min(20));
        if waits && since >= patience {
            self.round.told += 1;
            self.name_missing(since / 1_000_000_000);
        }
    }
}
