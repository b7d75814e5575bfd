//! What is known of one instance on this node.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::agent::{CheckpointNumber, ExitKind};
use protocol::cluster::agent::{
    InstanceSettings, JobUser, LaunchOrder, MovedListener, PrepareOrder, RelayLink, RelaySide,
    ShellCall, Skipped,
};
use protocol::cluster::image::Efforts;
use protocol::cluster::{InstanceKey, NodeName};
use serde::{Deserialize, Serialize};
use tokio::task::{AbortHandle, JoinHandle};

use crate::daemon::absent::Absent;
use crate::daemon::console::ConsoleHandle;
use crate::daemon::control::Control;
use crate::daemon::node::fallen::Resting;
use crate::daemon::node::shell_calls::ShellEnd;
use crate::daemon::relay::RelayHandle;

/// Name of the file that a later agent reads.
pub const RECORD: &str = "instance.json";
/// Name of the init's socket.
pub const SOCKET: &str = "init.sock";
/// Version of the record.
pub const FORMAT: u32 = 1;

/// How far an instance has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its image is being fetched.
    Preparing,
    /// Its image is here.
    Prepared,
    /// It is being launched or restored.
    Starting,
    /// It is complete and waits for everybody else.
    Complete,
    /// It runs.
    Running,
    /// It is being killed.
    Dying,
}

/// An instance, and everything that serves it.
pub struct Instance {
    /// What a later agent must know.
    pub record: Record,
    /// How far it has come.
    pub state: State,
    /// The hand on it.
    pub control: Arc<dyn Control>,
    /// Its folder.
    pub folder: PathBuf,
    /// What is to be restored.
    pub prepare: Option<Box<PrepareOrder>>,
    /// Its init, as this machine numbers it; 0: not known yet.
    pub init: i32,
    /// The job's console, if it is here.
    pub console: Option<ConsoleHandle>,
    /// Its sides of relays.
    pub relays: Vec<RelayHandle>,
    /// The way to the remote shell that started it.
    pub shell: Option<ShellEnd>,
    /// Its connections whose peers have departed, and what is known of them.
    pub absent: Absent,
    /// Which those are.
    pub skipped: Vec<Skipped>,
    /// Looks whether it only waits, in a job that does without some of its daemons.
    pub rest: Option<Resting>,
    /// Its sides of relays that bring output of the job to its console.
    pub sinks: BTreeSet<RelaySide>,
    /// Its relays write nothing until the job goes on after a checkpoint.
    pub withheld: bool,
    /// Links that came before their relays.
    pub links: Vec<RelayLink>,
    /// Its listening TCP sockets, as far as they are known.
    pub listeners: Vec<MovedListener>,
    /// Taken over from an agent that died.
    pub adopted: bool,
    /// Why what it has on its way to other instances is lost; the coordinator is told.
    pub relays_lost: Option<String>,
    /// Stands still, because the lease had run out.
    pub held: bool,
    /// How its first process ended.
    pub ended: Option<ExitKind>,
    /// Whether that is known to the coordinator, or will be after the console's last bytes.
    pub end_told: bool,
    /// No process is left.
    pub empty: bool,
    /// Whether the coordinator that is connected has been told that.
    pub empty_told: bool,
    /// The checkpoint whose relays stand still.
    pub paused: Option<CheckpointNumber>,
    /// What its processes had done when it went on after a checkpoint.
    pub efforts: Option<(CheckpointNumber, JoinHandle<Efforts>)>,
    /// The checkpoint that is being copied.
    pub copying: Option<(CheckpointNumber, AbortHandle)>,
    /// The checkpoint that is written and copied, not committed.
    pub copied: Option<(CheckpointNumber, Vec<NodeName>)>,
    /// The checkpoint that is being committed, and how many parts of that are missing.
    pub committing: Option<(CheckpointNumber, u8)>,
}

/// What a later agent must know of an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// Which it is.
    pub key: InstanceKey,
    /// Its logical node.
    pub logical_node: NodeName,
    /// Whether the end of its first process is the job's end.
    pub is_root: bool,
    /// For whom.
    pub user: JobUser,
    /// The number of the user of its processes on this machine; `None`: written by an agent that did not note it.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Settings.
    pub settings: InstanceSettings,
    /// Nodes that get copies.
    pub partners: Vec<NodeName>,
    /// The call of `ckptd rsh` that started it.
    pub shell: Option<ShellCall>,
}

impl Record {
    /// Of one to be launched.
    #[must_use]
    pub fn of_launch(order: &LaunchOrder) -> Self {
        Self {
            format: FORMAT,
            key: order.key.clone(),
            logical_node: order.logical_node.clone(),
            is_root: order.is_root,
            user: order.user.clone(),
            uid: None,
            settings: order.settings,
            partners: order.partners.clone(),
            shell: order.shell.clone(),
        }
    }

    /// Of one to be restored.
    #[must_use]
    pub fn of_prepare(order: &PrepareOrder) -> Self {
        Self {
            format: FORMAT,
            key: order.key.clone(),
            logical_node: order.logical_node.clone(),
            is_root: order.is_root,
            user: order.user.clone(),
            uid: None,
            settings: order.settings,
            partners: order.partners.clone(),
            shell: None,
        }
    }
}

impl Instance {
    /// One of which nothing is there yet.
    #[must_use]
    pub fn new(record: Record, control: Arc<dyn Control>, folder: PathBuf, state: State) -> Self {
        Self {
            record,
            state,
            control,
            folder,
            prepare: None,
            init: 0,
            console: None,
            relays: Vec::new(),
            shell: None,
            absent: Absent::default(),
            skipped: Vec::new(),
            rest: None,
            sinks: BTreeSet::new(),
            withheld: false,
            links: Vec::new(),
            listeners: Vec::new(),
            adopted: false,
            relays_lost: None,
            held: false,
            ended: None,
            end_told: false,
            empty: false,
            empty_told: false,
            paused: None,
            efforts: None,
            copying: None,
            copied: None,
            committing: None,
        }
    }

    /// Tells the remote shell that started it how the first process ended, once that is known.
    pub fn tell_shell(&mut self) {
        if let (Some(kind), Some(shell)) =
            (self.ended, self.shell.take_if(|_| self.ended.is_some()))
        {
            shell.ended(kind);
        }
    }

    /// Whether processes of it may live.
    #[must_use]
    pub fn lives(&self) -> bool {
        matches!(self.state, State::Complete | State::Running)
    }

    /// Writes down what a later agent must know.
    ///
    /// # Errors
    /// As open(2), write(2).
    pub fn write_record(&self) -> std::io::Result<()> {
        let text = serde_json::to_vec(&self.record)?;
        let draft = self.folder.join("instance.json.tmp");
        std::fs::write(&draft, text)?;
        std::fs::rename(draft, self.folder.join(RECORD))
    }
}
