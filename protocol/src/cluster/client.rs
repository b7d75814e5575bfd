//! What a command on a node says to the cluster, over the local agent's or the coordinator's Unix
//! socket: JSON lines, [`Ask`]s one way and [`Answer`]s the other. The first line is
//! [`Ask::Hello`]; a connection carries one request, and for jobs in the foreground what follows it.

use super::agent::Stream;
use super::job_event::JobEvent;
use super::login::Statement;
use super::look::{Finding, ImageName, Look};
use super::peer::ImageFile;
use super::portable::{ImportRequest, SealedJob};
use super::powers::Powers;
use super::rehearsal::RehearsedInstance;
use super::settings::JobSettings;
use super::{Epoch, NodeName, Versions};
use crate::agent::{CheckpointNumber, CommitRecord, ExitKind};
use crate::control::Reply;
use crate::launch::{LaunchSpec, WindowSize};
use crate::log_times::Piece;
use serde::{Deserialize, Serialize};

/// The longest line of a client, in bytes: an environment can be 2 MiB (execve(2)), and its JSON
/// form takes up to four bytes for one.
pub const MAX_ASK: usize = 16 * 1024 * 1024;

/// The longest line to a client, in bytes.
pub const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// Why an agent without a coordinator refuses: another attempt may find one.
pub const NO_COORDINATOR: &str = "the agent has no coordinator at the moment: try again";

/// How a coordinator that knows of no such job begins to say so.
pub const NO_JOB: &str = "find job ";

/// A place in a job's log, which holds all its output. A rollback cuts the log back, so a place is one of an
/// epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPlace {
    /// The epoch.
    pub epoch: Epoch,
    /// Bytes of the log before it.
    pub length: u64,
    /// Bytes of this epoch's output before it.
    pub written: u64,
}

/// A job to be run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The name asked for.
    pub name: Option<String>,
    /// What to start. Streams are terminals or pipes; one that would be inherited is /dev/null.
    pub launch: LaunchSpec,
    /// How it is kept.
    pub settings: JobSettings,
    /// Whether the command returns once it runs.
    pub detach: bool,
    /// Whether its first process is started on the machine that has most room for it, instead of where it was asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anywhere: bool,
}

/// A job to be brought back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RestartRequest {
    /// Name, prefix of an id, or `latest`.
    pub job: String,
    /// The checkpoint; None: the newest.
    pub checkpoint: Option<CheckpointNumber>,
    /// Go on although files have changed.
    pub force: bool,
    /// How it is kept from now on; None: as before.
    pub settings: Option<JobSettings>,
    /// Size of the user's terminal.
    pub window: Option<WindowSize>,
    /// Whether the command returns once it runs.
    pub detach: bool,
}

