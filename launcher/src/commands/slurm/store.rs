//! A folder of the shared file system, where a job is kept between two allocations.

use crate::cli::{ExportArguments, ImportArguments, RecipientArguments};
use crate::commands::import::Brought;
use crate::commands::{Context, export, import};
use crate::failure::Failure;
use crate::jobs::check_name;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use protocol::agent::CheckpointNumber;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// How archives end.
const ENDING: &str = "ckptd";

/// Where a job is kept.
#[derive(Debug)]
pub struct Store {
    archive: PathBuf,
    name: String,
    /// Held as long as the job runs: two of one name would overwrite each other's.
    _lock: Option<Flock<File>>,
}

impl Store {
    /// Of a job of that name, else called as Slurm calls it.
    ///
    /// # Errors
    /// Where the job has no fit name, or the folder can't be written to.
    pub fn of(dir: &Path, name: Option<&str>) -> Result<Self, Failure> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let name = name.map(str::to_owned).or_else(|| variable("SLURM_JOB_NAME"));
        let name = name.unwrap_or_default();
        // Each task of an array is a job of its own.
        let name = match variable("SLURM_ARRAY_TASK_ID") {
            Some(task) => format!("{name}-{task}"),
            None => name,
        };
        if let Err(error) = check_name(&name) {
            return Err(Failure::Usage(format!(
                "wrong usage: {name:?}: {error}: with --store, give the job a --name"
            )));
        }
        if std::env::var_os("SLURMD_NODENAME").is_none() {
            let cause = "this is none of its nodes: call it in a script of sbatch";
            return Err(Failure::of("keep a job of an allocation", cause));
        }
        let what = format!("keep jobs in {}", dir.display());
        let archive = dir.join(format!("{name}.{ENDING}"));
        // Told before the job begins, not when its machines are about to go.
        let lock = archive.with_extension(format!("{ENDING}.lock"));
        let file = File::options().create(true).truncate(false).write(true).open(lock);
        let file = file.map_err(|error| Failure::of(&what, error))?;
        let lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Some(lock),
            Err((_, Errno::EWOULDBLOCK)) => {
                return Err(Failure::of(what, format!("another job that is called {name} runs")));
            }
            // Not every shared file system has locks.
            Err(_) => None,
        };
        Ok(Self { archive, name, _lock: lock })
    }

    /// What the job is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is something to go on from.
    ///
    /// # Errors
    /// Where the folder does not tell: a job that began anew would overwrite it.
    pub fn has_job(&self) -> Result<bool, Failure> {
        let archive = self.archive.display();
        self.archive.try_exists().map_err(|error| Failure::of(format!("look for {archive}"), error))
    }

    /// Brings the job into the cluster of this allocation.
    ///
    /// # Errors
    /// Archives that are not taken.
    pub fn bring(&self, context: &Context) -> Result<(), Failure> {
        let arguments = ImportArguments {
            file: self.archive.clone(),
            name: Some(self.name.clone()),
            user: None,
            identity: Vec::new(),
        };
        match import::bring(context, &arguments)? {
            Brought::Job { checkpoint, .. } => {
                let archive = self.archive.display();
                eprintln!("ckptd: the job goes on from checkpoint {checkpoint}, kept in {archive}");
                Ok(())
            }
            Brought::Interrupted(signal) => {
                Err(Failure::of(format!("bring {}", self.name), format!("signal {signal} came")))
            }
        }
    }

    /// Keeps a checkpoint of the job, its newest unless one is named: the one kept before stays until this one is whole and
    /// durable.
    ///
    /// # Errors
    /// Full disks and their like.
    pub fn keep(&self, context: &Context, only: Option<CheckpointNumber>) -> Result<(), Failure> {
        let what = format!("keep {} in {}", self.name, self.archive.display());
        let failed = |error: io::Error| Failure::of(&what, error);
        let draft = self.archive.with_extension(format!("{ENDING}.{}", std::process::id()));
        let arguments = ExportArguments {
            job: only.map_or(self.name.clone(), |only| format!("{}@{only}", self.name)),
            file: draft.clone(),
            recipients: RecipientArguments::default(),
        };
        let status = export::perform(context, &arguments)?;
        if status != 0 {
            return Err(Failure::of(what, format!("the export ended with {status}")));
        }
        fs::rename(&draft, &self.archive).map_err(failed)?;
        let folder = self.archive.parent().unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
        eprintln!("ckptd: the job is kept in {}", self.archive.display());
        Ok(())
    }

    /// The job has come to its end: nothing is left to go on from.
    ///
    /// # Errors
    /// Where it can't be removed.
    pub fn remove(&self) -> Result<(), Failure> {
        match fs::remove_file(&self.archive) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Failure::of(format!("remove {}", self.archive.display()), error))
            }
            _ => Ok(()),
        }
    }
}
