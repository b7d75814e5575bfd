//! The hand on an instance of real processes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use protocol::agent::{AgentCommand, AgentEvent};
use protocol::cluster::addresses::AddressBook;
use protocol::cluster::agent::{RelaySide, stream_relay};
use protocol::launch::{LaunchSpec, RestoreSpec};

use ckpt_node::{BootTime, End, InstanceEvent, RelayState};

use super::control::{
    Adopted, Control, ControlEvents, RelayEnd, RelayEndKind, RemoteShell, RestoreSetup, Setup,
    StartControl, Started, User,
};
use super::wiring::read_blob;
use ckpt_engine::graph::{
    FileId, Graph, OuterEnd, RelayEnd as NativeEnd, RelayKind, RelayState as SavedState,
};
use ckpt_engine::job_init::{ClusterOrder, UserOrder};
use ckpt_engine::objects::StdioRole;
use ckpt_engine::session::{Agent, InstanceEvent as Reported, RestoreOrder};
use ckpt_engine::split::PartOrder;
use ckpt_store::Checkpoint;

/// Most bytes that a relay may have held.
const MOST_HELD: u64 = 16 << 20;

/// In place of a parent that no link of a stand-in has.
const NO_PARENT: i32 = 0;

/// What starts hands on real instances.
#[must_use]
pub fn starter() -> StartControl {
    Arc::new(|folder: PathBuf, events: ControlEvents| {
        let report = move |event| {
            if let Some(event) = translate(event) {
                events(event);
            }
        };
        let agent = Agent::start_for_instance(folder, report).map_err(|error| error.to_string())?;
        Ok(Arc::new(Hand { agent, ends: Mutex::default(), closed: Mutex::default() })
            as Arc<dyn Control>)
    })
}

fn translate(event: Reported) -> Option<InstanceEvent> {
    match event {
        Reported::Agent(event) => Some(InstanceEvent::Agent(event)),
        Reported::RootEnded(status) => Some(InstanceEvent::RootEnded(status)),
        Reported::Empty => Some(InstanceEvent::Empty),
        Reported::NotHeld { reason } => {
            let text = format!("the instance could not be held: {reason}");
            Some(InstanceEvent::Agent(AgentEvent::Warning { text }))
        }
        Reported::Listens(listeners) => Some(InstanceEvent::Listens(listeners)),
        Reported::Held { .. } | Reported::Released => None,
    }
}

struct Hand {
    agent: Agent,
    /// The ends of relays that the init has given, as it names them.
    ends: Mutex<Vec<NativeEnd>>,
    /// Those whose relays have carried everything. The engine may hold them still, for a checkpoint that has begun.
    closed: Mutex<Vec<NativeEnd>>,
}

impl Hand {
    fn ends(&self) -> MutexGuard<'_, Vec<NativeEnd>> {
        // Each change is complete before the lock is given back.
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn closed(&self) -> MutexGuard<'_, Vec<NativeEnd>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, outer: &[(OuterEnd, OwnedFd)]) {
        self.ends().extend(outer.iter().filter_map(|(end, _)| match end {
            OuterEnd::Relay(end) => Some(end.clone()),
            OuterEnd::Stream(_) => None,
        }));
    }

    /// What a remote shell has closed before the checkpoint is not opened again.
    fn drop_finished(
        &self,
        outer: Vec<(OuterEnd, OwnedFd)>,
        saved: Option<&Saved>,
    ) -> Vec<(OuterEnd, OwnedFd)> {
        let Some(saved) = saved else { return outer };
        let (kept, finished) = outer.into_iter().partition(|(end, _)| match end {
            OuterEnd::Relay(end) if matches!(end.kind, RelayKind::Descriptor { .. }) => {
                saved.find(end).is_some()
            }
            _ => true,
        });
        let finished: Vec<_> = finished;
        finished.into_iter().for_each(|(end, _)| self.agent.close_end(end));
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
    ) -> Result<OwnedFd, String> {
        let failed = |error: String| format!("make a remote shell's link: {error}");
        let flags = SockFlag::SOCK_CLOEXEC;
        let (native, ours) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
            .map_err(|errno| failed(errno.to_string()))?;
        let copy = native.try_clone().map_err(|error| failed(error.to_string()))?;
        let end = NativeEnd { id: id.clone(), side: 1, kind: shell_kind(root) };
        self.ends().push(end.clone());
        self.agent.hold_relays(vec![(end, copy)]);
        let side = RelaySide { relay: id, side: 1 };
        let kind = RelayEndKind::Messages;
        relays.push(RelayEnd { side, kind, native, shared: false, gated: false, prefix });
        Ok(ours)
    }

    /// None: it is not known to the job, as a side that has carried everything.
    fn end(&self, side: &RelaySide) -> Option<NativeEnd> {
        self.ends().iter().find(|end| end.id == side.relay && end.side == side.side).cloned()
    }
}

