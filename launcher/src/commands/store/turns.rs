//! Which checkpoints go to the store while the job runs: a state machine without I/O.

use protocol::agent::CheckpointNumber;

/// Every so-manieth, one at a time.
#[derive(Debug)]
pub struct Turns {
    /// `None`: none has a turn.
    every: Option<u32>,
    /// Checkpoints since the last one whose turn it was.
    since: u32,
    is_writing: bool,
    has_told: bool,
    has_ended: bool,
}

/// What follows from a checkpoint.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is not its turn.
    Pass,
    /// It goes to the store.
    Write(CheckpointNumber),
    /// It would, but the one before is still on its way there.
    Skip {
        /// Whether that is told: the first time.
        tell: bool,
    },
}

impl Turns {
    /// Every so-manieth, from the first of them on.
    pub fn of(every: Option<u32>) -> Self {
        Self { every, since: 0, is_writing: false, has_told: false, has_ended: false }
    }

    /// A checkpoint is committed.
    pub fn committed(&mut self, checkpoint: CheckpointNumber) -> Turn {
        self.since = self.since.saturating_add(1);
        let is_its_turn = self.every.is_some_and(|every| self.since >= every);
        if !is_its_turn || self.has_ended {
            return Turn::Pass;
        }
        self.since = 0;
        if self.is_writing {
            return Turn::Skip { tell: !std::mem::replace(&mut self.has_told, true) };
        }
        self.is_writing = true;
        Turn::Write(checkpoint)
    }

    /// What was being written is there, or is given up.
    pub fn written(&mut self) {
        self.is_writing = false;
    }

    /// None is written any more.
    pub fn end(&mut self) {
        self.has_ended = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_so_manieth_goes_there_one_at_a_time() {
        let mut turns = Turns::of(Some(3));
        let all: Vec<Turn> = (1..=3).map(|number| turns.committed(number)).collect();
        assert_eq!(all, [Turn::Pass, Turn::Pass, Turn::Write(3)]);
        // Numbers of checkpoints that were given up are missing.
        let all: Vec<Turn> = [5, 6, 9].map(|number| turns.committed(number)).into();
        assert_eq!(all, [Turn::Pass, Turn::Pass, Turn::Skip { tell: true }]);
        let all: Vec<Turn> = (10..=12).map(|number| turns.committed(number)).collect();
        assert_eq!(all, [Turn::Pass, Turn::Pass, Turn::Skip { tell: false }]);
        turns.written();
        assert_eq!(turns.committed(13), Turn::Pass);
        assert_eq!((turns.committed(14), turns.committed(15)), (Turn::Pass, Turn::Write(15)));
        turns.written();
        turns.end();
        assert!((1..=9).all(|number| Turns::of(None).committed(number) == Turn::Pass));
        assert!((16..=20).all(|number| turns.committed(number) == Turn::Pass));
    }
}
