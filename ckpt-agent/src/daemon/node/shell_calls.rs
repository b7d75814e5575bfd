//! Calls of `ckptd rsh` from inside of instances on this node.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use protocol::agent::ExitKind;
use protocol::cluster::agent::{FromAgent, RelayLink, RelaySide, ShellCall};
use protocol::cluster::{InstanceKey, NodeName};
use protocol::launch::{LaunchSpec, StreamKind};

use super::Node;
use super::instance::Instance;
use super::launching::shell_relay;
use crate::daemon::control::{RelayEndKind, RelayState};
use crate::daemon::event::Event;
use crate::daemon::relay::{self, Carried};
use crate::daemon::shell_call::{ShellReply, ShellRequest};
use crate::daemon::shells::{Caller, ReplyTo, ShellEvent, is_inside};

/// The longest command line.
const LONGEST: usize = 2 * 1024 * 1024;
/// The longest form of a status.
const LONGEST_STATUS: u64 = 256;

/// All callers that wait.
#[derive(Default)]
pub struct ShellCalls {
    waiting: Vec<Waiting>,
    next: u64,
}

struct Waiting {
    call: ShellCall,
    connection: u64,
    message: FromAgent,
    streams: Option<[OwnedFd; 3]>,
    reply: Option<ReplyTo>,
    /// Relays that still carry output, or the status.
    open: Vec<RelaySide>,
    /// Where the status comes out.
    status: Option<OwnedFd>,
}

impl ShellCalls {
    /// After a new connection: calls that the coordinator may have missed.
    pub fn ask_again(&self, instances: &BTreeMap<InstanceKey, Instance>, tell: impl Fn(FromAgent)) {
        for waiting in self.waiting.iter().filter(|waiting| waiting.streams.is_some()) {
            if instances.contains_key(&waiting.call.caller) {
                tell(waiting.message.clone());
            }
        }
    }

    /// An instance is gone, and its callers with it.
    pub fn forget(&mut self, key: &InstanceKey) {
        self.waiting.retain(|waiting| waiting.call.caller != *key);
    }

    /// A relay has carried everything. When the status and all output are out, the caller is answered.
    pub fn relay_done(&mut self, key: &InstanceKey, side: &RelaySide) {
        let Some(index) = self
            .waiting
            .iter()
            .position(|waiting| waiting.call.caller == *key && waiting.open.contains(side))
        else {
            return;
        };
        let waiting = &mut self.waiting[index];
        waiting.open.retain(|open| open != side);
        if !waiting.open.is_empty() {
            return;
        }
        let waiting = self.waiting.swap_remove(index);
        let status = waiting.status.and_then(read_status);
        let reply = match status {
            Some(kind) => ShellReply::Ended(kind),
            None => ShellReply::Failed("the node was lost".to_owned()),
        };
        if let Some(to) = waiting.reply {
            to.answer(&reply);
        }
    }

    fn find(&mut self, call: &ShellCall) -> Option<&mut Waiting> {
        self.waiting.iter_mut().find(|waiting| waiting.call == *call)
    }
}

/// The write end was closed: what was written is there.
fn read_status(fd: OwnedFd) -> Option<ExitKind> {
    let mut text = Vec::new();
    std::fs::File::from(fd).take(LONGEST_STATUS).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

impl Node {
    pub(super) fn shell(&mut self, event: ShellEvent) {
        match event {
            ShellEvent::Called(caller) => self.called(*caller),
            ShellEvent::Gone { connection } => {
                // What it started goes on, as under sshd; its input ends when the streams are closed.
                self.calls.waiting.retain(|waiting| {
                    waiting.connection != connection || waiting.streams.is_none()
                });
            }
        }
    }

    fn called(&mut self, caller: Caller) {
        let Caller { pid, connection, request, streams, reply } = caller;
        let of = self.instances.values().find(|instance| {
            instance.lives() && instance.init != 0 && is_inside(pid, instance.init)
        });
        let checked = match of {
            Some(instance) => check(&request).map(|node| (instance.record.key.clone(), node)),
            None => Err("it works only from inside its job".to_owned()),
        };
        let (key, logical_node) = match checked {
            Ok(checked) => checked,
            Err(reason) => return reply.answer(&ShellReply::Failed(reason)),
        };
        self.calls.next += 1;
        // Unique for the instance even if this agent is not its first.
        let call = (u64::from(std::process::id()) << 32) | self.calls.next;
        let call = ShellCall { caller: key, node: self.parts.name.clone(), call };
        let launch = LaunchSpec {
            program: vec!["/bin/sh".into(), "-c".into(), request.line],
            environment: request.environment,
            working_directory: request.working_directory,
            stdin: StreamKind::Pipe,
            stdout: StreamKind::Pipe,
            stderr: StreamKind::Pipe,
            window: None,
            termios: None,
        };
        let message = FromAgent::Shell { call: call.clone(), logical_node, launch };
        self.tell(message.clone());
        self.calls.waiting.push(Waiting {
            call,
            connection,
            message,
            streams: Some(streams),
            reply: Some(reply),
            open: Vec::new(),
            status: None,
        });
    }

    pub(super) fn shell_failed(&mut self, call: &ShellCall, reason: String) {
        let Some(index) = self.calls.waiting.iter().position(|waiting| waiting.call == *call)
        else {
            return;
        };
        let waiting = self.calls.waiting.swap_remove(index);
        if let Some(reply) = waiting.reply {
            reply.answer(&ShellReply::Failed(reason));
        }
    }

    pub(super) fn shell_runs(&mut self, call: &ShellCall, instance: InstanceKey, node: NodeName) {
        let Some(waiting) = self.calls.find(call) else { return };
        let Some([stdin, stdout, stderr]) = waiting.streams.take() else { return };
        let (status, into_status) = match pipe2(OFlag::O_CLOEXEC) {
            Ok(pipe) => pipe,
            Err(error) => {
                return self.shell_failed(call, format!("make a pipe: {error}"));
            }
        };
        waiting.status = Some(status);
        let ends = [
            ("in", RelayEndKind::PipeRead, stdin),
            ("out", RelayEndKind::PipeWrite, stdout),
            ("err", RelayEndKind::PipeWrite, stderr),
            ("end", RelayEndKind::PipeWrite, into_status),
        ];
        let key = call.caller.clone();
        let mut handles = Vec::new();
        for (stream, kind, native) in ends {
            let side = RelaySide { relay: shell_relay(&instance, stream), side: 0 };
            if stream != "in" {
                waiting.open.push(side.clone());
            }
            let link = RelayLink { side: side.clone(), peer: instance.clone(), node: node.clone() };
            let (prefix, key) = (RelayState::default(), key.clone());
            let carried = Carried { key: key.clone(), side, kind, prefix, link: Some(link) };
            let events = self.parts.events.clone();
            let report = move |event| events.tell(Event::Relay(key.clone(), event));
            match relay::start(&self.parts.hub, carried, native, stream != "end", report) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    return self.shell_failed(call, format!("carry its streams: {error}"));
                }
            }
        }
        if let Some(caller) = self.instances.get_mut(&key) {
            caller.relays.extend(handles);
        }
    }
}

fn check(request: &ShellRequest) -> Result<NodeName, String> {
    if request.line.len() > LONGEST || request.line.as_bytes().contains(&0) {
        return Err("the command is too long".to_owned());
    }
    if !request.working_directory.is_absolute() {
        return Err("the working directory is not absolute".to_owned());
    }
    // Names of hosts are the same in any case (RFC 1035).
    request.node.to_ascii_lowercase().parse().map_err(|error| format!("{error}"))
}
