//! How far an init has come: told to the agent, which has the spans (see [`doing`] for why the init has none itself).

use std::borrow::Cow;
use std::cell::RefCell;

use serde::{Deserialize, Serialize};
use tracing::span::EnteredSpan;
use tracing::{Span, debug_span};

use super::super::doing::{self, Thing};
use super::super::graph::Pid;
use super::Report;
use super::channel::Channel;

/// A stage of a launch or a restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Leaving the machine's namespaces.
    Namespaces,
    /// Mounting what a job has of its own.
    Mounts,
    /// Starting the first process.
    Program,
    /// Opening the image and reading its index.
    Image,
    /// Making the content of files and shared memory.
    Files,
    /// Making the kernel objects of one kind.
    Objects {
        /// The kind.
        kind: Cow<'static, str>,
        /// How many.
        count: usize,
    },
    /// Tying those of one kind to others.
    Wire {
        /// The kind.
        kind: Cow<'static, str>,
        /// How many.
        count: usize,
    },
    /// Making the processes.
    Tree {
        /// How many.
        processes: usize,
    },
    /// Reading what the image has of each process once more, behind the forks.
    Processes,
    /// Giving a process its mappings.
    Layout {
        /// The process.
        pid: Pid,
    },
    /// Filling the memory of all processes.
    Memory {
        /// Bytes.
        bytes: u64,
    },
    /// Putting clocks back.
    Clocks,
    /// The last steps of a process's memory.
    Protect {
        /// The process.
        pid: Pid,
    },
    /// Making threads.
    Threads,
    /// Giving a process's threads their state.
    Furnish {
        /// The process.
        pid: Pid,
    },
    /// Letting the job run.
    Go,
}

impl Stage {
    /// The span that stands for it in the agent.
    fn span(&self) -> Span {
        match self {
            Self::Namespaces => debug_span!("namespaces"),
            Self::Mounts => debug_span!("mounts"),
            Self::Program => debug_span!("program"),
            Self::Image => debug_span!("image"),
            Self::Files => debug_span!("files"),
            Self::Objects { kind, count } => debug_span!("objects", kind = %kind, count),
            Self::Wire { kind, count } => debug_span!("wire", kind = %kind, count),
            Self::Tree { processes } => debug_span!("tree", processes),
            Self::Processes => debug_span!("processes"),
            Self::Layout { pid } => debug_span!("layout", pid),
            Self::Memory { bytes } => debug_span!("memory", bytes),
            Self::Clocks => debug_span!("clocks"),
            Self::Protect { pid } => debug_span!("protect", pid),
            Self::Threads => debug_span!("threads"),
            Self::Furnish { pid } => debug_span!("furnish", pid),
            Self::Go => debug_span!("go"),
        }
    }

    /// As the init's own errors call it.
    fn activity(&self) -> (&'static str, Thing) {
        let objects = |kind: &Cow<'static, str>, count: usize| match kind {
            Cow::Borrowed(kind) => Thing::Objects { kind, count },
            Cow::Owned(_) => Thing::Job,
        };
        match self {
            Self::Namespaces => ("making namespaces", Thing::Job),
            Self::Mounts => ("mounting", Thing::Job),
            Self::Program => ("starting the program", Thing::Job),
            Self::Image => ("reading the image", Thing::Job),
            Self::Files => ("making files", Thing::Job),
            Self::Objects { kind, count } => ("making objects,", objects(kind, *count)),
            Self::Wire { kind, count } => ("tying objects,", objects(kind, *count)),
            Self::Tree { .. } => ("making processes", Thing::Job),
            Self::Processes => ("reading the image of each process", Thing::Job),
            Self::Layout { pid } => ("mapping the memory of", Thing::Process(*pid)),
            Self::Memory { .. } => ("filling memory", Thing::Job),
            Self::Clocks => ("putting clocks back", Thing::Job),
            Self::Protect { pid } => ("completing the memory of", Thing::Process(*pid)),
            Self::Threads => ("making threads", Thing::Job),
            Self::Furnish { pid } => ("restoring the threads of", Thing::Process(*pid)),
            Self::Go => ("letting the job run", Thing::Job),
        }
    }
}

thread_local! {
    /// The way to the agent, while that wants to know, and the init's own number: what it forks has no say, nor have the
    /// threads that fill memory.
    static AGENT: RefCell<Option<(u32, Channel)>> = const { RefCell::new(None) };
}

/// From now on stages are told to the agent. Where that can't be had, they are not.
pub fn tell(channel: &Channel) {
    let copy = channel.socket().try_clone().map(Channel::new);
    AGENT.set(copy.ok().map(|copy| (std::process::id(), copy)));
}

/// No more are told: the agent sees the init's end by its socket.
pub fn tell_no_more() {
    AGENT.set(None);
}

/// A stage that goes on until this is dropped.
#[must_use]
pub struct Begun {
    told: bool,
}

/// Begins a stage of this init.
pub fn begin(stage: Stage) -> Begun {
    let (what, thing) = stage.activity();
    doing::begin(what, thing);
    Begun { told: say(&Report::Stage(Some(stage))) }
}

fn say(report: &Report) -> bool {
    // An agent that has gone shows when the job is there.
    AGENT.with_borrow(|agent| match agent {
        Some((own, agent)) => *own == std::process::id() && agent.send(report, &[]).is_ok(),
        None => false,
    })
}

impl Drop for Begun {
    fn drop(&mut self) {
        if self.told {
            say(&Report::Stage(None));
        }
    }
}

/// Whether anybody looks at the spans of an init's stages.
pub fn are_wanted() -> bool {
    tracing::enabled!(tracing::Level::DEBUG)
}

/// The stages of an init, as spans of the agent's thread.
#[derive(Default)]
pub struct Mirror(Vec<EnteredSpan>);

impl Mirror {
    /// Takes what the init says: that a stage begins, or that the last one begun is over.
    pub fn note(&mut self, stage: Option<&Stage>) {
        match stage {
            Some(stage) => self.0.push(stage.span().entered()),
            None => drop(self.0.pop()),
        }
    }
}

impl Drop for Mirror {
    /// From within, as they were entered.
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn an_agent_hears_of_stages_while_it_wants_to() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (agent, init) = (Channel::new(ours), Channel::new(theirs));
        drop(begin(Stage::Image));
        tell(&init);
        {
            let _outer = begin(Stage::Objects { kind: "pipe".into(), count: 2 });
            let _inner = begin(Stage::Layout { pid: 7 });
            let last = doing::last().map(|activity| activity.to_string());
            assert_eq!(last.as_deref(), Some("mapping the memory of process 7"));
        }
        tell_no_more();
        drop(begin(Stage::Go));
        drop(init);
        let mut heard = Vec::new();
        while let Ok((report, _)) = agent.receive::<Report>() {
            let Report::Stage(stage) = report else { panic!("{report:?}") };
            heard.push(stage);
        }
        let kind = Stage::Objects { kind: "pipe".into(), count: 2 };
        assert_eq!(heard, [Some(kind), Some(Stage::Layout { pid: 7 }), None, None]);
    }
}
