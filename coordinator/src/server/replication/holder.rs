//! One agent that keeps a copy: what it has been sent, and what it has on its disk.

use super::source::{Source, begins_with, piece};
use super::{Extent, Need};
use protocol::cluster::replica::{Prefix, ReplicaNote, ReplicaOrder, SmallFile};
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// Bytes that may be on their way to one agent.
const WINDOW: usize = 4 * 1024 * 1024;

/// Bytes of one order.
const PIECE: usize = 256 * 1024;

/// What an order changes, once it is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Register(u64),
    Log(u64),
    Job(String, u64),
    Whole,
    Nothing,
}

/// Whether a copy has the cluster's key in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// It has.
    With,
    /// It has not: nobody can take over from it alone.
    Without,
}

impl Key {
    /// By whether the holder may have it.
    pub fn of(may_hold: bool) -> Self {
        if may_hold { Self::With } else { Self::Without }
    }
}

#[derive(Debug, Default)]
struct Progress {
    log: u64,
    register: Option<u64>,
    jobs: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has been asked what it has.
    Asked,
    /// It is sent what it lacks.
    Fed,
    /// It can't keep one.
    Failed,
}

/// Hands on an order with its body.
type Send<'a> = dyn FnMut(ReplicaOrder, &[u8]) + 'a;

/// See the module.
#[derive(Debug)]
pub struct Holder {
    /// Its connection.
    pub connection: u64,
    state: State,
    sent: Progress,
    durable: Progress,
    /// Orders that are not durable yet: number, what they change, bytes.
    under_way: VecDeque<(u64, Change, usize)>,
    last: u64,
    /// What was said last of the key.
    key: Option<Key>,
    whole_sent: bool,
    whole: bool,
    /// Whether nobody waits for it, since it took too long.
    stalled: bool,
}

impl Holder {
    /// One that has been asked what it has.
    pub fn new(connection: u64) -> Self {
        Self {
            connection,
            state: State::Asked,
            sent: Progress::default(),
            durable: Progress::default(),
            under_way: VecDeque::new(),
            last: 0,
            key: None,
            whole_sent: false,
            whole: false,
            stalled: false,
        }
    }

    /// Whether it is to be waited for.
    pub fn is_live(&self) -> bool {
        self.state != State::Failed && !self.stalled
    }

    /// Nothing more is sent to it over this connection.
    pub fn fail(&mut self) {
        self.state = State::Failed;
        self.whole = false;
    }

    /// Nobody waits for it until it is heard again.
    pub fn stall(&mut self) {
        self.stalled = true;
    }

    /// Whether that much is on its disk.
    pub fn has(&self, need: &Need) -> bool {
        let job = |(job, length): (&String, &u64)| {
            *length == 0 || self.durable.jobs.get(job).is_some_and(|durable| durable >= length)
        };
        self.whole
            && self.durable.log >= need.log
            && self.durable.register >= Some(need.register)
            && need.jobs.iter().all(job)
    }

    /// It has told what it has: what is not the same here begins anew.
    pub fn begin(
        &mut self,
        source: &Source,
        log: &Prefix,
        jobs: &BTreeMap<String, Prefix>,
        send: &mut Send<'_>,
    ) {
        if self.state != State::Asked {
            return;
        }
        self.state = State::Fed;
        for (job, prefix) in jobs {
            let path = source.job_log(job);
            if !path.exists() {
                self.forget(job, send);
            } else if begins_with(&path, prefix) {
                self.sent.jobs.insert(job.clone(), prefix.length);
                self.durable.jobs.insert(job.clone(), prefix.length);
            } else {
                self.cut_at(job, 0, send);
            }
        }
        if log.length > 0 && begins_with(&source.log(), log) {
            self.sent.log = log.length;
            self.durable.log = log.length;
        }
    }

    /// Orders up to that one are durable. True where it is whole by that for the first time.
    pub fn durable(&mut self, number: u64) -> bool {
        let mut news = false;
        while self.under_way.front().is_some_and(|first| first.0 <= number) {
            let Some((_, change, _)) = self.under_way.pop_front() else { break };
            match change {
                Change::Register(changes) => self.durable.register = Some(changes),
                Change::Log(length) => self.durable.log = length,
                Change::Job(job, length) => drop(self.durable.jobs.insert(job, length)),
                Change::Whole => news = !std::mem::replace(&mut self.whole, true),
                Change::Nothing => {}
            }
        }
        // Nobody waits for one that has to be brought all of it first, once it took too long.
        self.stalled &= !self.whole;
        news
    }

    /// A job's output is cut to a length.
    pub fn cut(&mut self, job: &str, length: u64, send: &mut Send<'_>) {
        if self.state == State::Fed && self.sent.jobs.get(job).is_some_and(|sent| *sent > length) {
            self.cut_at(job, length, send);
        }
    }