/// From a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "kebab-case")]
pub enum Ask {
    /// The first line.
    Hello {
        /// [`super::VERSIONS`].
        version: Versions,
    },
    /// Run a job; then input may follow. Answers: [`Answer::Started`], [`Answer::Output`] and
    /// [`Answer::Committed`]..., [`Answer::Ended`]; or [`Answer::Failed`].
    Run(Box<RunRequest>),
    /// Bring a job back; as [`Ask::Run`].
    Restart(Box<RestartRequest>),
    /// Output, input and exit status of a job; as [`Ask::Run`].
    Attach {
        /// The job.
        job: String,
        /// Size of the user's terminal.
        window: Option<WindowSize>,
        /// What follows this is wanted, too; None: what comes from now on.
        #[serde(default)]
        shown: Option<LogPlace>,
    },
    /// What the job has written, from a place on; as much as fits into one reply. Answers: [`Answer::Output`]...,
    /// each behind its [`Answer::Times`] where they are wanted, [`Answer::Log`].
    Log {
        /// The job.
        job: String,
        /// The place; the default one: from its beginning.
        from: LogPlace,
        /// Whether it is to be told, too, when that was written.
        #[serde(default)]
        times: bool,
    },
    /// From where on a job's log is not known to be older than that. Answer: [`Answer::LogSince`].
    LogSince {
        /// The job.
        job: String,
        /// In milliseconds since 1970 UTC.
        at_ms: u64,
    },
    /// What has happened to a job since so many events. Answer: [`Answer::Events`].
    Events {
        /// The job.
        job: String,
        /// Events that are known; None: all that there were, so that the answer only tells how many.
        known: Option<u64>,
    },
    /// A line for the job's log about a command that its user wants called. Answer: [`Answer::Done`].
    Note {
        /// The job.
        job: String,
        /// The line.
        text: String,
    },
    /// Input for the job of this connection, base64; empty: its end.
    Input {
        /// The bytes.
        bytes: String,
    },
    /// The terminal has another size.
    Resize {
        /// The size.
        window: WindowSize,
    },
    /// A signal for the job of this connection, or the wish to end it.
    Signal {
        /// The signal's number.
        signal: i32,
    },
    /// Take a checkpoint now. Answer: [`Answer::Committed`].
    Checkpoint {
        /// The job.
        job: String,
    },
    /// End a job. Answer: [`Answer::Ended`].
    Stop {
        /// The job.
        job: String,
        /// Whether a last checkpoint is taken.
        checkpoint: bool,
    },
    /// All jobs. Answer: [`Answer::Listing`] with a value as `ckptd ls --json` shows it.
    Jobs,
    /// One job, or the newest. Answer: [`Answer::Listing`] as `ckptd status --json` shows it.
    Status {
        /// The job.
        job: Option<String>,
    },
    /// All members. Answer: [`Answer::Listing`] as `ckptd nodes --json` shows it.
    Nodes,
    /// What of the cluster somebody should look after, and which members are drained. Answer: [`Answer::Listing`] with
    /// `attention` and `drained`, as each job of [`Ask::Status`] has them.
    Attention,
    /// What follows is wanted by somebody at the coordinator's page. Only at the coordinator's own socket, from its own user.
    /// No answer, unless it is refused.
    Page {
        /// The name of the token by which the page knows who it is; empty: the coordinator's own user.
        name: String,
    },
    /// A member is turned out, its certificate revoked. Answer: [`Answer::Done`].
    RemoveNode {
        /// The member's name.
        node: NodeName,
    },
    /// A member is to get the cluster's key with its copy of the coordinator's folder, or not any more. Only operators.
    /// Answer: [`Answer::Done`].
    Standby {
        /// The member's name.
        node: NodeName,
        /// Whether it is to get it.
        on: bool,
    },
    /// A member is about to go; None: the one of this socket. Answer: [`Answer::Done`] when it is free to go.
    Leave {
        /// The member's name.
        node: Option<NodeName>,
    },
    /// A member is to run nothing from now on, and what it runs moves away; it stays a member. Only operators. Answer:
    /// [`Answer::Done`].
    Drain {
        /// The member's name.
        node: NodeName,
        /// Whether the answer comes when nothing runs there any more, and not at once.
        wait: bool,
    },
    /// A member that was drained takes processes again. Only operators. Answer: [`Answer::Done`].
    Uncordon {
        /// The member's name.
        node: NodeName,
    },
    /// A join token. Only root, or the coordinator's own user, on the coordinator's socket.
    /// Answer: [`Answer::Token`].
    Token {
        /// Times that it may be used.
        uses: u32,
        /// Seconds for which it is good.
        valid_s: u64,
        /// What those may order who join with it.
        powers: Powers,
    },
    /// Forget a job that does not run. Answer: [`Answer::Done`].
    Remove {
        /// The job.
        job: String,
    },
    /// Look at the images of a job that the node of this socket holds. Answers: [`Answer::Image`]..., [`Answer::Done`].
    Look {
        /// The job.
        job: String,
        /// Only of this checkpoint.
        checkpoint: Option<CheckpointNumber>,
        /// What is wanted.
        look: Look,
    },
    /// What is known of a job at a checkpoint, to take it elsewhere. Answer: [`Answer::Portable`].
    Portable {
        /// The job.
        job: String,
        /// The checkpoint; None: the newest.
        checkpoint: Option<CheckpointNumber>,
        /// As long as this connection stays, it is not collected.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stays: bool,
    },
    /// The files of one image of a job. Answers: [`Answer::Holder`], [`Answer::Files`], [`Answer::Piece`]...,
    /// [`Answer::Done`]; or [`Answer::Failed`] at any place.
    Image {
        /// The job.
        job: String,
        /// Which image.
        image: ImageName,
        /// Machines from which it is not wanted.
        avoid: Vec<NodeName>,
    },
    /// Take over a job of an archive. Answers: [`Answer::Accepted`], [`Answer::Taken`] for each piece of its log, and
    /// [`Answer::Imported`] after the last.
    Import(Box<ImportRequest>),
    /// A piece of the log of the job that this connection imports, base64; empty: its end.
    ImportLog {
        /// The bytes.
        bytes: String,
        /// When they were written, as far as that is known, by places in the log.
        #[serde(default)]
        times: Vec<Piece>,
    },
    /// Lines of the audit log. Only operators. Answer: [`Answer::Audit`].
    Audit {
        /// Bytes of the log before those lines.
        from: u64,
    },
    /// Rehearse a restart of a job, on machines that hold its images. Answers: [`Answer::Rehearsed`]..., [`Answer::Done`].
    Rehearse {
        /// The job.
        job: String,
        /// From which checkpoint; None: the newest.
        checkpoint: Option<CheckpointNumber>,
    },
    /// A key is to prove from now on that somebody is that user. Answer: [`Answer::Done`].
    AddKey {
        /// The user; None: who asks.
        user: Option<String>,
        /// The key, a line of `authorized_keys` without options.
        key: String,
    },
    /// A key proves nothing any more; what it has proven ends. Answer: [`Answer::Done`].
    RemoveKey {
        /// The user; None: who asks.
        user: Option<String>,
        /// Its fingerprint.
        fingerprint: String,
    },
    /// Keys of users: of one, or of all whom the one who asks may see. Answer: [`Answer::Listing`] of
    /// [`super::login::ShownKey`]s.
    Keys {
        /// The user.
        user: Option<String>,
    },
    /// Who asks wants to be admitted as a user of the cluster. Answer: [`Answer::Challenge`], to which an
    /// [`Ask::Prove`] on the same connection is the reply.
    Login {
        /// The user.
        user: String,
        /// For how many seconds.
        valid_s: u64,
    },
    /// The signature of the statement, as `ssh-keygen -Y sign` writes it. Answer: [`Answer::Done`].
    Prove {
        /// Its text.
        signature: String,
    },
    /// The login of this account on this machine ends. Answer: [`Answer::Done`].
    Logout {
        /// All other ones of the same user, too.
        all: bool,
    },
    /// The logins of who asks; for operators, of everybody. Answer: [`Answer::Listing`] of
    /// [`super::login::ShownLogin`]s.
    Logins,
}
crate::tagged!(Ask, "ask");

