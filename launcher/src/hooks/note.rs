//! What the launcher tells the process that calls commands: lines of JSON on its standard input, whose end is the launcher's.

use protocol::cluster::job_event::JobEvent;
use serde::{Deserialize, Serialize};

/// The longest line with its end, in bytes: a pipe takes it whole or not at all (pipe(7)).
pub const LONGEST: usize = 4096;

/// One note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "kebab-case")]
pub enum Note {
    /// The job runs, and ends with its launcher.
    Runs,
    /// Something has happened.
    Happened {
        /// What.
        event: JobEvent,
    },
    /// Nothing more is going to happen.
    Over,
    /// Nobody waits for what is still being called.
    GiveUp,
}
protocol::tagged!(Note, "note");

impl Note {
    /// Its line; None: it is too long.
    pub fn line(&self) -> Option<String> {
        let line = serde_json::to_string(self).ok()? + "\n";
        (line.len() <= LONGEST).then_some(line)
    }

    /// That of a line; None: it is none.
    pub fn of(line: &str) -> Option<Self> {
        protocol::json::read(line.as_bytes()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::cluster::job_event::Happening;

    #[test]
    fn notes_come_as_they_were_written() {
        let event = JobEvent { at_ms: Some(3), what: Happening::failed(1, &"x".repeat(2000)) };
        for note in [Note::Runs, Note::Happened { event }, Note::Over, Note::GiveUp] {
            let line = note.line().unwrap();
            assert_eq!(Note::of(line.trim_end()), Some(note));
        }
        assert_eq!(Note::of("hello"), None);
        let event = JobEvent { at_ms: None, what: Happening::failed(1, &"\u{1}".repeat(1000)) };
        assert_eq!(Note::Happened { event }.line(), None);
    }
}
