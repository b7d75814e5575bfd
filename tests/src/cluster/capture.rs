//! What goes over the network between the nodes of a cluster.

use std::io::{BufReader, Write};
use std::process::{Child, ChildStdout};

use super::{failure, hub};
use crate::job::Failure;

/// Somebody who listens at the bridge. Dropping it ends that.
pub struct Capture {
    process: Child,
    lines: BufReader<ChildStdout>,
}

/// What was seen so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Frames.
    pub frames: u64,
    /// Those with the marker in them.
    pub marked: u64,
    /// Packets of TCP and UDP of which neither port was expected.
    pub outside: u64,
    /// The first of these.
    pub first: String,
}

impl Capture {
    pub(super) fn start(hub: u32, marker: &str, ports: &[u16]) -> Result<Self, Failure> {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        let mut command = hub::role("capture")?;
        command.args(["--hub", &hub.to_string(), "--marker", marker, "--ports", &ports.join(",")]);
        let (process, mut lines) = hub::start(&mut command)?;
        hub::expect(&mut lines, "ready")?;
        Ok(Self { process, lines })
    }

    /// What was seen so far.
    ///
    /// # Errors
    /// When it has ended.
    pub fn seen(&mut self) -> Result<Seen, Failure> {
        let input = self.process.stdin.as_mut().ok_or(Failure("it has ended".into()))?;
        input.write_all(b"\n").map_err(failure("ask what was seen"))?;
        let line = hub::expect(&mut self.lines, "seen")?;
        let mut words = line.splitn(4, ' ');
        let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let (frames, marked, outside) = (number(), number(), number());
        Ok(Seen { frames, marked, outside, first: words.next().unwrap_or_default().to_owned() })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // It ends with its input.
        let _ = self.process.wait();
    }
}
