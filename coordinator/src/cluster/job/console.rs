//! A job's output on its way to the log and to whoever is attached.

use super::replay::Stretches;
use super::{Job, State};
use crate::cluster::entry::ClusterEntry;
use crate::cluster::event::{ClientId, ClusterAction};
use crate::cluster::shared::Shared;
use crate::cluster::text;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::agent::{AgentCommand, CheckpointNumber};
use protocol::cluster::agent::{Stream, ToAgent};
use protocol::cluster::client::{Answer, LogPlace};
use protocol::cluster::{Epoch, InstanceKey};
use protocol::launch::WindowSize;

/// Input that is kept while the job can't take any, in bytes.
const MOST_INPUT: usize = 1 << 20;

/// Signals that are kept while the job can't take any: no more than there are.
const MOST_SIGNALS: usize = 64;

/// Somebody who sees the job's output.
#[derive(Debug)]
pub(in crate::cluster) struct Attached {
    pub(in crate::cluster) client: ClientId,
    /// Whether it has been told that the job runs.
    pub(in crate::cluster) started: bool,
    /// Whether it leaves then.
    pub(in crate::cluster) detach: bool,
    /// Up to where it had been shown the output when it came: by a coordinator that was lost, perhaps, whose log
    /// had more.
    pub(in crate::cluster) shown: Option<LogPlace>,
}

/// Where the job's log stands.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Console {
    /// Its length in bytes.
    pub(in crate::cluster) length: u64,
    /// Bytes of the root instance's console that are in it.
    pub(in crate::cluster) offset: u64,
    at_line_start: bool,
    /// The epoch for which it was cut back, if this coordinator did that.
    pub(in crate::cluster) epoch: Epoch,
    /// Which of it is of which stream.
    pub(in crate::cluster) stretches: Stretches,
    /// Whether what comes next may lie behind bytes that nobody has any more.
    may_lack: bool,
    /// Input for the job that could not be passed on yet.
    input: Vec<Vec<u8>>,
    /// Signals likewise.
    signals: Vec<i32>,
    /// What had not reached the job when it stood still for this checkpoint: of use if it goes on from there.
    left: (CheckpointNumber, Vec<Vec<u8>>),
    pub(in crate::cluster) window: Option<WindowSize>,
}

impl Console {
    pub(in crate::cluster) fn at(length: u64, offset: u64) -> Self {
        Self { length, offset, at_line_start: length == 0, ..Self::default() }
    }

    /// The same, of a log that may lack what the lost coordinator's had.
    pub(in crate::cluster) fn that_may_lack(self, may_lack: bool) -> Self {
        Self { may_lack, ..self }
    }
}

impl Job {
    fn log(&mut self, shared: &mut Shared, bytes: Vec<u8>) {
        if let Some(last) = bytes.last() {
            self.console.at_line_start = *last == b'\n';
            self.console.length = self.console.length.saturating_add(bytes.len() as u64);
            shared.act(ClusterAction::Log { job: self.ledger.id.clone(), bytes });
        }
    }

    /// Marks the log on a line of its own; not while the coordinator's log can't be written.
    pub(in crate::cluster) fn mark(&mut self, shared: &mut Shared, text: &str) {
        if !shared.is_broken() {
            self.mark_always(shared, text);
        }
    }

    /// Marks the log, whatever that may cost: what follows the mark is measured from it.
    pub(in crate::cluster) fn mark_always(&mut self, shared: &mut Shared, text: &str) {
        let start = if self.console.at_line_start { "" } else { "\n" };
        let text = format!("{start}[ckptd: {text}]\n");
        self.record(
            shared,
            ClusterEntry::Mark {
                job: self.ledger.id.clone(),
                length: self.console.length.saturating_add(text.len() as u64),
                console: self.console.offset,
                text: text.clone(),
            },
        );
        self.log(shared, text.into_bytes());
    }