/// To a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "kebab-case")]
pub enum Answer {
    /// The wish to run or restart a job is in the coordinator's log: it will be done, whoever dies meanwhile.
    Accepted {
        /// Its id.
        job: String,
    },
    /// The job runs.
    Started {
        /// Its id.
        job: String,
        /// The name that its user knows it by.
        name: String,
        /// Whether it has a terminal.
        terminal: bool,
        /// Where its log stands.
        #[serde(default)]
        at: LogPlace,
    },
    /// A piece of its output, base64.
    Output {
        /// Which stream.
        stream: Stream,
        /// The bytes.
        bytes: String,
        /// Where they end in its log.
        #[serde(default)]
        at: LogPlace,
    },
    /// When the output that follows was written, as far as that is known.
    Times {
        /// By places in the log.
        pieces: Vec<Piece>,
    },
    /// What is known of the age of a log.
    LogSince {
        /// What comes before is older.
        from: LogPlace,
        /// Whether there are times of any of it.
        known: bool,
    },
    /// A part of a log has been sent.
    Log {
        /// Bytes of the log before that part: fewer than were asked for if the log was cut back since.
        start: u64,
        /// Behind that part.
        next: LogPlace,
        /// The log's length in bytes.
        length: u64,
        /// Whether the job is over, so that nothing more is to come.
        over: bool,
    },
    /// What has happened to a job.
    Events {
        /// The name that its user knows it by.
        name: String,
        /// The events, the newest last.
        events: Vec<JobEvent>,
        /// How many there were before these and are not remembered any more.
        forgotten: u64,
        /// How many there have been.
        known: u64,
        /// Whether the job is over.
        over: bool,
    },
    /// A line for the user, to standard error.
    Say {
        /// The line.
        text: String,
    },
    /// A checkpoint was committed.
    Committed {
        /// Its record.
        record: CommitRecord,
    },
    /// The job is over.
    Ended {
        /// How.
        status: ExitKind,
        /// Its newest committed checkpoint.
        checkpoint: Option<CheckpointNumber>,
    },
    /// A listing.
    Listing {
        /// As the command's --json shows it.
        value: serde_json::Value,
    },
    /// A join token.
    Token {
        /// The text.
        token: String,
    },
    /// What is to be signed for a login.
    Challenge {
        /// The statement, whose [`Statement::text`] is signed.
        statement: Box<Statement>,
    },
    /// What was found of an image.
    Image {
        /// The image, by its instance and checkpoint.
        image: ImageName,
        /// What the agent has found of it.
        finding: Finding,
    },
    /// What is known of a job.
    Portable {
        /// The job as another cluster takes it, sealed by the one that it comes from.
        job: SealedJob,
    },
    /// The image comes from this machine.
    Holder {
        /// The node that holds it.
        node: NodeName,
    },
    /// The files of an image that follow.
    Files {
        /// In their order.
        files: Vec<ImageFile>,
    },
    /// A piece of such a file, base64: in order, without gaps.
    Piece {
        /// The file.
        path: String,
        /// Bytes of it before these.
        offset: u64,
        /// The bytes.
        bytes: String,
    },
    /// Lines of the audit log, whole ones.
    Audit {
        /// The lines, without newlines.
        lines: Vec<String>,
        /// Bytes of the log up to their end.
        next: u64,
        /// Whether there are no more.
        over: bool,
    },
    /// A piece of a log is taken.
    Taken,
    /// The job is the cluster's.
    Imported {
        /// The name that it has here.
        name: String,
    },
    /// How the rehearsal of one instance came out.
    Rehearsed {
        /// Where; None: nobody there holds its image.
        node: Option<NodeName>,
        /// The instance's outcome.
        instance: RehearsedInstance,
    },
    /// It is done.
    Done {
        /// A line for the user, where there is one.
        text: Option<String>,
    },
    /// It could not be done.
    Failed {
        /// One line, in lower case, that fits after "failed to ...".
        reason: String,
        /// Exit status: 2 or 125.
        status: u8,
    },
}
crate::tagged!(Answer, "answer");

impl Answer {
    /// The line of this answer, without its newline.
    #[must_use]
    pub fn line(&self) -> String {
        // Answers have no keys that are not strings and no foreign types: they always have a form.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        match reply {
            Reply::Committed(record) => Self::Committed { record },
            Reply::Ended { status, checkpoint } => Self::Ended { status, checkpoint },
            Reply::Failed(reason) => Self::Failed { reason, status: 125 },
        }
    }
}
