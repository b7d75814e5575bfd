//! Numbers of tasks that are read from standard input as they come, one a line.

use crate::failure::Failure;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::Duration;

/// The longest line.
const LONGEST: usize = 64;

/// Where they come from.
pub struct Numbers {
    /// None: it has ended.
    input: Option<File>,
    /// The beginning of a line.
    begun: Vec<u8>,
}

impl Numbers {
    /// Those of standard input.
    ///
    /// # Errors
    /// Where there is none.
    pub fn of_stdin() -> Result<Self, Failure> {
        let input = io::stdin().as_fd().try_clone_to_owned();
        let input = input.map_err(|error| Failure::of("read standard input", error))?;
        Ok(Self { input: Some(input.into()), begun: Vec::new() })
    }

    /// Whether no more will come.
    pub fn is_over(&self) -> bool {
        self.input.is_none()
    }

    /// Waits for some, not longer than that; what has come.
    ///
    /// # Errors
    /// Where standard input can't be read, or has something else.
    pub fn wait(&mut self, longest: Option<Duration>) -> Result<Vec<u32>, Failure> {
        let failed = |error| Failure::of("read standard input", error);
        let Some(input) = &mut self.input else {
            std::thread::sleep(longest.unwrap_or_default());
            return Ok(Vec::new());
        };
        let timeout = longest.map_or(PollTimeout::NONE, |longest| {
            PollTimeout::try_from(longest).unwrap_or(PollTimeout::MAX)
        });
        let mut ready = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, timeout) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => return Ok(Vec::new()),
            polled => polled.map_err(io::Error::from).map_err(failed)?,
        };
        let mut buffer = [0; 4096];
        match input.read(&mut buffer).map_err(failed)? {
            0 => {
                self.input = None;
                self.begun.push(b'\n');
            }
            count => self.begun.extend_from_slice(&buffer[..count]),
        }
        self.take_whole()
    }

    /// The numbers of all whole lines.
    fn take_whole(&mut self) -> Result<Vec<u32>, Failure> {
        let whole = self.begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let rest = self.begun.split_off(whole);
        let lines = std::mem::replace(&mut self.begun, rest);
        let too_long = (self.begun.len() > LONGEST).then_some(&self.begun[..]);
        let lines = lines.split(|byte| *byte == b'\n').chain(too_long);
        lines.map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()).map(number).collect()
    }
}

fn number(line: &[u8]) -> Result<u32, Failure> {
    let text = String::from_utf8_lossy(&line[..line.len().min(LONGEST)]);
    let number = text.parse().ok().filter(|number| *number > 0);
    number
        .ok_or_else(|| Failure::of("read standard input", format!("{text:?} is no task's number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(parts: &[&str]) -> Vec<Option<Vec<u32>>> {
        let mut numbers = Numbers { input: None, begun: Vec::new() };
        let mut take = |part: &&str| {
            numbers.begun.extend_from_slice(part.as_bytes());
            numbers.take_whole().ok()
        };
        parts.iter().map(&mut take).collect()
    }

    #[test]
    fn whole_lines_are_numbers() {
        assert_eq!(taken(&["1\n2", "3\n\n 4 \n"]), [Some(vec![1]), Some(vec![23, 4])]);
        for wrong in ["0\n", "x\n", "1 2\n", "-1\n", "4294967296\n", &"1".repeat(100)] {
            assert_eq!(taken(&[wrong]), [None], "{wrong}");
        }
    }
}
