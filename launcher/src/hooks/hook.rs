//! An event and a command.

use protocol::cluster::job_event::Happening;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// The longest command, in bytes.
const LONGEST: usize = 16 << 10;

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A checkpoint is committed.
    Checkpoint,
    /// A checkpoint could not be taken.
    Failed,
    /// A node with processes of the job is gone.
    Lost,
    /// The job runs again, from a checkpoint or elsewhere.
    Moved,
    /// The job has ended.
    Ended,
}

impl Kind {
    /// All of them.
    const ALL: [Self; 5] = [Self::Checkpoint, Self::Failed, Self::Lost, Self::Moved, Self::Ended];

    /// That of an event.
    pub fn of(what: &Happening) -> Self {
        match what {
            Happening::Checkpoint { .. } => Self::Checkpoint,
            Happening::Failed { .. } => Self::Failed,
            Happening::Lost { .. } => Self::Lost,
            Happening::Moved { .. } => Self::Moved,
            Happening::Ended { .. } => Self::Ended,
        }
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Checkpoint => "checkpoint",
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::Moved => "moved",
            Self::Ended => "ended",
        }
    }
}

/// A command that is called when something happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// When.
    pub kind: Kind,
    /// For /bin/sh.
    pub command: String,
}

/// Why a text is none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// It has no sign.
    #[error("not of the form EVENT=COMMAND; events are {}", names())]
    Form,
    /// There is no such event.
    #[error("there is no event {0:?}; events are {names}", names = names())]
    Unknown(String),
    /// Nothing is to be called.
    #[error("the command is missing after {0}=")]
    Empty(&'static str),
    /// Nobody types as much.
    #[error("the command is longer than {LONGEST} bytes: put it into a file")]
    TooLong,
}

fn names() -> String {
    Kind::ALL.map(Kind::name).join(", ")
}

impl FromStr for Hook {
    type Err = HookError;

    fn from_str(text: &str) -> Result<Self, HookError> {
        let (event, command) = text.split_once('=').ok_or(HookError::Form)?;
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == event);
        let kind = kind.ok_or_else(|| HookError::Unknown(event.to_owned()))?;
        match command {
            empty if empty.trim().is_empty() => Err(HookError::Empty(kind.name())),
            long if long.len() > LONGEST => Err(HookError::TooLong),
            command => Ok(Self { kind, command: command.to_owned() }),
        }
    }
}

impl Display for Hook {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}={}", self.kind.name(), self.command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_an_event_and_a_command() {
        let hook: Hook = "lost=curl -d a=b https://x/".parse().unwrap();
        assert_eq!((hook.kind, hook.command.as_str()), (Kind::Lost, "curl -d a=b https://x/"));
        assert_eq!(hook.to_string().parse(), Ok(hook));
        for kind in Kind::ALL {
            assert_eq!(format!("{}=x", kind.name()).parse::<Hook>().unwrap().kind, kind);
        }
    }

    #[test]
    fn what_is_none_is_told_with_what_there_is() {
        let told = |text: &str| text.parse::<Hook>().unwrap_err().to_string();
        let known = "events are checkpoint, failed, lost, moved, ended";
        assert_eq!(told("ended"), format!("not of the form EVENT=COMMAND; {known}"));
        assert_eq!(told("end=x"), format!("there is no event \"end\"; {known}"));
        assert_eq!(told("ended= "), "the command is missing after ended=");
        assert!(told(&format!("ended={}", "x".repeat(LONGEST + 1))).contains("longer than"));
    }
}
