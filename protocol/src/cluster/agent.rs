//! What coordinator and agent say to each other. Every message is a frame of a header (one of
//! these, as JSON) and a body of raw bytes, empty unless the message says what it is.

use super::addresses::AddressBook;
use super::baseline::Baseline;
use super::dmtcp::{DmtcpOrder, DmtcpReport};
use super::image::ImageFacts;
use super::replica::{ReplicaOrder, ReplicaReport};
use super::succession::Followed;
use super::tree::{TreeAnswer, TreeCall, TreeMark};
use super::{Epoch, InstanceKey, NodeName, Term};
use crate::agent::{AgentCommand, AgentEvent, AgentId, CheckpointNumber, CommitRecord, ExitKind};
use crate::compact::{KeptImages, Shared};
use crate::launch::{External, LaunchSpec, WindowSize};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// What a machine offers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeProfile {
    /// Where its agent listens for other agents (TLS).
    pub address: SocketAddr,
    /// Where its agent makes connections of jobs.
    pub wire: SocketAddr,
    /// All addresses by which others may know it, but those of the loopback and of single links.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Processes of jobs that it takes.
    pub slots: u32,
    /// CPUs that this agent may use, part of one counted as a whole.
    pub cores: u32,
    /// Cores' worth of time that it gets, which a quota may make less than a whole one; None: `cores`.
    #[serde(default)]
    pub capacity: Option<f64>,
    /// Relative speed of one core, 1.0 a common one; None: not measured.
    pub speed: Option<f64>,
    /// Of each core while all are at work; None: the same.
    #[serde(default)]
    pub speed_all: Option<f64>,
    /// Whether `--speed` said so.
    #[serde(default)]
    pub speed_given: bool,
    /// Architecture as Rust names it.
    pub architecture: String,
    /// Bytes per page.
    pub page_size: u64,
    /// BLAKE3 of the vdso, hexadecimal.
    pub vdso: String,
    /// Features of the CPU.
    #[serde(default)]
    pub features: Vec<String>,
    /// Bytes of memory.
    pub memory: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Whether jobs may run as root here.
    pub allow_root: bool,
    /// When the agent was started, in milliseconds since 1970 UTC: tells one that was started again from
    /// one that has only connected again.
    #[serde(default)]
    pub started_ms: u64,
}

/// What changes from one heartbeat to the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Vitals {
    /// Load average over one minute.
    pub load: f64,
    /// Bytes of memory available.
    pub available_memory: u64,
    /// Charge in percent, where there is a battery.
    pub battery: Option<u8>,
    /// Whether it is being charged, or full and plugged in.
    #[serde(default)]
    pub charging: Option<bool>,
    /// A new measurement of the speed of one core.
    pub speed: Option<f64>,
    /// Cores' worth of time that the node has for jobs now.
    #[serde(default)]
    pub capacity: Option<f64>,
    /// Whether `capacity` is what the processes of jobs have really got.
    #[serde(default)]
    pub achieved: bool,
}

/// An instance that an agent holds when it connects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldInstance {
    /// Which.
    pub key: InstanceKey,
    /// Whether this agent has taken it over from one that died, relays and bytes under way being lost
    /// with that one.
    pub adopted: bool,
    /// Whether it stands still, because the lease had run out.
    pub held: bool,
    /// How the job's first process ended, if it was here and has.
    pub ended: Option<ExitKind>,
}

/// Images on a node's disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// The job.
    pub job: String,
    /// The instance whose image it is.
    pub instance: AgentId,
    /// The checkpoints whose index and packs are all there.
    pub checkpoints: Vec<CheckpointNumber>,
}

/// A copy of an image that is not whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedCopy {
    /// Where it lies.
    pub node: NodeName,
    /// The processes whose memory is damaged in it.
    pub processes: BTreeSet<i32>,
    /// Whether it has other damage, so that nobody can be restored from it.
    pub useless: bool,
    /// The first damage that was found, one line.
    pub reason: String,
}

/// One end of a relay: side 0 is where the object's home is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RelaySide {
    /// The relay's id, unique for ever.
    pub relay: String,
    /// 0 or 1.
    pub side: u8,
}

/// Where a relay's other side is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayLink {
    /// This node's side.
    pub side: RelaySide,
    /// The instance that has the other side.
    pub peer: InstanceKey,
    /// Its node.
    pub node: NodeName,
}

