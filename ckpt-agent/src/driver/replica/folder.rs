//! The files of a copy.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ckpt_node::is_job_id;
pub use protocol::cluster::replica::LOG;
use protocol::cluster::replica::{JOBS, NOTE, Prefix, ReplicaOrder};
use protocol::cluster::succession::Copy;
use protocol::log_times::{Piece, TimesFile};

const NEW_LOG: &str = "cluster.log.new";

/// Jobs' files that are held open.
const MOST_OPEN: usize = 64;

/// What came of an order.
pub enum Done {
    /// What there is.
    Held {
        /// Of the log.
        log: Prefix,
        /// Of jobs' output.
        jobs: BTreeMap<String, Prefix>,
    },
    /// It is durable with the next [`Folder::sync`], if it is not yet.
    Number(u64),
    /// Nothing is left.
    Dropped,
}

/// A log that is to take another's place.
struct Anew {
    file: File,
    written: u64,
    whole: u64,
}

/// A job's output, and when it was written.
struct Output {
    file: File,
    times: TimesFile,
}

/// See the module.
pub struct Folder {
    path: PathBuf,
    log: Option<File>,
    log_is_dirty: bool,
    anew: Option<Anew>,
    jobs: BTreeMap<String, Output>,
    dirty: BTreeSet<String>,
}

/// The copy in a folder, if it is whole and can be read.
pub fn look(folder: &Path) -> Option<Copy> {
    Copy::in_folder(folder).ok().flatten()
}

/// The jobs of which a copy has output.
pub fn jobs(folder: &Path) -> Vec<String> {
    let Ok(listing) = fs::read_dir(folder.join(JOBS)) else { return Vec::new() };
    let names = listing.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| is_job_id(name)).collect()
}

/// A job's output.
pub fn job_log(folder: &Path, job: &str) -> PathBuf {
    folder.join(JOBS).join(job).join("log")
}

fn prefix(path: &Path) -> io::Result<Prefix> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Prefix::of(0, &[])),
        other => other?,
    };
    Prefix::of_file(&file, file.metadata()?.len())
}

fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn create(path: &Path, truncate: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(truncate).mode(0o600).open(path)
}

fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Another position than the coordinator thinks.
fn out_of_step(what: &str, found: u64, offset: u64) -> io::Error {
    io::Error::other(format!("{what} has {found} bytes and not {offset}"))
}

impl Folder {
    /// In that folder.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            log: None,
            log_is_dirty: false,
            anew: None,
            jobs: BTreeMap::new(),
            dirty: BTreeSet::new(),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Carries out an order.
    ///
    /// # Errors
    /// Where the disk does not allow it, or the order makes no sense.
    pub fn carry_out(&mut self, order: ReplicaOrder, body: &[u8]) -> io::Result<Done> {
        match order {
            ReplicaOrder::Hold => self.hold(),
            ReplicaOrder::File { number, file } => {
                self.replace(file.name(), body)?;
                Ok(Done::Number(number))
            }
            ReplicaOrder::Withdraw { number, file } => {
                gone(fs::remove_file(self.at(file.name())))?;
                Ok(Done::Number(number))
            }
            ReplicaOrder::Anew { number, length } => {
                let file = create(&self.at(NEW_LOG), true)?;
                self.anew = Some(Anew { file, written: 0, whole: length });
                Ok(Done::Number(number))
            }
            ReplicaOrder::Log { number, offset } => {
                self.append(offset, body)?;
                Ok(Done::Number(number))
            }
            ReplicaOrder::JobLog { number, job, offset, times } => {
                // No output may be here before the entries that it follows.
                self.sync_log()?;
                self.output(&job, offset, body, times)?;
                Ok(Done::Number(number))
            }
            ReplicaOrder::ForgetJob { number, job } => {
                self.jobs.remove(&job);
                self.dirty.remove(&job);
                if is_job_id(&job) {
                    gone(fs::remove_dir_all(self.at(JOBS).join(job)))?;
                }
                Ok(Done::Number(number))
            }
            ReplicaOrder::Whole { number, note } => {
                self.sync()?;
                self.replace(NOTE, &serde_json::to_vec(&note)?)?;
                Ok(Done::Number(number))
            }
            ReplicaOrder::Drop => {
                *self = Self::new(self.path.clone());
                gone(fs::remove_dir_all(&self.path))?;
                Ok(Done::Dropped)
            }
        }
    }

