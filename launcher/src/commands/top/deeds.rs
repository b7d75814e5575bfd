//! What is done from the screen: the command that does it, in a process of its own, so that what it says does not come between
//! what is drawn.

use super::view::Deed;
use crate::interrupts::Interrupts;
use crate::tables::printable;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;

/// The most that is read of what a command says, in bytes.
const MOST_SAID: u64 = 64 << 10;

impl Deed {
    /// While it is done.
    pub fn name(&self) -> String {
        match self {
            Self::Checkpoint { job } => format!("a checkpoint of {job}"),
            Self::Leave { node } => format!("the departure of {node}"),
        }
    }

    /// Whether it is meant.
    pub fn question(&self) -> String {
        match self {
            Self::Checkpoint { job } => format!("Take a checkpoint of {job}? y/n"),
            Self::Leave { node } => {
                format!("{node} is about to go: what runs there moves away. Announce that? y/n")
            }
        }
    }

    fn words(&self) -> [&str; 2] {
        match self {
            Self::Checkpoint { job } => ["checkpoint", job],
            Self::Leave { node } => ["leave", node],
        }
    }

    /// Begins it. What it has come to is told.
    ///
    /// # Errors
    /// Where there can be no other process or thread.
    pub fn begin(
        &self,
        dir: Option<&Path>,
        interrupts: &Interrupts,
        tell: Sender<String>,
    ) -> io::Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        if let Some(dir) = dir {
            command.arg("--dir").arg(dir);
        }
        command.args(self.words());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = interrupts.spawn(&mut command)?;
        let name = self.name();
        let wait = move || {
            let said = wait(&mut child).unwrap_or_else(|error| Some(error.to_string()));
            let text = match said {
                None => format!("{name}: done"),
                Some(reason) => format!("{name}: {reason}"),
            };
            // Where nobody looks any more, nobody is told.
            let _ = tell.send(text);
        };
        std::thread::Builder::new().name("deed".to_owned()).spawn(wait).map(drop)
    }
}

/// Waits for a command; what it has said last, if it has failed.
fn wait(child: &mut Child) -> io::Result<Option<String>> {
    let mut said = Vec::new();
    if let Some(mut stderr) = child.stderr.take() {
        Read::by_ref(&mut stderr).take(MOST_SAID).read_to_end(&mut said)?;
        // It must not wait for a reader.
        io::copy(&mut stderr, &mut io::sink())?;
    }
    let status = child.wait()?;
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it has failed");
    let last = printable(last.strip_prefix("ckptd: ").unwrap_or(last));
    Ok((!status.success()).then_some(last))
}
