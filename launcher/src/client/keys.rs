//! The keys of a user at a terminal who has only been attached to a job: one that leaves it, and Ctrl-C and Ctrl-\, which
//! ask first where they would end the job.

use std::time::{Duration, Instant};

use crate::session::terminal::QUIT_KEY;

/// What follows Ctrl-\.
const LEAVE: u8 = b'd';

/// How long Ctrl-C and Ctrl-\ can be said again.
const AGAIN: Duration = Duration::from_secs(10);

/// What becomes of what was typed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// For the job.
    pub bytes: Vec<u8>,
    /// Whether it gets SIGQUIT, too.
    pub quit: bool,
    /// Whether the user is to be asked if the job is to get SIGQUIT.
    pub asks: bool,
    /// Whether the user leaves.
    pub leaves: bool,
}

/// A key that is to be said twice.
#[derive(Debug, Default)]
struct Asked(Option<Instant>);

impl Asked {
    /// It was typed. Whether the user has been asked before, and means it.
    fn confirms(&mut self) -> bool {
        let confirms = self.0.is_some_and(|asked| asked.elapsed() < AGAIN);
        self.0 = (!confirms).then(Instant::now);
        confirms
    }
}

/// See the module.
#[derive(Debug)]
pub struct Keys {
    /// Whether the job has a terminal of its own, for which all but the key that leaves is meant.
    job_has_terminal: bool,
    /// Ctrl-\ has been typed, and waits for what follows.
    prefix: bool,
    interrupt: Asked,
    quit: Asked,
}

impl Keys {
    /// Of who has been attached to a job just now.
    pub fn new(job_has_terminal: bool) -> Self {
        let (interrupt, quit) = Default::default();
        Self { job_has_terminal, prefix: false, interrupt, quit }
    }

    /// Takes what was typed. Nothing of what follows the key that leaves is passed on.
    pub fn typed(&mut self, bytes: &[u8]) -> Passed {
        let mut passed = Passed::default();
        for byte in bytes {
            if std::mem::take(&mut self.prefix) {
                match *byte {
                    LEAVE => {
                        passed.leaves = true;
                        return passed;
                    }
                    _ if self.job_has_terminal => passed.bytes.push(QUIT_KEY),
                    _ => {
                        match self.quits() {
                            true => passed.quit = true,
                            false => passed.asks = true,
                        }
                        // Without Enter nothing comes from such a terminal: it is not meant for the job.
                        if *byte == b'\n' {
                            continue;
                        }
                    }
                }
            }
            match *byte {
                QUIT_KEY => self.prefix = true,
                byte => passed.bytes.push(byte),
            }
        }
        passed
    }

    /// The user wants SIGQUIT for the job. Whether that was asked before, and is meant.
    pub fn quits(&mut self) -> bool {
        self.quit.confirms()
    }

    /// The terminal has sent SIGINT. Whether the user has been asked before, and means it.
    pub fn interrupts(&mut self) -> bool {
        self.interrupt.confirms()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(bytes: &[u8]) -> Passed {
        Passed { bytes: bytes.to_vec(), ..Passed::default() }
    }

    #[test]
    fn only_the_whole_key_leaves() {
        let mut keys = Keys::new(true);
        assert_eq!(keys.typed(b"duck"), passed(b"duck"));
        assert_eq!(keys.typed(b"a\x1c"), passed(b"a"));
        assert_eq!(keys.typed(b"x\x1c\x1cd"), Passed { leaves: true, ..passed(b"\x1cx\x1c") });
    }

    #[test]
    fn a_job_without_a_terminal_gets_a_signal_where_it_is_said_twice() {
        let mut keys = Keys::new(false);
        assert_eq!(keys.typed(b"\x1cd\n"), Passed { leaves: true, ..passed(b"") });
        assert_eq!(keys.typed(b"l\x1c\n"), Passed { asks: true, ..passed(b"l") });
        assert_eq!(keys.typed(b"\x1cno\n"), Passed { quit: true, ..passed(b"no\n") });
        assert_eq!(keys.typed(b"\x1c\x1c\n"), Passed { asks: true, quit: true, ..passed(b"") });
    }

    #[test]
    fn ctrl_c_is_meant_when_it_is_said_again() {
        let mut keys = Keys::new(false);
        assert_eq!([keys.interrupts(), keys.interrupts(), keys.interrupts()], [false, true, false]);
    }
}
