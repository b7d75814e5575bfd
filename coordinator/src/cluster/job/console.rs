//! A job's output on its way to the log and to whoever is attached.

use super::replay::Stretches;
use super::{Job, State};
use crate::cluster::entry::ClusterEntry;
use crate::cluster::event::{ClientId, ClusterAction, Written};
use crate::cluster::shared::Shared;
use crate::cluster::text;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::agent::{AgentCommand, CheckpointNumber, CommitRecord, InstanceId};
use protocol::cluster::Epoch;
use protocol::cluster::agent::{Stream, ToAgent};
use protocol::cluster::client::{Answer, LogPlace};
use protocol::launch::WindowSize;
use protocol::log_times::Origin;

/// Input that is kept while the job can't take any, in bytes.
const MOST_INPUT: usize = 1 << 20;

/// Signals that are kept while the job can't take any: no more than there are.
const MOST_SIGNALS: usize = 64;

/// Somebody who sees the job's output.
#[derive(Debug)]
pub(in crate::cluster) struct Attached {
    client: ClientId,
    /// Whether it has been told that the job runs.
    started: bool,
    /// Whether it leaves then.
    detach: bool,
    /// Up to where it had been shown the output when it came: by a coordinator that was lost, perhaps, whose log
    /// had more.
    shown: Option<LogPlace>,
}

impl Attached {
    /// A client that waits for the job to run, and then may leave.
    pub(in crate::cluster) fn until_start(client: ClientId, detach: bool) -> Self {
        Self { client, started: false, detach, shown: None }
    }

    /// A client that comes to a job that runs.
    pub(in crate::cluster) fn to_running(client: ClientId, shown: Option<LogPlace>) -> Self {
        Self { client, started: true, detach: false, shown }
    }
}

/// Where the job's log stands, who sees it, and what waits to reach the job.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Console {
    attached: Vec<Attached>,
    /// Length of the log in bytes.
    length: u64,
    /// Bytes of the root instance's console that are in it.
    offset: u64,
    at_line_start: bool,
    /// The epoch for which it was cut back, if this coordinator did that.
    epoch: Epoch,
    /// Which of it is of which stream.
    stretches: Stretches,
    /// Whether what comes next may lie behind bytes that nobody has any more.
    may_lack: bool,
    /// Input for the job that could not be passed on yet.
    input: Vec<Vec<u8>>,
    /// Signals likewise.
    signals: Vec<i32>,
    /// What had not reached the job when it stood still for this checkpoint: of use if it goes on from there.
    left: (CheckpointNumber, Vec<Vec<u8>>),
    window: Option<WindowSize>,
}

impl Console {
    pub(in crate::cluster) fn at(length: u64, offset: u64) -> Self {
        Self { length, offset, at_line_start: length == 0, ..Self::default() }
    }

    /// The same, of a log that may lack what the lost coordinator's had.
    pub(in crate::cluster) fn that_may_lack(self, may_lack: bool) -> Self {
        Self { may_lack, ..self }
    }

    pub(in crate::cluster) fn with_window(self, window: Option<WindowSize>) -> Self {
        Self { window, ..self }
    }

    pub(in crate::cluster) fn length(&self) -> u64 {
        self.length
    }

    pub(in crate::cluster) fn offset(&self) -> u64 {
        self.offset
    }

    pub(in crate::cluster) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(in crate::cluster) fn stretches(&self) -> &Stretches {
        &self.stretches
    }

    pub(in crate::cluster) fn window(&self) -> Option<WindowSize> {
        self.window
    }

    /// The window of a client that asks for the job; without one, the window stays as it was.
    pub(in crate::cluster) fn set_window(&mut self, window: Option<WindowSize>) {
        self.window = window.or(self.window);
    }

    /// Bytes are in the log that are not the job's.
    pub(in crate::cluster) fn lengthen(&mut self, bytes: usize) {
        self.length = self.length.saturating_add(bytes as u64);
    }

    fn append(&mut self, bytes: &[u8]) {
        self.at_line_start = bytes.last().map_or(self.at_line_start, |last| *last == b'\n');
        self.lengthen(bytes.len());
    }

    /// The text of a mark, on a line of its own.
    fn mark(&self, text: &str) -> String {
        let start = if self.at_line_start { "" } else { "\n" };
        format!("{start}[ckptd: {text}]\n")
    }

    /// The log is cut to this length for an epoch, whose console begins anew.
    fn cut_to(&mut self, length: u64, epoch: Epoch) {
        (self.length, self.offset, self.epoch) = (length, 0, epoch);
        self.at_line_start = length == 0;
        self.may_lack = false;
    }

