//! What happens to an agent.

use std::net::IpAddr;
use std::sync::Arc;

use protocol::agent::{CheckpointNumber, ExitKind, ImageSummary, InstanceId};
use protocol::cluster::agent::{FromAgent, OuterSocket, RelaySide, ToAgent};
use protocol::cluster::dmtcp::{DmtcpFile, DmtcpImage};
use protocol::cluster::image::ImageFacts;
use protocol::cluster::rehearsal::RehearsedInstance;
use protocol::cluster::replica::ReplicaReport;
use protocol::cluster::{InstanceKey, NodeName};
use tokio::sync::mpsc::{Sender, UnboundedSender};
use tokio::sync::oneshot;

use super::clients::ClientEvent;
use super::console::ConsoleReport;
use super::control::{Adopted, Control, ControlEvent, End, RelayState, Started};
use super::copies::Lacking;
use super::link::Message;
use super::node::Record;
use super::shells::Caller;
use super::succession::Question;
use super::tree::TreeEvent;

/// What happened.
pub enum Event {
    /// There is a connection to the coordinator, which knows nothing of this agent yet.
    Connected {
        /// Its number, rising.
        connection: u64,
        /// To the coordinator.
        to: Sender<Message<FromAgent>>,
        /// The local address of it.
        local: IpAddr,
    },
    /// The coordinator says something.
    Coordinator {
        /// Over which connection.
        connection: u64,
        /// What.
        message: ToAgent,
        /// Its body.
        body: Vec<u8>,
    },
    /// The connection is gone.
    Disconnected {
        /// Which.
        connection: u64,
    },
    /// The coordinator does not want this node.
    Refused(String),
    /// It is time for a heartbeat, and to look at the lease.
    Tick,
    /// SIGTERM or SIGINT: this machine is about to go.
    Terminate,
    /// SIGUSR1: the agent is about to be started again, and takes its jobs over then.
    HandOver,
    /// Of an instance.
    Instance(InstanceKey, ControlEvent),
    /// The number of the user that an instance's processes will have, before there are any.
    RunBy(InstanceKey, u32),
    /// An instance was launched or restored, or could not be.
    Made(InstanceKey, Result<Started, Lacking>),
    /// What a restore needs is here, or not.
    Prepared(InstanceKey, Result<Vec<OuterSocket>, Lacking>),
    /// An instance runs, or could not be let go.
    Running(InstanceKey, Result<(), String>),
    /// No process of an instance is left, since it was killed.
    Killed(InstanceKey),
    /// One was found alive when this agent began.
    Found(Arc<dyn Control>, Box<Record>, Box<Adopted>),
    /// All that lived when this agent began has been found.
    AllFound,
    /// Of the job's console.
    Console(InstanceKey, ConsoleReport),
    /// Of a relay.
    Relay(InstanceKey, RelayEvent),
    /// All relays of an instance stand still for a checkpoint, or could not.
    RelaysPaused(InstanceKey, CheckpointNumber, Result<Vec<(RelaySide, RelayState)>, String>),
    /// Of the command tree.
    Tree(Box<TreeEvent>),
    /// A process of an instance has something to say to its departed daemon: which inits of the job's
    /// other instances are here?
    OtherInits(InstanceKey, oneshot::Sender<Vec<i32>>),
    /// Whether an instance only waits has changed.
    Rest(InstanceKey, bool),
    /// Of this node's copy of the coordinator's folder.
    Replica(ReplicaReport),
    /// A coordinator that carries on for a lost one asks.
    Successor(Question),
    /// Of local clients.
    Client(ClientEvent),
    /// `ckptd rsh` was called.
    Shell(Box<Caller>),
    /// A remote shell passes a signal on to the first process of an instance.
    ShellSignal(InstanceKey, i32),
    /// An image was copied to as many partners as could be.
    Copied(Box<Copied>),
    /// One more copy of an image is here, or could not be had.
    Fetched(String, InstanceId, CheckpointNumber, Result<(), String>),
    /// The mark was put beside a copy or an image, for the coordinator's commit.
    Marked(InstanceKey, CheckpointNumber, Result<(), String>),
    /// What was to be done with an image of DMTCP's processes is done, or could not be.
    Dmtcp(DmtcpImage, Result<Vec<DmtcpFile>, String>),
    /// How the rehearsal of an instance came out, by the coordinator's number; None: it was the last.
    Rehearsed(u64, Option<RehearsedInstance>),
    /// An answer to a local client that looks at images; None: that was the last.
    Looked(u64, Option<String>),
}

/// What a relay reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayEvent {
    /// It has carried everything, both ways.
    Done(RelaySide),
    /// It cannot go on.
    Lost(RelaySide, String),
    /// Its native end was closed.
    Closed(End),
    /// The process of this link has ended, and its parent has departed.
    OrphanEnded(RelaySide, ExitKind),
}

/// What became of the copies of an image.
#[derive(Debug)]
pub struct Copied {
    /// Whose image.
    pub key: InstanceKey,
    /// The checkpoint.
    pub checkpoint: CheckpointNumber,
    /// What was written here.
    pub summary: ImageSummary,
    /// What it holds.
    pub facts: Result<ImageFacts, String>,
    /// Nodes that have a copy.
    pub holders: Vec<NodeName>,
    /// Lines for the user.
    pub warnings: Vec<String>,
}

/// The way to the node's own task.
#[derive(Debug, Clone)]
pub struct Events(UnboundedSender<Event>);

impl Events {
    /// Into that channel.
    #[must_use]
    pub fn new(sender: UnboundedSender<Event>) -> Self {
        Self(sender)
    }

    /// Reports. An agent that is ending does not listen any more.
    pub fn tell(&self, event: Event) {
        let _ = self.0.send(event);
    }
}