    /// Cuts the log back to where it stood at the checkpoint from which this epoch starts. Only
    /// just before anything runs: until then it may yet be another checkpoint.
    pub(in crate::cluster) fn cut_log_back(&mut self, shared: &mut Shared) {
        if self.ledger.epoch <= 1 {
            return;
        }
        let checkpoint = self.ledger.checkpoint;
        let record = checkpoint.and_then(|number| self.ledger.history.record(number));
        let wanted = record.map_or(0, |record| record.log_length);
        let length = wanted.min(self.console.length);
        self.tell_of_cut(shared, checkpoint, length);
        let (window, input) = (self.console.window, std::mem::take(&mut self.console.input));
        let signals = std::mem::take(&mut self.console.signals);
        let left = std::mem::take(&mut self.console.left);
        let stretches = std::mem::take(&mut self.console.stretches);
        let epoch = self.ledger.epoch;
        let kept = Console { window, input, signals, left, ..Console::at(length, 0) };
        self.console = Console { stretches, epoch, ..kept };
        // Output takes the places of marks that are cut off.
        self.ledger.mark_places.retain(|(_, after)| *after <= length);
        shared.act(ClusterAction::CutLog {
            job: self.ledger.id.clone(),
            length,
            checkpoint: checkpoint.unwrap_or(0),
        });
        if wanted > length {
            // The copy from which this coordinator carries on ends before the checkpoint's output does.
            self.tell_user(shared, &text::lost_output(wanted - length));
        }
    }

    /// Who is attached has seen what the job wrote since the checkpoint, such as a run time's word that it will end the job.
    fn tell_of_cut(&self, shared: &mut Shared, checkpoint: Option<CheckpointNumber>, length: u64) {
        let State::Making(making) = &self.state else { return };
        let seen = making.record.reason != "restart" && !making.record.is_move();
        let bytes = text::size(self.console.stretches.behind(length));
        if seen && self.console.stretches.behind(length) > 0 {
            let since = checkpoint
                .map_or("since it began".to_owned(), |number| format!("since checkpoint {number}"));
            self.say(
                shared,
                &format!("what the job wrote {since} is taken back: the last {bytes}"),
            );
        }
    }

    /// A piece of output. What came before, over an older connection, is passed over; one that
    /// comes too early is not taken.
    pub(in crate::cluster) fn output(
        &mut self,
        shared: &mut Shared,
        key: InstanceKey,
        offset: u64,
        stream: Stream,
        mut bytes: Vec<u8>,
    ) {
        if self.ledger.root() != Some(key.instance) {
            return;
        }
        if offset > self.console.offset && std::mem::take(&mut self.console.may_lack) {
            // Its agent sends everything first that it still has.
            let lost = offset - self.console.offset;
            self.console.offset = offset;
            self.tell_user(shared, &text::lost_output(lost));
        }
        self.console.may_lack = false;
        if offset > self.console.offset {
            // What lies between was lost with a connection, and comes again: its agent sees by
            // this that it has not been kept.
            if let Some(node) = self.root_node() {
                shared.send(&node, ToAgent::ConsoleKept { key, offset: self.console.offset });
            }
            return;
        }
        let known = self.console.offset.saturating_sub(offset);
        let known = usize::try_from(known).unwrap_or(usize::MAX).min(bytes.len());
        bytes.drain(..known);
        self.console.offset =
            self.console.offset.max(offset.saturating_add((known + bytes.len()) as u64));
        if !bytes.is_empty() {
            let (start, place) = (self.console.length, self.console.offset - bytes.len() as u64);
            self.log(shared, bytes.clone());
            self.console.stretches.add(start, self.console.length, stream);
            let at = self.log_place();
            for attached in &self.attached {
                let known = attached.shown.filter(|shown| shown.epoch == at.epoch);
                let known = known.map_or(0, |shown| shown.written.saturating_sub(place));
                let new = bytes.get(usize::try_from(known).unwrap_or(usize::MAX)..).unwrap_or(&[]);
                if !new.is_empty() {
                    let answer = Answer::Output { stream, bytes: STANDARD.encode(new), at };
                    shared.answer(&attached.client, answer);
                }
            }
        }
        if let Some(node) = self.root_node() {
            shared.send(&node, ToAgent::ConsoleKept { key, offset: self.console.offset });
        }
    }