    /// Passes over what nobody has any more, before the output that comes next; its length, if any is lost.
    fn pass_over_lost(&mut self, offset: u64) -> Option<u64> {
        let may_lack = std::mem::take(&mut self.may_lack);
        let lost = offset.saturating_sub(self.offset);
        (may_lack && lost > 0).then(|| {
            self.offset = offset;
            lost
        })
    }

    /// Takes the part of a piece of output that is new: nothing of one that comes too early.
    fn accept(&mut self, offset: u64, mut bytes: Vec<u8>) -> Vec<u8> {
        if offset > self.offset {
            return Vec::new();
        }
        let known = usize::try_from(self.offset - offset).unwrap_or(usize::MAX);
        bytes.drain(..known.min(bytes.len()));
        self.offset = self.offset.saturating_add(bytes.len() as u64);
        bytes
    }

    pub(in crate::cluster) fn attach(&mut self, attached: Attached) {
        self.attached.push(attached);
    }

    pub(in crate::cluster) fn detach(&mut self, client: &ClientId) {
        self.attached.retain(|attached| attached.client != *client);
    }

    /// Only the one who came last is listened to.
    fn listens_to(&self, client: &ClientId) -> bool {
        self.attached.last().is_some_and(|last| last.client == *client)
    }

    /// Tells those who asked for the job that it runs.
    pub(in crate::cluster) fn announce_start(&mut self, shared: &mut Shared, answer: &Answer) {
        for attached in &mut self.attached {
            if !std::mem::replace(&mut attached.started, true) {
                shared.answer(&attached.client, answer.clone());
                if attached.detach {
                    shared.close(&attached.client);
                }
            }
        }
        self.attached.retain(|attached| !attached.detach);
    }

    /// Everybody who is attached gets a last answer.
    pub(in crate::cluster) fn end(&mut self, shared: &mut Shared, answer: &Answer) {
        for attached in std::mem::take(&mut self.attached) {
            shared.answer_last(&attached.client, answer.clone());
        }
    }

    /// Everybody who is attached is told that it can't be had.
    pub(in crate::cluster) fn fail(&mut self, shared: &mut Shared, reason: &str) {
        for attached in std::mem::take(&mut self.attached) {
            shared.fail(&attached.client, reason);
        }
    }

    /// A line for everybody who is attached.
    pub(in crate::cluster) fn say(&self, shared: &mut Shared, text: &str) {
        for attached in &self.attached {
            shared.answer(&attached.client, Answer::Say { text: text.to_owned() });
        }
    }

    /// Everybody who is attached to the job as it runs is told of a checkpoint.
    pub(in crate::cluster) fn committed(&self, shared: &mut Shared, record: &CommitRecord) {
        for attached in self.attached.iter().filter(|attached| attached.started) {
            let record = record.clone();
            shared.answer(&attached.client, Answer::Committed { record });
        }
    }

