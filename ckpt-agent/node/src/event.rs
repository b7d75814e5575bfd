//! What happens to a node.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use command_tree::Line;
use protocol::agent::{CheckpointNumber, ExitKind, ImageSummary, InstanceEvent, InstanceId};
use protocol::cluster::agent::{JobUser, MovedListener, OuterSocket, RelaySide, ToAgent};
use protocol::cluster::dmtcp::{DmtcpFile, DmtcpImage};
use protocol::cluster::image::ImageFacts;
use protocol::cluster::rehearsal::RehearsedInstance;
use protocol::cluster::replica::ReplicaReport;
use protocol::cluster::succession::{Copy, Followed};
use protocol::cluster::tree::TreeMessage;
use protocol::cluster::{InstanceKey, NodeName};
use protocol::launch::LaunchSpec;

use crate::{BootTime, Charge, ConsoleReport, Lacking, Record, RelayEvent, RelayState};

/// What happened, with everything that had to be read for the decision. Why something failed comes as the line that the
/// coordinator or the user is told: no decision depends on it.
#[derive(Debug, Clone)]
pub enum Event {
    /// There is a connection to the coordinator, which knows nothing of this agent yet.
    Connected {
        /// The connection's number; numbers rise.
        connection: u64,
        /// Where other machines' agents reach this one.
        address: SocketAddr,
        /// All addresses by which they may know the machine, that one first.
        addresses: Vec<IpAddr>,
    },
    /// The coordinator says something.
    Coordinator {
        /// The connection over which it came.
        connection: u64,
        /// The message.
        message: ToAgent,
        /// The bytes that come with it.
        body: Vec<u8>,
    },
    /// The connection of that number is gone.
    Disconnected {
        /// The connection's number.
        connection: u64,
    },
    /// The coordinator does not want this node.
    Refused(String),
    /// It is time for a heartbeat, and to look at the lease.
    Tick {
        /// The local address of the connection to the coordinator is not this machine's any more.
        address_lost: bool,
        /// How the battery is; None without one.
        charge: Option<Charge>,
    },
    /// SIGTERM or SIGINT: this machine is about to go.
    Terminate,
    /// SIGUSR1: the agent is about to be started again, and takes its jobs over then.
    HandOver,
    /// An instance reports something.
    Instance(InstanceKey, InstanceEvent),
    /// The number of the user that an instance's processes will have, before there are any.
    RunBy(InstanceKey, u32),
    /// An instance was launched or restored, or could not be.
    Made(InstanceKey, Result<Made, Lacking>),
    /// Streams and relays of an instance are carried from now on, or can't be. Whether it has the job's console.
    Tied(InstanceKey, Result<bool, String>),
    /// What a restore needs is here, or not.
    Prepared(InstanceKey, Result<Vec<OuterSocket>, Lacking>),
    /// An instance runs, or could not be let go.
    Running(InstanceKey, Result<(), String>),
    /// No process of an instance is left, since it was killed.
    Killed(InstanceKey),
    /// An instance was found alive when this agent began.
    Found(Box<Record>, Adopted),
    /// All that lived when this agent began has been found.
    AllFound,
    /// The job's console reports something.
    Console(InstanceKey, ConsoleReport),
    /// A relay of an instance reports something.
    Relay(InstanceKey, RelayEvent),
    /// All relays of an instance stand still for a checkpoint, or could not.
    RelaysPaused(InstanceKey, CheckpointNumber, Result<Vec<(RelaySide, RelayState)>, String>),
    /// Output of a process can't be brought to the job's console.
    SinkLost(InstanceKey, RelaySide, String),
    /// A line of the command tree has changed, or something came over it.
    Line(LineEvent),
    /// It is as late as [`crate::Action::Clock`] said.
    Clock,
    /// Whether an instance only waits has changed.
    Rest(InstanceKey, bool),
    /// The copy of the coordinator's folder has changed.
    Replica(ReplicaReport),
    /// A coordinator that carries on for a lost one asks.
    Successor {
        /// The number under which the answer is expected.
        asker: u64,
        /// The question.
        question: Question,
    },
    /// The coordinator to follow was written down, or could not be.
    FollowedNoted {
        /// The coordinator that is followed.
        followed: Followed,
        /// The successor that had asked for it.
        asker: Option<u64>,
        /// Why it could not be written down.
        failure: Option<String>,
    },
    /// A local command has connected.
    ClientOpened {
        /// Its number.
        client: u64,
        /// Its user.
        user: JobUser,
    },
    /// A local command has sent a line.
    ClientLine {
        /// The command's number.
        client: u64,
        /// The line, as it came.
        line: String,
    },
    /// A local command has gone.
    ClientClosed {
        /// The command's number.
        client: u64,
    },
    /// `ckptd rsh` was called.
    Called(Box<Call>),
    /// The streams of a caller are carried to the instance that it began, over these sides.
    CallerTied(InstanceKey, Vec<RelaySide>),
    /// A remote shell passes a signal on to the first process of an instance.
    ShellSignal(InstanceKey, i32),
    /// An image was copied to as many partners as could be.
    Copied(Box<Copied>),
    /// One more copy of an image is here, or could not be had.
    Fetched(String, InstanceId, CheckpointNumber, Result<(), String>),
    /// The mark was put beside all copies of an image for the coordinator's commit, or not beside each.
    Marked(InstanceKey, CheckpointNumber, Result<(), String>),
    /// What was to be done with an image of DMTCP's processes is done, or could not be.
    Dmtcp(DmtcpImage, Result<Vec<DmtcpFile>, String>),
    /// How the rehearsal of an instance came out, by the coordinator's number; None: it was the last.
    Rehearsed(u64, Option<RehearsedInstance>),
    /// An answer to a local command that looks at images; None: that was the last.
    Looked(u64, Option<String>),
    /// Images were taken over from the folder of a local command, by its number, for a job; or not.
    Adopted(u64, String, Result<BTreeMap<InstanceId, ImageFacts>, String>),
}