    /// A line for everybody who is attached.
    pub(in crate::cluster) fn say(&self, shared: &mut Shared, text: &str) {
        for attached in &self.attached {
            shared.answer(&attached.client, Answer::Say { text: text.to_owned() });
        }
    }

    /// A line for everybody who is attached, and for the log.
    pub(in crate::cluster) fn tell_user(&mut self, shared: &mut Shared, text: &str) {
        self.say(shared, text);
        self.mark(shared, text);
    }

    /// Input from a client: only the one who came last is listened to.
    pub(in crate::cluster) fn typed(
        &mut self,
        shared: &mut Shared,
        client: &ClientId,
        bytes: &str,
    ) {
        if self.attached.last().is_none_or(|last| last.client != *client) {
            return;
        }
        let Ok(bytes) = STANDARD.decode(bytes) else {
            shared.fail(client, "read the input: it is not base64");
            self.detach(client);
            return;
        };
        let waiting: usize = self.console.input.iter().map(Vec::len).sum();
        if waiting.saturating_add(bytes.len()) > MOST_INPUT {
            self.say(shared, "warning: input was lost: the job takes none for the moment");
            return;
        }
        self.console.input.push(bytes);
        self.pass_input(shared);
    }

    /// Input that has not reached the job.
    pub(in crate::cluster) fn input_left(
        &mut self,
        checkpoint: CheckpointNumber,
        bytes: Vec<u8>,
        ended: bool,
    ) {
        if self.console.left.0 != checkpoint {
            self.console.left = (checkpoint, Vec::new());
        }
        if !bytes.is_empty() {
            self.console.left.1.push(bytes);
        }
        if ended {
            self.console.left.1.push(Vec::new());
        }
    }

    /// The job goes on from this checkpoint: what had not reached it then comes before what came since.
    pub(in crate::cluster) fn take_back_input(&mut self, checkpoint: Option<CheckpointNumber>) {
        let (of, left) = std::mem::take(&mut self.console.left);
        if checkpoint == Some(of) {
            self.console.input.splice(0..0, left);
        }
    }

    /// Hands over what waits, if the job can take it.
    pub(in crate::cluster) fn pass_input(&mut self, shared: &mut Shared) {
        let (Some(key), Some(node)) = (self.root_key(), self.root_node()) else { return };
        let State::Running(running) = &self.state else { return };
        // What a job got that is about to go on elsewhere would be lost.
        if running.machine.is_parked() || !shared.members.is_connected(&node) {
            return;
        }
        for bytes in std::mem::take(&mut self.console.input) {
            shared.send_with(&node, ToAgent::Input { key: key.clone() }, bytes);
        }
        for signal in std::mem::take(&mut self.console.signals) {
            shared.command(&node, key.clone(), AgentCommand::Forward { signal });
        }
    }

    /// A signal that was sent to a launcher of the job, for the job to decide what it means.
    pub(in crate::cluster) fn forward(&mut self, shared: &mut Shared, signal: i32) {
        // Of one that waits already the kernel, too, keeps no second (signal(7)).
        let waits = &self.console.signals;
        if !self.is_over() && waits.len() < MOST_SIGNALS && !waits.contains(&signal) {
            self.console.signals.push(signal);
        }
        self.pass_input(shared);
    }

    pub(in crate::cluster) fn resize(
        &mut self,
        shared: &mut Shared,
        client: &ClientId,
        window: WindowSize,
    ) {
        if self.attached.last().is_none_or(|last| last.client != *client) {
            return;
        }
        self.console.window = Some(window);
        if let (Some(key), Some(node), true) =
            (self.root_key(), self.root_node(), self.is_running())
        {
            shared.send(&node, ToAgent::Resize { key, window });
        }
    }

    pub(in crate::cluster) fn detach(&mut self, client: &ClientId) {
        self.attached.retain(|attached| attached.client != *client);
    }
}
