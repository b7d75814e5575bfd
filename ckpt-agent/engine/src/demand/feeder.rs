//! The init's side of the pager: it keeps a copy of each descriptor of missing pages, so that these stay missing if the
//! pager dies.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::super::error::{EngineError, Result};
use super::super::graph::Pid;
use super::super::job_init::Channel;
use super::super::sys::poll::poll_one;
use super::super::sys::userfault::MissingPages;
use super::{FromPager, ToPager};

/// The way to the pager, and copies of what it has.
#[derive(Debug)]
pub struct Feeder {
    channel: Channel,
    copies: BTreeMap<u32, OwnedFd>,
    next: u32,
    is_over: bool,
}

/// What the pager has told.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing of importance.
    Nothing,
    /// So many bytes are filled.
    Progress(u64),
    /// All are.
    Filled,
    /// It can't go on, or has died: the job must end, and why.
    Failed(String),
}

impl Feeder {
    /// Of a checkpoint, over the socket.
    ///
    /// # Errors
    /// The pager has ended.
    pub fn begin(socket: UnixStream, job_dir: &Path, checkpoint: u64) -> Result<Self> {
        let feeder = Self {
            channel: Channel::new(socket),
            copies: BTreeMap::new(),
            next: 0,
            is_over: false,
        };
        feeder.tell(&ToPager::Open { job_dir: job_dir.to_owned(), checkpoint }, &[])?;
        Ok(feeder)
    }

    /// Hands over the memory of a process.
    ///
    /// # Errors
    /// The pager has ended.
    pub fn watch(
        &mut self,
        pid: Pid,
        missing: &MissingPages,
        process: OwnedFd,
        areas: Vec<(u64, u64)>,
    ) -> Result<()> {
        let copy = || {
            missing.try_clone().map_err(|error| EngineError::system("dup", "a userfaultfd", error))
        };
        let id = self.next;
        self.next += 1;
        self.copies.insert(id, copy()?);
        self.tell(&ToPager::Watch { id, pid, areas }, &[copy()?, process])
    }

    /// Whether any memory is watched.
    pub fn has_any(&self) -> bool {
        self.next > 0
    }

    /// Waits until the pager has all that it needs. To be called before the job runs.
    ///
    /// # Errors
    /// Damage, and whatever else it has met.
    pub fn ready(&mut self) -> Result<()> {
        self.tell(&ToPager::All, &[])?;
        loop {
            let (told, _) = self.channel.receive().map_err(|_| has_died())?;
            match told {
                FromPager::Ready => return Ok(()),
                FromPager::Failed(why) => return Err(EngineError::Filling(why)),
                FromPager::Child { .. }
                | FromPager::Done { .. }
                | FromPager::Progress { .. }
                | FromPager::Filled => {}
            }
        }
    }

    /// The job runs.
    pub fn go(&self) {
        // If it has died, that is heard.
        let _ = self.tell(&ToPager::Go, &[]);
    }

    /// Why the pager has failed, if it has said so.
    pub fn failure(&mut self) -> Option<EngineError> {
        while self.has_something() {
            match self.hear() {
                Heard::Failed(why) => return Some(EngineError::Filling(why)),
                Heard::Filled => return None,
                Heard::Nothing | Heard::Progress(_) => {}
            }
        }
        None
    }

    /// Whether there is something to hear.
    pub fn has_something(&self) -> bool {
        !self.is_over
            && poll_one(self, libc::POLLIN, Duration::ZERO).is_ok_and(|events| events != 0)
    }

    /// Whether nothing comes any more.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Takes the next message, and does what it asks for.
    pub fn hear(&mut self) -> Heard {
        let (told, mut descriptors) = match self.channel.receive::<FromPager>() {
            Ok(received) => received,
            Err(_) => {
                self.is_over = true;
                return Heard::Failed(has_died().to_string());
            }
        };
        match told {
            FromPager::Ready => Heard::Nothing,
            FromPager::Child { id } => {
                self.copies.extend(descriptors.pop().map(|descriptor| (id, descriptor)));
                Heard::Nothing
            }
            FromPager::Done { id } => {
                self.copies.remove(&id);
                // If it has died, that is heard.
                let _ = self.tell(&ToPager::Closed { id }, &[]);
                Heard::Nothing
            }
            FromPager::Progress { bytes } => Heard::Progress(bytes),
            FromPager::Filled => {
                self.is_over = true;
                Heard::Filled
            }
            FromPager::Failed(why) => {
                self.is_over = true;
                Heard::Failed(why)
            }
        }
    }

    fn tell(&self, told: &ToPager, descriptors: &[OwnedFd]) -> Result<()> {
        self.channel.send(told, descriptors).map_err(|_| has_died())
    }
}

fn has_died() -> EngineError {
    EngineError::Filling("the process that fills the job's memory has ended".into())
}

impl AsFd for Feeder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.socket().as_fd()
    }
}