/// The two physical addresses of a TCP socket whose peer is in another instance, at the checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OuterSocket {
    /// Its open file, an index into the graph of the image.
    pub file: u32,
    /// Its own address.
    pub local: SocketAddr,
    /// The peer's.
    pub peer: SocketAddr,
}

/// How a socket is to be connected again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewire {
    /// Which.
    pub file: u32,
    /// 32 bytes, hexadecimal, that both ends know.
    pub secret: String,
    /// Where to connect to (the peer's agent's wire port); None: wait for the peer.
    pub connect_to: Option<SocketAddr>,
}

/// The part that processes are assigned to which are not brought back anywhere: daemons that have
/// departed with their machine.
pub const DEPARTED: u32 = u32::MAX;

/// A socket whose peer has departed for good: it gets a stand-in for a peer, which stays open and silent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Which, an index into the graph of the image.
    pub file: u32,
    /// The peer was the parent daemon of the socket's process: what the process says goes to the job's
    /// daemon of this machine, if there is one. The name is that of the departed one.
    pub daemon: Option<String>,
    /// The peer was reached over the loopback.
    pub loopback: bool,
}

/// What becomes of relays that led to daemons which have departed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallen {
    /// Sides here that stay open and silent: what comes out of them is dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<RelaySide>,
    /// For the root instance: new sides, whose bytes are output of the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<RelayLink>,
}

/// A listening socket, which may not be where the job believes it to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedListener {
    /// As the job knows it.
    pub logical: SocketAddr,
    /// As it is.
    pub actual: SocketAddr,
    /// It is of AF_INET6 with IPV6_V6ONLY.
    #[serde(default)]
    pub v6_only: bool,
    /// It was bound by a process that has seen the machine's own addresses, and is known by them.
    #[serde(default)]
    pub plain: bool,
}

/// A user by whose order a job runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobUser {
    /// Number on the machine where the order was given.
    pub uid: u32,
    /// Name there: on other machines the user of the same name counts.
    pub name: String,
}

/// Settings of a job that its agents need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceSettings {
    /// What is done about connections to outside.
    pub external: External,
    /// Places in which an image is to be durable, the agent's own disk included.
    pub copies: u32,
    /// Whether calls of bind, connect, listen and their like are answered as if nothing had moved.
    #[serde(default)]
    pub rewire_connect: bool,
    /// Whether the daemons of a lost node are left out: then nobody is kept with them who may yet need them.
    #[serde(default)]
    pub fallback: bool,
    /// What the C library is held to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_baseline: Option<Baseline>,
}

/// An instance to be started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaunchOrder {
    /// Its key.
    pub key: InstanceKey,
    /// Its logical node: the host name inside.
    pub logical_node: NodeName,
    /// Content of /etc/hosts inside.
    pub hosts: String,
    /// What to start.
    pub launch: LaunchSpec,
    /// The one whose end is the job's end.
    pub is_root: bool,
    /// For whom.
    pub user: JobUser,
    /// Settings.
    pub settings: InstanceSettings,
    /// Nodes that get a copy of every image, in order of preference.
    pub partners: Vec<NodeName>,
    /// For one started by a remote shell: which call of which instance.
    pub shell: Option<ShellCall>,
    /// What has moved in the job.
    #[serde(default)]
    pub book: AddressBook,
}

/// A call of `ckptd rsh`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellCall {
    /// The caller's instance.
    pub caller: InstanceKey,
    /// The caller's node.
    pub node: NodeName,
    /// Number given by the caller's agent, unique in the job's life for that instance.
    pub call: u64,
}

/// An instance to be made ready for a restore.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrepareOrder {
    /// The new instance.
    pub key: InstanceKey,
    /// The instance whose image it comes from.
    pub image: AgentId,
    /// The checkpoint.
    pub checkpoint: CheckpointNumber,
    /// Nodes that hold that image.
    pub holders: Vec<NodeName>,
    /// All processes of the image and the part that each belongs to; [`DEPARTED`]: to none.
    pub assignment: BTreeMap<i32, u32>,
    /// The part that this instance is.
    pub part: u32,
    /// Its logical node.
    pub logical_node: NodeName,
    /// Content of /etc/hosts inside.
    pub hosts: String,
    /// The one whose end is the job's end.
    pub is_root: bool,
    /// For whom.
    pub user: JobUser,
    /// Settings.
    pub settings: InstanceSettings,
    /// Nodes that get a copy of every image.
    pub partners: Vec<NodeName>,
    /// Go on although files outside of the image have changed or are missing.
    pub force: bool,
    /// Size of the job's terminal.
    pub window: Option<WindowSize>,
}

