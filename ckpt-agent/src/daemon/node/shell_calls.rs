//! Calls of `ckptd rsh` from inside of instances on this node, and what they started here.
//!
//! A caller becomes the stand-in of a program on another node. Four relays lead to the instance that the call
//! began: its link, and its three standard streams.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use protocol::agent::{AgentCommand, ExitKind};
use protocol::cluster::agent::{FromAgent, RelayLink, RelaySide, ShellCall};
use protocol::cluster::{InstanceKey, NodeName};
use protocol::launch::{External, Kept, LaunchSpec, StreamKind};

use super::Node;
use super::instance::{Instance, State};
use super::launching::shell_link;
use crate::daemon::control::{RelayEnd, RelayEndKind, RelayState, RemoteShell};
use crate::daemon::event::Event;
use crate::daemon::native::Native;
use crate::daemon::relay::Order;
use crate::daemon::shell_call::{ShellReply, ShellRequest};
use crate::daemon::shells::{Caller, ReplyTo, is_inside};
use crate::engine::graph::stream_relay;
use crate::engine::split::standin::{MESSAGE, Message};

/// The longest command line.
const LONGEST: usize = 2 * 1024 * 1024;

/// Callers that may be too early.
const MOST_EARLY: usize = 1024;

/// All callers that wait.
#[derive(Default)]
pub struct ShellCalls {
    waiting: Vec<Waiting>,
    /// Callers that may belong to an instance of which it is not known yet that it is there.
    early: Vec<Caller>,
    next: u64,
}

struct Waiting {
    call: ShellCall,
    message: FromAgent,
    /// The caller and its parent, as the job numbers them.
    family: (i32, i32),
    link: OwnedFd,
    streams: [OwnedFd; 3],
    reply: ReplyTo,
}

impl ShellCalls {
    /// After a new connection: calls that the coordinator may have missed.
    pub fn ask_again(&self, instances: &BTreeMap<InstanceKey, Instance>, tell: impl Fn(FromAgent)) {
        for waiting in &self.waiting {
            if instances.contains_key(&waiting.call.caller) {
                tell(waiting.message.clone());
            }
        }
    }

    /// An instance is gone, and its callers with it.
    pub fn forget(&mut self, key: &InstanceKey) {
        self.waiting.retain(|waiting| waiting.call.caller != *key);
    }

    fn take(&mut self, call: &ShellCall) -> Option<Waiting> {
        let index = self.waiting.iter().position(|waiting| waiting.call == *call)?;
        Some(self.waiting.swap_remove(index))
    }
}

