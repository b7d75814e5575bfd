//! Callers who see what the job writes, as the one who runs it does (`ckptd attach`).

use super::callers::{Caller, Callers};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::agent::{CheckpointNumber, ExitKind};
use protocol::cluster::agent::Stream;
use protocol::cluster::client::{Answer, LogPlace};
use std::collections::BTreeMap;

/// Who is attached to a job.
#[derive(Debug)]
pub struct Attached {
    job: String,
    name: String,
    terminal: bool,
    /// Whether each has been told that the job runs: before, nothing is for it.
    callers: BTreeMap<Caller, AttachedCaller>,
}

#[derive(Debug, Default)]
struct AttachedCaller {
    started: bool,
    /// Whether it knows that its input goes nowhere.
    told_of_input: bool,
}

/// The place in the log of a job without a cluster, all of which is one epoch.
fn place(length: u64) -> LogPlace {
    LogPlace { epoch: 0, length, written: length }
}

impl Attached {
    /// Nobody yet, to the job of that id and name; `terminal`: whether it has one.
    pub fn new(job: &str, name: &str, terminal: bool) -> Self {
        Self { job: job.to_owned(), name: name.to_owned(), terminal, callers: BTreeMap::new() }
    }

    /// A caller is about to be attached.
    pub fn add(&mut self, caller: Caller) {
        self.callers.insert(caller, AttachedCaller::default());
    }

    /// Whether it is, or is about to be.
    pub fn has(&self, caller: Caller) -> bool {
        self.callers.contains_key(&caller)
    }

    /// A caller has gone. Whether it was attached, or about to be.
    pub fn remove(&mut self, caller: Caller) -> bool {
        self.callers.remove(&caller).is_some()
    }

    /// From this length of the log on, output is for the caller, too.
    pub fn start(&mut self, callers: &mut Callers, caller: Caller, length: u64) {
        // It may have gone meanwhile.
        let Some(standing) = self.callers.get_mut(&caller) else { return };
        standing.started = true;
        let (job, name) = (self.job.clone(), self.name.clone());
        let at = place(length);
        callers.answer(caller, &Answer::Started { job, name, terminal: self.terminal, at });
    }

    /// The job has written something, up to this length of its log.
    pub fn output(&self, callers: &mut Callers, stream: Stream, bytes: &[u8], length: u64) {
        let bytes = STANDARD.encode(bytes);
        self.tell(callers, &Answer::Output { stream, bytes, at: place(length) });
    }

    /// Says something to all.
    pub fn tell(&self, callers: &mut Callers, answer: &Answer) {
        for (caller, _) in self.callers.iter().filter(|(_, standing)| standing.started) {
            callers.answer(*caller, answer);
        }
    }

    /// Tells a caller once that what it types goes nowhere.
    pub fn refuse_input(&mut self, callers: &mut Callers, caller: Caller) {
        // It may have gone meanwhile.
        let Some(standing) = self.callers.get_mut(&caller) else { return };
        if !std::mem::replace(&mut standing.told_of_input, true) {
            let text = format!(
                "{} has no terminal: it reads its input where it was started, not from here",
                self.name
            );
            callers.answer(caller, &Answer::Say { text });
        }
    }

    /// The job is over: all are told, and left.
    pub fn end(
        &mut self,
        callers: &mut Callers,
        status: ExitKind,
        checkpoint: Option<CheckpointNumber>,
    ) {
        for caller in std::mem::take(&mut self.callers).into_keys() {
            callers.answer_last(caller, &Answer::Ended { status, checkpoint });
        }
    }
}
