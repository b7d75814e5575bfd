//! The coordinator of the demonstration, and what is asked of it.

use super::apart;
use super::error::DemoError;
use crate::cluster::listing::{list, number, word};
use crate::cluster::{Cluster, coordinator_folder};
use protocol::cluster::client::Ask;
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where it is.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Its folder in that of the demonstration.
const FOLDER: &str = "head";
/// Its log there.
const LOG: &str = "coordinator.log";
/// How long a machine may be silent before it counts as lost.
pub const GRACE: &str = "2";
/// The longest line of its that is read, in bytes.
const MAX_LINE: u64 = 4096;

/// The coordinator.
pub struct Coordinator {
    folder: PathBuf,
    _process: Child,
}

/// Where a process of the job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// What it is called.
    pub process: String,
    /// The machine.
    pub machine: String,
    /// The machine that it believes to be on.
    pub home: String,
}

impl Coordinator {
    /// Starts it, and waits until it listens.
    ///
    /// # Errors
    /// What it says if it does not.
    pub fn start(folder: &Path) -> Result<Self, DemoError> {
        let folder = folder.join(FOLDER);
        let failed =
            |said: String| DemoError::Command { what: "start a coordinator".to_owned(), said };
        let made = std::fs::create_dir(&folder).and_then(|()| File::create(folder.join(LOG)));
        let log = made.map_err(|error| failed(error.to_string()))?;
        let mut command = apart()?;
        command.arg("--dir").arg(&folder).args(["coordinator", "--grace", GRACE]);
        command.args(["--listen", &format!("{ADDRESS}:7070")]);
        let process = command.stdout(Stdio::piped()).stderr(log).spawn();
        let mut process = process.map_err(|error| failed(error.to_string()))?;
        let mut line = String::new();
        if let Some(out) = process.stdout.take() {
            let read = BufReader::new(out.take(MAX_LINE)).read_line(&mut line);
            read.map_err(|error| failed(error.to_string()))?;
        }
        if line.contains("listens") {
            return Ok(Self { folder, _process: process });
        }
        let said = std::fs::read_to_string(folder.join(LOG)).unwrap_or_default();
        Err(failed(said.lines().last().unwrap_or("it has ended").to_owned()))
    }

    /// A token with which so many machines can join.
    ///
    /// # Errors
    /// Where it is refused.
    pub fn token(&self, machines: usize) -> Result<String, DemoError> {
        let mut command = apart()?;
        command.arg("--dir").arg(&self.folder).args(["token", "--uses", &machines.to_string()]);
        output(&mut command, "make a join token")
    }

    fn ask(&self, ask: &Ask) -> Result<Value, DemoError> {
        let cluster = Cluster::of_coordinator(&coordinator_folder(&self.folder));
        let answer = cluster.and_then(|cluster| cluster.listing("ask it", ask));
        answer.map_err(|failure| DemoError::Command {
            what: "ask the coordinator".to_owned(),
            said: cause(&failure.to_string()).to_owned(),
        })
    }

    /// How many members are there.
    ///
    /// # Errors
    /// Where there is no answer.
    pub fn members(&self) -> Result<usize, DemoError> {
        let nodes = self.ask(&Ask::Nodes)?;
        let nodes = nodes.as_array().map_or(&[][..], Vec::as_slice);
        Ok(nodes.iter().filter(|node| word(node, "state") == "alive").count())
    }

    /// How the job is.
    ///
    /// # Errors
    /// Where there is no answer.
    pub fn job(&self, name: &str) -> Result<Status, DemoError> {
        self.ask(&Ask::Status { job: Some(name.to_owned()) }).map(Status)
    }
}

/// What `ckptd status --json` tells of the job.
pub struct Status(Value);

impl Status {
    /// Where its processes are.
    pub fn places(&self) -> Vec<Place> {
        let of = |process: &Value| Place {
            process: word(process, "name"),
            machine: word(process, "node"),
            home: word(process, "home"),
        };
        list(&self.0, "processes").iter().map(of).collect()
    }

    /// Milliseconds from the loss of a machine until all ran again, once they do.
    pub fn recovered_ms(&self) -> Option<u64> {
        let last = list(&self.0, "rollbacks").last()?;
        Some(number(last, "running_ms")?.saturating_sub(number(last, "lost_at_ms")?))
    }

    /// Bytes of the newest checkpoint, how long the job stood still for it in microseconds, and on how many machines each
    /// image is.
    pub fn checkpoint(&self) -> Option<(u64, u64, u64)> {
        let newest = list(&self.0, "checkpoints").last()?;
        let bytes = number(newest.get("summary")?, "bytes")?;
        Some((bytes, number(newest, "pause_us")?, number(newest, "copies")?))
    }
}

/// What a command prints, which must succeed.
///
/// # Errors
/// With what it says.
pub fn output(command: &mut Command, what: &str) -> Result<String, DemoError> {
    let failed = |said: String| DemoError::Command { what: what.to_owned(), said };
    let done: io::Result<_> = command.output();
    let done = done.map_err(|error| failed(error.to_string()))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned());
    }
    Err(failed(cause(String::from_utf8_lossy(&done.stderr).trim()).to_owned()))
}

/// What a command of ckptd's says of its failure, to stand within what is said of another one.
fn cause(said: &str) -> &str {
    let said = said.strip_prefix("ckptd: ").unwrap_or(said);
    said.strip_prefix("failed to ").unwrap_or(said)
}
