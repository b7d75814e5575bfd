//! An instance on this node: the engine's session with its processes, whose ends of relays have the cluster's names
//! here.

mod ends;
mod saved;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ckpt_engine::graph::{OuterEnd, RelayEnd as NativeEnd, RelayKind};
use ckpt_engine::objects::StdioRole;
use ckpt_engine::session::{self, Session, SessionError};
use ckpt_engine::{InstanceOrder, RestoreOrder};
use ckpt_node::{End, RelayState};
use ckpt_store::Damage;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use protocol::agent::InstanceEvent;
use protocol::cluster::agent::{RelaySide, stream_relay};
use protocol::launch::LaunchSpec;

use ends::{Outer, outputs, relay_ends, split_absent};
pub use ends::{RelayEnd, RelayEndKind, absent_end};
use saved::{Saved, shell_kind};

use super::wiring::WiringError;

/// Why an instance could not be started, restored or taken over.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// The engine could not.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The image is damaged.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// What the image holds of a relay can't be used.
    #[error(transparent)]
    Relay(#[from] WiringError),
    /// No descriptors.
    #[error("make a remote shell's link: {0}")]
    ShellLink(io::Error),
}

/// A process of an instance that stands for a program on another node.
#[derive(Debug)]
pub struct RemoteShell {
    /// The relay of its link.
    pub relay: String,
    /// Its number in the job.
    pub pid: i32,
    /// Its parent's.
    pub parent: i32,
    /// The agent's end of the link.
    pub link: OwnedFd,
    /// Its standard streams.
    pub streams: [OwnedFd; 3],
}

/// An instance that is there.
#[derive(Debug, Default)]
pub struct Started {
    /// Its processes and streams. Its ends of relays have been taken out.
    pub native: session::Started,
    /// The agent's ends of relays.
    pub relays: Vec<RelayEnd>,
    /// Those of them out of which comes what processes have written to a pipe or terminal.
    pub outputs: Vec<RelaySide>,
    /// Relays that bring output of the job to its console, which this instance has, and what an image
    /// held of it.
    pub sinks: Vec<(RelaySide, RelayState)>,
    /// Other ends of connections whose peers have departed, by the open file.
    pub absent: Vec<(u32, OwnedFd)>,
    /// Where its first process was started by a remote shell, and lives: for the shell, messages as stand-ins
    /// send them. The relay's native end is among `relays`.
    pub shell_link: Option<OwnedFd>,
}

/// An instance. Its processes live on when the last handle is dropped.
#[derive(Clone)]
pub struct Instance {
    session: Session,
    names: Arc<Mutex<Names>>,
}

/// Ends of relays as the engine names them.
#[derive(Default)]
struct Names {
    /// Those that the init has given or was told of.
    ends: Vec<NativeEnd>,
    /// Those whose relays have carried everything. The engine may hold them still, for a checkpoint that has begun.
    closed: Vec<NativeEnd>,
}

impl Instance {
    /// With images kept in that folder. `events` must not block.
    ///
    /// # Errors
    /// No threads.
    pub fn new(
        folder: PathBuf,
        events: impl Fn(InstanceEvent) + Send + Sync + 'static,
    ) -> Result<Self, SessionError> {
        Ok(Self { session: Session::start(folder, events)?, names: Arc::default() })
    }

    /// The session with its processes.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Starts a program. Blocks.
    ///
    /// # Errors
    /// Nothing runs then.
    pub fn launch(&self, spec: LaunchSpec, order: InstanceOrder) -> Result<Started, InstanceError> {
        let shell = order.shell.clone();
        let mut native = self.session.launch(spec, Some(order))?;
        let outer = std::mem::take(&mut native.outer);
        self.keep(&outer);
        let launched = relay_ends(outer, None).and_then(|mut relays| {
            let link = shell
                .zip(native.root)
                .map(|(id, root)| self.shell_link(id, root, RelayState::default(), &mut relays));
            let shell_link = link.transpose()?;
            Ok(Started { native, relays, shell_link, ..Started::default() })
        });
        if launched.is_err() {
            self.session.kill();
        }
        launched
    }

    /// Brings an image back, up to the last step. Blocks.
    ///
    /// # Errors
    /// Nothing is left then.
    pub fn restore(&self, order: RestoreOrder) -> Result<Started, InstanceError> {
        let is_root = order.instance.as_ref().is_some_and(|instance| instance.root_instance);
        let image = order.image_dir.clone().zip(Some(order.spec.checkpoint));
        let mut native = self.session.restore(order)?;
        let saved = image.and_then(|(folder, checkpoint)| Saved::open(&folder, checkpoint));
        let outer = std::mem::take(&mut native.outer);
        let outer = self.drop_finished(outer, saved.as_ref());
        self.keep(&outer);
        let started = self.tell_apart(native, outer, saved.as_ref(), is_root);
        if started.is_err() {
            self.session.kill();
        }
        started
    }

    fn tell_apart(
        &self,
        native: session::Started,
        outer: Outer,
        saved: Option<&Saved>,
        is_root: bool,
    ) -> Result<Started, InstanceError> {
        let (absent, outer) = split_absent(outer);
        let outputs = outputs(&outer);
        let mut relays = relay_ends(outer, saved)?;
        let mut started = Started { native, outputs, absent, ..Started::default() };
        if let (Some(saved), Some(root)) = (saved, started.native.root) {
            if let Some(end) = saved.shell_of_root() {
                let prefix = saved.state(end)?;
                let link = self.shell_link(end.id.clone(), root, prefix, &mut relays)?;
                started.shell_link = Some(link);
            }
            if is_root {
                started.sinks = saved.sinks()?;
            }
        }
        Ok(Started { relays, ..started })
    }

