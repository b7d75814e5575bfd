//! The job's init: process 1 of the job's namespaces, or a plain process where there are none. A fresh, single-threaded
//! execution of this program makes the namespaces, starts or restores the job, reaps, and ends with its agent.

mod bring_back;
mod channel;
mod connections;
pub mod init_socket;
mod instance;
mod instance_init;
mod launch;
mod lease;
pub(super) mod namespaces;
mod order;
mod reap;
mod rehearsal;
mod rights;
mod shown;
mod stage;
pub mod stages;
pub(super) mod world;

pub use channel::{Channel, ChannelError};
pub use instance::{Connection, InstanceOrder, Instruction, Introduction, Keepsake, UserOrder};
pub use namespaces::{KEPT_MOUNTS, groups_outside};
pub use rehearsal::{OwnFile, Rehearsal, RehearsedInstance};
pub(super) use shown::arguments as shown_arguments;
pub use shown::{INIT_NAME, shown_by_init};
pub use stage::run;
pub use world::{NUMBERS_VARIABLE, World, lacking};

use protocol::agent::ExitKind;
use protocol::cluster::agent::MovedListener;
use protocol::launch::{LaunchSpec, RestoreSpec};
use serde::{Deserialize, Serialize};

use super::doing;
use super::graph::{OuterEnd, Pid};
use super::late::NamedSocket;
use super::objects::StdioRole;
use super::split::PartOrder;

/// The first process of an instance that has none: in a dump's settings and in the graph.
pub const NO_ROOT: Pid = 0;

/// What an agent orders of a new init.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// CLOCK_MONOTONIC and CLOCK_BOOTTIME of the job minus those of the machine, ns; `None`: as the
    /// machine's.
    pub clocks: Option<(i64, i64)>,
    /// Where its processes live.
    #[serde(default)]
    pub world: World,
    /// The number that the init had at the checkpoint, where that was not 1.
    #[serde(default)]
    pub number: Option<Pid>,
    /// What to do.
    pub task: Task,
    /// What is kept for later agents.
    #[serde(default)]
    pub keepsake: Keepsake,
    /// As an instance that outlives the process that started it; `None`: everything ends with that.
    #[serde(default)]
    pub instance: Option<InstanceOrder>,
    /// How many [`Connection`]s follow, each with its descriptor.
    #[serde(default)]
    pub connections: u32,
    /// The init was executed without randomised addresses; what it executes is to have them.
    #[serde(default)]
    pub low_heap: bool,
    /// What is brought back is never to run, and nothing else may come to know of it.
    #[serde(default)]
    pub rehearsal: Option<Rehearsal>,
    /// The agent wants to know of each stage ([`Report::Stage`]).
    #[serde(default)]
    pub stages: bool,
}

impl Report {
    /// That it could not be done.
    fn of_failure(error: super::error::EngineError) -> Self {
        match error {
            super::error::EngineError::NotRehearsable(why) => Self::NotRehearsable(why),
            other => Self::Failed(other.with_place(doing::last())),
        }
    }
}

impl Order {
    /// With nothing special about it.
    pub fn of(task: Task, keepsake: Keepsake) -> Self {
        let world = World::chosen();
        Self {
            clocks: None,
            world,
            number: None,
            task,
            keepsake,
            instance: None,
            connections: 0,
            low_heap: false,
            rehearsal: None,
            stages: false,
        }
    }
}

/// What an init is for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Start a program.
    Launch(LaunchSpec),
    /// Bring a job back.
    Restore {
        /// The job's folder.
        job_dir: std::path::PathBuf,
        /// How.
        spec: RestoreSpec,
        /// The part of the image; `None`: all of it.
        #[serde(default)]
        part: Option<PartOrder>,
    },
}

/// What an init tells its agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The init itself, as the agent's PID namespace numbers it.
    Init(i32),
    /// A stage of a launch or restore begins, or, `None`, the last one that has begun and is not over is. Only before
    /// [`Report::Ready`].
    Stage(Option<stages::Stage>),
    /// The job runs, or, where it was ordered, is complete and held. The descriptors sent along are the
    /// launcher's ends of these streams.
    Ready {
        /// The job's first process, as the job numbers it; `None`: it is not in this instance.
        root: Option<Pid>,
        /// Which stream each descriptor is.
        console: Vec<StdioRole>,
        /// The job's listening TCP sockets.
        #[serde(default)]
        moved: Vec<MovedListener>,
        /// Its memory is being filled while it runs: [`Report::Filling`] until [`Report::Filled`].
        #[serde(default)]
        is_filling: bool,
        /// Lines for the user.
        warnings: Vec<String>,
    },
    /// So many bytes of memory are filled by now.
    Filling {
        /// Since the job runs.
        bytes: u64,
    },
    /// All memory is filled.
    Filled,
    /// Memory can't be filled, and why: the job has been ended.
    Unfilled(String),
    /// All of the job is there and stands still; it ends with the agent's next word, or with the agent.
    Rehearsed {
        /// Its processes.
        processes: u32,
        /// Lines for the user.
        warnings: Vec<String>,
    },
    /// Nothing is known of the restart that was to be rehearsed.
    NotRehearsable(String),
    /// The job could not be started or restored; nothing of it has run.
    Failed(String),
    /// The job's first process has ended, and with it all others. In a cluster the init waits for
    /// [`Instruction::Kill`] then, so that the status is never lost.
    Ended(ExitKind),
    /// An agent's end of a relay, sent with its descriptor before [`Report::Ready`].
    Outer {
        /// The end, as both sides of the relay name it.
        end: OuterEnd,
    },
    /// The first words to an agent that takes this init over. The descriptors sent along are its ends of
    /// the streams.
    Introduction(Box<Introduction>),
    /// What was held runs.
    Running,
    /// The first process of an instance has ended; others may go on.
    RootEnded(ExitKind),
    /// There is one more listening socket of which others must know: all of them.
    Listens(Vec<MovedListener>),
    /// What single sockets are called.
    Names {
        /// The sockets, each with its addresses.
        sockets: Vec<NamedSocket>,
        /// Whether a connection has been accepted for a process that has not got it yet.
        unsettled: bool,
    },
    /// No process is left in an instance. The init waits for [`Instruction::Kill`].
    Empty,
}