impl Control for Hand {
    fn launch(&self, spec: LaunchSpec, setup: Setup) -> Result<Started, String> {
        let shell = setup.shell.clone();
        let launched = self
            .agent
            .launch_in_cluster(spec, order(setup, false))
            .map_err(|error| error.to_string())?;
        self.keep(&launched.outer);
        let mut relays = relay_ends(launched.outer, None)?;
        let shell_link = match shell {
            Some(id) => {
                Some(self.shell_link(id, launched.root, RelayState::default(), &mut relays)?)
            }
            None => None,
        };
        Ok(Started {
            console: launched.console,
            relays,
            shell_link,
            init: launched.init,
            root: Some(launched.root),
            ..Started::default()
        })
    }

    fn restore(&self, restore: RestoreSetup) -> Result<Started, String> {
        let is_root = restore.setup.is_root;
        let spec = RestoreSpec {
            checkpoint: restore.checkpoint,
            force: restore.force,
            external: restore.setup.external,
            window: restore.window,
        };
        let origin = restore.origin.clone();
        let part = PartOrder {
            assignment: restore.assignment,
            part: restore.part,
            origin: restore.origin,
        };
        let order = RestoreOrder {
            image_dir: Some(restore.image.clone()),
            spec,
            part: Some(part),
            cluster: order(restore.setup, true),
            connections: restore
                .connections
                .into_iter()
                .map(|(file, socket)| (FileId(file), socket))
                .collect(),
            absent: restore
                .absent
                .into_iter()
                .map(|(file, far)| (absent_end(&origin, file), far))
                .collect(),
        };
        let restored = self.agent.restore_in_cluster(order).map_err(|error| error.to_string())?;
        let saved = Saved::open(&restore.image, restore.checkpoint);
        let outer = self.drop_finished(restored.outer, saved.as_ref());
        self.keep(&outer);
        let (absent, outer) = split_absent(outer);
        let outputs = outputs(&outer);
        let has_root = restored.root.is_some() && is_root;
        let relays = relay_ends(outer, saved.as_ref()).and_then(|mut relays| {
            let link = saved.as_ref().zip(restored.root).map(|(saved, root)| {
                let Some(end) = saved.shell_of_root() else { return Ok(None) };
                let prefix = saved.state(end)?;
                self.shell_link(end.id.clone(), root, prefix, &mut relays).map(Some)
            });
            let sinks = saved.as_ref().filter(|_| has_root).map_or(Ok(Vec::new()), Saved::sinks)?;
            Ok((relays, link.transpose()?.flatten(), sinks))
        });
        let (relays, shell_link, sinks) = match relays {
            Ok(made) => made,
            Err(reason) => {
                self.agent.kill();
                return Err(reason);
            }
        };
        Ok(Started {
            console: restored.console,
            relays,
            outputs,
            sinks,
            absent,
            shell_link,
            init: restored.init,
            root: restored.root,
            moved: restored.moved,
            warnings: restored.warnings,
        })
    }

    fn adopt(&self, socket: &Path) -> Result<Adopted, String> {
        let adopted = self.agent.adopt(socket, None).map_err(|error| error.to_string())?;
        self.keep(&adopted.outer);
        let relays = relay_ends(adopted.outer, None)?;
        Ok(Adopted {
            started: Started {
                console: adopted.console,
                relays,
                outputs: Vec::new(),
                sinks: Vec::new(),
                absent: Vec::new(),
                // Relays are lost with their agent: such a job is rolled back.
                shell_link: None,
                init: adopted.init,
                root: adopted.root,
                moved: adopted.listeners,
                warnings: adopted.warnings,
            },
            key: adopted.identity,
            held: adopted.held,
            ended: adopted.ended,
            empty: adopted.empty,
            touched: adopted.touched,
        })
    }

    fn go(&self) -> Result<(), String> {
        self.agent.go().map_err(|error| error.to_string())
    }

