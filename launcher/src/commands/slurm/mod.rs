//! `ckptd slurm`: a cluster of the nodes of an allocation, for one job.

mod agent;
mod allocation;
mod daemons;
mod store;

use super::{Context, restart, run};
use crate::cli::{RestartArguments, RunArguments, SlurmCommand, SlurmRunArguments, THEN_EXIT};
use crate::client::last_checkpoint::LastCheckpoint;
use crate::failure::Failure;
use crate::jobs::StateDir;
use allocation::Allocation;
use daemons::Daemons;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use store::Store;

pub fn perform(context: &Context, command: SlurmCommand) -> Result<u8, Failure> {
    match command {
        SlurmCommand::Run(arguments) => run_in_allocation(context, *arguments),
        SlurmCommand::Agent { slots } => agent::perform(context, &slots),
    }
}

/// Runs a job on the nodes of the allocation; the coordinator is here, an agent on each node.
fn run_in_allocation(context: &Context, mut arguments: SlurmRunArguments) -> Result<u8, Failure> {
    if arguments.run.detach {
        let text = "wrong usage: --detach makes no sense here: the cluster of an allocation ends with its job";
        return Err(Failure::Usage(text.to_owned()));
    }
    let allocation = Allocation::of_environment()?;
    let options = &mut arguments.run.options;
    let signal = options.checkpoint_on.unwrap_or(nix::libc::SIGUSR1);
    let last = LastCheckpoint::new(signal, options.then_exit.unwrap_or(THEN_EXIT));
    // Without a store, what is told at the end is for the job, unless it is asked for.
    if arguments.store.is_some() || options.checkpoint_on.is_some() {
        options.last = Some(last.clone());
    }
    let store = arguments.store.as_deref();
    let store = store.map(|dir| Store::of(dir, arguments.run.name.as_deref())).transpose()?;
    let folder = Folder::make(context, &allocation)?;
    let mut daemons = Daemons::start(&allocation, &folder.0)?;
    daemons.wait_for_members(&allocation, arguments.wait)?;
    let dir = folder.of_this_node();
    if store.is_some() && dir == folder.0 {
        let cause = "this is none of its nodes: call it in a script of sbatch";
        return Err(Failure::of("keep a job of an allocation", cause));
    }
    let state = StateDir::find(Some(dir.clone()))?;
    let inside = Context { state, asked_dir: Some(dir), start_agent: context.start_agent };
    let status = match store {
        Some(store) => run_from(&inside, &store, arguments.run, &last)?,
        None => run::perform(&inside, arguments.run)?,
    };
    daemons.end();
    if arguments.requeue && last.is_taken() {
        requeue(&allocation)?;
    }
    Ok(status)
}

/// Begins a job, or goes on with what the store has of it; what is left of it at a last checkpoint goes there again.
fn run_from(
    context: &Context,
    store: &Store,
    mut arguments: RunArguments,
    last: &LastCheckpoint,
) -> Result<u8, Failure> {
    let status = if store.has_job() {
        store.bring(context)?;
        let arguments = RestartArguments {
            job: store.name().to_owned(),
            checkpoint: None,
            force: false,
            file_check: None,
            detach: false,
            options: arguments.options,
        };
        restart::perform(context, &arguments)?
    } else {
        arguments.name = Some(store.name().to_owned());
        run::perform(context, arguments)?
    };
    if last.is_taken() {
        store.keep(context)?;
    } else if status == 0 {
        store.remove()?;
    }
    Ok(status)
}

/// Puts the batch job into the queue again, which ends this one.
fn requeue(allocation: &Allocation) -> Result<(), Failure> {
    let what = format!("put job {} into the queue again", allocation.job);
    let asked = Command::new("scontrol").args(["requeue", &allocation.job]).output();
    let asked = asked.map_err(|error| Failure::of(&what, error))?;
    if asked.status.success() {
        return Ok(());
    }
    Err(Failure::of(what, String::from_utf8_lossy(&asked.stderr).trim()))
}

/// A folder of this user's alone; it goes when the job has ended.
struct Folder(PathBuf);

impl Folder {
    fn make(context: &Context, allocation: &Allocation) -> Result<Self, Failure> {
        let base = match &context.asked_dir {
            Some(dir) => dir.clone(),
            None => std::env::temp_dir(),
        };
        // Several runs of one allocation are possible.
        let name = format!("ckptd-slurm-{}-{}", allocation.job, std::process::id());
        let folder = base.join(name);
        let made = private_folder(&folder);
        made.map_err(|error| Failure::of(format!("make {}", folder.display()), error))?;
        Ok(Self(folder))
    }

    /// The agent's of this machine, which images are read through; where that has none, the coordinator's.
    fn of_this_node(&self) -> PathBuf {
        let agents = std::env::var("SLURMD_NODENAME").map(|name| self.0.join(name));
        agents.ok().filter(|dir| dir.is_dir()).unwrap_or_else(|| self.0.clone())
    }
}

/// Makes a folder that must not be there yet: what lies in a folder that all may write to may be another's.
fn private_folder(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(folder)
}

/// Refuses a folder that is there already, unless it is this user's alone: where all may write, anybody could have made it.
fn must_be_private(folder: &Path) -> io::Result<()> {
    let found = folder.symlink_metadata()?;
    let is_own = found.uid() == nix::unistd::Uid::effective().as_raw();
    if found.is_dir() && is_own && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(io::Error::other("it is there already, and not this user's alone"))
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("ckptd: {} can't be removed: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_a_folder_of_ones_own_is_used() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("folder");
        private_folder(&folder).unwrap();
        must_be_private(&folder).unwrap();
        private_folder(&folder).unwrap_err();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o770)).unwrap();
        must_be_private(&folder).unwrap_err();
        let link = base.path().join("link");
        symlink(base.path(), &link).unwrap();
        must_be_private(&link).unwrap_err();
    }
}
