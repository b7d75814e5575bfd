//! What serves one instance on this node: its processes, its files, descriptors and tasks.

use std::collections::BTreeSet;
use std::path::PathBuf;

use ckpt_node::Record;
use protocol::cluster::agent::RelaySide;
use protocol::cluster::image::Efforts;
use tokio::task::{AbortHandle, JoinHandle};

use super::shell_end::ShellEnd;
use crate::driver::absent::Absent;
use crate::driver::console::ConsoleHandle;
use crate::driver::folders::RECORD;
use crate::driver::instance::{Instance, Started};
use crate::driver::relay::RelayHandle;

/// Name of the init's socket.
pub const SOCKET: &str = "init.sock";

/// What serves an instance. Dropped, all of it ends; the instance's processes live on.
pub struct Served {
    /// Its processes.
    pub instance: Instance,
    /// Its folder.
    pub folder: PathBuf,
    /// Its init, as this machine numbers it; 0: not known yet.
    pub init: i32,
    /// Its descriptors, until they are tied to what carries them.
    pub untied: Option<Started>,
    /// The job's console, if it is here.
    pub console: Option<ConsoleHandle>,
    /// Its sides of relays.
    pub relays: Vec<RelayHandle>,
    /// Those of them that bring output of the job to its console.
    pub sinks: BTreeSet<RelaySide>,
    /// The way to the remote shell that started it.
    pub shell: Option<ShellEnd>,
    /// Its connections whose peers have departed.
    pub absent: Absent,
    /// Looks whether it only waits.
    pub rest: Option<Watch>,
    /// What its processes had done when it went on after a checkpoint.
    pub efforts: Option<JoinHandle<Efforts>>,
    /// Copies its image.
    pub copying: Option<AbortHandle>,
}

/// A task that ends when this is dropped.
#[derive(Debug)]
pub struct Watch(pub JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Served {
    /// Of an instance of which nothing is there yet.
    #[must_use]
    pub fn new(instance: Instance, folder: PathBuf) -> Self {
        Self {
            instance,
            folder,
            init: 0,
            untied: None,
            console: None,
            relays: Vec::new(),
            sinks: BTreeSet::new(),
            shell: None,
            absent: Absent::default(),
            rest: None,
            efforts: None,
            copying: None,
        }
    }

    /// Writes down what a later agent must know.
    ///
    /// # Errors
    /// As open(2), write(2).
    pub fn write_record(&self, record: &Record) -> std::io::Result<()> {
        let text = serde_json::to_vec(record)?;
        let draft = self.folder.join("instance.json.tmp");
        std::fs::write(&draft, text)?;
        std::fs::rename(draft, self.folder.join(RECORD))
    }

    /// Without them, no later agent takes the folder for that of an instance that lives.
    pub fn remove_record(&self) {
        for name in [RECORD, SOCKET] {
            let _ = std::fs::remove_file(self.folder.join(name));
        }
    }
}
