//! How a farm is run.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use std::time::Duration;

/// How a farm is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Tasks that run at a time.
    pub slots: usize,
    /// How long a task may take.
    pub timeout: Option<Duration>,
    /// How often a task that has failed is tried again.
    pub retries: u32,
    /// When all are given up.
    pub halt: Option<Halt>,
    /// How old a task is when the first checkpoint is taken of it.
    pub checkpoint: Option<Duration>,
    /// Whether something has checkpoints taken of each task from its beginning: nobody has to be told to.
    pub kept_from_start: bool,
    /// How long a task that was asked to end may take to do so.
    pub grace: Duration,
    /// How long a last checkpoint may take.
    pub saving: Duration,
    /// How long an end that may be the doing of whoever ends everything waits for an interrupt, which shows that.
    pub doubt: Duration,
    /// How long nothing is begun after something could not be.
    pub pause: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slots: 1,
            timeout: None,
            retries: 0,
            halt: None,
            checkpoint: None,
            kept_from_start: false,
            grace: Duration::from_secs(5),
            saving: Duration::from_secs(60),
            doubt: Duration::from_secs(2),
            pause: Duration::from_secs(1),
        }
    }
}

/// What holds for one task in the place of what holds for all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// How often it is tried again if it has failed.
    pub retries: Option<u32>,
}

/// When no more tasks are begun although there are some.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Halt {
    /// What becomes of those that run.
    pub urgency: Urgency,
    /// What is counted.
    pub counted: Counted,
    /// How many of them there must be.
    pub number: u32,
}

/// What becomes of tasks that run at a halt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// They run to their end.
    Soon,
    /// They are ended.
    Now,
}

/// What is counted for a halt: tasks that have ended since this part of the run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// With another status than 0.
    Fail,
    /// With status 0.
    Success,
    /// With any.
    Done,
}

/// What is wrong with such a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bad;

impl Display for Bad {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str("must be 'soon' or 'now', then ',fail=N', ',success=N' or ',done=N', such as now,fail=1")
    }
}

impl std::error::Error for Bad {}

impl FromStr for Halt {
    type Err = Bad;

    fn from_str(text: &str) -> Result<Self, Bad> {
        let (urgency, rest) = text.split_once(',').ok_or(Bad)?;
        let (counted, number) = rest.split_once('=').ok_or(Bad)?;
        let urgency = match urgency {
            "soon" => Urgency::Soon,
            "now" => Urgency::Now,
            _ => return Err(Bad),
        };
        let counted = match counted {
            "fail" => Counted::Fail,
            "success" => Counted::Success,
            "done" => Counted::Done,
            _ => return Err(Bad),
        };
        match number.parse() {
            Ok(number @ 1..) => Ok(Self { urgency, counted, number }),
            _ => Err(Bad),
        }
    }
}

impl TryFrom<String> for Halt {
    type Error = Bad;

    fn try_from(text: String) -> Result<Self, Bad> {
        text.parse()
    }
}

impl From<Halt> for String {
    fn from(halt: Halt) -> Self {
        halt.to_string()
    }
}

impl Display for Halt {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let urgency = match self.urgency {
            Urgency::Soon => "soon",
            Urgency::Now => "now",
        };
        let counted = match self.counted {
            Counted::Fail => "fail",
            Counted::Success => "success",
            Counted::Done => "done",
        };
        write!(out, "{urgency},{counted}={}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_halt_is_what_it_says() {
        for text in ["now,fail=1", "soon,success=20", "soon,done=3"] {
            assert_eq!(text.parse::<Halt>().unwrap().to_string(), text);
        }
        for text in
            ["", "now", "now,fail", "now,fail=0", "later,fail=1", "now,fall=1", "now,fail=-1"]
        {
            assert_eq!(text.parse::<Halt>(), Err(Bad), "{text}");
        }
    }
}