impl Node {
    pub(super) fn called(&mut self, caller: Caller) {
        let of = self.instances.values().find(|instance| {
            instance.lives() && instance.init != 0 && is_inside(caller.pid, instance.init)
        });
        let starting = |instance: &Instance| instance.state == State::Starting;
        if of.is_none()
            && self.instances.values().any(starting)
            && self.calls.early.len() < MOST_EARLY
        {
            return self.calls.early.push(caller);
        }
        let Caller { uid, request, link, streams, reply, .. } = caller;
        let checked = match of {
            // Whoever got into a job as somebody else must not act for its user elsewhere.
            Some(instance) if instance.record.uid != Some(uid) => {
                Err("it works only for the user of its job".to_owned())
            }
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
        let family = (request.pid, request.parent);
        let launch = LaunchSpec {
            program: vec!["/bin/sh".into(), "-c".into(), request.line],
            environment: request.environment,
            working_directory: request.working_directory,
            stdin: StreamKind::Pipe,
            stdout: StreamKind::Pipe,
            stderr: StreamKind::Pipe,
            window: None,
            termios: None,
            kept: Kept::default(),
            external: External::default(),
        };
        let message = FromAgent::Shell { call: call.clone(), logical_node, launch };
        self.tell(message.clone());
        self.calls.waiting.push(Waiting { call, message, family, link, streams, reply });
    }

    /// After an instance has been made: who was too early for it.
    pub(super) fn hear_early_calls(&mut self) {
        for caller in std::mem::take(&mut self.calls.early) {
            self.called(caller);
        }
    }

    pub(super) fn shell_failed(&mut self, call: &ShellCall, reason: String) {
        if let Some(waiting) = self.calls.take(call) {
            waiting.reply.answer(&ShellReply::Failed(reason));
        }
    }

    pub(super) fn shell_runs(&mut self, call: &ShellCall, instance: InstanceKey, node: NodeName) {
        let Some(waiting) = self.calls.take(call) else { return };
        let Waiting { family, link, streams, reply, .. } = waiting;
        let tied = self.tie_caller(&call.caller, family, (link, streams), (instance, node));
        reply.answer(&match tied {
            Ok(()) => ShellReply::Started,
            Err(error) => ShellReply::Failed(format!("carry its streams: {error}")),
        });
    }

    /// The process becomes a remote shell, and its relays begin.
    fn tie_caller(
        &mut self,
        key: &InstanceKey,
        (pid, parent): (i32, i32),
        (link, streams): (OwnedFd, [OwnedFd; 3]),
        (peer, node): (InstanceKey, NodeName),
    ) -> io::Result<()> {
        let relay = shell_link(&peer);
        let [stdin, stdout, stderr] = &streams;
        let copies = [stdin.try_clone()?, stdout.try_clone()?, stderr.try_clone()?];
        let shell = RemoteShell {
            relay: relay.clone(),
            pid,
            parent,
            link: link.try_clone()?,
            streams: copies,
        };
        let [stdin, stdout, stderr] = streams;
        let ends = [
            (relay.clone(), RelayEndKind::Messages, link),
            (stream_relay(&relay, 0), RelayEndKind::PipeRead, stdin),
            (stream_relay(&relay, 1), RelayEndKind::PipeWrite, stdout),
            (stream_relay(&relay, 2), RelayEndKind::PipeWrite, stderr),
        ];
        let mut handles = Vec::new();
        for (relay, kind, native) in ends {
            let is_link = kind == RelayEndKind::Messages;
            let side = RelaySide { relay, side: 0 };
            let link = RelayLink { side: side.clone(), peer: peer.clone(), node: node.clone() };
            let prefix = RelayState::default();
            let end = RelayEnd { side, kind, native, shared: !is_link, gated: is_link, prefix };
            handles.push(self.carry(key, end, Some(link))?);
        }
        if let Some(caller) = self.instances.get_mut(key) {
            // Before any checkpoint that the coordinator begins from now on.
            caller.control.remote_shell(shell);
            caller.relays.extend(handles);
        }
        Ok(())
    }

    pub(super) fn shell_signal(&mut self, key: &InstanceKey, signal: i32) {
        if let Some(instance) = self.instances.get(key).filter(|known| known.ended.is_none()) {
            instance.control.command(AgentCommand::Signal { signal });
        }
    }

    /// Listens to the remote shell that started an instance.
    pub(super) fn serve_shell(&self, key: &InstanceKey, link: OwnedFd) -> io::Result<ShellEnd> {
        let link = Arc::new(Native::own(link)?);
        let (events, of, listened) = (self.parts.events.clone(), key.clone(), link.clone());
        tokio::spawn(async move {
            let mut bytes = [0; MESSAGE];
            // Whether the shell ends is nothing to what it started, as under sshd.
            while let Ok(length @ 1..) = listened.read(&mut bytes).await {
                if let Some(Message::Signal { signal, .. }) = Message::decode(&bytes[..length]) {
                    events.tell(Event::ShellSignal(of.clone(), signal));
                }
            }
        });
        Ok(ShellEnd { link })
    }
}

/// The way to the remote shell that started an instance.
#[derive(Debug)]
pub struct ShellEnd {
    link: Arc<Native>,
}

impl ShellEnd {
    /// Tells it how the first process ended; nothing follows.
    pub fn ended(self, kind: ExitKind) {
        // As wait(2) encodes it.
        let status = match kind {
            ExitKind::Exited(status) => i32::from(status) << 8,
            ExitKind::Signalled(signal) => signal & 0x7f,
        };
        // The first message on this link: there is room, unless nobody listens any more.
        let _ = self.link.try_write(&Message::Ended { status }.encode());
        self.link.end_writing();
    }
}

impl Instance {
    /// The end of a remote program may be passed on to its shell once all its output has been.
    pub fn open_gates(&self) {
        for relay in self.relays.iter().filter(|relay| relay.side.side == 0) {
            let carries = |fd| {
                let stream = stream_relay(&relay.side.relay, fd);
                self.relays.iter().any(|other| other.side.side == 0 && other.side.relay == stream)
            };
            if !carries(1) && !carries(2) {
                relay.order(Order::Open);
            }
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