/// An instance that is there. Its descriptors stay with the driver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Made {
    /// Its init, as this machine numbers it.
    pub init: i32,
    /// Its first process, if it is here.
    pub root: Option<i32>,
    /// Sides of relays that the agent has.
    pub relays: Vec<RelaySide>,
    /// Those of them out of which comes what processes have written to a pipe or terminal.
    pub outputs: Vec<RelaySide>,
    /// Relays that bring output of the job to its console, which this instance has.
    pub sinks: Vec<RelaySide>,
    /// Its listening TCP sockets.
    pub listeners: Vec<MovedListener>,
    /// Lines for the user.
    pub warnings: Vec<String>,
}

/// An instance that outlived its agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopted {
    /// What is there of it.
    pub made: Made,
    /// Whether it stands still.
    pub held: bool,
    /// The end of the lease that the agent before had; 0: unknown.
    pub lease_until: BootTime,
    /// How its first process ended, if it has.
    pub ended: Option<ExitKind>,
    /// Whether no process is left.
    pub empty: bool,
    /// Whether it cannot go on as it is.
    pub touched: bool,
}

/// What happens to the lines of the command tree.
#[derive(Debug, Clone)]
pub enum LineEvent {
    /// Another agent has made a line; one that it had made before is replaced.
    Accepted(NodeName),
    /// Something has come over a line; its seal is good.
    Heard(Line, Box<TreeMessage>),
    /// A line is gone.
    Broken(Line),
}

/// What a successor asks.
#[derive(Debug, Clone)]
pub enum Question {
    /// Whom this node follows, and what it holds.
    State {
        /// Its copy of the coordinator's folder.
        copy: Option<Copy>,
        /// Addresses of the coordinator that was joined.
        joined: Vec<String>,
    },
    /// Whether it follows that one from now on.
    Follow(Followed),
}

/// A call of `ckptd rsh`.
#[derive(Debug, Clone)]
pub struct Call {
    /// The caller's number.
    pub number: u64,
    /// A number that this process has under every agent of its machine, and no other of its instance.
    pub identity: u64,
    /// The instance that it is inside of.
    pub inside: Option<InstanceKey>,
    /// Its user.
    pub uid: u32,
    /// The node on which the program is to run.
    pub node: NodeName,
    /// The program.
    pub launch: LaunchSpec,
}

/// What became of the copies of an image.
#[derive(Debug, Clone)]
pub struct Copied {
    /// The instance that it is of.
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