    fn hold(&self) -> Result<(), String> {
        self.agent.hold().map(drop).map_err(|error| error.to_string())
    }

    fn release(&self) -> Result<(), String> {
        self.agent.release().map_err(|error| error.to_string())
    }

    fn kill(&self) {
        self.agent.kill();
    }

    fn lease(&self, until: BootTime) {
        self.agent.lease(until);
    }

    fn command(&self, command: AgentCommand) {
        self.agent.command(command);
    }

    fn machines(&self, machines: BTreeSet<IpAddr>) {
        self.agent.machines(machines);
    }

    fn book(&self, book: AddressBook) {
        self.agent.book(book);
    }

    fn relay_states(&self, states: Vec<(RelaySide, RelayState)>) {
        let known = states.into_iter().filter_map(|(side, state)| {
            Some((self.end(&side)?, state.undelivered, state.far_closed))
        });
        // Nobody speaks for a relay that is over: brought back without that, its end would wait for more for ever. By the next
        // checkpoint the engine has let go of it.
        let over = std::mem::take(&mut *self.closed());
        let over = over.into_iter().map(|end| (end, Vec::new(), true));
        self.agent.relay_states(known.chain(over).collect());
    }

    fn remote_shell(&self, shell: RemoteShell) {
        let RemoteShell { relay, pid, parent, link, streams } = shell;
        let kind = RelayKind::Link { parent, child: pid };
        let mut ends = vec![(NativeEnd { id: relay.clone(), side: 0, kind }, link)];
        for (fd, copy) in (0..).zip(streams) {
            let (id, kind) = (stream_relay(&relay, fd), RelayKind::Descriptor { pid, fd });
            ends.push((NativeEnd { id, side: 0, kind }, copy));
        }
        self.ends().extend(ends.iter().map(|(end, _)| end.clone()));
        self.agent.hold_relays(ends);
    }

    fn output(&self, side: RelaySide, copy: OwnedFd) {
        let end = NativeEnd { id: side.relay, side: side.side, kind: RelayKind::Output };
        self.ends().push(end.clone());
        self.agent.hold_relays(vec![(end, copy)]);
    }

    fn close_end(&self, end: End) {
        let end = match end {
            End::Stdin => OuterEnd::Stream(StdioRole::Stdin),
            End::Stdout => OuterEnd::Stream(StdioRole::Stdout),
            End::Stderr => OuterEnd::Stream(StdioRole::Stderr),
            End::Terminal => OuterEnd::Stream(StdioRole::Terminal),
            End::Relay(side) => match self.end(&side) {
                Some(end) => {
                    self.closed().push(end.clone());
                    OuterEnd::Relay(end)
                }
                None => return,
            },
        };
        self.agent.close_end(end);
    }
}

/// A user, for an init.
pub fn user_order(user: User) -> UserOrder {
    UserOrder { uid: user.uid, gid: user.gid, groups: user.groups }
}

fn order(setup: Setup, hold: bool) -> ClusterOrder {
    ClusterOrder {
        identity: setup.key,
        host_name: setup.host_name,
        hosts: setup.hosts,
        socket: setup.socket,
        lease_until_ns: setup.lease_until,
        hold,
        root_instance: setup.is_root,
        external: setup.external,
        user: setup.user.map(user_order),
        shell: setup.shell,
        watch: setup.watch,
        crowded: setup.crowded,
    }
}

/// Of the link from an instance's first process to the remote shell that has started it.
fn shell_kind(root: i32) -> RelayKind {
    RelayKind::Link { parent: NO_PARENT, child: root }
}

/// What an image says of relays.
struct Saved {
    graph: Graph,
    image: Checkpoint,
}

impl Saved {
    fn open(folder: &Path, checkpoint: u64) -> Option<Self> {
        let image = Checkpoint::open(folder, checkpoint).ok()?;
        let graph = image.read_json("graph.json").ok()?;
        Some(Self { graph, image })
    }

    fn find(&self, end: &NativeEnd) -> Option<&SavedState> {
        self.graph.relays.iter().find(|saved| saved.end.id == end.id && saved.end.side == end.side)
    }

    /// The link of the first process to the remote shell that has started it.
    fn shell_of_root(&self) -> Option<&NativeEnd> {
        // As the image numbers it: it may have another number now.
        let root = self.graph.root;
        let ends = self.graph.relays.iter().map(|saved| &saved.end);
        ends.into_iter().find(|end| end.side == 1 && end.kind == shell_kind(root))
    }

