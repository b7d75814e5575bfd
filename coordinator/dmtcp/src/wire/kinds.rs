//! What numbers in messages mean.

/// Makes an enum of consecutive numbers from 0, and the way back from a number.
macro_rules! numbered {
    ($(#[$about:meta])* $name:ident { $($(#[$what:meta])* $variant:ident),* $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum $name { $($(#[$what])* $variant),* }

        impl $name {
            /// The one of that number.
            #[must_use]
            pub fn of(number: u32) -> Option<Self> {
                [$(Self::$variant),*].get(usize::try_from(number).ok()?).copied()
            }

            /// Its number.
            #[must_use]
            pub fn number(self) -> u32 {
                self as u32
            }
        }
    };
}

numbered! {
    /// A message's type.
    Kind {
        /// None.
        Null,
        /// A process that joins: launched, or about to be forked.
        NewWorker,
        /// A connection for the key-value store alone.
        StoreWorker,
        /// A process that is restarted.
        RestartWorker,
        /// It is let in.
        Accept,
        /// Refused: the computation is not restarting.
        RejectNotRestarting,
        /// Refused: another computation, or another DMTCP.
        RejectWrongGroup,
        /// Refused: the computation does not run.
        RejectNotRunning,
        /// Refused: it expects another number of peers.
        RejectPeerMismatch,
        /// Who the worker is, after fork.
        AfterFork,
        /// Who the worker is, once it has begun to execute a program.
        AfterExec,
        /// Where are images written?
        GetDirectory,
        /// There.
        Directory,
        /// They are to be written elsewhere.
        SetDirectory,
        /// The worker's image.
        ImageName,
        /// The same, of which each checkpoint has a new one.
        UniqueImageName,
        /// A command of dmtcp_command.
        UserCommand,
        /// What came of it.
        UserResult,
        /// Take a checkpoint.
        DoCheckpoint,
        /// The worker has reached a barrier.
        Barrier,
        /// All have.
        BarrierReleased,
        /// The worker goes on.
        Resuming,
        /// End.
        Kill,
        /// An operation on the key-value store.
        StoreRequest,
        /// Its result.
        StoreResponse,
    }
}

numbered! {
    /// A worker's state.
    WorkerState {
        /// Being launched.
        Unknown,
        /// It runs.
        Running,
        /// It has heard of a checkpoint.
        Presuspend,
        /// Its threads stand still.
        Suspended,
        /// It takes itself apart.
        Checkpointing,
        /// Its image is written.
        Checkpointed,
        /// It is being restarted.
        Restarting,
    }
}

impl WorkerState {
    /// DMTCP's name for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Running => "RUNNING",
            Self::Presuspend => "PRESUSPEND",
            Self::Suspended => "SUSPENDED",
            Self::Checkpointing => "CHECKPOINTING",
            Self::Checkpointed => "CHECKPOINTED",
            Self::Restarting => "RESTARTING",
        }
    }
}

numbered! {
    /// What dmtcp_command asks for.
    Command {
        /// Nothing.
        Invalid,
        /// How is it?
        Status,
        /// Who is there?
        List,
        /// Take a checkpoint.
        Checkpoint,
        /// Take one, and answer when it is written.
        BlockingCheckpoint,
        /// Take one, then end all processes.
        CheckpointAndKill,
        /// Change the interval.
        Interval,
        /// End all processes.
        Kill,
        /// And the coordinator.
        Quit,
        /// Never sent.
        Help,
    }
}

/// How a command went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum CommandStatus {
    /// It was done.
    Success = 0,
    /// There is no such command.
    InvalidCommand = -1,
    /// The computation does not run, or is at a checkpoint already.
    NotRunning = -2,
    /// No coordinator answers, or none that takes orders of this user.
    NotFound = -3,
}

impl CommandStatus {
    /// The one of that number.
    #[must_use]
    pub fn of(number: i32) -> Self {
        match number {
            0 => Self::Success,
            -2 => Self::NotRunning,
            -3 => Self::NotFound,
            _ => Self::InvalidCommand,
        }
    }
}

numbered! {
    /// An operation on the key-value store.
    Operation {
        /// What is it?
        Get,
        /// Set it.
        Set,
        /// Add to it.
        IncrementBy,
        /// Bitwise and.
        And,
        /// Bitwise or.
        Or,
        /// Bitwise exclusive or.
        Xor,
        /// The smaller one.
        Min,
        /// The larger one.
        Max,
    }
}

numbered! {
    /// What came of it.
    StoreResult {
        /// Done.
        Success,
        /// There is no such operation, or the sizes are wrong.
        InvalidRequest,
        /// There is no such database.
        DatabaseNotFound,
        /// There is no such key.
        KeyNotFound,
    }
}