    /// Shows output, with which the log stands `at` a place, to who has not seen it.
    fn show(&self, shared: &mut Shared, stream: Stream, bytes: &[u8], at: LogPlace) {
        let place = at.written - bytes.len() as u64;
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

    /// Keeps input until the job takes it; false if there is too much.
    fn keep_input(&mut self, bytes: Vec<u8>) -> bool {
        let waiting: usize = self.input.iter().map(Vec::len).sum();
        let fits = waiting.saturating_add(bytes.len()) <= MOST_INPUT;
        if fits {
            self.input.push(bytes);
        }
        fits
    }

    fn keep_signal(&mut self, signal: i32) {
        // Of one that waits already the kernel, too, keeps no second (signal(7)).
        if self.signals.len() < MOST_SIGNALS && !self.signals.contains(&signal) {
            self.signals.push(signal);
        }
    }

    /// Input that has not reached the job.
    pub(in crate::cluster) fn input_left(
        &mut self,
        checkpoint: CheckpointNumber,
        bytes: Vec<u8>,
        ended: bool,
    ) {
        if self.left.0 != checkpoint {
            self.left = (checkpoint, Vec::new());
        }
        if !bytes.is_empty() {
            self.left.1.push(bytes);
        }
        if ended {
            self.left.1.push(Vec::new());
        }
    }

    /// The job goes on from this checkpoint: what had not reached it then comes before what came since.
    pub(in crate::cluster) fn take_back_input(&mut self, checkpoint: Option<CheckpointNumber>) {
        let (of, left) = std::mem::take(&mut self.left);
        if checkpoint == Some(of) {
            self.input.splice(0..0, left);
        }
    }
}

impl Job {
    fn log(&mut self, shared: &mut Shared, bytes: Vec<u8>, origin: Origin) {
        if !bytes.is_empty() {
            self.console.append(&bytes);
            let (job, written) = (self.ledger.id.clone(), Written::Now(origin));
            shared.act(ClusterAction::Log { job, bytes, written });
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
        let text = self.console.mark(text);
        self.record(
            shared,
            ClusterEntry::Mark {
                job: self.ledger.id.clone(),
                length: self.console.length.saturating_add(text.len() as u64),
                console: self.console.offset,
                text: text.clone(),
            },
        );
        self.log(shared, text.into_bytes(), Origin::Ckptd);
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
        let kept = checkpoint.map_or(0, |number| self.ledger.log_of(number));
        let length = kept.min(self.console.length);
        self.tell_of_cut(shared, checkpoint, length);
        self.console.cut_to(length, self.ledger.epoch);
        // Output takes the places of marks that are cut off.
        self.ledger.mark_places.retain(|(_, after)| *after <= length);
        shared.act(ClusterAction::CutLog {
            job: self.ledger.id.clone(),
            length,
            checkpoint: checkpoint.unwrap_or(0),
        });
        if wanted > kept {
            self.tell_user(shared, &text::output_cut_off(wanted - length));
        } else if wanted > length {
            // The copy from which this coordinator carries on ends before the checkpoint's output does.
            self.tell_user(shared, &text::lost_output(wanted - length));
        }
    }

    /// Who is attached has seen what the job wrote since the checkpoint, such as a run time's word that it will end the job.
    fn tell_of_cut(&self, shared: &mut Shared, checkpoint: Option<CheckpointNumber>, length: u64) {
        let Some(making) = self.state.made("tell what is taken back") else { return };
        let bytes = text::size(self.console.stretches.behind(length));
        if making.takes_back_output() && self.console.stretches.behind(length) > 0 {
            let since = checkpoint
                .map_or("since it began".to_owned(), |number| format!("since checkpoint {number}"));
            self.console.say(
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
        instance: InstanceId,
        offset: u64,
        stream: Stream,
        bytes: Vec<u8>,
    ) {
        if self.ledger.root() != Some(instance) {
            return;
        }
        if let Some(lost) = self.console.pass_over_lost(offset) {
            // Its agent sends everything first that it still has.
            self.tell_user(shared, &text::lost_output(lost));
        }
        let bytes = self.console.accept(offset, bytes);
        if !bytes.is_empty() {
            let start = self.console.length;
            let origin = match stream {
                Stream::Output => Origin::Output,
                Stream::Error => Origin::Error,
            };
            self.log(shared, bytes.clone(), origin);
            self.console.stretches.add(start, self.console.length, stream);
            self.console.show(shared, stream, &bytes, self.log_place());
        }
        // Of what came too early, its agent sees by this that it has not been kept: what lies between was lost
        // with a connection, and comes again.
        if let Some(node) = self.root_node() {
            let key = self.key(instance);
            shared.send(&node, ToAgent::ConsoleKept { key, offset: self.console.offset });
        }
    }

    /// A line for everybody who is attached, and for the log.
    pub(in crate::cluster) fn tell_user(&mut self, shared: &mut Shared, text: &str) {
        self.console.say(shared, text);
        self.mark(shared, text);
    }

    /// Input from a client.
    pub(in crate::cluster) fn typed(
        &mut self,
        shared: &mut Shared,
        client: &ClientId,
        bytes: &str,
    ) {
        if !self.console.listens_to(client) {
            return;
        }
        let Ok(bytes) = STANDARD.decode(bytes) else {
            shared.fail(client, "read the input: it is not base64");
            self.console.detach(client);
            return;
        };
        if !self.console.keep_input(bytes) {
            let text = "warning: input was lost: the job takes none for the moment";
            return self.console.say(shared, text);
        }
        self.pass_input(shared);
    }

    /// Hands over what waits, if the job can take it.
    pub(in crate::cluster) fn pass_input(&mut self, shared: &mut Shared) {
        // It is kept until the job runs.
        let State::Running(running) = &self.state else { return };
        // Agents tell, with its images, who has the first process; where none does, nobody reads it.
        let (Some(key), Some(node)) = (self.root_key(), self.root_node()) else { return };
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
        if !self.is_over() {
            self.console.keep_signal(signal);
        }
        self.pass_input(shared);
    }

    pub(in crate::cluster) fn resize(
        &mut self,
        shared: &mut Shared,
        client: &ClientId,
        window: WindowSize,
    ) {
        if !self.console.listens_to(client) {
            return;
        }
        self.console.window = Some(window);
        if let (Some(key), Some(node), true) =
            (self.root_key(), self.root_node(), self.is_running())
        {
            shared.send(&node, ToAgent::Resize { key, window });
        }
    }
}
