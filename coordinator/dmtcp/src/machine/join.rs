//! Who is let in.

use super::{
    Action, Command, Connection, Identity, MAX_OTHERS, MAX_WORKERS, Machine, Notice, Peer, Worker,
    label,
};
use crate::machine::round::{Part, Round};
use crate::wire::{CommandStatus, Kind, Message, WorkerState, payload_strings};
use protocol::clock::Time;
use std::net::Ipv4Addr;
use std::sync::Arc;

impl Machine {
    /// The first message of a connection says what it is.
    pub(super) fn opened(
        &mut self,
        now: Time,
        connection: Connection,
        remote: Peer,
        message: Message,
    ) {
        match message.kind {
            Kind::UserCommand => self.user_command(now, connection, remote, &message),
            Kind::StoreWorker | Kind::NewWorker | Kind::RestartWorker
                if self.stranger(remote).is_some() =>
            {
                let reason = self.stranger(remote).unwrap_or_default();
                self.warn(format!("{remote} was refused: {reason}"));
                self.reject(connection, Kind::RejectWrongGroup);
            }
            Kind::StoreWorker if self.store_only.len() < MAX_OTHERS => {
                self.store_only.insert(connection, remote);
            }
            Kind::NewWorker | Kind::RestartWorker if self.killing => {
                let kill = self.say(Kind::Kill);
                self.send(connection, kill);
                self.close(connection);
            }
            Kind::NewWorker => self.new_worker(now, connection, remote, message),
            Kind::RestartWorker => self.restart_worker(now, connection, remote, &message),
            other => {
                self.warn(format!("{remote} began with {other:?}, as no program of DMTCP does"));
                self.reject(connection, Kind::RejectWrongGroup);
            }
        }
    }

    fn reject(&mut self, connection: Connection, kind: Kind) {
        let reject = self.say(kind);
        self.send(connection, reject);
        self.close(connection);
    }

    fn new_worker(&mut self, now: Time, connection: Connection, remote: Peer, message: Message) {
        let Ok([host, program]) =
            payload_strings::<2>(&message.payload, "a host's name and a program's")
        else {
            self.warn(format!("{remote} asked to join without a host's name and a program's"));
            return self.reject(connection, Kind::RejectWrongGroup);
        };
        let fits = matches!(
            message.state,
            // A process that is forked in the middle of a restart.
            WorkerState::Unknown | WorkerState::Running | WorkerState::Restarting
        );
        if !fits || message.virtual_pid != -1 || self.workers.len() >= MAX_WORKERS {
            self.warn(format!(
                "{program} on {host} ({remote}) was refused: its state is {}, its number {}",
                message.state.name(),
                message.virtual_pid
            ));
            return self.reject(connection, Kind::RejectNotRunning);
        }
        if self.workers.is_empty() {
            self.reset();
        }
        if !message.group.is_null() && !message.group.is_of(&self.group) {
            self.warn(format!(
                "{program} on {host} ({remote}) was refused: it is of the computation {}, and {} is here",
                message.group, self.group
            ));
            return self.reject(connection, Kind::RejectWrongGroup);
        }
        if self.round.stands_still() {
            // Those who are here can't be disturbed now, and it can wait.
            if self.held.len() < MAX_OTHERS {
                self.held.push_back((connection, remote, message));
            } else {
                self.reject(connection, Kind::RejectNotRunning);
            }
            return;
        }
        let Some(virtual_pid) = self.virtual_pids.take() else {
            return self.reject(connection, Kind::RejectNotRunning);
        };
        if self.group.is_null() {
            let Identity { host, time, generation, .. } = message.from;
            self.group = Identity { host, time, pid: virtual_pid, generation };
            self.time_stamp = now.nanos;
            let notice =
                Notice::Began { group: self.group, program: program.clone(), restarted: false };
            self.actions.push(Action::Notice(notice));
        }
        // Not restarting itself: it goes on as soon as it is let in.
        let state = match message.state {
            WorkerState::Restarting => WorkerState::Running,
            state => state,
        };
        let mut accept = self.accept(remote.address);
        accept.virtual_pid = virtual_pid;
        accept.group = self.group;
        self.send(connection, accept);
        self.add(now, connection, remote, &message, state, virtual_pid, (host, program));
        self.joined(connection);
    }

