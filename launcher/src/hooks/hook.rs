//! An event, and a command or an address.

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

/// What is called when something happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// When.
    pub kind: Kind,
    /// What.
    pub target: Target,
}

/// What is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A command for /bin/sh.
    Command(String),
    /// The address of a server that the event is sent to. It may have a secret in it.
    Address(String),
}

/// How addresses begin.
const SCHEMES: [&str; 2] = ["https://", "http://"];
/// So much of a target is shown in a line about it, in characters.
const SHOWN: usize = 60;

impl Target {
    /// What is behind the event.
    fn of(text: &str) -> Result<Self, HookError> {
        let address = text.trim();
        let begins = |scheme: &str| {
            address.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
        };
        if !SCHEMES.iter().any(|scheme| begins(scheme)) {
            return Ok(Self::Command(text.to_owned()));
        }
        check_address(address)?;
        Ok(Self::Address(address.to_owned()))
    }

    /// The beginning of a command, without what would end a line; of an address no more than the host.
    pub fn shown(&self) -> String {
        let (text, whole) = match self {
            Self::Command(command) => (command.as_str(), command.len()),
            Self::Address(address) => {
                let begin = address.find("//").map_or(0, |at| at + 2);
                let (scheme, rest) = address.split_at(begin);
                let authority = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
                let host = authority.rsplit('@').next().unwrap_or_default();
                return format!("{scheme}{host}/...");
            }
        };
        let mut shown: String = text.chars().take(SHOWN).collect();
        if shown.len() < whole {
            shown.push_str("...");
        }
        shown.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
    }

    fn text(&self) -> &str {
        match self {
            Self::Command(text) | Self::Address(text) => text,
        }
    }
}

#[cfg(feature = "webhooks")]
fn check_address(text: &str) -> Result<(), HookError> {
    // What is a space to a shell is taken for a part of the path there.
    let is_one = !text.contains(char::is_whitespace) && reqwest::Url::parse(text).is_ok();
    if is_one { Ok(()) } else { Err(HookError::BadAddress) }
}

#[cfg(not(feature = "webhooks"))]
fn check_address(_text: &str) -> Result<(), HookError> {
    Err(HookError::NoWebhooks)
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
    /// It begins as one, but is none.
    #[cfg(feature = "webhooks")]
    #[error("what begins with http is to be the address of a server, and is none")]
    BadAddress,
    /// See the crate's features.
    #[cfg(not(feature = "webhooks"))]
    #[error("this ckptd was built without webhooks")]
    NoWebhooks,
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
            target => Ok(Self { kind, target: Target::of(target)? }),
        }
    }
}

impl Display for Hook {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}={}", self.kind.name(), self.target.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_an_event_and_a_command() {
        let hook: Hook = "lost=curl -d a=b https://x/".parse().unwrap();
        let command = Target::Command("curl -d a=b https://x/".to_owned());
        assert_eq!((hook.kind, &hook.target), (Kind::Lost, &command));
        assert_eq!(hook.to_string().parse(), Ok(hook));
        for kind in Kind::ALL {
            assert_eq!(format!("{}=x", kind.name()).parse::<Hook>().unwrap().kind, kind);
        }
    }

    #[test]
    fn lines_have_the_beginning_of_a_target() {
        let long = "x".repeat(SHOWN);
        assert_eq!(Target::Command(format!("{long}x")).shown(), format!("{long}..."));
        assert_eq!(Target::Command("a\nb".to_owned()).shown(), "a b");
    }

    #[cfg(feature = "webhooks")]
    #[test]
    fn addresses_are_no_commands_and_stay_secret() {
        let address = "https://me:word@hooks.example.org:8443/services/T0/B1?key=2";
        let hook: Hook = format!("lost={address}").parse().unwrap();
        assert_eq!(hook.target, Target::Address(address.to_owned()));
        assert_eq!(hook.target.shown(), "https://hooks.example.org:8443/...");
        assert_eq!(hook.to_string().parse(), Ok(hook));
        let hook: Hook = "lost= HTTPS://hooks.example.org\\secret".parse().unwrap();
        assert_eq!(hook.target.shown(), "HTTPS://hooks.example.org/...");
        for bad in ["https://", "http://a b/", "https://[x/"] {
            let refused = format!("lost={bad}").parse::<Hook>();
            assert_eq!(refused, Err(HookError::BadAddress), "{bad}");
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
