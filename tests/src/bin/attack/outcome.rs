//! What came of an attack.

use serde::{Deserialize, Serialize};

/// How an attack ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// As it must: what the answer was.
    Refused(String),
    /// The attacker got what it wanted: what that was.
    Succeeded(String),
    /// It could not be tried, which is no success of anybody.
    NotTried(String),
}

/// One line of the attacker's report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Line {
    /// The attack's name.
    pub id: String,
    /// What came of it.
    pub outcome: Outcome,
}

impl Line {
    /// Of that attack.
    pub fn new(id: &str, outcome: Outcome) -> Self {
        Self { id: id.to_owned(), outcome }
    }
}

/// The first of several tries at one attack that was not refused, else the last refusal.
pub fn worst(outcomes: impl IntoIterator<Item = Outcome>) -> Outcome {
    let mut last = Outcome::NotTried("nothing was tried".to_owned());
    for outcome in outcomes {
        match outcome {
            Outcome::Refused(_) => last = outcome,
            other => return other,
        }
    }
    last
}
