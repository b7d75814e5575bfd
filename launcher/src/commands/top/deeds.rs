//! What is done from the screen: the command that does it, in a process of its own, so that what it says does not come between
//! what is drawn.

use super::view::Deed;
use crate::interrupts::Interrupts;
use crate::last_line::last_line;
use crate::progress::VARIABLE;
use crate::tables::printable;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;

impl Deed {
    /// While it is done.
    pub fn name(&self) -> String {
        match self {
            Self::Checkpoint { job } => format!("a checkpoint of {job}"),
            Self::Leave { node } => format!("the departure of {node}"),
        }
    }

    fn words(&self) -> [&str; 3] {
        match self {
            Self::Checkpoint { job } => ["checkpoint", "--", job],
            Self::Leave { node } => ["leave", "--", node],
        }
    }

    /// Begins it; it goes on if this process ends. What it has come to is told.
    ///
    /// # Errors
    /// Where there can be no other process or thread.
    pub fn begin(
        &self,
        dir: Option<&Path>,
        interrupts: &Interrupts,
        tell: Sender<(Self, String)>,
    ) -> io::Result<()> {
        let said = tempfile::tempfile()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("ckptd");
        if let Some(dir) = dir {
            command.arg("--dir").arg(dir);
        }
        command.args(self.words()).env(VARIABLE, "none").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.try_clone()?);
        let mut child = interrupts.spawn(&mut command)?;
        let deed = self.clone();
        let wait = move || {
            let reason = wait(&mut child, said).unwrap_or_else(|error| Some(error.to_string()));
            let name = deed.name();
            let text = match reason {
                None => format!("{name}: done"),
                Some(reason) => format!("{name}: {reason}"),
            };
            // Where nobody looks any more, nobody is told.
            let _ = tell.send((deed, text));
        };
        std::thread::Builder::new().name("deed".to_owned()).spawn(wait).map(drop)
    }
}

/// Waits for a command; what it has said last, if it has failed.
fn wait(child: &mut Child, said: File) -> io::Result<Option<String>> {
    if child.wait()?.success() {
        return Ok(None);
    }
    let last = last_line(said).unwrap_or_else(|| "it has failed".to_owned());
    Ok(Some(printable(&last)))
}
