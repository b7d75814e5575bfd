//! The keys of a user at a terminal who has only been attached to a job: one that leaves it, and Ctrl-C, which asks first
//! where it would end the job.

use std::time::{Duration, Instant};

/// Ctrl-\, as a terminal sends it.
const PREFIX: u8 = 0x1c;

/// What follows it.
const LEAVE: u8 = b'd';

/// How long Ctrl-C can be said again.
const AGAIN: Duration = Duration::from_secs(10);

/// Ctrl-\ that has been typed, and waits for what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prefix {
    /// It came as a key.
    Key,
    /// The terminal has made SIGQUIT of it, as it does where the job has none of its own.
    Signal,
}

/// What becomes of what was typed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// For the job.
    pub bytes: Vec<u8>,
    /// Whether it gets SIGQUIT, too.
    pub quit: bool,
    /// Whether the user leaves.
    pub leaves: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Keys {
    prefix: Option<Prefix>,
    asked: Option<Instant>,
}

impl Keys {
    /// Takes what was typed. Nothing of what follows the key that leaves is passed on.
    pub fn typed(&mut self, bytes: &[u8]) -> Passed {
        let mut passed = Passed::default();
        for byte in bytes {
            match self.prefix.take() {
                Some(_) if *byte == LEAVE => {
                    passed.leaves = true;
                    return passed;
                }
                Some(Prefix::Signal) => passed.quit = true,
                Some(Prefix::Key) => passed.bytes.push(PREFIX),
                None => {}
            }
            match *byte {
                PREFIX => self.prefix = Some(Prefix::Key),
                byte => passed.bytes.push(byte),
            }
        }
        passed
    }

    /// The terminal has sent SIGQUIT.
    pub fn quit(&mut self) {
        self.prefix = Some(Prefix::Signal);
    }

    /// The terminal has sent SIGINT. Whether the user has been asked before, and means it.
    pub fn interrupt(&mut self) -> bool {
        let confirms = self.asked.is_some_and(|asked| asked.elapsed() < AGAIN);
        self.asked = (!confirms).then(Instant::now);
        confirms
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
        let mut keys = Keys::default();
        assert_eq!(keys.typed(b"duck"), passed(b"duck"));
        assert_eq!(keys.typed(b"a\x1c"), passed(b"a"));
        assert_eq!(keys.typed(b"x\x1c\x1cd"), Passed { leaves: true, ..passed(b"\x1cx\x1c") });
        keys.quit();
        assert_eq!(keys.typed(b"l\n"), Passed { quit: true, ..passed(b"l\n") });
        keys.quit();
        assert_eq!(keys.typed(b"d\n"), Passed { leaves: true, ..passed(b"") });
    }

    #[test]
    fn ctrl_c_is_meant_when_it_is_said_again() {
        let mut keys = Keys::default();
        assert_eq!([keys.interrupt(), keys.interrupt(), keys.interrupt()], [false, true, false]);
    }
}
