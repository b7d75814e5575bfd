//! What other commands want of the running job.

use super::{Runner, Standing, is_deadly};
use crate::session::callers::{Called, Caller};
use crate::session::input::Typist;
use crate::session::{signals, terminal};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coordinator::{Event, Ticket};
use protocol::agent::AgentCommand;
use protocol::cluster::client::{Answer, Ask};
use protocol::control::LiveStatus;
use protocol::launch::WindowSize;
use protocol::transport::ClientEvent;

impl Runner<'_> {
    pub(super) fn on_call(&mut self, call: ClientEvent) -> Option<Event> {
        match self.callers.take(call)? {
            Called::Asks(caller, ask) => self.on_request(caller, ask),
            Called::Gone(caller) => {
                if self.attached.remove(caller) {
                    self.output.detach();
                }
                None
            }
        }
    }

    pub(super) fn on_request(&mut self, caller: Caller, ask: Ask) -> Option<Event> {
        match ask {
            Ask::Status { .. } => {
                let live = self.status();
                self.callers.tell_status(caller, &live);
                None
            }
            Ask::Checkpoint { .. } => Some(Event::Request { ticket: self.ticket(caller) }),
            Ask::Stop { checkpoint, .. } => {
                Some(Event::Stop { ticket: self.ticket(caller), checkpoint })
            }
            Ask::Attach { window, .. } => {
                self.attached.add(caller);
                self.output.attach(caller);
                self.resize(window);
                None
            }
            Ask::Input { .. } | Ask::Resize { .. } | Ask::Signal { .. }
                if !self.attached.has(caller) =>
            {
                let reason = "pass that on: this command is not attached to the job".to_owned();
                self.callers.refuse(caller, reason);
                None
            }
            Ask::Input { bytes } => {
                self.type_for(caller, &bytes);
                None
            }
            Ask::Resize { window } => {
                self.resize(Some(window));
                None
            }
            Ask::Signal { signal } => self.signal_from(signal),
            _ => {
                self.callers.refuse_without_cluster(caller);
                None
            }
        }
    }

    pub(super) fn ticket(&mut self, caller: Caller) -> Ticket {
        if self.standing != Standing::Runs {
            self.standing = Standing::Serves;
        }
        self.callers.ticket(caller)
    }

    pub(super) fn resize(&self, window: Option<WindowSize>) {
        if let (Some(job), Some(window)) = (&self.terminal, window) {
            terminal::set_size(job, window);
        }
    }

    /// Types what an attached caller has typed, base64.
    pub(super) fn type_for(&mut self, caller: Caller, bytes: &str) {
        let Some(terminal) = &self.terminal else {
            return self.attached.refuse_input(&mut self.callers, caller);
        };
        if self.typist.is_none() {
            let sender = self.typed_sender.clone();
            let report = move |typed| {
                // A session that is over listens to no keys.
                let _ = sender.send(typed);
            };
            let started = terminal.try_clone().and_then(|own| Typist::start(own, report));
            match started {
                Ok(typist) => self.typist = Some(typist),
                Err(error) => {
                    let text = format!("warning: what is typed does not reach the job: {error}");
                    self.callers.answer(caller, &Answer::Say { text });
                }
            }
        }
        // The end of a caller's input is not that of the job's, which has its terminal still.
        let bytes = STANDARD.decode(bytes).unwrap_or_default();
        if let (Some(typist), false) = (&self.typist, bytes.is_empty()) {
            if !typist.type_in(bytes) {
                let text = "warning: the job does not read: what was typed is lost".to_owned();
                self.callers.answer(caller, &Answer::Say { text });
            }
        }
    }

    /// What a signal to an attached command means to the job. That nobody reads what it shows means nothing.
    pub(super) fn signal_from(&mut self, signal: i32) -> Option<Event> {
        if is_deadly(signal) {
            self.interrupted = true;
            return Some(Event::Interrupt { signal, delivered: false });
        }
        if signals::is_foreign(signal) {
            self.agent.command(AgentCommand::Forward { signal });
        }
        None
    }

    pub(super) fn status(&self) -> LiveStatus {
        let now = self.now();
        LiveStatus {
            launcher_pid: std::process::id(),
            processes: self.machine.processes(),
            interval_s: self.machine.interval_s(),
            next_checkpoint_ms: self.machine.due_in_ms(now),
            in_flight: self.machine.in_flight(now),
            ending: self.machine.is_ending(),
            suspended: self.standing != Standing::Runs,
            rehearsal: self.rehearsals.newest().cloned(),
        }
    }
}