    /// Takes over one that lives. Blocks. Relays are lost with their agent: such a job is rolled back.
    ///
    /// # Errors
    /// None lives there.
    pub fn adopt(&self, socket: &Path) -> Result<(Started, session::TakenOver), InstanceError> {
        let mut adopted = self.session.take_over(socket, None)?;
        let mut native = std::mem::take(&mut adopted.started);
        let outer = std::mem::take(&mut native.outer);
        self.keep(&outer);
        let relays = relay_ends(outer, None)?;
        Ok((Started { native, relays, ..Started::default() }, adopted))
    }

    /// What relays hold, for the checkpoint in flight.
    pub fn relay_states(&self, states: Vec<(RelaySide, RelayState)>) {
        let known = states.into_iter().filter_map(|(side, state)| {
            Some((self.end(&side)?, state.undelivered, state.far_closed))
        });
        // Nobody speaks for a relay that is over: brought back without that, its end would wait for more for ever. By the next
        // checkpoint the engine has let go of it.
        let over = std::mem::take(&mut self.names().closed);
        let over = over.into_iter().map(|end| (end, Vec::new(), true));
        self.session.relay_states(known.chain(over).collect());
    }

    /// One of its processes is a remote shell from now on. The descriptors are copies.
    pub fn remote_shell(&self, shell: RemoteShell) {
        let RemoteShell { relay, pid, parent, link, streams } = shell;
        let kind = RelayKind::Link { parent, child: pid };
        let mut ends = vec![(NativeEnd { id: relay.clone(), side: 0, kind }, link)];
        for (fd, copy) in (0..).zip(streams) {
            let (id, kind) = (stream_relay(&relay, fd), RelayKind::Descriptor { pid, fd });
            ends.push((NativeEnd { id, side: 0, kind }, copy));
        }
        self.names().ends.extend(ends.iter().map(|(end, _)| end.clone()));
        self.session.hold_relays(ends);
    }

    /// Output of the job comes over this relay from now on; the descriptor is a copy of the end into which
    /// it is written.
    pub fn output(&self, side: RelaySide, copy: OwnedFd) {
        let end = NativeEnd { id: side.relay, side: side.side, kind: RelayKind::Output };
        self.names().ends.push(end.clone());
        self.session.hold_relays(vec![(end, copy)]);
    }

    /// The agent has closed an end; the job is to see it.
    pub fn close_end(&self, end: End) {
        let end = match end {
            End::Stdin => OuterEnd::Stream(StdioRole::Stdin),
            End::Stdout => OuterEnd::Stream(StdioRole::Stdout),
            End::Stderr => OuterEnd::Stream(StdioRole::Stderr),
            End::Terminal => OuterEnd::Stream(StdioRole::Terminal),
            End::Relay(side) => match self.end(&side) {
                Some(end) => {
                    self.names().closed.push(end.clone());
                    OuterEnd::Relay(end)
                }
                None => return,
            },
        };
        self.session.close_end(end);
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        // Each change is complete before the lock is given back.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, outer: &Outer) {
        self.names().ends.extend(outer.iter().filter_map(|(end, _)| match end {
            OuterEnd::Relay(end) => Some(end.clone()),
            OuterEnd::Stream(_) => None,
        }));
    }

    /// What a remote shell has closed before the checkpoint is not opened again.
    fn drop_finished(&self, outer: Outer, saved: Option<&Saved>) -> Outer {
        let Some(saved) = saved else { return outer };
        let (kept, finished) = outer.into_iter().partition(|(end, _)| match end {
            OuterEnd::Relay(end) if matches!(end.kind, RelayKind::Descriptor { .. }) => {
                saved.find(end).is_some()
            }
            _ => true,
        });
        let finished: Vec<_> = finished;
        finished.into_iter().for_each(|(end, _)| self.session.close_end(end));
        kept
    }

    /// Makes the link of a first process to the remote shell that has started it: the relay's end is added,
    /// the other one is ours.
    fn shell_link(
        &self,
        id: String,
        root: i32,
        prefix: RelayState,
        relays: &mut Vec<RelayEnd>,
    ) -> Result<OwnedFd, InstanceError> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (native, ours) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
            .map_err(|errno| InstanceError::ShellLink(errno.into()))?;
        let copy = native.try_clone().map_err(InstanceError::ShellLink)?;
        let end = NativeEnd { id: id.clone(), side: 1, kind: shell_kind(root) };
        self.names().ends.push(end.clone());
        self.session.hold_relays(vec![(end, copy)]);
        let side = RelaySide { relay: id, side: 1 };
        let kind = RelayEndKind::Messages;
        relays.push(RelayEnd { side, kind, native, shared: false, gated: false, prefix });
        Ok(ours)
    }

    /// None: it is not known to the job, as a side that has carried everything.
    fn end(&self, side: &RelaySide) -> Option<NativeEnd> {
        self.names().ends.iter().find(|end| end.id == side.relay && end.side == side.side).cloned()
    }
}
