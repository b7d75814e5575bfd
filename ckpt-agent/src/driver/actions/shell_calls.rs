//! Calls of `ckptd rsh` from inside of instances on this node, and what they started here.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use ckpt_node::{Call, Event, RelayState, shell_link};
use protocol::agent::ExitKind;
use protocol::cluster::agent::{RelayLink, RelaySide, stream_relay};
use protocol::cluster::{InstanceKey, NameError, NodeName, group, host_label};
use protocol::launch::{Kept, LaunchSpec};
use protocol::task;

use super::Driver;
use super::shell_end::ShellEnd;
use crate::driver::instance::{RelayEnd, RelayEndKind, RemoteShell};
use crate::driver::native::Native;
use crate::driver::shell_call::{Caller, ShellReply, ShellRequest};
use crate::driver::shells::is_inside;
use ckpt_engine::proc::start_time;
use ckpt_engine::split::standin::{MESSAGE, Message};

/// The longest command line.
const LONGEST: usize = 2 * 1024 * 1024;

/// Callers that wait, by their numbers.
#[derive(Debug, Default)]
pub struct Callers {
    waiting: BTreeMap<u64, Caller>,
    next: u64,
}

impl Callers {
    /// Tells a caller why its program was not started.
    pub fn fail(&mut self, number: u64, reason: String) {
        if let Some(caller) = self.waiting.remove(&number) {
            caller.reply.answer(&ShellReply::Failed(reason));
        }
    }

    /// Nobody is there any more to be answered.
    pub fn forget(&mut self, number: u64) {
        self.waiting.remove(&number);
    }
}

impl Driver {
    pub(super) fn called(&mut self, caller: Caller) {
        self.callers.next += 1;
        let number = self.callers.next;
        self.callers.waiting.insert(number, caller);
        self.call_again(number);
    }

    /// Finds out which instance a caller is inside of.
    pub(super) fn call_again(&mut self, number: u64) {
        // It may have hung up while it was too early for its instance.
        let Some(caller) = self.callers.waiting.get(&number) else { return };
        let request = &caller.request;
        let (node, host_name) = match check(request) {
            Ok(names) => names,
            Err(malformed) => return self.callers.fail(number, malformed.to_string()),
        };
        let mut served = self.instances.iter();
        let inside =
            served.find(|(_, served)| served.init != 0 && is_inside(caller.pid, served.init));
        let inside = inside.map(|(key, _)| key.clone());
        let program = vec!["/bin/sh".into(), "-c".into(), request.line.clone()];
        let launch = LaunchSpec {
            environment: request.environment.clone(),
            kept: Kept { host_name, ..Kept::default() },
            ..LaunchSpec::through_pipes(program, request.working_directory.clone())
        };
        let identity = identity(caller);
        let call = Call { number, identity, inside, uid: caller.uid, node, launch };
        self.events.push_back(Event::Called(Box::new(call)));
    }

    pub(super) fn tie_caller(
        &mut self,
        number: u64,
        key: &InstanceKey,
        peer: InstanceKey,
        node: NodeName,
    ) {
        let Some(caller) = self.callers.waiting.remove(&number) else {
            return tracing::error!(%key, number, "no such caller waits");
        };
        let Caller { request, link, streams, reply, .. } = caller;
        let family = (request.pid, request.parent);
        reply.answer(&match self.tie_streams(key, family, (link, streams), (peer, node)) {
            Ok(sides) => {
                self.events.push_back(Event::CallerTied(key.clone(), sides));
                ShellReply::Started
            }
            Err(error) => ShellReply::Failed(format!("carry its streams: {error}")),
        });
    }

    /// The process becomes a remote shell, and its relays begin.
    fn tie_streams(
        &mut self,
        key: &InstanceKey,
        (pid, parent): (i32, i32),
        (link, streams): (OwnedFd, [OwnedFd; 3]),
        (peer, node): (InstanceKey, NodeName),
    ) -> io::Result<Vec<RelaySide>> {
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
        let sides = handles.iter().map(|relay| relay.side.clone()).collect();
        let Some(served) = self.instances.get_mut(key) else {
            return Err(io::Error::other("the caller's instance is gone"));
        };
        served.instance.remote_shell(shell);
        served.relays.extend(handles);
        Ok(sides)
    }

    /// Tells the remote shell that started an instance how its first process ended, if one has.
    pub(super) fn tell_shell(&mut self, key: &InstanceKey, status: ExitKind) {
        if let Some(shell) = self.instances.get_mut(key).and_then(|served| served.shell.take()) {
            shell.ended(status);
        }
    }

    /// Listens to the remote shell that started an instance.
    pub(super) fn serve_shell(&self, key: &InstanceKey, link: OwnedFd) -> io::Result<ShellEnd> {
        let link = Arc::new(Native::own(link)?);
        let (reports, of, listened) = (self.parts.reports.clone(), key.clone(), link.clone());
        task::spawn(async move {
            let mut bytes = [0; MESSAGE];
            // Whether the shell ends is nothing to what it started, as under sshd.
            while let Ok(length @ 1..) = listened.read(&mut bytes).await {
                if let Some(Message::Signal { signal, .. }) = Message::decode(&bytes[..length]) {
                    reports.event(Event::ShellSignal(of.clone(), signal));
                }
            }
        });
        Ok(ShellEnd::new(link))
    }
}

/// The caller's number in its job, and when it was started: together no other process's of its instance.
fn identity(caller: &Caller) -> u64 {
    let started = start_time(caller.pid).unwrap_or_default();
    // Ticks are hundredths of a second: within 497 days none of them comes again.
    (u64::from(caller.request.pid.unsigned_abs()) << 32) | (started & u64::from(u32::MAX))
}

/// Why no program can be started for a caller.
#[derive(Debug, thiserror::Error)]
enum Malformed {
    /// The command line has no end, or too late a one.
    #[error("the command is too long")]
    Line,
    /// Where it is to run is no absolute path.
    #[error("the working directory is not absolute")]
    Folder,
    /// No node has such a name.
    #[error(transparent)]
    Node(#[from] NameError),
}

/// The node, and the host name of what is started there if that is another.
fn check(request: &ShellRequest) -> Result<(NodeName, Option<NodeName>), Malformed> {
    if request.line.len() > LONGEST || request.line.as_bytes().contains(&0) {
        return Err(Malformed::Line);
    }
    if !request.working_directory.is_absolute() {
        return Err(Malformed::Folder);
    }
    let host = host_label(&request.node);
    Ok(if request.has_groups { group::node_of(&host)? } else { (host.parse()?, None) })
}
