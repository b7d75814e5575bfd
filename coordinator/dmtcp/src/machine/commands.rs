//! What dmtcp_command, or the coordinator's own user, asks for.

use super::{Action, Command, Machine};
use crate::wire::{CommandStatus, Kind, MAX_PAYLOAD, Message};
use protocol::clock::Time;
use std::fmt::Write;

impl Machine {
    /// Does what is asked for; what is told of it goes into `reply`.
    pub(super) fn obey(
        &mut self,
        now: Time,
        command: Command,
        reply: Option<&mut Message>,
    ) -> CommandStatus {
        let mut unread = Message::new(Kind::UserResult);
        let reply = reply.unwrap_or(&mut unread);
        match command {
            Command::Status => {
                reply.peers = self.count();
                reply.is_running = self.is_running();
                reply.interval = self.told_interval();
            }
            Command::List => reply.payload = self.list().into_bytes(),
            Command::Checkpoint | Command::BlockingCheckpoint | Command::CheckpointAndKill => {
                if !self.begin_checkpoint(now, command == Command::CheckpointAndKill) {
                    return CommandStatus::NotRunning;
                }
                reply.peers = self.count();
            }
            Command::Interval => reply.interval = self.told_interval(),
            Command::Kill => self.kill(),
            Command::Quit => {
                self.kill();
                self.actions.push(Action::Quit);
            }
            Command::Invalid | Command::Help => return CommandStatus::InvalidCommand,
        }
        CommandStatus::Success
    }

    fn count(&self) -> u32 {
        u32::try_from(self.workers.len()).unwrap_or(u32::MAX)
    }

    fn told_interval(&self) -> i32 {
        i32::try_from(self.interval).unwrap_or(i32::MAX)
    }

    /// Tells all processes to end.
    pub(super) fn kill(&mut self) {
        if self.workers.is_empty() {
            return;
        }
        self.killing = true;
        self.ending = true;
        let message = self.to_all(Kind::Kill);
        let to = self.workers.keys().copied().collect();
        self.actions.push(Action::Send { to, message });
    }

    /// A message about the computation, to all of it.
    pub(super) fn to_all(&self, kind: Kind) -> Message {
        Message { group: self.group, peers: self.count(), ..self.say(kind) }
    }

    /// Answers those who wait for the checkpoint.
    pub(super) fn answer_blocked(&mut self, success: bool) {
        for connection in std::mem::take(&mut self.blocked) {
            let mut reply = self.say(Kind::UserResult);
            reply.command = Command::BlockingCheckpoint.number();
            reply.peers = self.count();
            if !success {
                reply.command_status = CommandStatus::NotRunning;
            }
            self.send(connection, reply);
            self.close(connection);
        }
    }

    /// The list of workers, as DMTCP prints it.
    #[must_use]
    pub fn list(&self) -> String {
        let mut text =
            "Client List:\n#, PROG[virtPID:realPID]@HOST, DMTCP-UNIQUEPID, STATE, BARRIER\n"
                .to_owned();
        for worker in self.workers.values() {
            let barrier = self.round.waits_at(&worker.part).unwrap_or_default();
            // A line at most; a string takes it all.
            let _ = writeln!(
                text,
                "{}, {}[{}:{}]@{}, {}, WorkerState::{}, {barrier}",
                worker.number,
                worker.program,
                worker.identity.pid,
                worker.real_pid,
                worker.host,
                worker.identity,
                worker.state.name(),
            );
            if text.len() > MAX_PAYLOAD - 1024 {
                text.push_str("...\n");
                break;
            }
        }
        text.push('\n');
        text
    }
}