    fn restart_worker(
        &mut self,
        now: Time,
        connection: Connection,
        remote: Peer,
        message: &Message,
    ) {
        let Ok([host, program]) =
            payload_strings::<2>(&message.payload, "a host's name and a program's")
        else {
            self.warn(format!("{remote} asked to restart without a host's name and a program's"));
            return self.reject(connection, Kind::RejectWrongGroup);
        };
        let expected = message.peers as usize;
        if message.state != WorkerState::Restarting
            || message.group.is_null()
            || !(1..=MAX_WORKERS).contains(&expected)
        {
            self.warn(format!(
                "{program} on {host} ({remote}) was refused: it asked to restart in the state {} as one of {expected}",
                message.state.name()
            ));
            return self.reject(connection, Kind::RejectNotRestarting);
        }
        if self.workers.is_empty() {
            self.reset();
        }
        if self.group.is_null() {
            self.store.clear();
            self.group = message.group;
            self.time_stamp = now.nanos;
            self.round = Round::restart(now.nanos, expected);
            let notice =
                Notice::Began { group: self.group, program: program.clone(), restarted: true };
            self.actions.push(Action::Notice(notice));
        } else if !message.group.is_of(&self.group) {
            self.warn(format!(
                "{program} on {host} ({remote}) was refused: it is of the computation {}, and {} is here",
                message.group, self.group
            ));
            return self.reject(connection, Kind::RejectWrongGroup);
        } else if !self.round.may_restart() {
            self.warn(format!(
                "{program} on {host} ({remote}) was refused: its computation is not restarting any more"
            ));
            return self.reject(connection, Kind::RejectNotRestarting);
        } else if self.round.expected() != expected {
            self.warn(format!(
                "{program} on {host} ({remote}) was refused: it is one of {expected}, and {} are expected",
                self.round.expected()
            ));
            return self.reject(connection, Kind::RejectPeerMismatch);
        }
        let mut accept = self.accept(remote.address);
        // DMTCP has none here: it goes on under the one of its image.
        accept.virtual_pid = -1;
        self.send(connection, accept);
        let virtual_pid = message.from.pid;
        self.virtual_pids.insert(virtual_pid);
        let state = WorkerState::Restarting;
        self.add(now, connection, remote, message, state, virtual_pid, (host, program));
        self.joined_restart(now, connection);
    }

    /// The answer to who is let in.
    fn accept(&self, remote: Ipv4Addr) -> Message {
        Message {
            time_stamp: self.time_stamp,
            address: self.seen(remote),
            ..self.say(Kind::Accept)
        }
    }

    /// The address of a worker for others.
    pub(super) fn seen(&self, remote: Ipv4Addr) -> Ipv4Addr {
        if remote.is_loopback() { self.settings.own_address } else { remote }
    }

    #[allow(clippy::too_many_arguments)] // What a worker is made of.
    fn add(
        &mut self,
        now: Time,
        connection: Connection,
        remote: Peer,
        message: &Message,
        state: WorkerState,
        virtual_pid: i32,
        (host, program): (String, String),
    ) {
        let host = label(&host);
        let host = match self.hosts.get(host) {
            Some(known) => Arc::clone(known),
            None => {
                let new: Arc<str> = host.into();
                self.hosts.insert(Arc::clone(&new));
                new
            }
        };
        let worker = Worker {
            number: self.next_number,
            remote: remote.address,
            owner: remote.owner,
            identity: message.from,
            state,
            host,
            program: label(&program).into(),
            virtual_pid,
            real_pid: message.real_pid,
            part: Part::default(),
        };
        self.next_number += 1;
        self.owner = self.owner.or(remote.owner);
        self.states[state as usize] += 1;
        self.workers.insert(connection, worker);
        if let Ok(interval) = u32::try_from(message.interval) {
            self.interval = interval;
        }
        if self.workers.len() == 1 && state != WorkerState::Restarting {
            self.schedule(now);
        }
    }

    /// Before the first process: nothing is left of the computation before.
    fn reset(&mut self) {
        self.group = Identity::default();
        self.owner = None;
        self.store.clear();
        self.round = Round::free(0);
        self.killing = false;
        self.ending = false;
        self.interval = self.default_interval;
        self.next_checkpoint = None;
        self.hosts.clear();
        self.departures.clear();
    }

    /// Who the worker is now.
    pub(super) fn update(&mut self, now: Time, connection: Connection, message: &Message) {
        let known = Self::known(&mut self.workers, connection, "note who a worker is");
        let Some(worker) = known else { return };
        worker.identity = message.from;
        if message.kind == Kind::AfterFork {
            worker.real_pid = message.real_pid;
            return;
        }
        if let Ok([program]) = payload_strings::<1>(&message.payload, "a program's name") {
            worker.program = label(&program).into();
        }
        self.set_state(connection, message.state);
        self.executed(now, connection);
    }

    /// Lets in those who had to wait.
    pub(super) fn admit_held(&mut self, now: Time) {
        for (connection, remote, message) in std::mem::take(&mut self.held) {
            if self.killing || self.stranger(remote).is_some() {
                self.opened(now, connection, remote, message);
            } else {
                self.new_worker(now, connection, remote, message);
            }
        }
    }

    /// A command of dmtcp_command, which says nothing else on its connection.
    fn user_command(&mut self, now: Time, connection: Connection, remote: Peer, message: &Message) {
        if !self.may_order(remote) {
            self.warn(format!("a command of {remote} was refused: the computation is not theirs"));
            // As if there were none.
            let mut reply = self.say(Kind::UserResult);
            reply.command = message.command;
            reply.command_status = CommandStatus::NotFound;
            self.send(connection, reply);
            return self.close(connection);
        }
        let command = Command::of(message.command).unwrap_or(Command::Invalid);
        let mut reply = self.say(Kind::UserResult);
        reply.command = message.command;
        let interval = u32::try_from(message.interval).ok();
        if command == Command::Interval {
            if let Some(interval) = interval {
                self.default_interval = interval;
                self.set_interval(now, interval);
            }
        }
        let status = self.obey(now, command, Some(&mut reply));
        reply.command_status = status;
        let blocks = command == Command::BlockingCheckpoint;
        if blocks && status == CommandStatus::Success {
            self.blocked.push(connection);
            return;
        }
        if command != Command::Quit {
            self.send(connection, reply);
        }
        self.close(connection);
    }
}
