//! What happens to a cluster's coordinator, and what it wants done.

use super::entry::ClusterEntry;
use super::page_certificate::PageCertificate;
use crate::event::Time;
use protocol::cluster::agent::{FromAgent, JobUser, Stream, ToAgent};
use protocol::cluster::audit::AuditEvent;
use protocol::cluster::client::{Answer, Ask, LogPlace};
use protocol::cluster::powers::Powers;
use protocol::cluster::{Epoch, NodeName, Term};
use protocol::log_times::{Origin, Piece};
use protocol::room::Room;
use protocol::transport::Fingerprint;
use std::collections::BTreeSet;

/// Names a local client: one of the coordinator's own socket, or of a node's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId {
    /// The node on whose socket it is; None: the coordinator's own.
    pub node: Option<NodeName>,
    /// Which connection of that node, 0 for the coordinator's own.
    pub connection: u64,
    /// Its number there.
    pub number: u64,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
// As short-lived as a message: a box would cost more than the room.
#[allow(clippy::large_enum_variant)]
pub enum ClusterEvent {
    /// Nothing but the time.
    Clock,
    /// An agent's message. The first over each connection is [`FromAgent::Hello`]; a node's new
    /// connection replaces its older one.
    Agent {
        /// The node, as its certificate names it.
        node: NodeName,
        /// Number of the connection, rising.
        connection: u64,
        /// The message.
        message: FromAgent,
        /// Its body.
        body: Vec<u8>,
    },
    /// An agent's connection is gone.
    Disconnected {
        /// The node.
        node: NodeName,
        /// Number of the connection.
        connection: u64,
    },
    /// A node has joined with a token: it may connect from now on, also if it was turned out before.
    Invited {
        /// The node.
        node: NodeName,
    },
    /// A node is a member, connected or not: what it may order, and how it is known.
    Admitted {
        /// The node.
        node: NodeName,
        /// As its token said.
        powers: Powers,
        /// The one key by which it is that member.
        key: Fingerprint,
    },
    /// How full the disk of the coordinator's folder is.
    OwnRoom {
        /// What was found.
        room: Room,
    },
    /// The coordinator's page shows another certificate.
    Page {
        /// It; None: there is no page, or no TLS at it.
        certificate: Option<PageCertificate>,
    },
    /// These members alone are to get the cluster's key; none: see [`ClusterAction::NameStandby`].
    Standbys {
        /// Their names.
        nodes: BTreeSet<NodeName>,
    },
    /// For these users only members speak that tokens have named for them.
    Named {
        /// Their names.
        users: BTreeSet<String>,
    },
    /// A client asks. ([`Ask::Token`] never comes here.)
    Asked {
        /// Who.
        client: ClientId,
        /// Its user.
        user: JobUser,
        /// What.
        ask: Ask,
    },
    /// A client has gone.
    ClientGone {
        /// Who.
        client: ClientId,
    },
    /// The entry given to [`ClusterAction::Append`] with this number is durable.
    Recorded {
        /// The number.
        number: u64,
    },
    /// It could not be written.
    RecordFailed {
        /// The number.
        number: u64,
        /// One line.
        reason: String,
    },
}

/// A piece of a job's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPiece {
    /// Bytes of the log before it.
    pub start: u64,
    /// Where it ends.
    pub end: LogPlace,
    /// The stream that it is of.
    pub stream: Stream,
}

/// When bytes of a job's log were written, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// Now.
    Now(Origin),
    /// Before. This much is known of it, by places in the log.
    Before(Vec<Piece>),
}

/// What is to be done, in this order. What follows an [`ClusterAction::Append`] is done only once
/// that is durable. Where it can't be written and [is vital](ClusterEntry::is_vital), the coordinator
/// ends before it does anything else; where it is not, it says so and goes on.
#[derive(Debug, Clone, PartialEq)]
// As short-lived as a message: a box would cost more than the room.
#[allow(clippy::large_enum_variant)]
pub enum ClusterAction {
    /// Send to an agent over its newest connection; dropped where it has none.
    Send {
        /// The node.
        node: NodeName,
        /// The message.
        message: ToAgent,
        /// Its body.
        body: Vec<u8>,
    },
    /// Send to all agents that are welcome members. One action, however many there are.
    Broadcast {
        /// The message.
        message: ToAgent,
        /// Whom it is not for.
        except: Option<NodeName>,
    },
    /// Close the connection to an agent after what was sent.
    Disconnect {
        /// The node.
        node: NodeName,
    },
    /// A member is named as one that gets the cluster's key with its copy of the coordinator's folder, or not any more. As
    /// long as none is named, every member gets it that has a copy and is no mere worker.
    NameStandby {
        /// The node.
        node: NodeName,
        /// Whether it is to get it.
        on: bool,
    },
    /// Its key is worth nothing from now on.
    Revoke {
        /// The node.
        node: NodeName,
    },
    /// Another coordinator has taken over: this one ends, and does nothing more.
    Superseded {
        /// The other's term.
        term: Term,
        /// The node that follows it.
        by: NodeName,
    },
    /// Answer a client of the coordinator's own socket. Those of nodes are answered by
    /// [`ToAgent::Client`].
    Answer {
        /// Who.
        client: ClientId,
        /// The answer.
        answer: Answer,
    },
    /// Answer a client with pieces of a job's log.
    Replay {
        /// Who.
        client: ClientId,
        /// The job.
        job: String,
        /// The pieces, in their order.
        pieces: Vec<LogPiece>,
        /// Whether it is told when they were written.
        times: bool,
    },
    /// Tell a client, last, from where on a job's log is not known to be older than that.
    LogSince {
        /// Who.
        client: ClientId,
        /// The job.
        job: String,
        /// In milliseconds since 1970 UTC.
        at_ms: u64,
        /// The epoch that the log is of.
        epoch: Epoch,
    },
    /// Close a client's connection after what was answered.
    Close {
        /// Who.
        client: ClientId,
    },
    /// Append to the coordinator's log, make it durable, and say so by
    /// [`ClusterEvent::Recorded`].
    Append {
        /// Rising.
        number: u64,
        /// What.
        entry: ClusterEntry,
    },
    /// Append bytes to a job's log, the file with its output.
    Log {
        /// The job.
        job: String,
        /// The bytes.
        bytes: Vec<u8>,
        /// When and by what.
        written: Written,
    },
    /// Cut a job's log to a length; what is behind is kept beside it.
    CutLog {
        /// The job.
        job: String,
        /// The length.
        length: u64,
        /// The checkpoint that it belongs to.
        checkpoint: u64,
    },
    /// Append to the audit log. Nothing waits until that is durable.
    Audit {
        /// What.
        event: AuditEvent,
    },
    /// Answer a client with lines of the audit log.
    ShowAudit {
        /// Who.
        client: ClientId,
        /// Bytes of the log before those lines.
        from: u64,
    },
    /// Remove a job's log and folder on the coordinator's disk.
    RemoveJob {
        /// The job.
        job: String,
    },
}

/// A step of the machine: what time it is.
pub type Now = Time;