    fn hold(&mut self) -> io::Result<Done> {
        // What is there counts as durable once it is told.
        self.sync()?;
        *self = Self::new(self.path.clone());
        make(&self.path)?;
        make(&self.at(JOBS))?;
        gone(fs::remove_file(self.at(NEW_LOG)))?;
        let log = prefix(&self.at(LOG))?;
        let mut found = BTreeMap::new();
        for job in jobs(&self.path) {
            let prefix = prefix(&job_log(&self.path, &job))?;
            found.insert(job, prefix);
        }
        Ok(Done::Held { log, jobs: found })
    }

    /// Writes a small file so that it is there whole or not at all.
    fn replace(&self, name: &str, body: &[u8]) -> io::Result<()> {
        protocol::durable::replace(&self.at(name), body)
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn append(&mut self, offset: u64, body: &[u8]) -> io::Result<()> {
        if let Some(anew) = &mut self.anew {
            if anew.written != offset {
                return Err(out_of_step(NEW_LOG, anew.written, offset));
            }
            anew.file.write_all_at(body, offset)?;
            anew.written += body.len() as u64;
            if anew.written >= anew.whole {
                anew.file.sync_all()?;
                fs::rename(self.at(NEW_LOG), self.at(LOG))?;
                self.sync_folder()?;
                self.log = self.anew.take().map(|anew| anew.file);
            }
            return Ok(());
        }
        let file = match self.log.take() {
            Some(file) => file,
            None => create(&self.at(LOG), false)?,
        };
        let length = file.metadata()?.len();
        if length != offset {
            return Err(out_of_step(LOG, length, offset));
        }
        file.write_all_at(body, offset)?;
        self.log = Some(file);
        self.log_is_dirty = true;
        Ok(())
    }

    fn output(&mut self, job: &str, offset: u64, body: &[u8], times: Vec<Piece>) -> io::Result<()> {
        if !is_job_id(job) {
            return Err(io::Error::other(format!("{job:?} is no job's id")));
        }
        if !self.jobs.contains_key(job) {
            if self.jobs.len() >= MOST_OPEN {
                self.sync()?;
                self.jobs.clear();
            }
            let folder = self.at(JOBS).join(job);
            make(&folder)?;
            let file = create(&job_log(&self.path, job), false)?;
            let times = TimesFile::open(&folder, file.metadata()?.len());
            self.jobs.insert(job.to_owned(), Output { file, times });
        }
        let output = self.jobs.get_mut(job).expect("it is open by now");
        let file = &output.file;
        let length = file.metadata()?.len();
        if length < offset {
            return Err(out_of_step(job, length, offset));
        }
        if length > offset {
            file.set_len(offset)?;
            output.times.cut(offset);
        }
        file.write_all_at(body, offset)?;
        for piece in times {
            output.times.add(piece);
        }
        self.dirty.insert(job.to_owned());
        Ok(())
    }

    fn sync_log(&mut self) -> io::Result<()> {
        if let Some(log) = self.log.as_ref().filter(|_| self.log_is_dirty) {
            log.sync_data()?;
        }
        self.log_is_dirty = false;
        Ok(())
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// Where it can't.
    pub fn sync(&mut self) -> io::Result<()> {
        self.sync_log()?;
        for job in std::mem::take(&mut self.dirty) {
            if let Some(output) = self.jobs.get(&job) {
                output.file.sync_data()?;
            }
        }
        Ok(())
    }
}