/// A member as the others see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its name.
    pub name: NodeName,
    /// Where its agent listens for other agents.
    pub address: SocketAddr,
}

/// From the coordinator to an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToAgent {
    /// Answer to [`FromAgent::Hello`].
    Welcome {
        /// The coordinator: its term, and where it is.
        coordinator: Followed,
        /// Milliseconds between heartbeats.
        heartbeat_ms: u64,
        /// Milliseconds from the sending of an acknowledged heartbeat until its lease runs out.
        lease_ms: u64,
        /// The epoch of every job that has instances on this node; instances of jobs not named, or
        /// with a lower epoch, are to be killed; the others go on.
        epochs: BTreeMap<String, Epoch>,
    },
    /// The node is not taken; the agent ends.
    Refused {
        /// One line.
        reason: String,
    },
    /// Answer to a heartbeat: renews the lease from the moment when that was sent.
    Heard {
        /// Its number.
        sequence: u64,
    },
    /// All members that are there.
    Peers {
        /// They.
        peers: Shared<Vec<Peer>>,
    },
    /// Members have come, or are to be reached elsewhere, or have gone.
    PeersChanged {
        /// Those who are there.
        there: Vec<Peer>,
        /// Those who are not there any more.
        gone: Vec<NodeName>,
    },
    /// Start an instance. Answer: [`FromAgent::Launched`] or [`FromAgent::NotMade`].
    Launch(Box<LaunchOrder>),
    /// A command of a checkpoint, a signal or an end. Answers come as [`FromAgent::Instance`].
    Instance {
        /// Which.
        key: InstanceKey,
        /// The command.
        command: AgentCommand,
    },
    /// A step for the instances of this node and of others, which it calls. Answer: [`FromAgent::Tree`].
    Tree(Box<TreeCall>),
    /// A new generation of the command tree begins.
    TreeReset(TreeMark),
    /// Read the console until it is empty, with the job standing still. Answer: any number of
    /// [`FromAgent::Console`], then [`FromAgent::Drained`].
    Drain {
        /// The root instance.
        key: InstanceKey,
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
        /// Whether the job is not let go after it, but goes on elsewhere: then [`FromAgent::InputLeft`]
        /// comes before, for input that the job has not taken.
        #[serde(default)]
        parks: bool,
    },
    /// Nodes that get copies of images from now on.
    Partners {
        /// Of which instance.
        key: InstanceKey,
        /// They.
        nodes: Vec<NodeName>,
    },
    /// Fetch what a restore needs. Answer: [`FromAgent::Prepared`], [`FromAgent::NotMade`] or
    /// [`FromAgent::Damaged`].
    Prepare(Box<PrepareOrder>),
    /// Restore what was prepared, up to the last step. Answer: [`FromAgent::Restored`],
    /// [`FromAgent::NotMade`] or [`FromAgent::Damaged`].
    Restore {
        /// Which.
        key: InstanceKey,
        /// Connections to be made first.
        connections: Vec<Rewire>,
        /// Connections whose other end is gone for good.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        skipped: Vec<Skipped>,
    },
    /// Let it run. Answer: [`FromAgent::Running`].
    Go {
        /// Which.
        key: InstanceKey,
        /// Where the other sides of its relays are.
        links: Vec<RelayLink>,
        /// In a job whose processes have lost daemons for good: what becomes of their relays. The
        /// agent reports by [`FromAgent::Rest`] whether the instance only waits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fallen: Option<Fallen>,
    },
    /// Where the other sides of relays are: more of them.
    Links {
        /// Of which instance.
        key: InstanceKey,
        /// They.
        links: Vec<RelayLink>,
    },
    /// What has moved in the job; replaces what was said before. Comes before [`ToAgent::Go`], and again when it
    /// changes.
    Addresses {
        /// Which instance.
        key: InstanceKey,
        /// What has moved.
        book: AddressBook,
    },
    /// Freeze all instances of the job below this epoch, then kill them. Answer:
    /// [`FromAgent::Killed`].
    Kill {
        /// The job.
        job: String,
        /// The first epoch that is spared.
        below: Epoch,
    },
    /// An image that this node holds is committed by the coordinator's log, and has no mark yet as far as
    /// [`FromAgent::Hello`] told: it gets one, before anything takes it for unfinished.
    Mark {
        /// The job.
        job: String,
        /// Whose image.
        instance: AgentId,
        /// The record of the commit.
        record: CommitRecord,
    },
    /// Remove all images of the job but these; with none, everything of the job.
    Keep {
        /// The job.
        job: String,
        /// Checkpoints by instance.
        images: KeptImages,
    },
    /// What was called for by [`FromAgent::Shell`]: it runs.
    ShellRuns {
        /// The call.
        call: ShellCall,
        /// The instance in which.
        instance: InstanceKey,
        /// Where that is.
        node: NodeName,
    },
    /// What was called for by [`FromAgent::Shell`] cannot be had.
    ShellFailed {
        /// The call.
        call: ShellCall,
        /// One line.
        reason: String,
    },
    /// Console bytes up to this offset are in the job's log.
    ConsoleKept {
        /// The root instance.
        key: InstanceKey,
        /// The offset.
        offset: u64,
    },
    /// Input for the job: the body; empty: its end.
    Input {
        /// The root instance.
        key: InstanceKey,
    },
    /// The size of the user's terminal.
    Resize {
        /// The root instance.
        key: InstanceKey,
        /// The size.
        window: WindowSize,
    },
    /// An answer to a local client: one line of [`super::client::Answer`].
    Client {
        /// The agent's number for it.
        client: u64,
        /// The line; None: close the connection.
        line: Option<String>,
    },
    /// Get an image and keep it, for the sake of one more copy. Answer: [`FromAgent::Copied`].
    Copy {
        /// The job.
        job: String,
        /// The instance whose image it is.
        instance: AgentId,
        /// The checkpoint.
        checkpoint: CheckpointNumber,
        /// Nodes that hold it.
        holders: Vec<NodeName>,
    },
    /// The node is not let go, or not any more.
    Stay {
        /// One line.
        reason: String,
    },
    /// About this node's copy of the coordinator's folder.
    Replica(ReplicaOrder),
    /// About images of DMTCP's processes. Answer: [`FromAgent::Dmtcp`].
    Dmtcp(DmtcpOrder),
    /// The node is free to go: the agent may end.
    Farewell,
}