    fn cut_at(&mut self, job: &str, length: u64, send: &mut Send<'_>) {
        self.disown(job);
        let number = self.number(Change::Job(job.to_owned(), length), 0);
        self.sent.jobs.insert(job.to_owned(), length);
        let durable = self.durable.jobs.entry(job.to_owned()).or_default();
        *durable = length.min(*durable);
        let (job, offset, times) = (job.to_owned(), length, Vec::new());
        send(ReplicaOrder::JobLog { number, job, offset, times }, &[]);
    }

    /// A job is forgotten.
    pub fn forget(&mut self, job: &str, send: &mut Send<'_>) {
        if self.state == State::Fed {
            self.disown(job);
            let number = self.number(Change::Nothing, 0);
            send(ReplicaOrder::ForgetJob { number, job: job.to_owned() }, &[]);
            self.sent.jobs.remove(job);
            self.durable.jobs.remove(job);
        }
    }

    /// What is on its way of a job's output does not count.
    fn disown(&mut self, job: &str) {
        for (_, change, _) in &mut self.under_way {
            if matches!(change, Change::Job(of, _) if of == job) {
                *change = Change::Nothing;
            }
        }
    }

    fn tell_key(&mut self, source: &Source, key: Key, send: &mut Send<'_>) -> io::Result<()> {
        for file in SmallFile::SECRET {
            match key {
                Key::With => {
                    let body = source.small(file)?;
                    let number = self.number(Change::Nothing, body.len());
                    send(ReplicaOrder::File { number, file }, &body);
                }
                // Of one that had it, as of one whose agent was a standby's once.
                Key::Without => {
                    let number = self.number(Change::Nothing, 0);
                    send(ReplicaOrder::Withdraw { number, file }, &[]);
                }
            }
        }
        self.key = Some(key);
        Ok(())
    }

    fn number(&mut self, change: Change, bytes: usize) -> u64 {
        self.last += 1;
        self.under_way.push_back((self.last, change, bytes));
        self.last
    }

    fn has_room(&self) -> bool {
        self.under_way.iter().map(|(_, _, bytes)| bytes).sum::<usize>() < WINDOW
    }

    /// Sends what there is, as far as it fits.
    ///
    /// # Errors
    /// Where a file can't be read.
    pub fn pump(
        &mut self,
        source: &Source,
        extent: &Extent,
        note: &ReplicaNote,
        key: Key,
        send: &mut Send<'_>,
    ) -> io::Result<()> {
        if self.state != State::Fed {
            return Ok(());
        }
        if self.key != Some(key) {
            self.tell_key(source, key, send)?;
        }
        if self.sent.register != Some(extent.register) {
            // The authority never changes.
            let first = self.sent.register.is_none();
            let files = [SmallFile::Register, SmallFile::Authority];
            for file in files.into_iter().filter(|it| first || *it == SmallFile::Register) {
                let body = match source.small(file) {
                    // There is none before the first token.
                    Err(error)
                        if error.kind() == io::ErrorKind::NotFound
                            && file == SmallFile::Register =>
                    {
                        continue;
                    }
                    other => other?,
                };
                let number = self.number(Change::Nothing, body.len());
                send(ReplicaOrder::File { number, file }, &body);
            }
            if let Some(last) = self.under_way.back_mut() {
                last.1 = Change::Register(extent.register);
            }
            self.sent.register = Some(extent.register);
        }
        if self.sent.log == 0 && extent.log > 0 {
            let number = self.number(Change::Nothing, 0);
            send(ReplicaOrder::Anew { number, length: extent.log }, &[]);
        }
        while self.sent.log < extent.log {
            if !self.has_room() {
                return Ok(());
            }
            let offset = self.sent.log;
            let body = piece(&source.log(), offset, extent.log, PIECE)?;
            self.sent.log += body.len() as u64;
            let number = self.number(Change::Log(self.sent.log), body.len());
            send(ReplicaOrder::Log { number, offset }, &body);
        }
        if !std::mem::replace(&mut self.whole_sent, true) {
            let number = self.number(Change::Whole, 0);
            send(ReplicaOrder::Whole { number, note: note.clone() }, &[]);
        }
        for (job, length) in &extent.jobs {
            while let Some(offset) = Some(self.sent.jobs.get(job).copied().unwrap_or(0))
                .filter(|sent| sent < length && self.has_room())
            {
                let body = piece(&source.job_log(job), offset, *length, PIECE)?;
                let end = offset + body.len() as u64;
                self.sent.jobs.insert(job.clone(), end);
                let number = self.number(Change::Job(job.clone(), end), body.len());
                let (job, times) = (job.clone(), source.job_times(job, offset, end));
                send(ReplicaOrder::JobLog { number, job, offset, times }, &body);
            }
        }
        Ok(())
    }
}