    /// Relays over which output of the job came to its console.
    fn sinks(&self) -> Result<Vec<(RelaySide, RelayState)>, String> {
        let ends = self.graph.relays.iter().map(|saved| &saved.end);
        ends.filter(|end| end.kind == RelayKind::Output)
            .map(|end| {
                let side = RelaySide { relay: end.id.clone(), side: end.side };
                Ok((side, self.state(end)?))
            })
            .collect()
    }

    fn state(&self, end: &NativeEnd) -> Result<RelayState, String> {
        let Some(saved) = self.find(end) else {
            return Ok(RelayState::default());
        };
        let undelivered = match saved.undelivered {
            Some(blob) => {
                let reader = self.image.reader().map_err(|damage| damage.to_string())?;
                read_blob(&self.graph, &reader, blob, MOST_HELD)?
            }
            None => Vec::new(),
        };
        Ok(RelayState { undelivered, far_closed: saved.far_closed })
    }
}

/// What is between a new relay's origin and the number of a socket without a peer.
const ABSENT: &str = "#tcp";

fn absent_end(origin: &str, file: u32) -> NativeEnd {
    NativeEnd { id: format!("{origin}{ABSENT}{file}"), side: 1, kind: RelayKind::Absent }
}

type Outer = Vec<(OuterEnd, OwnedFd)>;

/// Takes the other ends of connections without a peer out.
fn split_absent(outer: Outer) -> (Vec<(u32, OwnedFd)>, Outer) {
    let mut absent = Vec::new();
    let mut others = Vec::new();
    for (end, fd) in outer {
        let file = match &end {
            OuterEnd::Relay(NativeEnd { id, kind: RelayKind::Absent, .. }) => {
                id.rsplit_once(ABSENT).and_then(|(_, file)| file.parse().ok())
            }
            _ => None,
        };
        match file {
            Some(file) => absent.push((file, fd)),
            None => others.push((end, fd)),
        }
    }
    (absent, others)
}

/// Sides whose native object gives what processes here have written for others to see.
fn outputs(outer: &Outer) -> Vec<RelaySide> {
    let ends = outer.iter().filter_map(|(end, _)| match end {
        OuterEnd::Relay(end) => Some(end),
        OuterEnd::Stream(_) => None,
    });
    let gives = |kind| matches!(kind, RelayKind::PipeRead | RelayKind::TerminalMaster);
    ends.filter(|end| gives(end.kind))
        .map(|end| RelaySide { relay: end.id.clone(), side: end.side })
        .collect()
}

fn relay_ends(
    outer: Vec<(OuterEnd, OwnedFd)>,
    saved: Option<&Saved>,
) -> Result<Vec<RelayEnd>, String> {
    let outputs: Vec<String> = outer
        .iter()
        .filter_map(|(end, _)| match end {
            OuterEnd::Relay(NativeEnd {
                id, kind: RelayKind::Descriptor { fd: 1.., .. }, ..
            }) => Some(id.clone()),
            _ => None,
        })
        .collect();
    let has_output = |link: &str| (1..=2).any(|fd| outputs.contains(&stream_relay(link, fd)));
    let mut ends = Vec::new();
    for (end, native) in outer {
        let OuterEnd::Relay(end) = end else { continue };
        let prefix = saved.map_or_else(|| Ok(RelayState::default()), |saved| saved.state(&end))?;
        let kind = match end.kind {
            RelayKind::PipeRead | RelayKind::Descriptor { fd: 0, .. } => RelayEndKind::PipeRead,
            RelayKind::PipeWrite | RelayKind::Output | RelayKind::Descriptor { .. } => {
                RelayEndKind::PipeWrite
            }
            RelayKind::TerminalMaster | RelayKind::TerminalSlave => RelayEndKind::Terminal,
            RelayKind::Stream | RelayKind::Absent => RelayEndKind::Stream,
            RelayKind::Packets | RelayKind::Link { .. } => RelayEndKind::Messages,
        };
        let shared = matches!(end.kind, RelayKind::Descriptor { .. });
        let gated = end.side == 0 && has_output(&end.id);
        let side = RelaySide { relay: end.id, side: end.side };
        ends.push(RelayEnd { side, kind, native, shared, gated, prefix });
    }
    Ok(ends)
}