/// Which stream of a job's console.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stream {
    /// The terminal, or standard output.
    Output,
    /// Standard error.
    Error,
}

/// From an agent to the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromAgent {
    /// The first message. The node's name is in its certificate.
    Hello {
        /// [`super::VERSION`].
        version: u32,
        /// The highest term that it has heard of.
        term: Term,
        /// What the machine offers.
        profile: NodeProfile,
        /// What runs on it.
        instances: Vec<HeldInstance>,
        /// The images on its disk.
        holdings: Vec<Holding>,
    },
    /// The node is there.
    Heartbeat {
        /// Grows by one.
        sequence: u64,
        /// How it is.
        vitals: Vitals,
    },
    /// An event of an instance.
    Instance {
        /// Which.
        key: InstanceKey,
        /// The event.
        event: AgentEvent,
    },
    /// The answer of all whom this node was to call, and of itself.
    Tree(TreeAnswer),
    /// The instance runs.
    Launched {
        /// Which.
        key: InstanceKey,
        /// Its first process, as its logical node numbers it.
        root: i32,
    },
    /// The instance could not be started, prepared or restored; nothing of it is left.
    NotMade {
        /// Which.
        key: InstanceKey,
        /// One line.
        reason: String,
    },
    /// As `NotMade`, because copies of its image are damaged.
    Damaged {
        /// Which.
        key: InstanceKey,
        /// They.
        copies: Vec<DamagedCopy>,
        /// One line.
        reason: String,
    },
    /// Its first process ended; the instance may live on.
    RootEnded {
        /// Which.
        key: InstanceKey,
        /// How.
        status: ExitKind,
    },
    /// No process is left in it.
    Empty {
        /// Which.
        key: InstanceKey,
    },
    /// Facts of an image that is about to be reported written, and where its copies are durable, this
    /// node included.
    Image {
        /// Whose.
        key: InstanceKey,
        /// The checkpoint.
        checkpoint: CheckpointNumber,
        /// What it holds.
        facts: ImageFacts,
        /// Where it is.
        holders: Vec<NodeName>,
    },
    /// The image is here.
    Prepared {
        /// For which.
        key: InstanceKey,
        /// Its sockets whose peers are in other instances.
        sockets: Vec<OuterSocket>,
    },
    /// It is complete and stands still.
    Restored {
        /// Which.
        key: InstanceKey,
        /// Its sides of relays.
        relays: Vec<RelaySide>,
        /// Those among them out of which comes what processes here have written to a terminal or pipe.
        #[serde(default)]
        outputs: Vec<RelaySide>,
        /// Its listening TCP sockets.
        listeners: Vec<MovedListener>,
        /// Lines for the user.
        warnings: Vec<String>,
    },
    /// Its listening TCP sockets, as far as they are known: all of them, whenever there is one more.
    Listens {
        /// Which instance.
        key: InstanceKey,
        /// They.
        listeners: Vec<MovedListener>,
    },
    /// It runs.
    Running {
        /// Which.
        key: InstanceKey,
    },
    /// No instance of the job below this epoch is left here.
    Killed {
        /// The job.
        job: String,
        /// The epoch.
        below: Epoch,
    },
    /// A piece of the job's console: the body.
    Console {
        /// The root instance.
        key: InstanceKey,
        /// Bytes of this instance's console before it.
        offset: u64,
        /// Which stream.
        stream: Stream,
    },
    /// The console was empty, with the job standing still, after so many bytes.
    Drained {
        /// The root instance.
        key: InstanceKey,
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
        /// Bytes of this instance's console so far.
        offset: u64,
    },
    /// Input that has not reached the job, and does not while it stands still: the body, a piece of it.
    InputLeft {
        /// The root instance.
        key: InstanceKey,
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
        /// Whether the end of the input follows it.
        ended: bool,
    },
    /// `ckptd rsh` was called inside of an instance.
    Shell {
        /// The call.
        call: ShellCall,
        /// The logical node asked for.
        logical_node: NodeName,
        /// What to start there.
        launch: LaunchSpec,
    },
    /// A relay of this instance was lost, as when its agent died.
    RelaysLost {
        /// Which.
        key: InstanceKey,
        /// One line.
        reason: String,
    },
    /// An image that was to be copied here.
    Copied {
        /// The job.
        job: String,
        /// The instance whose image it is.
        instance: AgentId,
        /// The checkpoint.
        checkpoint: CheckpointNumber,
        /// Why it is not here, in one line; None: it is.
        failure: Option<String>,
    },
    /// Of an instance that was let go with [`Fallen`]: whether every process of it only waits, as ranks do
    /// that have come to their end and daemons that have nothing to do.
    Rest {
        /// Which.
        key: InstanceKey,
        /// Whether that is so now.
        waits: bool,
    },
    /// A process ended whose parent daemon has departed.
    OrphanEnded {
        /// Of which instance.
        key: InstanceKey,
        /// Its number in its logical node.
        pid: i32,
        /// How.
        status: ExitKind,
    },
    /// A local client has connected.
    ClientOpened {
        /// The agent's number for it, never used twice on a connection.
        client: u64,
        /// Its user.
        user: JobUser,
    },
    /// One line of a local client, a [`super::client::Ask`].
    ClientLine {
        /// Which client.
        client: u64,
        /// The line.
        line: String,
    },
    /// A local client has gone.
    ClientClosed {
        /// Which client.
        client: u64,
    },
    /// About this node's copy of the coordinator's folder.
    Replica(ReplicaReport),
    /// Answer to [`ToAgent::Dmtcp`].
    Dmtcp(DmtcpReport),
    /// The machine is about to go: `ckptd leave`, SIGTERM, a low battery.
    Leaving {
        /// Why.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An enum that is told apart by a field inside could not have numbers as keys: serde keeps
    /// its content aside as text.
    #[test]
    fn numbers_as_keys_survive_the_way() {
        let images = BTreeMap::from([(AgentId(7), vec![1, 2])]).into();
        let message = ToAgent::Keep { job: "a-1".into(), images };
        let text = serde_json::to_string(&message).unwrap();
        assert_eq!(serde_json::from_str::<ToAgent>(&text).unwrap(), message);
    }
}
