//! What the agent's tasks report to its driver.

use std::net::IpAddr;

use ckpt_engine::session::TakenOver;
use ckpt_node::{Event, Lacking, Record};
use command_tree::Line;
use protocol::cluster::agent::{FromAgent, JobUser, ToAgent};
use protocol::cluster::succession::{Followed, ToSuccessor};
use protocol::cluster::tree::TreeMessage;
use protocol::cluster::{InstanceKey, NodeName};
use protocol::transport::AnswerQueue;
use tokio::sync::mpsc::{Sender, UnboundedSender};
use tokio::sync::oneshot;

use super::instance::{Instance, Started};
use super::line_queue::Queue;
use super::link::Message;
use super::shell_call::Caller;

/// Something that a task reports: an event of the node, or one that is made of it.
pub enum Report {
    /// An event for which nothing is left to be done here.
    Node(Event),
    /// There is a connection to the coordinator, which knows nothing of this agent yet.
    Connected {
        /// The connection's number; numbers rise.
        connection: u64,
        /// To the coordinator.
        to: Sender<Message<FromAgent>>,
        /// The local address of it.
        local: IpAddr,
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
    /// The connection of that number to the coordinator is gone.
    Disconnected(u64),
    /// It is time for a heartbeat.
    Tick,
    /// An instance was launched or restored, or could not be.
    Started(InstanceKey, Result<Started, Lacking>),
    /// An instance was found alive.
    Found(Box<Found>),
    /// A relay of an instance reports something.
    Relay(InstanceKey, ckpt_node::RelayEvent),
    /// A process of an instance has something to say to its departed daemon: which inits of the job's
    /// other instances are here?
    OtherInits(InstanceKey, oneshot::Sender<Vec<i32>>),
    /// A local command has connected.
    ClientOpened {
        /// Its number.
        client: u64,
        /// Its user.
        user: JobUser,
        /// Where answers go.
        answers: AnswerQueue,
    },
    /// A local command has gone.
    ClientClosed(u64),
    /// `ckptd rsh` was called.
    Shell(Box<Caller>),
    /// A coordinator that carries on for a lost one asks whom this node follows, and what it holds.
    StateAsked(oneshot::Sender<ToSuccessor>),
    /// It asks whether this node follows it from now on.
    FollowAsked(Followed, oneshot::Sender<ToSuccessor>),
    /// Another agent has made a line of the command tree.
    LineAccepted {
        /// The other agent's node.
        node: NodeName,
        /// The line's number.
        number: u64,
        /// The way back.
        queue: Queue,
    },
    /// Something has come over a line; its seal is good.
    LineHeard {
        /// The line.
        line: Line,
        /// Its number.
        number: u64,
        /// The message.
        message: Box<TreeMessage>,
    },
    /// A line is gone.
    LineBroken {
        /// The line.
        line: Line,
        /// Its number.
        number: u64,
    },
}

/// An instance that was found alive.
pub struct Found {
    /// Its processes.
    pub instance: Instance,
    /// What the agent before has written down.
    pub record: Record,
    /// What is there of it.
    pub started: Started,
    /// What its init said.
    pub adopted: TakenOver,
}

/// The way to the driver.
#[derive(Debug, Clone)]
pub struct Reports(UnboundedSender<Report>);

impl Reports {
    /// Into that channel.
    #[must_use]
    pub fn new(sender: UnboundedSender<Report>) -> Self {
        Self(sender)
    }

    /// Reports. An agent that is ending does not listen any more.
    pub fn tell(&self, report: Report) {
        let _ = self.0.send(report);
    }

    /// Reports an event of the node.
    pub fn event(&self, event: Event) {
        self.tell(Report::Node(event));
    }
}
