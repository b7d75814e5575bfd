//! What is told of a job that has ended before its time: how it goes on.

use crate::out::resume_command;
use protocol::agent::CheckpointNumber;
use std::path::PathBuf;

/// What brings a job back that has ended before its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ComesBack {
    /// `ckptd restart`.
    #[default]
    ByRestart,
    /// The command that has run it, since a store keeps the job.
    BySameCommand,
    /// Nothing: its machines go, and what is on them.
    Never,
}

/// How a job goes on.
#[derive(Debug, Clone)]
pub struct Resume {
    /// By what.
    pub comes_back: ComesBack,
    /// The folder that was asked for on the command line.
    pub dir: Option<PathBuf>,
}

impl Resume {
    /// The half of a line about a job that was ended on purpose, and has a checkpoint.
    pub fn offer(&self, job: &str) -> String {
        match self.comes_back {
            ComesBack::Never => self.loss(),
            _ => format!("resume with: {}", self.way(job)),
        }
    }

    /// The same about one that has failed.
    pub fn offer_from(&self, checkpoint: CheckpointNumber, job: &str) -> String {
        match self.comes_back {
            ComesBack::Never => self.loss(),
            _ => format!("to go on from checkpoint {checkpoint}: {}", self.way(job)),
        }
    }

    fn way(&self, job: &str) -> String {
        match self.comes_back {
            ComesBack::BySameCommand => "the same command".to_owned(),
            ComesBack::ByRestart | ComesBack::Never => resume_command(self.dir.as_deref(), job),
        }
    }

    fn loss(&self) -> String {
        "its checkpoints go with the allocation, unless --store DIR keeps them".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_offered_that_does_not_work() {
        let told = |comes_back| {
            let resume = Resume { comes_back, dir: Some("/tmp/x".into()) };
            [resume.offer("queens"), resume.offer_from(3, "queens")]
        };
        let restart = "ckptd restart queens --dir /tmp/x";
        assert_eq!(
            told(ComesBack::ByRestart),
            [format!("resume with: {restart}"), format!("to go on from checkpoint 3: {restart}")]
        );
        assert_eq!(
            told(ComesBack::BySameCommand),
            ["resume with: the same command", "to go on from checkpoint 3: the same command"]
        );
        assert!(told(ComesBack::Never).iter().all(|text| !text.contains("restart")));
    }
}
